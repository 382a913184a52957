//! The methods that all types of this module have in common, word for word.

/// Closing, cloning, and the way from and to std's type and descriptors. `$example` makes a `client` of the type.
macro_rules! descriptor_api {
    ($Type:ident, $std:ty, $example:expr) => {
        impl $Type {
            /// Closes the descriptor now, rather than when the last owner of this value drops it.
            ///
            /// Operations that wait, of other goroutines or threads, fail at once; so do all later ones, with
            /// [`NotConnected`](std::io::ErrorKind::NotConnected). A [clone](Self::try_clone) has a descriptor of its
            /// own and stays open.
            ///
            /// ```
            #[doc = $example]
            /// client.close()?;
            /// assert!(client.local_addr().is_err());
            /// # std::io::Result::Ok(())
            /// ```
            pub fn close(&self) -> std::io::Result<()> {
                self.inner.close()
            }

            /// Makes another handle of the same socket, with a descriptor of its own.
            ///
            /// Time-outs are copied, deadlines are not. To share a socket between goroutines this is not needed: `&`
            /// suffices for all operations, and is cheaper.
            ///
            /// ```
            #[doc = $example]
            /// let other = client.try_clone()?;
            /// assert_eq!(format!("{:?}", other.local_addr()?), format!("{:?}", client.local_addr()?));
            /// # std::io::Result::Ok(())
            /// ```
            pub fn try_clone(&self) -> std::io::Result<$Type> {
                let clone =
                    $Type { inner: $crate::net::descriptor::Descriptor::new(self.inner.io().try_clone()?) };
                self.inner.copy_settings_to(&clone.inner);
                Ok(clone)
            }

            /// Sets whether operations that would have to wait return [`WouldBlock`](std::io::ErrorKind::WouldBlock)
            /// instead.
            ///
            /// This is a setting of this handle. The descriptor itself is always in non-blocking mode, and goroutines
            /// wait for it without blocking their thread.
            ///
            /// ```
            #[doc = $example]
            /// client.set_nonblocking(true)?;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.inner.set_nonblocking(nonblocking);
                Ok(())
            }

            /// Returns the error that the socket has noted, if any (`SO_ERROR`), and clears it.
            ///
            /// ```
            #[doc = $example]
            /// assert!(client.take_error()?.is_none());
            /// # std::io::Result::Ok(())
            /// ```
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.inner.io().take_error()
            }

            /// Returns std's type, which blocks its thread (unless [`set_nonblocking`](Self::set_nonblocking) was
            /// set).
            ///
            /// The mode is that of the socket, so clones of this one block their threads then, too.
            ///
            /// ```
            #[doc = $example]
            #[doc = concat!("let client: ", stringify!($std), " = client.into_std()?;")]
            /// # _ = client;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn into_std(self) -> std::io::Result<$std> {
                let nonblocking = self.inner.is_nonblocking();
                let io = self.inner.into_io();
                io.set_nonblocking(nonblocking)?;
                Ok(io)
            }
        }

        impl From<$std> for $Type {
            /// Takes over the socket, which goes to non-blocking mode, and its clones with it.
            fn from(io: $std) -> $Type {
                // It cannot fail with an open descriptor; if it did, operations would block their thread.
                _ = io.set_nonblocking(true);
                $Type { inner: $crate::net::descriptor::Descriptor::new(io) }
            }
        }

        impl From<std::os::fd::OwnedFd> for $Type {
            /// Takes over the socket, which goes to non-blocking mode, and its clones with it.
            fn from(fd: std::os::fd::OwnedFd) -> $Type {
                <$std>::from(fd).into()
            }
        }

        impl From<$Type> for std::os::fd::OwnedFd {
            /// Returns the descriptor. The socket goes to blocking mode, unless `set_nonblocking` was set.
            fn from(this: $Type) -> std::os::fd::OwnedFd {
                let nonblocking = this.inner.is_nonblocking();
                let io = this.inner.into_io();
                _ = io.set_nonblocking(nonblocking);
                io.into()
            }
        }

        impl std::os::fd::FromRawFd for $Type {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $Type {
                // SAFETY: by the caller.
                unsafe { <$std as std::os::fd::FromRawFd>::from_raw_fd(fd) }.into()
            }
        }

        impl std::os::fd::IntoRawFd for $Type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::OwnedFd::from(self).into_raw_fd()
            }
        }

        impl std::os::fd::AsFd for $Type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.inner.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $Type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsFd::as_fd(self).as_raw_fd()
            }
        }

        impl std::fmt::Debug for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.inner.io().fmt(f)
            }
        }
    };
}

