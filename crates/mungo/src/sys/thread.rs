//! Starts a thread without the process's allocator.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::io;
use std::mem::MaybeUninit;

/// The body of a thread.
pub(crate) type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a detached thread with a stack of `stack_size` bytes.
///
/// WHY NOT `std::thread`: it allocates, by the `#[global_allocator]`, whose lock may be held by a goroutine that waits
/// for the very thread that is to be started. This needs mappings, and the C library's `calloc` for the thread's table
/// of thread-locals.
pub(crate) fn start(stack_size: usize, body: Body, data: *mut c_void) -> io::Result<()> {
    let check = |error: c_int| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: initialised first, destroyed last. The caller knows that the body may have the data.
    unsafe {
        check(libc::pthread_attr_init(attributes))?;
        let mut thread = MaybeUninit::uninit();
        let started = check(libc::pthread_attr_setstacksize(attributes, stack_size))
            .and_then(|()| check(libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED)))
            .and_then(|()| check(own(|| libc::pthread_create(thread.as_mut_ptr(), attributes, body, data))));
        libc::pthread_attr_destroy(attributes);
        started
    }
}

/// Leaves all signals to other threads.
pub(crate) fn block_signals() {
    // SAFETY: a mask of this thread.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

thread_local! {
    /// Depth of [`own`] on this thread or goroutine.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// Calls `f`, which starts a thread for the runtime: one that is never made a goroutine, whatever the program asks of
/// `pthread_create`.
pub(crate) fn own<T>(f: impl FnOnce() -> T) -> T {
    struct Depth;
    impl Drop for Depth {
        fn drop(&mut self) {
            OWN.set(OWN.get() - 1);
        }
    }
    OWN.set(OWN.get() + 1);
    let _depth = Depth;
    f()
}

/// Returns whether the caller is about to start a thread for the runtime.
pub(crate) fn is_own() -> bool {
    OWN.try_with(Cell::get).is_ok_and(|depth| depth != 0)
}

/// Names the calling thread, as far as the kernel has room (15 bytes).
pub(crate) fn set_name(name: std::fmt::Arguments<'_>) {
    let mut text = Text::<16>::new();
    _ = text.write_fmt(name);
    text.bytes[15] = 0;
    // SAFETY: the name ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, text.bytes.as_ptr()) };
}

/// A text that needs no allocation; cut off if it is too long.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(N - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        if n == s.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Release},
    };

    static DONE: AtomicU32 = AtomicU32::new(0);

    extern "C" fn body(data: *mut c_void) -> *mut c_void {
        set_name(format_args!("mungo-{}-{}", "a-long-name", 7));
        let mut name = [0u8; 16];
        // SAFETY: the kernel writes 16 bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        assert_eq!(&name, b"mungo-a-long-na\0");
        DONE.store(data.addr() as u32, Release);
        std::ptr::null_mut()
    }

    #[test]
    fn a_thread_gets_its_data_and_name() {
        start(256 << 10, body, std::ptr::without_provenance_mut(7)).unwrap();
        while DONE.load(Acquire) != 7 {
            std::thread::yield_now();
        }
        assert!(start(1, body, std::ptr::null_mut()).is_err(), "too small a stack");
    }

    #[test]
    fn a_text_is_cut_off_where_the_room_ends() {
        let mut text = Text::<8>::new();
        assert!(write!(text, "{}", 1234).is_ok() && write!(text, "{}", 567_890).is_err());
        assert_eq!(text.as_bytes(), b"12345678");
    }
}
