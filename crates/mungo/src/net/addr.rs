//! Socket addresses as the kernel has them, and sockets that are in non-blocking mode from the start.

use super::lookup::resolve;
use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;

/// Tries each address until one works, as std does.
pub(super) fn for_each_addr<T>(
    addr: impl ToSocketAddrs,
    f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    first_of(resolve(addr)?, f)
}

/// As [`for_each_addr`], for addresses that are known.
pub(super) fn first_of<T>(
    addrs: Vec<SocketAddr>,
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addrs {
        match f(&addr) {
            Ok(done) => return Ok(done),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(no_address))
}

#[cold]
pub(super) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the name stands for no address at all")
}

/// Lets as many connections wait to be accepted as the system allows; std asks for 128, and drops those of a crowd.
pub(super) fn listen(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory involved.
    match unsafe { libc::listen(fd.as_raw_fd(), libc::c_int::MAX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a TCP socket for addresses of this family.
pub(super) fn tcp_socket(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory involved.
    owned(unsafe { libc::socket(family, kind, 0) })
}

/// Begins to connect.
pub(super) fn connect(fd: BorrowedFd<'_>, addr: &SocketAddr) -> io::Result<()> {
    let (addr, len) = Raw::new(addr);
    // SAFETY: the address outlives the call.
    match unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a Unix stream socket.
pub(super) fn unix_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory involved.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Connects to the socket at `path`. `WouldBlock`: its listener has too many waiting connections.
pub(super) fn connect_unix(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    UnixAddr::from_pathname(path)?; // refuses a path that is too long or has a zero in it
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: plain numbers, for which zeros will do.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in addr.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let len = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1; // with the zero at the end
    // SAFETY: the address outlives the call, and has `len` bytes: the path was looked at above.
    match unsafe { libc::connect(fd.as_raw_fd(), (&raw const addr).cast(), len as libc::socklen_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a connection, in non-blocking mode.
pub(super) fn accept(fd: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut addr = MaybeUninit::<Raw>::zeroed();
    let mut len = size_of::<Raw>() as libc::socklen_t;
    // SAFETY: there is room for `len` bytes.
    let fd = unsafe {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        owned(libc::accept4(fd.as_raw_fd(), addr.as_mut_ptr().cast(), &mut len, flags))?
    };
    // SAFETY: all bytes are initialised, and any will do.
    let addr = unsafe { addr.assume_init() };
    Ok((fd, addr.to_std()?))
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    match fd {
        // SAFETY: just made, and without another owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket address in the kernel's form.
#[repr(C)]
union Raw {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Raw {
    fn new(addr: &SocketAddr) -> (Raw, libc::socklen_t) {
        match addr {
            SocketAddr::V4(addr) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (Raw { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(addr) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                    sin6_scope_id: addr.scope_id(),
                };
                (Raw { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    fn to_std(&self) -> io::Result<SocketAddr> {
        // SAFETY: plain numbers; the family says which they are.
        unsafe {
            match libc::c_int::from(self.family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes());
                    Ok(SocketAddrV4::new(ip, u16::from_be(self.v4.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let ip = Ipv6Addr::from(self.v6.sin6_addr.s6_addr);
                    let port = u16::from_be(self.v6.sin6_port);
                    Ok(SocketAddrV6::new(ip, port, self.v6.sin6_flowinfo, self.v6.sin6_scope_id).into())
                }
                other => {
                    let why = format!("a peer of address family {other}, not of the internet");
                    Err(io::Error::new(io::ErrorKind::InvalidData, why))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["127.0.0.1:80", "255.1.2.3:65535", "[::1]:8080", "[fe80::1%3]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(Raw::new(&addr).0.to_std().unwrap(), addr);
        }
    }
}
