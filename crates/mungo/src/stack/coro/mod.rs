//! The coroutine under a goroutine: the switch between a worker's stack and a goroutine's.
//!
//! A [`Coro`] is started on a slot, resumed by a worker (on the M's own stack, "g0"), and suspends itself with a word
//! for the worker. It never unwinds out, since the goroutine's entry catches panics, and it never returns: it suspends
//! for the last time.
//!
//! `own` is mungo's, on x86-64 and aarch64; `portable` leaves it to corosensei, and so do builds with `--cfg
//! mungo_corosensei`, to test that one here. Why two: corosensei's `call` there and `ret` back are predicted well by
//! the CPU if the coroutine suspends in its outermost function. A goroutine that suspends deep inside a channel
//! mispredicts each return on its way out, 3 to 5 ns each on x86-64.
//!
//! On aarch64 no machine has been measured. By the source our switch is 13 instructions each way, one of them a
//! landing pad, and corosensei's 8 to resume and 9 to suspend, without the code around them that wraps values; so it is
//! the same reason that has to pay there.
//!
//! Counted there, by a plugin of qemu's that counts instructions: two goroutines on one P that do nothing but yield,
//! release build, rustc 1.96: 204 instructions a yield with ours, 236 with corosensei's, the scheduler's included (the
//! smallest of four counts each, 440,000 yields less 40,000).

#[cfg(all(mungo_native, not(mungo_corosensei)))]
#[path = "own.rs"]
mod imp;
#[cfg(any(not(mungo_native), mungo_corosensei))]
#[path = "portable.rs"]
mod imp;

#[allow(unused_imports)] // for the unwinder, which wants the constants
pub(crate) use imp::{Coro, SAVED, SAVED_BP};
