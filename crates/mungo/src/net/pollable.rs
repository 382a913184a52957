//! Any descriptor that the kernel can watch.

use super::descriptor::{Descriptor, Side, set_nonblocking};
use crate::reason::WaitReason;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::process::Stdio;
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
    pub(super) inner: Descriptor<T>,
    /// Whether the descriptor may be in blocking mode: an operation is tried when the kernel says that it is ready.
    keeps_mode: bool,
}

/// Bytes that a pipe takes without blocking when it is ready to be written to. Sockets take more.
const WRITE_LIMIT: usize = libc::PIPE_BUF;

/// What the kernel reports of a descriptor that can be read, or has come to its end.
const READ_EVENTS: libc::c_short = libc::POLLIN | libc::POLLRDHUP;

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
        let this = Pollable { keeps_mode: false, ..Pollable::keeping_mode(io)? };
        set_nonblocking(this.as_fd(), true)?;
        Ok(this)
    }

    /// Takes over `io`, and leaves its descriptor in the mode that it is in. The mode belongs to all that share a
    /// terminal or a pipe: the shell, a parent, a child. They would fail if it changed.
    ///
    /// Here each operation asks the kernel whether it is ready before it is tried, which costs a system call more, and
    /// a write takes at most 4 KiB at once. If another process reads the same bytes first, the operation blocks the
    /// thread, as any call that was not announced.
    ///
    /// ```
    /// use mungo::net::Pollable;
    /// use std::fs::File;
    /// use std::io::{Read, Write};
    /// use std::os::fd::AsFd;
    ///
    /// let (reader, mut writer) = std::io::pipe()?;
    /// // A second descriptor of the same pipe, as one of `std::io::stdin()` would be.
    /// let mut shared = Pollable::keeping_mode(File::from(reader.as_fd().try_clone_to_owned()?))?;
    /// mungo::go(move || writer.write_all(b"for the first"));
    /// let mut bytes = [0; 32];
    /// assert_eq!(shared.read(&mut bytes)?, 13);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn keeping_mode(io: T) -> io::Result<Pollable<T>> {
        let inner = Descriptor::new(io);
        inner.register().map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM) => {
                let why = "the kernel cannot watch this kind of file; for files on a disk there is mungo::fs";
                io::Error::new(io::ErrorKind::Unsupported, why)
            }
            _ => e,
        })?;
        Ok(Pollable { inner, keeps_mode: true })
    }

    /// Returns `WouldBlock` where a try might block the thread.
    pub(super) fn check(&self, side: Side) -> io::Result<()> {
        match side {
            _ if !self.keeps_mode => Ok(()),
            Side::Read => is_ready(self.as_fd(), READ_EVENTS),
            Side::Write => is_ready(self.as_fd(), libc::POLLOUT),
        }
    }

    /// Returns what of `bytes` can be written without blocking when the descriptor is ready.
    pub(super) fn fitting<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if self.keeps_mode { &bytes[..bytes.len().min(WRITE_LIMIT)] } else { bytes }
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
        self.inner.run(Side::Read, WaitReason::NetRead, |io| is_ready(io.as_fd(), READ_EVENTS))
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
    pub fn read_with<R>(&self, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| self.check(Side::Read).and_then(|()| op(io)))
    }

    /// Calls `op` until it returns something else than [`WouldBlock`](io::ErrorKind::WouldBlock), and waits for
    /// room to write in between.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// let (_reader, writer) = std::io::pipe()?;
    /// let writer = mungo::net::Pollable::new(writer)?;
    /// assert_eq!(writer.write_with(|mut pipe| pipe.write(b"x"))?, 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn write_with<R>(&self, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.inner.run(Side::Write, WaitReason::NetWrite, |io| self.check(Side::Write).and_then(|()| op(io)))
    }

    /// Lets all reads fail from `deadline` on with [`TimedOut`](io::ErrorKind::TimedOut), those that wait already too.
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

    /// Lets writes fail from `deadline` on with [`TimedOut`](io::ErrorKind::TimedOut), those that wait already too.
    ///
    /// ```
    /// use std::io::Write;
    /// use std::time::{Duration, Instant};
    ///
    /// let (_reader, writer) = std::io::pipe()?;
    /// let mut writer = mungo::net::Pollable::new(writer)?;
    /// writer.set_write_deadline(Some(Instant::now() + Duration::from_millis(1)));
    /// // More than the pipe takes without a reader.
    /// assert_eq!(writer.write_all(&[0; 4 << 20]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_write_deadline(&self, deadline: Option<Instant>) {
        self.inner.set_deadline(Side::Write, deadline);
    }

    /// Closes the descriptor now. Operations that wait fail, and so do all later ones.
    ///
    /// ```
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = mungo::net::Pollable::new(reader)?;
    /// reader.close()?;
    /// assert!(reader.readable().is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    /// Returns the value inside.
    ///
    /// ```
    /// use std::os::fd::AsRawFd;
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let number = reader.as_raw_fd();
    /// assert_eq!(mungo::net::Pollable::new(reader)?.get_ref().as_raw_fd(), number);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn get_ref(&self) -> &T {
        self.inner.io()
    }

    /// Returns the value inside. It is still in non-blocking mode, unless made by [`keeping_mode`](Self::keeping_mode).
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let mut reader: std::io::PipeReader = mungo::net::Pollable::new(reader)?.into_inner();
    /// assert_eq!(reader.read(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn into_inner(self) -> T {
        self.inner.into_io()
    }
}

/// Returns `Ok` if the descriptor is ready for `events`, else `WouldBlock`. Does not wait.
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
        let buf = self.fitting(buf);
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

impl<T: AsFd + Into<Stdio>> From<Pollable<T>> for Stdio {
    /// Gives the descriptor to a child process, in blocking mode, which programs expect.
    ///
    /// ```
    /// use mungo::process::Command;
    /// use std::process::Stdio;
    ///
    /// let mut first = Command::new("echo").arg("one two").stdout(Stdio::piped()).spawn()?;
    /// let pipe = first.stdout.take().unwrap();
    /// let counted = Command::new("wc").arg("-w").stdin(Stdio::from(pipe)).output()?;
    /// assert_eq!(counted.stdout.trim_ascii(), b"2");
    /// assert!(first.wait()?.success());
    /// # std::io::Result::Ok(())
    /// ```
    fn from(this: Pollable<T>) -> Stdio {
        if !this.keeps_mode {
            // It does not fail for a descriptor that it worked for before.
            _ = set_nonblocking(this.as_fd(), false);
        }
        this.into_inner().into()
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
