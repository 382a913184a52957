//! A socket that takes connections on this machine.

use super::UnixStream;
use super::descriptor::{Descriptor, Side};
use super::macros::{descriptor_api, incoming_api};
use crate::reason::WaitReason;
use crate::sched::threads::blocking::blocking;
use std::io;
use std::os::unix::net::{SocketAddr, UnixListener as Std};
use std::path::Path;
use std::time::Instant;

/// The lines that examples have in common.
macro_rules! example {
    () => {
        "# use std::os::linux::net::SocketAddrExt;\n\
         # let name = format!(\"mungo-doc-listener-{}-{}\", std::process::id(), line!());\n\
         # let name = std::os::unix::net::SocketAddr::from_abstract_name(name)?;\n\
         # let client = mungo::net::UnixListener::bind_addr(&name)?;"
    };
}

/// A socket that takes connections on this machine, as [`std::os::unix::net::UnixListener`]; a goroutine that has to
/// wait lets others run.
///
/// ```
/// use mungo::net::{UnixListener, UnixStream};
/// use std::io::{Read, Write};
///
/// let path = std::env::temp_dir().join(format!("mungo-doc-listener-{}", std::process::id()));
/// let listener = UnixListener::bind(&path)?;
/// let server = mungo::go(move || listener.accept()?.0.write_all(b"hello"));
/// let mut text = String::new();
/// UnixStream::connect(&path)?.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// std::fs::remove_file(&path)?;
/// server.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
pub struct UnixListener {
    pub(crate) inner: Descriptor<Std>,
}

impl UnixListener {
    /// Listens at `path`, which must not exist.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-bind-{}", std::process::id()));
    /// let listener = mungo::net::UnixListener::bind(&path)?;
    /// assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        blocking(|| Std::bind(path)).map(UnixListener::from)
    }

    /// Listens at a socket address.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-listener-addr-{}", std::process::id()));
    /// let address = std::os::unix::net::SocketAddr::from_pathname(&path)?;
    /// let listener = mungo::net::UnixListener::bind_addr(&address)?;
    /// assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        blocking(|| Std::bind_addr(addr)).map(UnixListener::from)
    }

    /// Waits for a connection.
    ///
    /// If the process is out of descriptors this fails at once, as in std: a loop should then wait a little, as
    /// [`incoming`](Self::incoming) does.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-listener-accept-{}", std::process::id()));
    /// let listener = mungo::net::UnixListener::bind(&path)?;
    /// let client = mungo::net::UnixStream::connect(&path)?;
    /// let (server, _) = listener.accept()?;
    /// assert_eq!(server.local_addr()?.as_pathname(), client.peer_addr()?.as_pathname());
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, peer) = self.inner.run(Side::Read, WaitReason::NetAccept, Std::accept)?;
        Ok((stream.into(), peer))
    }

    /// Lets [`accept`](Self::accept) fail from `deadline` on with [`TimedOut`](io::ErrorKind::TimedOut), one that
    /// waits already too. `None`: there is no deadline.
    ///
    /// ```
    #[doc = example!()]
    /// client.set_deadline(Some(std::time::Instant::now()));
    /// assert_eq!(client.accept().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.inner.set_deadline(Side::Read, deadline);
    }

    /// Returns the address that it listens at.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("mungo-doc-listener-local-{}", std::process::id()));
    /// let listener = mungo::net::UnixListener::bind(&path)?;
    /// assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.io().local_addr()
    }
}

descriptor_api!(UnixListener, std::os::unix::net::UnixListener, example!());
incoming_api!(UnixListener, UnixStream, UnixIncoming);
