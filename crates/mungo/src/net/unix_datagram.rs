//! Packets on this machine.

use super::descriptor::{Descriptor, Side};
use super::macros::{descriptor_api, timeouts_api};
use crate::reason::WaitReason;
use crate::sched::threads::blocking::blocking;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{SocketAddr, UnixDatagram as Std};
use std::path::Path;

/// The line that examples have in common: two sockets that are connected.
macro_rules! example {
    () => {
        "# let (client, server) = mungo::net::UnixDatagram::pair()?;"
    };
}

/// A socket for packets on this machine, as [`std::os::unix::net::UnixDatagram`]; a goroutine that has to wait lets
/// others run.
///
/// ```
/// use mungo::net::UnixDatagram;
///
/// let (a, b) = UnixDatagram::pair()?;
/// let receiver = mungo::go(move || {
///     let mut packet = [0; 16];
///     b.recv(&mut packet).map(|n| packet[..n].to_vec())
/// });
/// a.send(b"hello")?;
/// assert_eq!(receiver.join().unwrap()?, b"hello");
/// # std::io::Result::Ok(())
/// ```
pub struct UnixDatagram {
    pub(crate) inner: Descriptor<Std>,
}

impl UnixDatagram {
    /// Makes a socket at `path`, which must not exist.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-datagram-{}", std::process::id()));
    /// let server = mungo::net::UnixDatagram::bind(&path)?;
    /// let client = mungo::net::UnixDatagram::unbound()?;
    /// client.send_to(b"hello", &path)?;
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        blocking(|| Std::bind(path)).map(UnixDatagram::from)
    }

    /// Makes a socket at a socket address.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-datagram-addr-{}", std::process::id()));
    /// let address = std::os::unix::net::SocketAddr::from_pathname(&path)?;
    /// let server = mungo::net::UnixDatagram::bind_addr(&address)?;
    /// assert_eq!(server.local_addr()?.as_pathname(), Some(path.as_path()));
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        blocking(|| Std::bind_addr(addr)).map(UnixDatagram::from)
    }

    /// Makes a socket without an address.
    ///
    /// ```
    /// let socket = mungo::net::UnixDatagram::unbound()?;
    /// assert!(socket.local_addr()?.is_unnamed());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn unbound() -> io::Result<UnixDatagram> {
        Std::unbound().map(UnixDatagram::from)
    }

    /// Makes two sockets that are connected.
    ///
    /// ```
    /// let (a, b) = mungo::net::UnixDatagram::pair()?;
    /// a.send(b"one")?;
    /// a.send(b"two")?;
    /// let mut packet = [0; 16];
    /// assert_eq!(b.recv(&mut packet)?, 3, "packets stay apart");
    /// assert_eq!(&packet[..3], b"one");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        Std::pair().map(|(a, b)| (a.into(), b.into()))
    }

    /// Sets the peer for [`send`](Self::send) and [`recv`](Self::recv).
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-datagram-connect-{}", std::process::id()));
    /// let server = mungo::net::UnixDatagram::bind(&path)?;
    /// let client = mungo::net::UnixDatagram::unbound()?;
    /// client.connect(&path)?;
    /// client.send(b"hello")?;
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        blocking(|| self.inner.io().connect(path))
    }

    /// Sets the peer for [`send`](Self::send) and [`recv`](Self::recv).
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-datagram-connect-addr-{}", std::process::id()));
    /// let server = mungo::net::UnixDatagram::bind(&path)?;
    /// let client = mungo::net::UnixDatagram::unbound()?;
    /// client.connect_addr(&server.local_addr()?)?;
    /// assert_eq!(client.peer_addr()?.as_pathname(), Some(path.as_path()));
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        blocking(|| self.inner.io().connect_addr(addr))
    }

    /// Waits for a packet; returns its length, as far as it fits, and where it comes from.
    ///
    /// ```
    #[doc = example!()]
    /// client.send(b"hello")?;
    /// let (n, from) = server.recv_from(&mut [0; 16])?;
    /// assert!(n == 5 && from.is_unnamed());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.recv_from(buf))
    }

    /// Waits for a packet; returns its length, as far as it fits.
    ///
    /// ```
    #[doc = example!()]
    /// client.send(b"hello")?;
    /// let mut packet = [0; 16];
    /// let n = server.recv(&mut packet)?;
    /// assert_eq!(&packet[..n], b"hello");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.recv(buf))
    }

    /// Sends a packet to the socket at `path`.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-datagram-send-to-{}", std::process::id()));
    /// let server = mungo::net::UnixDatagram::bind(&path)?;
    /// assert_eq!(mungo::net::UnixDatagram::unbound()?.send_to(b"hello", &path)?, 5);
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.inner.run_without_sign(Side::Write, WaitReason::NetWrite, |io| io.send_to(buf, path))
    }

    /// Sends a packet to a socket address.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-datagram-send-to-addr-{}", std::process::id()));
    /// let server = mungo::net::UnixDatagram::bind(&path)?;
    /// let client = mungo::net::UnixDatagram::unbound()?;
    /// assert_eq!(client.send_to_addr(b"hello", &server.local_addr()?)?, 5);
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.inner.run_without_sign(Side::Write, WaitReason::NetWrite, |io| io.send_to_addr(buf, addr))
    }

    /// Sends a packet to the peer.
    ///
    /// ```
    #[doc = example!()]
    /// assert_eq!(client.send(b"hello")?, 5);
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.inner.run(Side::Write, WaitReason::NetWrite, |io| io.send(buf))
    }

    /// Returns the address of this socket.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.local_addr()?.is_unnamed(), "one of a pair");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().local_addr()
    }

    /// Returns the address of the peer.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.peer_addr()?.is_unnamed(), "the other one of the pair");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().peer_addr()
    }

    /// Ends one direction or both.
    ///
    /// ```
    #[doc = example!()]
    /// client.shutdown(std::net::Shutdown::Write)?;
    /// assert_eq!(client.send(b"too late").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    /// assert_eq!(server.send(b"the other way")?, 13);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.inner.io().shutdown(how)
    }
}

descriptor_api!(UnixDatagram, std::os::unix::net::UnixDatagram, example!());
timeouts_api!(UnixDatagram, example!());
