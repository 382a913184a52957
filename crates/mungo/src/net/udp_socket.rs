//! A UDP socket.

use super::addr;
use super::descriptor::{Descriptor, Side};
use super::macros::{descriptor_api, timeouts_api};
use crate::reason::WaitReason;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The lines that examples have in common: two sockets.
macro_rules! example {
    () => {
        "# let client = mungo::net::UdpSocket::bind(\"127.0.0.1:0\")?;\n\
         # let server = mungo::net::UdpSocket::bind(\"127.0.0.1:0\")?;"
    };
}

/// A UDP socket, as [`std::net::UdpSocket`]; a goroutine that has to wait lets others run.
///
/// ```
/// use mungo::net::UdpSocket;
///
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let address = server.local_addr()?;
/// mungo::go(move || {
///     let mut packet = [0; 100];
///     let (n, from) = server.recv_from(&mut packet)?;
///     server.send_to(&packet[..n], from)
/// });
/// let client = UdpSocket::bind("127.0.0.1:0")?;
/// client.connect(address)?;
/// client.send(b"ping")?;
/// let mut answer = [0; 100];
/// let n = client.recv(&mut answer)?;
/// assert_eq!(&answer[..n], b"ping");
/// # std::io::Result::Ok(())
/// ```
pub struct UdpSocket {
    pub(crate) inner: Descriptor<std::net::UdpSocket>,
}

