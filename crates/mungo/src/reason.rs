//! Why a goroutine waits: a closed list, one entry per blocking place, read by dumps, traces and metrics; and what it
//! waits for ([`Awaited`]).

/// The place where a goroutine is blocked.
///
/// ```
/// use mungo::WaitReason;
/// use mungo::debug::{State, dump};
///
/// let (_tx, rx) = mungo::chan::bounded::<()>(0);
/// mungo::go(move || rx.recv());
/// while dump().goroutines()[0].state != State::Waiting(WaitReason::ChanRecv) {}
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitReason {
    /// It does not wait.
    None = 0,
    /// [`park`](crate::park) or [`park_timeout`](crate::park_timeout).
    Park,
    /// [`JoinHandle::join`](crate::JoinHandle::join).
    Join,
    /// The end of a [`scope`](crate::scope()).
    Scope,
    /// [`sleep`](crate::sleep).
    Sleep,
    /// [`Mutex::lock`](crate::sync::Mutex).
    Mutex,
    /// [`RwLock::read`](crate::sync::RwLock).
    RwLockRead,
    /// [`RwLock::write`](crate::sync::RwLock).
    RwLockWrite,
    /// [`Condvar::wait`](crate::sync::Condvar::wait).
    Condvar,
    /// [`WaitGroup::wait`](crate::sync::WaitGroup::wait).
    WaitGroup,
    /// [`Once`](crate::sync::Once), [`OnceLock`](crate::sync::OnceLock) or [`LazyLock`](crate::sync::LazyLock).
    Once,
    /// [`Semaphore::acquire`](crate::sync::Semaphore::acquire).
    Semaphore,
    /// [`Barrier::wait`](crate::sync::Barrier::wait).
    Barrier,
    /// A send to a [channel](crate::chan) that is full, or has no receiver waiting.
    ChanSend,
    /// A receive from a [channel](crate::chan) that is empty.
    ChanRecv,
    /// [`select!`](crate::chan::select!) or [`Select`](crate::chan::Select).
    Select,
    /// A read from a [`net`](crate::net) type, or a [`Pollable`](crate::net::Pollable).
    NetRead,
    /// A write to a [`net`](crate::net) type, or a [`Pollable`](crate::net::Pollable).
    NetWrite,
    /// An `accept`, as of [`TcpListener`](crate::net::TcpListener::accept).
    NetAccept,
    /// [`TcpStream::connect`](crate::net::TcpStream::connect).
    NetConnect,
    /// [`block_on`](crate::block_on()): the future is not ready.
    BlockOn,
    /// A futex: a lock, a condition or a channel of std, or of another crate, with `mungo-interpose`.
    Futex,
    /// [`Child::wait`](crate::process::Child::wait): a child process has not ended.
    Child,
}

impl WaitReason {
    pub(crate) const ALL: [WaitReason; 23] = [
        WaitReason::None,
        WaitReason::Park,
        WaitReason::Join,
        WaitReason::Scope,
        WaitReason::Sleep,
        WaitReason::Mutex,
        WaitReason::RwLockRead,
        WaitReason::RwLockWrite,
        WaitReason::Condvar,
        WaitReason::WaitGroup,
        WaitReason::Once,
        WaitReason::Semaphore,
        WaitReason::Barrier,
        WaitReason::ChanSend,
        WaitReason::ChanRecv,
        WaitReason::Select,
        WaitReason::NetRead,
        WaitReason::NetWrite,
        WaitReason::NetAccept,
        WaitReason::NetConnect,
        WaitReason::BlockOn,
        WaitReason::Futex,
        WaitReason::Child,
    ];

    pub(crate) fn from_u8(n: u8) -> WaitReason {
        Self::ALL.get(n as usize).copied().unwrap_or(WaitReason::None)
    }

    /// Returns a word or two, as dumps print it.
    ///
    /// ```
    /// assert_eq!(mungo::WaitReason::ChanRecv.as_str(), "chan receive");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitReason::None => "none",
            WaitReason::Park => "park",
            WaitReason::Join => "join",
            WaitReason::Scope => "end of scope",
            WaitReason::Sleep => "sleep",
            WaitReason::Mutex => "mutex",
            WaitReason::RwLockRead => "rwlock read",
            WaitReason::RwLockWrite => "rwlock write",
            WaitReason::Condvar => "condvar",
            WaitReason::WaitGroup => "wait group",
            WaitReason::Once => "once",
            WaitReason::Semaphore => "semaphore",
            WaitReason::Barrier => "barrier",
            WaitReason::ChanSend => "chan send",
            WaitReason::ChanRecv => "chan receive",
            WaitReason::Select => "select",
            WaitReason::NetRead => "net read",
            WaitReason::NetWrite => "net write",
            WaitReason::NetAccept => "net accept",
            WaitReason::NetConnect => "net connect",
            WaitReason::BlockOn => "block on",
            WaitReason::Futex => "futex",
            WaitReason::Child => "child process",
        }
    }
}

