//! A connection on this machine.

use super::descriptor::{Descriptor, Side};
use super::macros::{by_reference, descriptor_api, timeouts_api};
use crate::reason::WaitReason;
use crate::sched::threads::blocking::blocking;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{SocketAddr, UnixStream as Std};
use std::path::Path;

/// The line that examples have in common: two ends of a connection.
macro_rules! example {
    () => {
        "# let (mut client, mut server) = mungo::net::UnixStream::pair()?;"
    };
}

/// A connection on this machine, as [`std::os::unix::net::UnixStream`]; a goroutine that has to wait lets others run.
///
/// ```
/// use mungo::net::UnixStream;
/// use std::io::{Read, Write};
///
/// let (mut a, mut b) = UnixStream::pair()?;
/// let reader = mungo::go(move || {
///     let mut text = String::new();
///     b.read_to_string(&mut text).map(|_| text)
/// });
/// a.write_all(b"hello")?;
/// drop(a);
/// assert_eq!(reader.join().unwrap()?, "hello");
/// # std::io::Result::Ok(())
/// ```
pub struct UnixStream {
    pub(crate) inner: Descriptor<Std>,
}

impl UnixStream {
    /// Connects to the socket at `path`.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-stream-{}", std::process::id()));
    /// let listener = mungo::net::UnixListener::bind(&path)?;
    /// mungo::net::UnixStream::connect(&path)?;
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        // It blocks while the listener has too many waiting connections; the kernel gives no sign when that is over.
        blocking(|| Std::connect(path)).map(UnixStream::from)
    }

    /// Connects to a socket address.
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// let name = SocketAddr::from_abstract_name(format!("mungo-doc-stream-{}", std::process::id()))?;
    /// let listener = mungo::net::UnixListener::bind_addr(&name)?;
    /// mungo::net::UnixStream::connect_addr(&name)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        blocking(|| Std::connect_addr(addr)).map(UnixStream::from)
    }

    /// Makes two ends of a connection.
    ///
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// let (mut a, mut b) = mungo::net::UnixStream::pair()?;
    /// a.write_all(b"x")?;
    /// assert_eq!(b.read(&mut [0; 8])?, 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        Std::pair().map(|(a, b)| (a.into(), b.into()))
    }

    /// Returns the address of this end.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.local_addr()?.is_unnamed(), "one of a pair");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().local_addr()
    }

    /// Returns the address of the other end.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.peer_addr()?.is_unnamed(), "the other one of the pair");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().peer_addr()
    }

    fn read_op(&self, _: usize, op: impl FnMut(&Std) -> io::Result<usize>) -> io::Result<usize> {
        self.inner.run(Side::Read, WaitReason::NetRead, op)
    }

    /// Ends one direction or both. A read that waits gets the end of the stream, a write an error.
    ///
    /// ```
    #[doc = example!()]
    /// use std::io::Read;
    ///
    /// client.shutdown(std::net::Shutdown::Write)?;
    /// assert_eq!(server.read(&mut [0])?, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.inner.io().shutdown(how)
    }
}

descriptor_api!(UnixStream, std::os::unix::net::UnixStream, example!());
timeouts_api!(UnixStream, example!());
impl Read for &UnixStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_op(buf.len(), |mut io| io.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_op(bufs.iter().map(|b| b.len()).sum(), |mut io| io.read_vectored(bufs))
    }
}

impl Write for &UnixStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.inner.run(Side::Write, WaitReason::NetWrite, |mut io| io.write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.run(Side::Write, WaitReason::NetWrite, |mut io| io.write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

by_reference!(UnixStream);
