//! Streams for tasks: the traits of `futures-io`, of tokio and of hyper.
//!
//! The polls never park: a task may read and write at once. They try the socket, and if the kernel has nothing leave
//! their waker with the poller. Several tasks may wait for one direction: all are woken, and try.

use super::descriptor::{Descriptor, Side};
use super::{TcpStream, UnixStream};
use std::io::{self, IoSlice, Write};
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
use std::os::fd::AsRawFd;
use std::pin::Pin;
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
use std::task::ready;
use std::task::{Context, Poll};

impl<T: AsFd> Descriptor<T> {
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>
    where
        for<'a> &'a T: Write,
    {
        self.poll(cx, Side::Write, |mut io| io.write(bytes))
    }

    fn poll_write_vectored(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>>
    where
        for<'a> &'a T: Write,
    {
        self.poll(cx, Side::Write, |mut io| io.write_vectored(bytes))
    }
}

#[cfg(any(feature = "hyper", feature = "tokio-io"))]
impl<T: AsFd> Descriptor<T> {
    /// Reads into memory that need not be initialised, and returns how many bytes of it are then.
    fn poll_recv(&self, cx: &mut Context<'_>, room: &mut [MaybeUninit<u8>]) -> Poll<io::Result<usize>> {
        self.poll(cx, Side::Read, |io| {
            let fd = io.as_fd().as_raw_fd();
            // SAFETY: the memory is ours, and as long as that.
            match unsafe { libc::recv(fd, room.as_mut_ptr().cast(), room.len(), 0) } {
                n @ 0.. => Ok(n as usize),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }
}

/// Ends the writing side. A peer that has gone already is no error.
fn shutdown(result: io::Result<()>) -> Poll<io::Result<()>> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
        result => Poll::Ready(result),
    }
}

/// The methods that both traits have in common, but for the name of the end.
macro_rules! write_methods {
    ($close:ident) => {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.inner.poll_write(cx, buf)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.inner.poll_write_vectored(cx, bufs)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn $close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            shutdown(self.inner.io().shutdown(Shutdown::Write))
        }
    };
}

#[cfg(feature = "futures-io")]
mod futures {
    use super::*;
    use futures_io::{AsyncRead, AsyncWrite};
    use std::io::{IoSliceMut, Read};

    macro_rules! implement {
        ($Type:ty) => {
            /// Ignores time-outs and deadlines of the stream: they are the task's business.
            impl AsyncRead for $Type {
                fn poll_read(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    buf: &mut [u8],
                ) -> Poll<io::Result<usize>> {
                    self.inner.poll(cx, Side::Read, |mut io| io.read(buf))
                }

                fn poll_read_vectored(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bufs: &mut [IoSliceMut<'_>],
                ) -> Poll<io::Result<usize>> {
                    self.inner.poll(cx, Side::Read, |mut io| io.read_vectored(bufs))
                }
            }

            /// As [`AsyncRead`]. Closing ends the writing side; what the peer sends can still be read.
            impl AsyncWrite for $Type {
                write_methods!(poll_close);
            }
        };
    }

    implement!(TcpStream);
    implement!(&TcpStream);
    implement!(UnixStream);
    implement!(&UnixStream);
}

#[cfg(feature = "tokio-io")]
mod tokio {
    use super::*;
    use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    macro_rules! implement {
        ($Type:ty) => {
            /// Needs no runtime of tokio: [`block_on`](crate::block_on()) runs what is made of it. Ignores time-outs
            /// and deadlines of the stream: they are the task's business.
            impl AsyncRead for $Type {
                fn poll_read(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    buf: &mut ReadBuf<'_>,
                ) -> Poll<io::Result<()>> {
                    // SAFETY: nothing is written to it but by the kernel.
                    let n = ready!(self.inner.poll_recv(cx, unsafe { buf.unfilled_mut() }))?;
                    // SAFETY: that many bytes were written.
                    unsafe { buf.assume_init(n) };
                    buf.advance(n);
                    Poll::Ready(Ok(()))
                }
            }

            /// As [`AsyncRead`]. The end of it ends the writing side; what the peer sends can still be read.
            impl AsyncWrite for $Type {
                write_methods!(poll_shutdown);

                fn is_write_vectored(&self) -> bool {
                    true
                }
            }
        };
    }

    implement!(TcpStream);
    implement!(&TcpStream);
    implement!(UnixStream);
    implement!(&UnixStream);
}

#[cfg(feature = "hyper")]
mod hyper {
    use super::*;
    use ::hyper::rt::{Read, ReadBufCursor, Write};

    macro_rules! implement {
        ($Type:ty) => {
            /// Ignores time-outs and deadlines of the stream: hyper has its own.
            impl Read for $Type {
                fn poll_read(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    mut buf: ReadBufCursor<'_>,
                ) -> Poll<io::Result<()>> {
                    // SAFETY: nothing is written to it but by the kernel.
                    let n = ready!(self.inner.poll_recv(cx, unsafe { buf.as_mut() }))?;
                    // SAFETY: that many bytes were written.
                    unsafe { buf.advance(n) };
                    Poll::Ready(Ok(()))
                }
            }

            impl Write for $Type {
                write_methods!(poll_shutdown);

                fn is_write_vectored(&self) -> bool {
                    true
                }
            }
        };
    }

    implement!(TcpStream);
    implement!(UnixStream);
}
