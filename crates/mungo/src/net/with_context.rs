//! Sockets whose operations end when a context is done.

use super::addr::{connect_unix, first_of, unix_socket};
use super::backoff::Backoff;
use super::descriptor::{Descriptor, Side};
use super::lookup::resolve_with;
use super::tcp_listener::accept_one;
use super::tcp_stream::finish_connect;
use super::{Pollable, SocketAddr, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use crate::context::Context;
use crate::reason::WaitReason;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// A socket whose operations end when a context is done: the result of `with_context` of the types of this module.
///
/// An operation fails with the [reason](crate::context::ContextError) as its inner error, of kind
/// [`TimedOut`](io::ErrorKind::TimedOut) if the deadline has passed and [`Other`](io::ErrorKind::Other) if the context
/// was cancelled. A context that is done beats bytes that are there. **The socket stays usable**: a read that failed so
/// took nothing, a write wrote nothing, an accept took no connection. What several calls have done before, as
/// `write_all` and `read_exact` make them, is done. Time-outs and deadlines of the socket hold as well.
///
/// While an operation need not wait it costs a look at the context; if it has to wait, an entry in the context's list.
///
/// ```
/// use mungo::context::{Context, ContextError};
/// use mungo::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?)?;
/// let (server, _) = listener.accept()?;
///
/// let (ctx, cancel) = Context::background().with_cancel();
/// mungo::go(move || cancel.cancel());
/// let error = server.with_context(&ctx).read(&mut [0; 8]).unwrap_err();
/// assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&ContextError::Canceled));
///
/// client.write_all(b"still here")?;
/// assert_eq!((&server).read(&mut [0; 16])?, 10);
/// # std::io::Result::Ok(())
/// ```
pub struct WithContext<'a, S> {
    socket: &'a S,
    ctx: &'a Context,
}

impl<S> Clone for WithContext<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for WithContext<'_, S> {}

impl<S: fmt::Debug> fmt::Debug for WithContext<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithContext").field("socket", self.socket).field("ctx", self.ctx).finish()
    }
}

macro_rules! with_context {
    ($($Type:ident),*) => {$(
        impl $Type {
            /// Returns this socket with operations that end when the context is done: see [`WithContext`].
            ///
            /// ```
            /// # use mungo::{context::Context, net::UdpSocket};
            /// use std::time::Duration;
            ///
            /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(1));
            /// let socket = UdpSocket::bind("127.0.0.1:0")?;
            /// let error = socket.with_context(&ctx).recv(&mut [0; 8]).unwrap_err();
            /// assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
            /// # std::io::Result::Ok(())
            /// ```
            pub fn with_context<'a>(&'a self, ctx: &'a Context) -> WithContext<'a, $Type> {
                WithContext { socket: self, ctx }
            }
        }
    )*};
}

with_context!(TcpStream, UnixStream, TcpListener, UnixListener, UdpSocket, UnixDatagram);

macro_rules! streams {
    ($($Type:ident),*) => {$(
        impl Read for WithContext<'_, $Type> {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let inner = &self.socket.inner;
                inner.run_with(self.ctx, Side::Read, WaitReason::NetRead, |mut io| io.read(buf))
            }

            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                let inner = &self.socket.inner;
                inner.run_with(self.ctx, Side::Read, WaitReason::NetRead, |mut io| io.read_vectored(bufs))
            }
        }

        impl Write for WithContext<'_, $Type> {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                let inner = &self.socket.inner;
                inner.run_with(self.ctx, Side::Write, WaitReason::NetWrite, |mut io| io.write(buf))
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                let inner = &self.socket.inner;
                inner.run_with(self.ctx, Side::Write, WaitReason::NetWrite, |mut io| io.write_vectored(bufs))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    )*};
}

streams!(TcpStream, UnixStream);

impl<T: AsFd> Pollable<T> {
    /// Returns this with reads and writes that end when the context is done: see [`WithContext`].
    ///
    /// ```
    /// use mungo::{context::Context, net::Pollable};
    /// use std::io::Read;
    /// use std::time::Duration;
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = Pollable::new(reader)?;
    /// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(1));
    /// let error = reader.with_context(&ctx).read(&mut [0; 8]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn with_context<'a>(&'a self, ctx: &'a Context) -> WithContext<'a, Pollable<T>> {
        WithContext { socket: self, ctx }
    }
}

impl<T: AsFd> Read for WithContext<'_, Pollable<T>>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let this = self.socket;
        this.inner.run_with(self.ctx, Side::Read, WaitReason::NetRead, |mut io| {
            this.check(Side::Read)?;
            io.read(buf)
        })
    }
}