/// Time-outs and deadlines.
macro_rules! timeouts_api {
    ($Type:ident, $example:expr) => {
        impl $Type {
            /// Sets the time after which a read fails with [`TimedOut`](std::io::ErrorKind::TimedOut). `None`: it may
            /// take as long as it takes.
            ///
            /// ```
            #[doc = $example]
            /// use std::time::Duration;
            ///
            /// client.set_read_timeout(Some(Duration::from_millis(5)))?;
            /// assert_eq!(client.read_timeout()?, Some(Duration::from_millis(5)));
            /// # std::io::Result::Ok(())
            /// ```
            pub fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.inner.set_timeout($crate::net::descriptor::Side::Read, timeout)
            }

            /// Sets the time after which a write fails with [`TimedOut`](std::io::ErrorKind::TimedOut). `None`: it may
            /// take as long as it takes.
            ///
            /// ```
            #[doc = $example]
            /// use std::time::Duration;
            ///
            /// client.set_write_timeout(Some(Duration::from_secs(1)))?;
            /// assert_eq!(client.write_timeout()?, Some(Duration::from_secs(1)));
            /// # std::io::Result::Ok(())
            /// ```
            pub fn set_write_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.inner.set_timeout($crate::net::descriptor::Side::Write, timeout)
            }

            /// Returns what [`set_read_timeout`](Self::set_read_timeout) set.
            ///
            /// ```
            #[doc = $example]
            /// assert_eq!(client.read_timeout()?, None, "unless it was set");
            /// # std::io::Result::Ok(())
            /// ```
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.inner.timeout($crate::net::descriptor::Side::Read))
            }

            /// Returns what [`set_write_timeout`](Self::set_write_timeout) set.
            ///
            /// ```
            #[doc = $example]
            /// assert_eq!(client.write_timeout()?, None, "unless it was set");
            /// # std::io::Result::Ok(())
            /// ```
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.inner.timeout($crate::net::descriptor::Side::Write))
            }

            /// Lets reads fail from `deadline` on with [`TimedOut`](std::io::ErrorKind::TimedOut), those that wait
            /// already too, and even if there is something to read. `None`: there is no deadline.
            ///
            /// As in Go, a deadline is for the whole of several reads, as of a request that must come in time; a
            /// time-out is for each of them. A deadline in the past ends a read that another goroutine waits in.
            ///
            /// ```
            #[doc = $example]
            /// use std::time::Instant;
            ///
            /// client.set_read_deadline(Some(Instant::now()));
            /// # std::io::Result::Ok(())
            /// ```
            pub fn set_read_deadline(&self, deadline: Option<std::time::Instant>) {
                self.inner.set_deadline($crate::net::descriptor::Side::Read, deadline);
            }

            /// Lets writes fail from `deadline` on, as reads do with [`set_read_deadline`](Self::set_read_deadline).
            ///
            /// ```
            #[doc = $example]
            /// use std::time::{Duration, Instant};
            ///
            /// client.set_write_deadline(Some(Instant::now() + Duration::from_secs(10)));
            /// # std::io::Result::Ok(())
            /// ```
            pub fn set_write_deadline(&self, deadline: Option<std::time::Instant>) {
                self.inner.set_deadline($crate::net::descriptor::Side::Write, deadline);
            }
        }
    };
}

/// The iterator over the connections of a listener.
macro_rules! incoming_api {
    ($Listener:ident, $Stream:ident, $Incoming:ident) => {
        impl $Listener {
            /// Iterates over all connections that come, for ever.
            ///
            /// If one cannot be taken because the process or the system is out of descriptors or memory, the iterator
            /// yields the error and goes on, but not at once: it waits for 5 ms, and longer each time, up to a second,
            /// until one can be taken again. So a server that merely notes errors neither ends nor spins.
            pub fn incoming(&self) -> $Incoming<'_> {
                $Incoming { listener: self, backoff: Default::default() }
            }
        }

        #[doc = concat!("The connections of a [`", stringify!($Listener), "`].")]
        #[derive(Debug)]
        pub struct $Incoming<'a> {
            listener: &'a $Listener,
            backoff: $crate::net::backoff::Backoff,
        }

        impl Iterator for $Incoming<'_> {
            type Item = std::io::Result<$Stream>;

            fn next(&mut self) -> Option<std::io::Result<$Stream>> {
                self.backoff.wait();
                let accepted = self.listener.accept().map(|(stream, _)| stream);
                self.backoff.note(&accepted);
                Some(accepted)
            }
        }

        impl std::iter::FusedIterator for $Incoming<'_> {}

        impl<'a> IntoIterator for &'a $Listener {
            type Item = std::io::Result<$Stream>;
            type IntoIter = $Incoming<'a>;

            fn into_iter(self) -> $Incoming<'a> {
                self.incoming()
            }
        }
    };
}

/// `Read` and `Write` of a stream, by those of a reference to it.
macro_rules! by_reference {
    ($Type:ident) => {
        impl std::io::Read for $Type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }

        impl std::io::Write for $Type {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                (&*self).flush()
            }
        }
    };
}

pub(super) use {by_reference, descriptor_api, incoming_api, timeouts_api};
