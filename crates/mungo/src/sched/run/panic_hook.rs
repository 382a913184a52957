//! Makes a panic on a goroutine say which goroutine it is.
//!
//! std's own message names the thread, and an unnamed goroutine is an unnamed thread. So a line of ours follows it:
//! `mungo: goroutine 7 'parser' (spawned at src/main.rs:10:5) panicked`. It belongs to std's message: a program that
//! has a hook of its own gets no line, unless that hook calls the one that it found. Such a hook can ask
//! [`current`](crate::sched::run::current) for the goroutine.

use super::worker::describe;
use crate::sched::run::current;
use crate::sys::say::say;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send + 'static>;

/// Installs the hook by which panics say which goroutine they are on. Does so once, when the first runtime starts.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    if std::thread::panicking() {
        return; // hooks cannot be changed now; the next runtime does it
    }
    INSTALLED.call_once(|| {
        // These are the hook, one that another thread may set just now, and std's own, which is there when there is no
        // other.
        let (first, second, std_hook) = (take_hook(), take_hook(), take_hook());
        match (is_same(&first, &std_hook), is_same(&second, &std_hook)) {
            (true, true) => set_hook(Box::new(move |info| {
                std_hook(info);
                report();
            })),
            (false, true) => set_hook(first),
            (_, false) => set_hook(second),
        }
    });
}

/// Returns whether two hooks have the same address and type. std's own is a function, which has neither data nor an
/// address of its own, so two of it are the same. Should that change, the only effect is that our line is missing.
fn is_same(a: &Hook, b: &Hook) -> bool {
    let parts = |hook: &Hook| {
        // SAFETY: a pointer to an object and one to its type's functions.
        unsafe { std::mem::transmute_copy::<Hook, [usize; 2]>(hook) }
    };
    parts(a) == parts(b)
}

#[cold]
fn report() {
    if let Some(g) = current::g() {
        say!("mungo: goroutine {} panicked", describe(g));
    }
}