impl<T: AsFd> Write for WithContext<'_, Pollable<T>>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let this = self.socket;
        let buf = this.fitting(buf);
        this.inner.run_with(self.ctx, Side::Write, WaitReason::NetWrite, |mut io| {
            this.check(Side::Write)?;
            io.write(buf)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.socket).flush()
    }
}

impl WithContext<'_, TcpListener> {
    /// Waits for a connection, as [`TcpListener::accept`].
    ///
    /// ```
    /// use mungo::context::Context;
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
    /// mungo::go(move || cancel.cancel());
    /// assert!(listener.with_context(&ctx).accept().is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let inner = &self.socket.inner;
        let (fd, peer) = inner.run_with(self.ctx, Side::Read, WaitReason::NetAccept, accept_one)?;
        Ok((TcpStream { inner: Descriptor::new(fd.into()) }, peer))
    }
}

macro_rules! incoming_until {
    ($Listener:ident, $Stream:ident) => {
        impl<'a> WithContext<'a, $Listener> {
            /// Iterates over the connections that come, until the context is done: the loop of a server that can be
            /// stopped. Errors are treated as by the listener's own `incoming`.
            ///
            /// ```
            /// use mungo::context::Context;
            /// use mungo::net::{TcpListener, TcpStream};
            ///
            /// let listener = TcpListener::bind("127.0.0.1:0")?;
            /// let address = listener.local_addr()?;
            /// let (ctx, cancel) = Context::background().with_cancel();
            /// let server = mungo::go(move || listener.with_context(&ctx).incoming().count());
            /// TcpStream::connect(address)?;
            /// cancel.cancel();
            /// assert!(server.join().unwrap() <= 1);
            /// # std::io::Result::Ok(())
            /// ```
            pub fn incoming(&self) -> impl Iterator<Item = io::Result<$Stream>> + use<'a> {
                let (this, mut backoff) = (*self, Backoff::default());
                std::iter::from_fn(move || {
                    backoff.wait_with(this.ctx).ok()?;
                    let accepted = this.accept().map(|(stream, _)| stream);
                    if accepted.is_err() && this.ctx.is_done() {
                        return None;
                    }
                    backoff.note(&accepted);
                    Some(accepted)
                })
            }
        }
    };
}

incoming_until!(TcpListener, TcpStream);
incoming_until!(UnixListener, UnixStream);

impl WithContext<'_, UnixListener> {
    /// Waits for a connection, as [`UnixListener::accept`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UnixListener;
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-with-accept-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// mungo::go(move || cancel.cancel());
    /// assert!(listener.with_context(&ctx).accept().is_err(), "none came");
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn accept(&self) -> io::Result<(UnixStream, std::os::unix::net::SocketAddr)> {
        let inner = &self.socket.inner;
        let (stream, peer) = inner.run_with(self.ctx, Side::Read, WaitReason::NetAccept, |io| io.accept())?;
        Ok((stream.into(), peer))
    }
}

impl WithContext<'_, UdpSocket> {
    /// Receives a datagram and the address of its sender, as [`UdpSocket::recv_from`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UdpSocket;
    ///
    /// let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// a.send_to(b"hello", b.local_addr()?)?;
    /// assert_eq!(b.with_context(&ctx).recv_from(&mut [0; 16])?, (5, a.local_addr()?));
    /// cancel.cancel();
    /// assert!(b.with_context(&ctx).recv_from(&mut [0; 16]).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let inner = &self.socket.inner;
        inner.run_with(self.ctx, Side::Read, WaitReason::NetRead, |io| io.recv_from(buf))
    }

    /// Receives a datagram, as [`UdpSocket::recv`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UdpSocket;
    ///
    /// let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// b.connect(a.local_addr()?)?;
    /// a.send_to(b"hello", b.local_addr()?)?;
    /// assert_eq!(b.with_context(&ctx).recv(&mut [0; 16])?, 5);
    /// cancel.cancel();
    /// assert!(b.with_context(&ctx).recv(&mut [0; 16]).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.inner.run_with(self.ctx, Side::Read, WaitReason::NetRead, |io| io.recv(buf))
    }

    /// Sends a datagram, as [`UdpSocket::send_to`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UdpSocket;
    ///
    /// let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// assert_eq!(a.with_context(&ctx).send_to(b"hello", b.local_addr()?)?, 5);
    /// cancel.cancel();
    /// assert!(a.with_context(&ctx).send_to(b"hello", b.local_addr()?).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send_to(&self, buf: &[u8], addr: SocketAddr) -> io::Result<usize> {
        self.socket.inner.run_with(self.ctx, Side::Write, WaitReason::NetWrite, |io| io.send_to(buf, addr))
    }

    /// Sends a datagram to the peer that it is connected to, as [`UdpSocket::send`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UdpSocket;
    ///
    /// let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// a.connect(b.local_addr()?)?;
    /// assert_eq!(a.with_context(&ctx).send(b"hello")?, 5);
    /// cancel.cancel();
    /// assert!(a.with_context(&ctx).send(b"hello").is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.inner.run_with(self.ctx, Side::Write, WaitReason::NetWrite, |io| io.send(buf))
    }
}

