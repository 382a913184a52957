//! Profiles: where goroutines are, what they wait for, who holds the locks, and where the CPU time goes.
//!
//! | profile | counts | needs |
//! |---|---|---|
//! | [`goroutine`] | goroutines, by stack | nothing |
//! | [`block`] | waits for channels, locks, joins and the like, and their time | [`set_block_rate`] |
//! | [`mutex`] | waits for locks, at the goroutine that unlocked | [`set_block_rate`] |
//! | [`sleep`] | sleeps, and their time | [`set_block_rate`] |
//! | [`network`] | waits for sockets, and their time | [`set_block_rate`] |
//! | [`runnable`] | time that goroutines waited for a P | [`set_block_rate`] |
//! | [`cpu`] | CPU time of all threads | a signal; see there |
//!
//! [`Profile::write_to`] writes what `go tool pprof` and collectors of profiles read, [`Profile::to_text`] what people
//! read. Samples carry the [labels](crate::debug::label) of their goroutine, and the place where it was spawned.
//!
//! ```
//! use std::time::Duration;
//! mungo::profile::set_block_rate(Duration::from_micros(10))?;
//! let (_tx, rx) = mungo::chan::bounded::<u8>(0);
//! mungo::go(move || rx.recv_timeout(Duration::from_millis(20)).unwrap_err()).join().unwrap();
//! let block = mungo::profile::block();
//! assert_eq!(block.total_count(), 1);
//! let mut file = Vec::new();
//! block.write_to(&mut file)?;
//! assert_eq!(file[..2], [0x1f, 0x8b], "gzip");
//! # mungo::profile::set_block_rate(Duration::ZERO)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Cost
//! While nothing is profiled a wake-up costs a load and a branch more. With a block rate a P aims at 2500 samples a
//! second at the most. `docs/profiles.md` says how it is sampled.
//!
//! In the child of a fork there are goroutine profiles only. This module exists on Linux, x86-64 or aarch64, with the
//! feature `profile`, which is on by default.

mod gzip;
mod mappings;
mod model;
mod names;
mod pprof;
mod text;

pub use model::{Kind, Profile, Sample};

use crate::sched::profile::{self as sampling, Subject};
use crate::sched::report::collect::on_a_new_thread;
use crate::sched::run::current::{self, NoPreempt};
use model::Call;
use std::io;
use std::time::Duration;

/// Runs `f` on a plain thread: it holds goroutines still for moments, and takes locks that other threads wait for.
fn on_plain_thread<R: Send>(f: impl Fn() -> R + Send + Sync) -> R {
    match current::g() {
        None => f(),
        Some(_) => on_a_new_thread(&f).unwrap_or_else(|| {
            // On this thread then, in the runtime, since it must not be preempted.
            let _in_runtime = NoPreempt::new();
            f()
        }),
    }
}

/// Returns what all goroutines do right now: how many are in which calls.
///
/// The program goes on meanwhile: a goroutine is held while its stack is copied.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded::<()>(0);
/// let all: Vec<_> = (0..100).map(|_| mungo::go({ let rx = rx.clone(); move || rx.recv() })).collect();
/// let waiting = || {
///     let profile = mungo::profile::goroutine();
///     let waits = |s: &&mungo::profile::Sample| s.state.is_some_and(|state| state.to_string() == "chan receive");
///     profile.samples().iter().filter(waits).map(|sample| sample.count).sum::<u64>()
/// };
/// while waiting() != 100 {}
/// drop(tx);
/// all.into_iter().for_each(|g| assert!(g.join().unwrap().is_err()));
/// ```
pub fn goroutine() -> Profile {
    on_plain_thread(|| Profile::new(Kind::Goroutine, sampling::goroutines()))
}

/// Returns the waits of goroutines since they were first profiled, those that are not over included: for channels,
/// locks, joins, conditions, semaphores, futures. Not sleeps and not the network.
///
/// Empty unless there was a [`set_block_rate`]. See [the module](self) for an example.
///
/// ```
/// assert!(mungo::profile::block().samples().is_empty(), "no rate was set");
/// ```
pub fn block() -> Profile {
    waits(Kind::Block, Subject::Block)
}

/// Returns the waits for [`Mutex`](crate::sync::Mutex) and [`RwLock`](crate::sync::RwLock), at the goroutine that ended
/// each wait: the one that unlocked. A wait that is not over is charged to the goroutine that has the lock, where it is
/// now, if that is known.
///
/// Empty unless there was a [`set_block_rate`].
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// mungo::profile::set_block_rate(Duration::from_micros(10))?;
/// let lock = Arc::new(mungo::sync::Mutex::new(()));
/// let held = lock.lock();
/// let other = mungo::go({ let lock = lock.clone(); move || drop(lock.lock()) });
/// mungo::sleep(Duration::from_millis(20));
/// drop(held); // here: by a plain thread, which is not charged
/// other.join().unwrap();
/// assert_eq!(mungo::profile::mutex().kind(), mungo::profile::Kind::Mutex);
/// # mungo::profile::set_block_rate(Duration::ZERO)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn mutex() -> Profile {
    waits(Kind::Mutex, Subject::Mutex)
}

/// Returns the sleeps of goroutines since they were first profiled, those that are not over included. A sleep counts
/// from where the goroutine left its P, which is some time after its call.
///
/// Empty unless there was a [`set_block_rate`].
///
/// ```
/// use std::time::Duration;
/// mungo::profile::set_block_rate(Duration::from_micros(10))?;
/// mungo::go(|| mungo::sleep(Duration::from_millis(15))).join().unwrap();
/// assert_eq!(mungo::profile::sleep().total_count(), 1);
/// # mungo::profile::set_block_rate(Duration::ZERO)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep() -> Profile {
    waits(Kind::Sleep, Subject::Sleep)
}

