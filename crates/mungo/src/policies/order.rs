//! The numbers that decide what runs next, and when: all of those of the runtime, with units, reasons and how they were
//! found. Those of one policy stand in its file, those that a user sets beside the settings.
//!
//! The commands are those of the contestant, `cargo run --release -p mungo-lab --bin contestant -- WORKLOAD key=value`,
//! and of the side-by-side runs that it takes part in (`http_wrk`, `http_mixed`, `echo`: a web server or an echo server
//! and its clients). Where a note says "guess", nothing was measured.

use std::time::Duration;

// ---- slices ----

/// The time that a goroutine may compute while others wait, unless the builder says otherwise. Go's number.
pub(crate) const TIME_SLICE: Duration = Duration::from_millis(10);
/// The shortest and the longest slice that a builder or a policy may ask for. TUNED: guess; an interruption costs some
/// 10 µs, so at most a tenth is lost.
pub(crate) const SHORTEST_SLICE: Duration = Duration::from_micros(100);
pub(crate) const LONGEST_SLICE: Duration = Duration::from_secs(3600);

// ---- fresh and computing goroutines (`classes.rs`) ----

/// Time in ns without a switch after which a goroutine counts as one that computes. TUNED: guess; an interruption costs
/// some 10 µs, so at most a twentieth is lost.
pub(crate) const FRESH_NS: u64 = 200_000;
/// Fresh goroutines get one part of this many of a P's time while computing ones wait.
/// TUNED: `http_wrk` and `bimodal short_us=20 long_us=2000`, one run each on a busy machine. 2, 4 and 8 parts: 37,900,
/// 25,900 and 12,900 light requests/s; short p99 2.4, 2.7 and 199 ms. On a quiet one 2 and 4 parts: 0.55 and 0.67 of
/// Go's heavy requests/s, short p99 2.4 and 3.4 ms.
pub(crate) const PARTS: i64 = 4;
/// Time in ns that fresh goroutines of a P can have saved up at the most.
/// TUNED: `bimodal short_us=20 long_us=2000`, short p50 with 10 ms: 2.6 to 7.9 ms, with 100 ms: 0.1 to 3.4 (three runs
/// each on a busy machine).
pub(crate) const BURST_NS: i64 = 100_000_000;
/// Saved-up time in ns from which on a computing goroutine is interrupted for a fresh one.
/// TUNED: with 0.1, 0.4 and 1 ms 0.74, 0.79 and 0.92 of Go's heavy requests/s in `http_wrk`; short p99 of
/// `bimodal short_us=4 long_us=10000` 2.8, 3.2 and 15.8 ms.
pub(crate) const WORTH_NS: i64 = 400_000;

// ---- queues (`sched/pick/mod.rs`) ----

/// Ticks of a P after which the global queue comes before the ring, so that two goroutines that respawn each other
/// cannot keep the P from it. Go's number.
pub(crate) const GLOBAL_EVERY: u32 = 61;
/// Goroutines in a ring behind which a joiner queues up, rather than to go next in line.
/// TUNED: `spawn_join batch=1000` costs 64 ns a goroutine at the back, 120 ns next in line (the joiner runs after each
/// goroutine and waits for the next); a fork-join recursion prefers next in line by 8 %, and its queues are short.
pub(crate) const JOINER_WAITS: usize = 32;
/// Other Ps that an M looks at before it looks at the network, or lets a computing goroutine go on. TUNED: guess.
pub(crate) const PS_PER_LOOK: usize = 4;

/// Goroutines in a ring from which on due timers come in one at a tick: half of the ring. TUNED: guess.
pub(crate) const TIMERS_CROWD: usize = 128;
/// Events that one call takes from the kernel; a look makes two calls at the most. Go's number.
pub(crate) const POLL_BATCH: usize = 128;
/// Tasks that one take of a policy moves from the global queue to a P's own at the most. Go's number.
pub(crate) const GLOBAL_SHARE: usize = 128;
/// Goroutines that a P passes on from the global queue to a policy at a time. TUNED: guess; as many as a ring holds.
pub(crate) const COLLECT: usize = 256;
/// Times in a row that a policy may say that there is nothing to do, although there is, before its P pauses.
/// TUNED: guess; a task that is on its way arrives within some of them.
pub(crate) const PATIENT_REFUSALS: u32 = 100;
/// That pause. TUNED: guess.
pub(crate) const REFUSAL_PAUSE: Duration = Duration::from_micros(100);

