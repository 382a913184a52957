//! Any descriptor that the kernel can watch.

use super::descriptor::{Descriptor, Side, set_nonblocking};
use crate::sched::reason::WaitReason;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

/// Any descriptor that the kernel can watch: a pipe, a terminal, a timerfd, a socket of a kind that std does not know.
///
/// ```
/// use mungo::net::Pollable;
/// use std::io::{Read, Write};
///
/// let (reader, mut writer) = std::io::pipe()?;
/// let mut reader = Pollable::new(reader)?;
/// let child = mungo::go(move || {
///     let mut text = String::new();
///     reader.read_to_string(&mut text).map(|_| text)
/// });
/// writer.write_all(b"hello")?;
/// drop(writer);
/// assert_eq!(child.join().unwrap()?, "hello");
/// # std::io::Result::Ok(())
/// ```
pub struct Pollable<T: AsFd> {
    inner: Descriptor<T>,
}

impl<T: AsFd> Pollable<T> {
    /// Takes over `io`, whose descriptor goes to non-blocking mode.
    ///
    /// Files on a disk cannot be watched, since the kernel takes them for ready at all times: that is an error, and
    /// [`mungo::fs`](crate::fs) is for them.
    ///
    /// ```
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// let e = mungo::net::Pollable::new(file).unwrap_err();
    /// assert!(e.to_string().contains("mungo::fs"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new(io: T) -> io::Result<Pollable<T>> {
        let inner = Descriptor::new(io);
        inner.register().map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM) => {
                let why = "the kernel cannot watch this kind of file; for files on a disk there is mungo::fs";
                io::Error::new(io::ErrorKind::Unsupported, why)
            }
            _ => e,
        })?;
        set_nonblocking(inner.as_fd(), true)?;
        Ok(Pollable { inner })
    }

    /// Waits until there is something to read, or an error, or the end.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let reader = mungo::net::Pollable::new(reader)?;
    /// mungo::go(move || writer.write_all(b"x"));
    /// reader.readable()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn readable(&self) -> io::Result<()> {
        let events = libc::POLLIN | libc::POLLRDHUP;
        self.inner.run(Side::Read, WaitReason::NetRead, |io| is_ready(io.as_fd(), events))
    }

    /// Waits until there is room to write, or an error.
    ///
    /// ```
    /// let (_reader, writer) = std::io::pipe()?;
    /// mungo::net::Pollable::new(writer)?.writable()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn writable(&self) -> io::Result<()> {
        self.inner.run(Side::Write, WaitReason::NetWrite, |io| is_ready(io.as_fd(), libc::POLLOUT))
    }

    /// Calls `op` until it returns something else than [`WouldBlock`](io::ErrorKind::WouldBlock), and waits for
    /// something to read in between.
    ///
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let reader = mungo::net::Pollable::new(reader)?;
    /// mungo::go(move || writer.write_all(b"x"));
    /// assert_eq!(reader.read_with(|mut pipe| pipe.read(&mut [0; 8]))?, 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn read_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.inner.run(Side::Read, WaitReason::NetRead, op)
    }

    /// Calls `op` until it returns something else than [`WouldBlock`](io::ErrorKind::WouldBlock), and waits for
    /// room to write in between.
    pub fn write_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.inner.run(Side::Write, WaitReason::NetWrite, op)
    }

    /// From `deadline` on all that reads fails with [`TimedOut`](io::ErrorKind::TimedOut), what waits already too.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = mungo::net::Pollable::new(reader)?;
    /// reader.set_read_deadline(Some(Instant::now() + Duration::from_millis(1)));
    /// assert_eq!(reader.readable().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_read_deadline(&self, deadline: Option<Instant>) {
        self.inner.set_deadline(Side::Read, deadline);
    }

    /// From `deadline` on all that writes fails with [`TimedOut`](io::ErrorKind::TimedOut), what waits already too.
    pub fn set_write_deadline(&self, deadline: Option<Instant>) {
        self.inner.set_deadline(Side::Write, deadline);
    }

    /// Closes the descriptor now. What waits fails, and so does all that comes later.
    pub fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    /// The value inside.
    pub fn get_ref(&self) -> &T {
        self.inner.io()
    }

    /// The value inside, in non-blocking mode still.
    pub fn into_inner(self) -> T {
        self.inner.into_io()
    }
}

/// A look, without waiting.
fn is_ready(fd: BorrowedFd<'_>, events: libc::c_short) -> io::Result<()> {
    let mut fd = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one descriptor, which outlives the call.
    match unsafe { libc::poll(&mut fd, 1, 0) } {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        1.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl<T: AsFd> Read for &Pollable<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_with(|mut io| io.read(buf))
    }
}

impl<T: AsFd> Read for Pollable<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl<T: AsFd> Write for &Pollable<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_with(|mut io| io.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_with(|mut io| io.flush())
    }
}

impl<T: AsFd> Write for Pollable<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl<T: AsFd> AsFd for Pollable<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Pollable<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Pollable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pollable").field(self.get_ref()).finish()
    }
}
