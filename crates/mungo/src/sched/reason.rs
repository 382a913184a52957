//! Why a goroutine waits: a closed list, one entry per blocking place, read by dumps, traces and metrics.

/// The place where a goroutine is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl WaitReason {
    const ALL: [WaitReason; 20] = [
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
    ];

    pub(crate) fn from_u8(n: u8) -> WaitReason {
        Self::ALL.get(n as usize).copied().unwrap_or(WaitReason::None)
    }

    /// A word or two, as dumps print it.
    pub fn as_str(self) -> &'static str {
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
        }
    }
}

impl std::fmt::Display for WaitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
