//! Sockets that goroutines wait for: the types of [`std::net`] and [`std::os::unix::net`], with the same names.
//!
//! Reading, writing and accepting look as if they blocked, and block only the goroutine that calls. Plain threads may
//! use the same values; there they block the thread.
//!
//! ```
//! use mungo::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! mungo::go(move || {
//!     for stream in listener.incoming() {
//!         let mut stream = stream?;
//!         mungo::go(move || {
//!             let mut buffer = [0; 1024];
//!             while let Ok(n @ 1..) = stream.read(&mut buffer) {
//!                 stream.write_all(&buffer[..n])?;
//!             }
//!             std::io::Result::Ok(())
//!         });
//!     }
//!     std::io::Result::Ok(())
//! });
//! let mut client = TcpStream::connect(address)?;
//! client.write_all(b"ping")?;
//! let mut answer = [0; 4];
//! client.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"ping");
//! # std::io::Result::Ok(())
//! ```
//!
//! # What differs from std
//!
//! * A time-out fails with [`TimedOut`](std::io::ErrorKind::TimedOut), where std's types say `WouldBlock` on Unix.
//! * [`with_context`](TcpStream::with_context) lets a [`Context`](crate::context::Context) end operations.
//! * Names are looked up by at most 16 threads at a time ([`lookup`]).
//! * There are deadlines beside the time-outs, as in Go.
//! * `close` ends the waits of other goroutines, and `set_nonblocking` is a setting of the handle, not of the socket.

mod addr;
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio-io"))]
mod async_io;
mod backoff;
pub(crate) mod descriptor;
mod lookup;
mod macros;
mod pollable;
mod tcp_listener;
mod tcp_stream;
mod udp_socket;
mod unix_datagram;
mod unix_listener;
mod unix_stream;
mod with_context;

pub use lookup::{lookup, lookup_context};
pub use pollable::Pollable;
pub use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
pub use tcp_listener::{Incoming, TcpListener};
pub use tcp_stream::TcpStream;
pub use udp_socket::UdpSocket;
pub use unix_datagram::UnixDatagram;
pub use unix_listener::{UnixIncoming, UnixListener};
pub use unix_stream::UnixStream;
pub use with_context::WithContext;