impl UdpSocket {
    /// Makes a socket at the first address that is free.
    ///
    /// ```
    /// let socket = mungo::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        addr::for_each_addr(addr, |addr| std::net::UdpSocket::bind(addr)).map(UdpSocket::from)
    }

    /// Sets the peer for [`send`](Self::send) and [`recv`](Self::recv).
    ///
    /// ```
    #[doc = example!()]
    /// client.connect(server.local_addr()?)?;
    /// assert_eq!(client.peer_addr()?, server.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        addr::for_each_addr(addr, |addr| self.inner.io().connect(addr))
    }

    /// Waits for a packet; returns its length, as far as it fits, and where it comes from.
    ///
    /// ```
    #[doc = example!()]
    /// client.send_to(b"hello", server.local_addr()?)?;
    /// let mut packet = [0; 16];
    /// assert_eq!(server.recv_from(&mut packet)?, (5, client.local_addr()?));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.recv_from(buf))
    }

    /// As [`recv_from`](Self::recv_from), and leaves the packet there.
    ///
    /// ```
    #[doc = example!()]
    /// client.send_to(b"hello", server.local_addr()?)?;
    /// let mut packet = [0; 16];
    /// assert_eq!(server.peek_from(&mut packet)?.0, 5);
    /// assert_eq!(server.recv_from(&mut packet)?.0, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.peek_from(buf))
    }

    /// Sends a packet to the first address that `addr` stands for.
    ///
    /// ```
    #[doc = example!()]
    /// assert_eq!(client.send_to(b"hello", server.local_addr()?)?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send_to(&self, buf: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        match super::lookup::resolve(addr)?.first() {
            Some(addr) => self.inner.run(Side::Write, WaitReason::NetWrite, |io| io.send_to(buf, addr)),
            None => Err(addr::no_address()),
        }
    }

    /// Waits for a packet from the peer that [`connect`](Self::connect) set.
    ///
    /// ```
    #[doc = example!()]
    /// server.connect(client.local_addr()?)?;
    /// client.send_to(b"hello", server.local_addr()?)?;
    /// assert_eq!(server.recv(&mut [0; 16])?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.recv(buf))
    }

    /// As [`recv`](Self::recv), and leaves the packet there.
    ///
    /// ```
    #[doc = example!()]
    /// server.connect(client.local_addr()?)?;
    /// client.send_to(b"hello", server.local_addr()?)?;
    /// assert_eq!(server.peek(&mut [0; 16])?, 5);
    /// assert_eq!(server.recv(&mut [0; 16])?, 5, "it was still there");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.run(Side::Read, WaitReason::NetRead, |io| io.peek(buf))
    }

    /// Sends a packet to the peer that [`connect`](Self::connect) set.
    ///
    /// ```
    #[doc = example!()]
    /// client.connect(server.local_addr()?)?;
    /// assert_eq!(client.send(b"hello")?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.inner.run(Side::Write, WaitReason::NetWrite, |io| io.send(buf))
    }

    /// Returns the address of this socket.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.local_addr()?.ip().is_loopback());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().local_addr()
    }

    /// Returns the peer that [`connect`](Self::connect) set.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.peer_addr().is_err(), "it has none yet");
    /// client.connect(server.local_addr()?)?;
    /// assert_eq!(client.peer_addr()?, server.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().peer_addr()
    }

    /// Sets whether packets may go to a broadcast address (`SO_BROADCAST`).
    ///
    /// ```
    #[doc = example!()]
    /// client.set_broadcast(true)?;
    /// assert!(client.broadcast()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.inner.io().set_broadcast(broadcast)
    }

    /// Returns what [`set_broadcast`](Self::set_broadcast) set.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(!client.broadcast()?, "unless it was set");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn broadcast(&self) -> io::Result<bool> {
        self.inner.io().broadcast()
    }

    /// Sets how many routers a packet may pass (`IP_TTL`).
    ///
    /// ```
    #[doc = example!()]
    /// client.set_ttl(3)?;
    /// assert_eq!(client.ttl()?, 3);
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

    /// Sets whether packets to a multicast group come back to this machine (`IP_MULTICAST_LOOP`).
    ///
    /// ```
    #[doc = example!()]
    /// client.set_multicast_loop_v4(false)?;
    /// assert!(!client.multicast_loop_v4()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.inner.io().set_multicast_loop_v4(on)
    }

    /// Returns what [`set_multicast_loop_v4`](Self::set_multicast_loop_v4) set.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.multicast_loop_v4()?, "unless it was set");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.inner.io().multicast_loop_v4()
    }

    /// Sets how many routers a packet to a multicast group may pass (`IP_MULTICAST_TTL`).
    ///
    /// ```
    #[doc = example!()]
    /// client.set_multicast_ttl_v4(2)?;
    /// assert_eq!(client.multicast_ttl_v4()?, 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.inner.io().set_multicast_ttl_v4(ttl)
    }

    /// Returns what [`set_multicast_ttl_v4`](Self::set_multicast_ttl_v4) set.
    ///
    /// ```
    #[doc = example!()]
    /// assert_eq!(client.multicast_ttl_v4()?, 1, "unless it was set");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.inner.io().multicast_ttl_v4()
    }

    /// Sets whether packets to a multicast group come back to this machine (`IPV6_MULTICAST_LOOP`).
    ///
    /// ```
    /// // Where this machine has IPv6.
    /// if let Ok(socket) = mungo::net::UdpSocket::bind("[::1]:0") {
    ///     socket.set_multicast_loop_v6(false)?;
    ///     assert!(!socket.multicast_loop_v6()?);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.inner.io().set_multicast_loop_v6(on)
    }

    /// Returns what [`set_multicast_loop_v6`](Self::set_multicast_loop_v6) set.
    ///
    /// ```
    /// // Where this machine has IPv6.
    /// if let Ok(socket) = mungo::net::UdpSocket::bind("[::1]:0") {
    ///     assert!(socket.multicast_loop_v6()?, "unless it was set");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.inner.io().multicast_loop_v6()
    }

    /// Joins a multicast group at an interface, which is given by its address.
    ///
    /// ```
    #[doc = example!()]
    /// use std::net::Ipv4Addr;
    ///
    /// let group = Ipv4Addr::new(239, 255, 0, 1);
    /// server.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    /// assert!(server.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).is_err(), "it is a member already");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.inner.io().join_multicast_v4(group, interface)
    }

    /// Leaves a multicast group.
    ///
    /// ```
    #[doc = example!()]
    /// use std::net::Ipv4Addr;
    ///
    /// let group = Ipv4Addr::new(239, 255, 0, 2);
    /// server.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    /// server.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    /// assert!(server.leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST).is_err(), "it is no member any more");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.inner.io().leave_multicast_v4(group, interface)
    }

    /// Joins a multicast group at an interface, which is given by its number.
    ///
    /// ```
    /// // Where this machine has IPv6.
    /// if let Ok(socket) = mungo::net::UdpSocket::bind("[::1]:0") {
    ///     let group = "ff11::4d75".parse().unwrap();
    ///     socket.join_multicast_v6(&group, 0)?; // 0: the system chooses
    ///     assert!(socket.join_multicast_v6(&group, 0).is_err(), "it is a member already");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.inner.io().join_multicast_v6(group, interface)
    }

    /// Leaves a multicast group.
    ///
    /// ```
    /// // Where this machine has IPv6.
    /// if let Ok(socket) = mungo::net::UdpSocket::bind("[::1]:0") {
    ///     let group = "ff11::4d76".parse().unwrap();
    ///     socket.join_multicast_v6(&group, 0)?;
    ///     socket.leave_multicast_v6(&group, 0)?;
    ///     assert!(socket.leave_multicast_v6(&group, 0).is_err(), "it is no member any more");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.inner.io().leave_multicast_v6(group, interface)
    }
}

descriptor_api!(UdpSocket, std::net::UdpSocket, example!());
timeouts_api!(UdpSocket, example!());
