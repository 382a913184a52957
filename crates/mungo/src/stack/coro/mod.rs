//! The coroutine under a goroutine: what switches between a worker's stack and a goroutine's.
//!
//! A [`Coro`] is started on a slot, resumed by a worker (on the M's own stack, "g0"), and suspends itself with a word
//! for the worker. It never unwinds out, since the goroutine's entry catches panics, and it never returns: it suspends
//! for the last time.
//!
//! [`x86_64`] is our own; [`portable`] leaves it to corosensei, and so do builds with `--cfg mungo_corosensei`, to test
//! that one here. Why two: corosensei's `call` there and `ret` back are predicted well by the CPU if the coroutine
//! suspends in its outermost function. A goroutine that suspends deep inside a channel mispredicts each return on its
//! way out, 3 to 5 ns each.

#[cfg(any(not(all(target_arch = "x86_64", target_os = "linux")), mungo_corosensei))]
mod portable;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(mungo_corosensei)))]
mod x86_64;

#[cfg(any(not(all(target_arch = "x86_64", target_os = "linux")), mungo_corosensei))]
#[allow(unused_imports)] // who unwinds wants the constant
pub(crate) use portable::{Coro, SAVED_BP};
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(mungo_corosensei)))]
#[allow(unused_imports)] // as above
pub(crate) use x86_64::{Coro, SAVED_BP};