// ---- thieves (`thief.rs`, `policies/mod.rs`) ----

/// Time in ns of a thief's first nap; each is twice as long as the one before, up to the longest.
/// TUNED: a pair on a channel switches every 0.1 to 3 µs. `pingpong_unbuf procs=2` took 316 ns, then 165; on one P 156.
pub(crate) const FIRST_NAP_NS: u64 = 3_000;
pub(crate) const LONGEST_NAP_NS: u64 = 48_000;
/// Goroutines in a ring that count as few. More are robbed at once, these only after [`NAPS_FOR_FEW`] naps; more are
/// robbed without a thief's patience while computing goroutines wait (`pick/mod.rs`); more that stay from one look of
/// the monitor to the next make the P that has computed longest make room (`watch.rs`); and only more in its own ring
/// make an M that got up for timers call another one (`threads/sleep.rs`).
/// TUNED: of 1, 2, 3 naps: `select` took 240, 201, 191 ns a message, with buffers 85, 67, 60; 301 and 105 without. A
/// fork-join recursion of 3 µs tasks gains too.
pub(crate) const FEW: usize = 6;
pub(crate) const NAPS_FOR_FEW: u32 = 2;
/// Naps that pass with empty queues before a thief that saw a goroutine in line gives up. One that saw none gives up at
/// once. TUNED: with naps for that one too, `timers n=20000` took 0.91 s of CPU time instead of 0.54, and the p99 of
/// `echo` with 64 connections was 3.2 instead of 1.5 ms.
pub(crate) const EMPTY_NAPS: u32 = 4;
/// Time in ns without a switch after which a P with goroutines in its ring most likely has a thread without a CPU.
/// TUNED: 50 to 400 µs are alike in `echo`; without a time, a P in the middle of a system call is taken for one.
pub(crate) const STALLED_NS: u64 = 100_000;
/// Rounds over all Ps before a thief of a policy gives up. Go's number.
pub(crate) const STEAL_ROUNDS: usize = 4;

// ---- threads (`sched/threads/`) ----

/// Time in ns that an idle M waits for work before it ends, if there are more than [`KEEP_IDLE`]. TUNED: guess.
pub(crate) const IDLE_LIFE_NS: u64 = 5_000_000_000;
pub(crate) const KEEP_IDLE: usize = 4;
/// The most idle Ms of which the one nearest to the caller's CPU is chosen. TUNED: guess.
pub(crate) const NEAR: usize = 8;
/// Time in ns after a refusal during which the system is not asked for a thread again. TUNED: guess.
pub(crate) const RETRY_NS: u64 = 10_000_000;
/// Time in ns without CPU time after which a thread has passed a barrier in the kernel. TUNED: guess; it is long beside
/// the time that a store takes to be seen.
pub(crate) const STILL_NS: u64 = 20_000;

/// Time in ns in which no goroutine that was held back because of the cap on threads begins, after which one more
/// thread may help. TUNED: guess; longer than most calls that block, so that the cap holds for those.
pub(crate) const STALL_NS: u64 = 100_000_000;
/// Goroutines that begin beyond the cap before that time doubles. TUNED: guess.
pub(crate) const STALL_DOUBLES: u32 = 16;
/// Goroutines, of those that were held back last, among which the youngest is searched for. TUNED: guess.
pub(crate) const YOUNGEST_OF: usize = 4096;
/// Wake-ups of a contended futex lock that pass the P on, after a woken goroutine found the lock taken again, and came
/// back to wait (`interpose/futex.rs`). std's Mutex spins before that, for 2.5 µs here, which is in vain where the new
/// holder has no P. Where goroutines hold a lock for a moment only, none comes back, and a goroutine that unlocks goes
/// on.
///
/// TUNED: `cargo bench -p mungo-interpose handovers`, medians of three: 160,000 handovers on one P took 157 ms with
/// this and 399 without, on two 73 and 93, which is within the noise there. The number itself is a guess.
pub(crate) const HAND_OVER: u32 = 32;

// ---- timers (`threads/sleep.rs`) ----

