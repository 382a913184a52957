//! Names become addresses: blocking calls of the C library, of which few go on at a time.

use crate::chan::bounded;
use crate::context::{Context, ContextRecvError};
use crate::spawn::go;
use crate::sync::Semaphore;
use std::any::type_name;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The most look-ups at a time: each blocks a thread, for seconds if the name server does not answer.
/// TUNED: a guess; a name server that answers in 1 ms serves 16,000 names a second so.
const AT_A_TIME: usize = 16;

static LOOKUPS: Semaphore = Semaphore::new(AT_A_TIME);

/// Returns the addresses of a host, with `port`: Go's `net.LookupHost`.
///
/// The C library asks `/etc/hosts` and the name servers, and blocks its thread meanwhile. At most 16 such calls go on
/// at a time in the whole process, here and in `connect`; further ones wait, without a thread. A host that is an
/// address is not looked up.
///
/// ```
/// let addresses = mungo::net::lookup("localhost", 80)?;
/// assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// Fails if the name is not known, or no name server answers.
#[doc(alias("dns", "resolve", "getaddrinfo"))]
pub fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
        Err(_) => look_up((host, port)),
    }
}

/// As [`lookup`], and ends when the context is done. The call of the C library goes on then, and its result is dropped.
///
/// ```
/// use mungo::context::Context;
/// use std::time::Duration;
///
/// let (ctx, cancel) = Context::background().with_timeout(Duration::from_secs(5));
/// assert_eq!(mungo::net::lookup_context(&ctx, "127.0.0.1", 80)?, ["127.0.0.1:80".parse().unwrap()]);
/// cancel.cancel();
/// assert!(mungo::net::lookup_context(&ctx, "localhost", 80).is_err());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// Fails as [`lookup`], or with the reason why the context is done.
pub fn lookup_context(ctx: &Context, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    ctx.check()?;
    if host.parse::<IpAddr>().is_ok() {
        return lookup(host, port);
    }
    let (tx, rx) = bounded(1);
    let (host, waiting) = (host.to_owned(), ctx.clone());
    go(move || {
        let found = match waiting.acquire(&LOOKUPS) {
            Ok(_permit) => crate::sched::threads::blocking::blocking(|| {
                (&*host, port).to_socket_addrs().map(Iterator::collect)
            }),
            Err(why) => Err(why.into()),
        };
        _ = tx.send(found); // perhaps no caller waits any more
    });
    ctx.recv(&rx).unwrap_or_else(|e| match e {
        ContextRecvError::Done(why) => Err(why.into()),
        ContextRecvError::Disconnected => Err(io::Error::other("the look-up panicked")),
    })
}

/// Returns all addresses that `addr` stands for.
pub(super) fn resolve<A: ToSocketAddrs>(addr: A) -> io::Result<Vec<SocketAddr>> {
    match is_an_address(type_name::<A>()) {
        true => addr.to_socket_addrs().map(Iterator::collect),
        false => look_up(addr),
    }
}

/// As [`resolve`], and hears the context while it waits for its turn. The call of the C library itself borrows `addr`,
/// so that it cannot be left behind.
pub(super) fn resolve_with<A: ToSocketAddrs>(ctx: &Context, addr: A) -> io::Result<Vec<SocketAddr>> {
    ctx.check()?;
    let _permit = match is_an_address(type_name::<A>()) {
        true => return addr.to_socket_addrs().map(Iterator::collect),
        false => ctx.acquire(&LOOKUPS)?,
    };
    crate::sched::threads::blocking::blocking(|| addr.to_socket_addrs().map(Iterator::collect))
}

fn look_up(addr: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let _permit = LOOKUPS.acquire();
    crate::sched::threads::blocking::blocking(|| addr.to_socket_addrs().map(Iterator::collect))
}

/// Returns whether values of a type are addresses, which need no look-up. A wrong answer costs time, nothing else: so
/// it may go by the name.
fn is_an_address(type_name: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || c == ':' || c == '_';
    let mut parts = type_name.split(|c| !is_path(c)).filter(|part| !part.is_empty());
    parts.all(|part| part == "u16" || part.starts_with("core::net::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn addresses_are_told_from_names() {
        assert!(is_an_address(type_name::<SocketAddr>()));
        assert!(is_an_address(type_name::<&SocketAddr>()));
        assert!(is_an_address(type_name::<SocketAddrV4>()));
        assert!(is_an_address(type_name::<(Ipv4Addr, u16)>()));
        assert!(is_an_address(type_name::<&[SocketAddr]>()));
        assert!(!is_an_address(type_name::<&str>()));
        assert!(!is_an_address(type_name::<String>()));
        assert!(!is_an_address(type_name::<(&str, u16)>()));
        assert!(!is_an_address("program::SocketAddr"));
    }

    #[test]
    fn connecting_to_an_address_waits_for_no_look_up() {
        let _all = LOOKUPS.acquire_many(AT_A_TIME);
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        assert_eq!(resolve(address).unwrap(), [address]);
        assert_eq!(lookup("127.0.0.1", 80).unwrap(), [address]);
    }

    #[test]
    fn a_context_ends_the_wait_for_a_turn() {
        let _all = LOOKUPS.acquire_many(AT_A_TIME);
        let (ctx, cancel) = Context::background().with_cancel();
        let waiting = go(move || lookup_context(&ctx, "localhost", 80));
        cancel.cancel();
        assert!(waiting.join().unwrap().is_err());
        let (ctx, _cancel) = Context::background().with_timeout(std::time::Duration::from_millis(5));
        assert!(resolve_with(&ctx, "localhost:80").is_err());
    }

    /// However many ask, few threads wait for the C library.
    #[test]
    fn few_look_ups_go_on_at_a_time() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);

        /// A name whose look-up takes a while.
        struct Slow;
        impl ToSocketAddrs for Slow {
            type Iter = std::vec::IntoIter<SocketAddr>;
            fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
                MOST.fetch_max(RUNNING.fetch_add(1, Relaxed) + 1, Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(2));
                RUNNING.fetch_sub(1, Relaxed);
                Ok(Vec::new().into_iter())
            }
        }
        let all: Vec<_> = (0..200).map(|_| go(|| resolve(Slow))).collect();
        all.into_iter().for_each(|one| assert_eq!(one.join().unwrap().unwrap(), []));
        let most = MOST.load(Relaxed);
        assert!((2..=AT_A_TIME).contains(&most), "{most} at a time");
    }
}
