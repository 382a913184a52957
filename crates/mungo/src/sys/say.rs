//! Messages of the runtime, on stderr.
//!
//! WHY NOT `eprintln!`: it panics if no process reads any more, and it waits for a lock that a goroutine may hold,
//! perhaps one that waits for the very thread that writes the message. A test harness does not capture these messages.

use std::fmt::{Arguments, Write};

/// Writes a line to stderr, formatted as by `format!`; see [`write()`].
macro_rules! say {
    ($($message:tt)*) => {
        $crate::sys::say::write(format_args!("{}\n", format_args!($($message)*)))
    };
}
pub(crate) use say;

/// Writes to descriptor 2, past std's lock. Errors are ignored; `errno` stays. Neither allocates nor panics, as long as
/// the arguments do not: safe in a signal handler.
pub(crate) fn write(message: Arguments<'_>) {
    // SAFETY: this thread's `errno`.
    let errno = unsafe { *libc::__errno_location() };
    let mut buffer = Buffer { bytes: [0; ROOM], len: 0 };
    _ = buffer.write_fmt(message);
    buffer.flush();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Bytes that are written at once; a longer message may be cut by other writers' text.
const ROOM: usize = 1024;

struct Buffer {
    bytes: [u8; ROOM],
    len: usize,
}

impl Buffer {
    fn flush(&mut self) {
        write_all(&self.bytes[..self.len]);
        self.len = 0;
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if text.len() > ROOM - self.len {
            self.flush();
        }
        if text.len() > ROOM {
            write_all(text.as_bytes());
            return Ok(());
        }
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

fn write_all(mut rest: &[u8]) {
    while !rest.is_empty() {
        // SAFETY: the bytes outlive the call.
        let n = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(n) {
            Ok(0) => return,
            Ok(n) => rest = &rest[n..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return, // no reader is left
        }
    }
}
