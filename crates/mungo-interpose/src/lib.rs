//! Blocking calls of std and of existing crates park goroutines of [`mungo`].
//!
//! A goroutine that blocks in `std::net`, `std::sync` or `std::thread::sleep` never holds others up, but without this
//! crate it holds a thread. With it, it holds none: the crate defines the C functions in which std and others block,
//! and the linker takes these instead of the C library's. On a goroutine they park; on a plain thread and in a forked
//! child they are the C library's, inside the runtime the system call. No type changes, and no flag of a descriptor.
//!
//! One line switches it on, in the program or in a test:
//!
//! ```
//! use mungo_interpose as _;
//! use std::time::{Duration, Instant};
//!
//! let start = Instant::now();
//! mungo::scope(|s| {
//!     for _ in 0..1000 {
//!         s.spawn(|| std::thread::sleep(Duration::from_millis(20)));
//!     }
//! });
//! assert!(start.elapsed() < Duration::from_secs(20), "not one after the other");
//! ```
//!
//! [`threads`] makes goroutines of threads, too. `MUNGO_DEBUG=interpose=0` switches it all off. [`counts`] says what
//! calls came to, function by function; [`is_active`] whether it has an effect: on Linux on x86-64 and
//! aarch64 with a dynamic glibc. Elsewhere, in static executables and with shared thread-locals the crate builds and
//! does nothing.
//!
//! What works, what does not, and how it behaves at the edges is in `docs/existing-crates.md` of the repository.

mod counters;
// Elsewhere nothing is defined. The one place that says where.
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_env = "gnu",
        not(target_feature = "crt-static"),
        not(miri)
    )),
    path = "absent.rs"
)]
mod shims;

pub use counters::{Counts, counts};

/// Returns whether goroutines park in blocking calls, once there is a runtime: the platform allows it, and
/// `MUNGO_DEBUG` does not say `interpose=0`.
///
/// ```
/// let on_goroutine = mungo::go(mungo_interpose::is_active).join().unwrap();
/// # #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
/// # if std::env::var_os("MUNGO_DEBUG").is_none() {
/// assert!(on_goroutine);
/// # }
/// ```
pub fn is_active() -> bool {
    shims::ARE_BUILT && mungo::interpose::is_on()
}

/// Says whether threads that are started from now on shall be goroutines: those of `std::thread` and of each caller of
/// `pthread_create`. `MUNGO_THREADS=goroutines` says so from the start. No effect where [`is_active`] says no.
///
/// Names, values, panics, thread-locals with their destructors, scopes, stack sizes, `pthread_exit` and
/// `pthread_self` are as on threads. A thread for which the program chose a stack of its own, CPUs or a scheduling
/// class stays a thread, and so do the runtime's. What C programs cannot do with such a thread (signals from others,
/// cancellation) is `ENOTSUP`.
///
/// ```
/// mungo_interpose::threads(true);
/// let thread = std::thread::spawn(|| (mungo::is_goroutine(), 6 * 7));
/// let (is_goroutine, answer) = thread.join().unwrap();
/// assert_eq!((is_goroutine, answer), (mungo_interpose::is_active(), 42));
/// ```
pub fn threads(goroutines: bool) {
    shims::want_threads(goroutines);
}

// The crate's page in a registry: its program is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
