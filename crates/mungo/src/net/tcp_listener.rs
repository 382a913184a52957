//! A TCP socket that takes connections.

use super::descriptor::{Descriptor, Side};
use super::macros::{descriptor_api, incoming_api};
use super::{TcpStream, addr};
use crate::reason::WaitReason;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The line that examples have in common.
macro_rules! example {
    () => {
        "# let client = mungo::net::TcpListener::bind(\"127.0.0.1:0\")?;"
    };
}

/// A TCP socket that takes connections, as [`std::net::TcpListener`]; a goroutine that has to wait lets others run.
///
/// ```
/// use mungo::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = mungo::go(move || {
///     for stream in listener.incoming().take(3) {
///         let mut stream = stream?;
///         mungo::go(move || std::io::copy(&mut &stream, &mut &stream));
///     }
///     std::io::Result::Ok(())
/// });
/// for _ in 0..3 {
///     TcpStream::connect(address)?;
/// }
/// server.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
pub struct TcpListener {
    pub(crate) inner: Descriptor<std::net::TcpListener>,
}

impl TcpListener {
    /// Listens at the first address that is free.
    ///
    /// ```
    /// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let listener = addr::for_each_addr(addr, |addr| std::net::TcpListener::bind(addr))?;
        addr::listen(listener.as_fd())?;
        Ok(listener.into())
    }

    /// Waits for a connection.
    ///
    /// If the process is out of descriptors this fails at once, as in std: a loop should then wait a little, as
    /// [`incoming`](Self::incoming) does. A connection that its peer has given up meanwhile is passed over.
    ///
    /// ```
    /// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
    /// let client = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// let (_stream, peer) = listener.accept()?;
    /// assert_eq!(peer, client.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, peer) = self.inner.run(Side::Read, WaitReason::NetAccept, accept_one)?;
        Ok((TcpStream { inner: Descriptor::new(fd.into()) }, peer))
    }

    /// Lets [`accept`](Self::accept) fail from `deadline` on with [`TimedOut`](io::ErrorKind::TimedOut), one that
    /// waits already too. `None`: there is no deadline.
    ///
    /// ```
    /// use std::io::ErrorKind::TimedOut;
    /// use std::time::{Duration, Instant};
    ///
    /// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_deadline(Some(Instant::now() + Duration::from_millis(2)));
    /// assert_eq!(listener.accept().unwrap_err().kind(), TimedOut);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.inner.set_deadline(Side::Read, deadline);
    }

    /// Returns the address that it listens at.
    ///
    /// ```
    #[doc = example!()]
    /// assert!(client.local_addr()?.ip().is_loopback());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().local_addr()
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

/// Takes a connection that is there, and passes over those that their peers have given up.
pub(super) fn accept_one(listener: &std::net::TcpListener) -> io::Result<(OwnedFd, SocketAddr)> {
    loop {
        match addr::accept(listener.as_fd()) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            accepted => return accepted,
        }
    }
}

descriptor_api!(TcpListener, std::net::TcpListener, example!());
incoming_api!(TcpListener, TcpStream, Incoming);