/// The time for which timers may be put together, unless the builder says otherwise: an M that sleeps for timers gets
/// up once in this time at the most.
/// TUNED: with 0, 50, 100 and 150 µs `timer_lateness` has a p50 of 15, 19, 41 and 73 µs (Go 527), and with the first
/// three `timers n=20000` takes 0.31, 0.28 and 0.25 s of CPU time (Go 0.11).
pub(crate) const TIMER_SLACK: Duration = Duration::from_micros(100);
/// Time in ns, since an M that had got up for timers did not come back soon, in which such an M calls another one to
/// keep the time. TUNED: guess; of two goroutines, of which one computes for 5 ms and the other wants to be woken each
/// ms, the latter is late by up to a millisecond once in a hundred times.
pub(crate) const WARY_NS: u64 = 100_000_000;

// ---- the monitor's looks (`monitor.rs`) ----

/// Time in ns between two looks while things happen, and while they do not. Go's numbers.
pub(crate) const SHORTEST_NS: u64 = 20_000;
pub(crate) const LONGEST_NS: u64 = 10_000_000;
/// Looks without news before the time between them doubles. Go's number.
pub(crate) const PATIENCE: u32 = 50;
/// The longest time in ns between two looks while a goroutine waits for a P, or for a timer. A look takes 20 µs of CPU
/// time where CPUs are virtual, most of it for the switch to the monitor and back.
pub(crate) const CONCERNED_NS: u64 = 1_000_000;
/// Time in ns after a call in which looks are [`CONCERNED_NS`] apart at the most, so that the monitor need not be
/// called for each goroutine. TUNED: guess.
pub(crate) const ALERT_NS: u64 = 20_000_000;
/// Rounds of [`LONGEST_NS`] with all Ps idle before the monitor goes to sleep. TUNED: guess.
pub(crate) const IDLE_ROUNDS: u32 = 10;
/// Naps of a second before the monitor sleeps for an hour: as many chores as it takes until all stacks are trimmed.
/// TUNED: guess.
pub(crate) const NAPS: u32 = 4;
/// Time in ns past its deadline after which a timer counts as not looked after by its own P. TUNED: guess.
pub(crate) const LATE_TIMER_NS: u64 = 20_000;

// ---- goroutines that block or compute (`watch.rs`) ----

/// Time in ns that an announced blocking call keeps its P. Go's number.
pub(crate) const ANNOUNCED_NS: u64 = 20_000;
/// Time in ns without a switch after which a goroutine is suspected of being blocked.
/// TUNED: the P moves on at the second look; looks are at most 1 ms apart while a goroutine waits.
pub(crate) const SUSPECT_NS: u64 = 50_000;
/// Time in ns after which a worker in the runtime that does not move is taken to wait for a lock that a preempted
/// goroutine may hold; and so is a starter that takes as long to start a thread. TUNED: guess.
pub(crate) const STUCK_NS: u64 = 20_000_000;
/// Goroutines from queues that are let go on without a P at a time. TUNED: guess.
pub(crate) const LET_GO_ON: usize = 8;
/// CPU time in ns that a goroutine without a P uses between two blocking calls at the most: above it, it computes.
/// TUNED: guess.
pub(crate) const COMPUTES_NS: u64 = 300_000;
/// CPU time in ns, in all, after which a goroutine without a P counts as computing, however often its thread's clock
/// was seen standing still: where many threads wait for a CPU, each gets little at a time. TUNED: guess.
pub(crate) const COMPUTES_IN_ALL_NS: u64 = 10_000_000;
/// Time in ns that a goroutine without a P is left alone: most go back to sleep, or call the runtime. TUNED: guess.
pub(crate) const STRAY_COMPUTES_NS: u64 = 1_000_000;
/// Time in ns that an interrupted thread has to give its P up. After that it is taken. TUNED: guess; a signal takes
/// 20 to 110 µs to arrive on a machine whose CPUs are busy.
pub(crate) const PARTING_NS: u64 = 200_000;
/// The same time in ns while as many goroutines as there are Ps compute without one. Then the machine is busy: each
/// further thread waits for a CPU as the others do, and takes theirs.
/// TUNED: `computing tasks=2000 us=4000 slice_us=1000` beside 16 other threads on 2 CPUs: 17 threads without this.
pub(crate) const CROWDED_NS: u64 = 20_000_000;
/// Time in ns between two signals to a thread that was in libc when it got the first. TUNED: guess.
pub(crate) const REPEAT_NS: u64 = 50_000;
/// Clocks of goroutines without a P that are read at each look. TUNED: guess.
pub(crate) const STRAYS_PER_LOOK: usize = 32;