/// What a goroutine waits for: the reason, and the object that will end the wait, as a number. In the G it is
/// `G::reason` and `G::waits_on`, written when it parks and valid until it goes on.
///
/// | reason                             | the number                                                              |
/// |------------------------------------|-------------------------------------------------------------------------|
/// | `Mutex`, `RwLock*`, `Once`         | address of the `Owner` (`sched/engine/inherit.rs`), which knows the holder |
/// | `Join`                             | address of the G whose end it waits for                                 |
/// | `Scope`                            | address of the `ScopeData`, which the Gs of the scope have too          |
/// | `ChanSend`, `ChanRecv`             | address of the channel; 0: nothing can ever come                        |
/// | `Select`                           | address of a [`Several`] on its stack                                   |
/// | `WaitGroup`                        | address that all handles of the group hold                              |
/// | `Condvar`, `Semaphore`, `Barrier`  | address of the object                                                   |
/// | `Futex`                            | address of the word                                                     |
/// | `Net*`, `Child`                    | [`of_descriptor`](Self::of_descriptor)                                  |
/// | `Sleep`                            | the time in ns at which it ends, without its lowest bit                 |
/// | `Park`, `BlockOn`                  | 0                                                                       |
///
/// All are even; [`TIMED`](Self::TIMED) is added if the clock or a context may end the wait too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) reason: WaitReason,
    pub(crate) on: usize,
}

impl Awaited {
    /// A bit: the clock or a context may end the wait.
    pub(crate) const TIMED: usize = 1;

    /// Returns the number of a file descriptor.
    pub(crate) fn of_descriptor(fd: i32) -> usize {
        (fd as u32 as usize + 1) << 1
    }

    /// Returns the file descriptor, if the wait is for one.
    pub(crate) fn descriptor(self) -> Option<u32> {
        match self.reason {
            WaitReason::NetRead
            | WaitReason::NetWrite
            | WaitReason::NetAccept
            | WaitReason::NetConnect
            | WaitReason::Child => (self.object() >> 1).checked_sub(1).map(|fd| fd as u32),
            _ => None,
        }
    }

    /// Returns the number of the object.
    pub(crate) fn object(self) -> usize {
        self.on & !Awaited::TIMED
    }

    /// Returns whether the clock or a context may end the wait.
    pub(crate) fn is_timed(self) -> bool {
        self.on & Awaited::TIMED != 0
    }

    /// Returns the same wait, which the clock or a context may end.
    #[inline]
    pub(crate) fn timed(self) -> Awaited {
        Awaited { on: self.on | Awaited::TIMED, ..self }
    }
}

impl WaitReason {
    /// Returns a wait for this reason, for the object with this number.
    #[inline]
    pub(crate) fn on(self, on: usize) -> Awaited {
        debug_assert!(on & Awaited::TIMED == 0, "objects have even addresses");
        Awaited { reason: self, on }
    }
}

/// Several objects, of which each may end a wait. It lies on the frame of the goroutine that waits.
pub(crate) struct Several {
    of: *const (),
    each: unsafe fn(*const (), &mut dyn FnMut(usize, bool)),
}

impl Several {
    /// Makes it of `of`, whose objects `each` passes on: their addresses, and whether it is to send.
    #[inline]
    pub(crate) fn new<T>(of: &T, each: unsafe fn(*const (), &mut dyn FnMut(usize, bool))) -> Several {
        Several { of: std::ptr::from_ref(of).cast(), each }
    }

    /// Passes the address of each object on, and whether the wait is to send. Does not lock or allocate.
    ///
    /// # Safety
    /// The frame with the objects is alive: its goroutine is held while it waits.
    pub(crate) unsafe fn each(&self, mut f: impl FnMut(usize, bool)) {
        // SAFETY: by the caller; `new` was given both together.
        unsafe { (self.each)(self.of, &mut f) }
    }
}

impl std::fmt::Display for WaitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
