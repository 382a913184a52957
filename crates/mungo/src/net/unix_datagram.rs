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
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        blocking(|| Std::bind_addr(addr)).map(UnixDatagram::from)
    }

    /// Makes a socket without an address.
    pub fn unbound() -> io::Result<UnixDatagram> {
        Std::unbound().map(UnixDatagram::from)
    }

    /// Makes two sockets that are connected.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        Std::pair().map(|(a, b)| (a.into(), b.into()))
    }

    /// Sets the peer for [`send`](Self::send) and [`recv`](Self::recv).
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        blocking(|| self.inner.io().connect(path))
    }

    /// Sets the peer for [`send`](Self::send) and [`recv`](Self::recv).
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        blocking(|| self.inner.io().connect_addr(addr))
    }

    /// Waits for a packet; returns its length, as far as it fits, and where it comes from.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.recv_from(buf))
    }

    /// Waits for a packet; returns its length, as far as it fits.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.recv(buf))
    }

    /// Sends a packet to the socket at `path`.
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.inner.run_without_sign(Side::Write, WaitReason::NetWrite, |io| io.send_to(buf, path))
    }

    /// Sends a packet to a socket address.
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.inner.run_without_sign(Side::Write, WaitReason::NetWrite, |io| io.send_to_addr(buf, addr))
    }

    /// Sends a packet to the peer.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.inner.run(Side::Write, WaitReason::NetWrite, |io| io.send(buf))
    }

    /// Returns the address of this socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().local_addr()
    }

    /// Returns the address of the peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().peer_addr()
    }

    /// Ends one direction or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.inner.io().shutdown(how)
    }
}

descriptor_api!(UnixDatagram, std::os::unix::net::UnixDatagram, example!());
timeouts_api!(UnixDatagram, example!());