/// Returns the waits of goroutines for the network since they were first profiled, those that are not over included.
///
/// Empty unless there was a [`set_block_rate`].
///
/// ```
/// assert_eq!(mungo::profile::network().to_text().lines().next(), Some("network profile: 0 waits, 0ns"));
/// ```
pub fn network() -> Profile {
    waits(Kind::Network, Subject::Network)
}

/// Returns the time that goroutines waited for a P, at the place where they went on: after they were woken, spawned,
/// interrupted, or yielded. Those that still wait are included, without a stack.
///
/// Empty unless there was a [`set_block_rate`].
///
/// ```
/// use std::time::Duration;
/// mungo::profile::set_block_rate(Duration::from_nanos(1))?;
/// mungo::go(|| (0..100).for_each(|_| mungo::yield_now())).join().unwrap();
/// assert!(mungo::profile::runnable().total_count() > 0);
/// # mungo::profile::set_block_rate(Duration::ZERO)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn runnable() -> Profile {
    waits(Kind::Runnable, Subject::Runnable)
}

fn waits(kind: Kind, subject: Subject) -> Profile {
    on_plain_thread(|| Profile::new(kind, sampling::waits(subject).unwrap_or_default()))
}

/// Starts to profile waits: for [`block`], [`mutex`], [`sleep`], [`network`] and [`runnable`]. Waits of `rate` and more
/// are counted, shorter ones with the probability of their time by `rate`, and for as many as are left out: so totals
/// are right on the average. 10 µs is usual; zero ends it, and keeps what was counted.
///
/// On a P that switches more than 2500 times a second a part of the switches is looked at, and stands for all; waits
/// of 10 ms and more are counted in any case.
///
/// The variable `MUNGO_BLOCK_RATE=10us` does the same from the first runtime on.
///
/// # Errors
/// If there is no memory, or no thread for the one that collects the samples. In the child of a fork.
///
/// ```
/// use std::time::Duration;
/// mungo::profile::set_block_rate(Duration::from_micros(10))?;
/// assert_eq!(mungo::profile::block_rate(), Duration::from_micros(10));
/// mungo::profile::set_block_rate(Duration::ZERO)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_block_rate(rate: Duration) -> io::Result<()> {
    on_plain_thread(|| sampling::set_block_rate(rate))
}

/// Returns the rate at which waits are profiled; zero: they are not.
///
/// ```
/// assert_eq!(mungo::profile::block_rate(), std::time::Duration::ZERO);
/// ```
pub fn block_rate() -> Duration {
    sampling::block_rate()
}

/// Takes a CPU profile: blocks the caller for that time. See [`start_cpu`].
///
/// ```
/// use std::time::Duration;
/// static DONE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
/// let busy = mungo::go(|| while !DONE.load(std::sync::atomic::Ordering::Relaxed) {});
/// let profile = mungo::profile::cpu(Duration::from_millis(250), 100)?;
/// assert!(profile.total_count() > 0);
/// DONE.store(true, std::sync::atomic::Ordering::Relaxed);
/// busy.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`start_cpu`].
pub fn cpu(duration: Duration, hz: u32) -> io::Result<Profile> {
    let profiler = start_cpu(hz)?;
    crate::time::sleep(duration);
    profiler.stop()
}

/// Starts a CPU profile of all threads of the process, with `hz` samples per second of CPU time: 100 is usual, 1 to
/// 10,000 are possible. Kernels look at such timers at their own ticks, 100 to 1000 a second; at a faster rate a sample
/// counts for several.
///
/// A sample of a goroutine has its number (`goroutine`), where it was spawned (`spawned_at`), and its labels. It uses
/// SIGPROF; threads that block that signal are not seen. At most one can be taken at a time.
///
/// ```
/// let profiler = mungo::profile::start_cpu(100)?;
/// assert!(mungo::profile::start_cpu(100).is_err(), "one at a time");
/// let profile = profiler.stop()?;
/// assert_eq!((profile.kind(), profile.lost()), (mungo::profile::Kind::Cpu, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If one is being taken, another profiler has a handler for SIGPROF, or `hz` is out of range; for want of memory or of
/// a thread; in the child of a fork.
pub fn start_cpu(hz: u32) -> io::Result<CpuProfiler> {
    on_plain_thread(|| sampling::cpu::start(hz))?;
    Ok(CpuProfiler { is_on: true })
}

/// A CPU profile in the making, by [`start_cpu`]. If it is dropped, the profile is thrown away.
///
/// ```
/// let profiler: mungo::profile::CpuProfiler = mungo::profile::start_cpu(100)?;
/// drop(profiler); // and what it found
/// assert!(mungo::profile::start_cpu(100).is_ok());
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "the profile ends when this is dropped"]
pub struct CpuProfiler {
    is_on: bool,
}

impl CpuProfiler {
    /// Ends the profile and returns it.
    ///
    /// ```
    /// let profiler = mungo::profile::start_cpu(100)?;
    /// assert_eq!(profiler.stop()?.kind(), mungo::profile::Kind::Cpu);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// In the child of a fork.
    pub fn stop(mut self) -> io::Result<Profile> {
        self.is_on = false;
        on_plain_thread(|| Ok(Profile::new(Kind::Cpu, sampling::cpu::stop()?)))
    }
}

impl Drop for CpuProfiler {
    fn drop(&mut self) {
        if self.is_on {
            _ = on_plain_thread(sampling::cpu::stop);
        }
    }
}
