//! A TCP connection.

use super::addr;
use super::descriptor::{Descriptor, Side};
use super::macros::{by_reference, descriptor_api, timeouts_api};
use crate::reason::WaitReason;
use crate::sys::clock;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

/// The lines that examples have in common: two ends of a connection.
macro_rules! example {
    () => {
        "# let listener = mungo::net::TcpListener::bind(\"127.0.0.1:0\")?;\n\
         # let mut client = mungo::net::TcpStream::connect(listener.local_addr()?)?;\n\
         # let (mut server, _) = listener.accept()?;"
    };
}

/// A TCP connection, as [`std::net::TcpStream`]; a goroutine that has to wait lets others run.
///
/// ```
/// use mungo::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = mungo::go(move || {
///     let (mut stream, _peer) = listener.accept()?;
///     let mut request = String::new();
///     stream.read_to_string(&mut request)?;
///     stream.write_all(request.to_uppercase().as_bytes())
/// });
/// let mut stream = TcpStream::connect(address)?;
/// stream.write_all(b"hello")?;
/// stream.shutdown(std::net::Shutdown::Write)?;
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer)?;
/// assert_eq!(answer, "HELLO");
/// server.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
pub struct TcpStream {
    pub(crate) inner: Descriptor<std::net::TcpStream>,
}

impl TcpStream {
    /// Connects to the first address that answers.
    ///
    /// ```
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let address = server.local_addr()?;
    /// let client = mungo::go(move || mungo::net::TcpStream::connect(address));
    /// assert_eq!(client.join().unwrap()?.peer_addr()?, address);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        addr::for_each_addr(addr, |addr| TcpStream::connect_until(addr, u64::MAX))
    }

    /// Connects within `timeout`, or fails with [`TimedOut`](io::ErrorKind::TimedOut).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let address = server.local_addr()?;
    /// let stream = mungo::net::TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    /// assert_eq!(stream.peer_addr()?, address);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a time-out of zero to connect"));
        }
        TcpStream::connect_until(addr, clock::after_ns(timeout))
    }

    fn connect_until(addr: &SocketAddr, deadline_ns: u64) -> io::Result<TcpStream> {
        TcpStream::connect_by(addr, |stream| {
            stream.inner.run_until(Side::Write, WaitReason::NetConnect, Some(deadline_ns), finish_connect)
        })
    }

    /// Begins to connect; `finish` waits for the end, if there is something to wait for.
    pub(super) fn connect_by(
        addr: &SocketAddr,
        finish: impl FnOnce(&TcpStream) -> io::Result<()>,
    ) -> io::Result<TcpStream> {
        let socket = addr::tcp_socket(addr)?;
        let begun = match addr::connect(socket.as_fd(), addr) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => return Err(e),
            begun => begun,
        };
        let stream = TcpStream { inner: Descriptor::new(std::net::TcpStream::from(socket)) };
        if begun.is_err() {
            finish(&stream)?;
        }
        Ok(stream)
    }

    /// Returns the address of the other end.
    ///
    /// ```
    #[doc = example!()]
    /// assert_eq!(client.peer_addr()?, server.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().peer_addr()
    }

    /// Returns the address of this end.
    ///
    /// ```
    #[doc = example!()]
    /// assert_eq!(client.local_addr()?, server.peer_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().local_addr()
    }

    /// Reads without taking the bytes out.
    ///
    /// ```
    #[doc = example!()]
    /// use std::io::{Read, Write};
    ///
    /// client.write_all(b"x")?;
    /// let mut byte = [0];
    /// assert_eq!(server.peek(&mut byte)?, 1);
    /// assert_eq!(server.read(&mut byte)?, 1);
    /// assert_eq!(byte, *b"x");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.peek(buf))
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

    fn read_op(
        &self,
        len: usize,
        op: impl FnMut(&std::net::TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.inner.read_stream(len, op)
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// ```
    #[doc = example!()]
    /// client.set_nodelay(true)?;
    /// assert!(client.nodelay()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.inner.io().set_nodelay(nodelay)
    }

    /// Returns what [`set_nodelay`](Self::set_nodelay) set.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(!client.nodelay()?, "unless it was set");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.io().nodelay()
    }

    /// Sets how many routers a packet may pass (`IP_TTL`).
    ///
    /// ```
    #[doc = example!()]
    /// client.set_ttl(64)?;
    /// assert_eq!(client.ttl()?, 64);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.io().set_ttl(ttl)
    }

    /// Returns what [`set_ttl`](Self::set_ttl) set.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.ttl()? > 0, "what the system sets");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn ttl(&self) -> io::Result<u32> {
        self.inner.io().ttl()
    }
}

descriptor_api!(TcpStream, std::net::TcpStream, example!());
timeouts_api!(TcpStream, example!());
impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_op(buf.len(), |mut io| io.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_op(bufs.iter().map(|b| b.len()).sum(), |mut io| io.read_vectored(bufs))
    }
}

impl Write for &TcpStream {
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

by_reference!(TcpStream);

/// Returns `Ok` if a connection that was begun is there by now.
pub(super) fn finish_connect(stream: &std::net::TcpStream) -> io::Result<()> {
    if let Some(e) = stream.take_error()? {
        return Err(e);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
        Err(e) => Err(e),
    }
}