impl WithContext<'_, UnixDatagram> {
    /// Receives a packet and the address of its sender, as [`UnixDatagram::recv_from`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UnixDatagram;
    ///
    /// let (a, b) = UnixDatagram::pair()?;
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// a.send(b"hello")?;
    /// assert_eq!(b.with_context(&ctx).recv_from(&mut [0; 16])?.0, 5);
    /// cancel.cancel();
    /// assert!(b.with_context(&ctx).recv_from(&mut [0; 16]).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, std::os::unix::net::SocketAddr)> {
        let inner = &self.socket.inner;
        inner.run_with(self.ctx, Side::Read, WaitReason::NetRead, |io| io.recv_from(buf))
    }

    /// Receives a packet, as [`UnixDatagram::recv`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UnixDatagram;
    ///
    /// let (a, b) = UnixDatagram::pair()?;
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// a.send(b"hello")?;
    /// assert_eq!(b.with_context(&ctx).recv(&mut [0; 16])?, 5);
    /// cancel.cancel();
    /// assert!(b.with_context(&ctx).recv(&mut [0; 16]).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.inner.run_with(self.ctx, Side::Read, WaitReason::NetRead, |io| io.recv(buf))
    }

    /// Sends a packet to the peer that it is connected to, as [`UnixDatagram::send`].
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::UnixDatagram;
    ///
    /// let (a, b) = UnixDatagram::pair()?;
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// assert_eq!(a.with_context(&ctx).send(b"hello")?, 5);
    /// cancel.cancel();
    /// assert!(a.with_context(&ctx).send(b"hello").is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.inner.run_with(self.ctx, Side::Write, WaitReason::NetWrite, |io| io.send(buf))
    }
}

impl UnixStream {
    /// Connects to the socket at `path`, unless the context is done first. While the listener has too many waiting
    /// connections, the goroutine tries again, after a pause of at most 10 ms.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::{UnixListener, UnixStream};
    ///
    /// let path = std::env::temp_dir().join(format!("mungo-doc-connect-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// assert!(UnixStream::connect_context(&ctx, &path).is_ok());
    /// cancel.cancel();
    /// assert!(UnixStream::connect_context(&ctx, &path).is_err());
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`connect`](UnixStream::connect), or with the reason why the context is done.
    pub fn connect_context(ctx: &Context, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        const LONGEST: Duration = Duration::from_millis(10);
        let (socket, path) = (unix_socket()?, path.as_ref());
        let mut pause = Duration::from_micros(50);
        loop {
            ctx.check()?;
            match connect_unix(socket.as_fd(), path) {
                // WHY NOT wait for the socket: the kernel gives no sign when the listener has room again.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ctx.sleep(pause)?,
                done => return done.map(|()| UnixStream::from(socket)),
            }
            pause = (2 * pause).min(LONGEST);
        }
    }
}

impl TcpStream {
    /// Connects to the first address that answers, unless the context is done first. A connection that was begun is
    /// given up then, and its socket closed.
    ///
    /// A name waits for its turn to be looked up, and the context ends that wait; while the C library asks the name
    /// servers, the context is not heard. For names whose look-up may hang, call
    /// [`lookup_context`](super::lookup_context) first, which hears it, and connect to what it returns.
    ///
    /// ```
    /// use mungo::context::Context;
    /// use mungo::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// assert!(TcpStream::connect_context(&ctx, listener.local_addr()?).is_ok());
    /// cancel.cancel();
    /// assert!(TcpStream::connect_context(&ctx, listener.local_addr()?).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`connect`](TcpStream::connect), or with the reason why the context is done.
    pub fn connect_context(ctx: &Context, addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first_of(resolve_with(ctx, addr)?, |addr| {
            ctx.check()?;
            TcpStream::connect_by(addr, |stream| {
                let inner = &stream.inner;
                inner.run_with(ctx, Side::Write, WaitReason::NetConnect, finish_connect)
            })
        })
    }
}
