//! Whether goroutines wait in shims, in this process.
//!
//! A forked child has one thread, and no runtime. It may have been made by `fork`, of which the C library tells, or by
//! a system call of which it does not: `_Fork`, `clone` and `syscall` of C, or the instruction alone. So the answer
//! lies on a page that the kernel wipes in a child with memory of its own; a child that shares its parent's (`vfork`)
//! keeps it.
//!
//! WHY NOT define those functions of C, or compare the number of the process before each wait: the first misses inline
//! system calls, the second costs a system call.

use crate::sched::run::current;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};

/// The answer of a child: what a wiped page says.
const FORKED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// The answer before a runtime starts, or where there is no page: then it is wrong in a child that `fork` did not make.
static FIRST: AtomicU8 = AtomicU8::new(OFF);

/// Where the answer is. Written once, when a runtime starts.
static ANSWER: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const FIRST).cast_mut());

fn answer() -> &'static AtomicU8 {
    // ORDERING: Acquire: pairs with `make_page`, which wrote to the page before.
    // SAFETY: a static, or a page that is never unmapped.
    unsafe { &*ANSWER.load(Acquire) }
}

/// Returns whether goroutines of this process may wait in shims: they have thread-locals of their own (`errno` above
/// all), the process was not forked, and `MUNGO_DEBUG` does not say `interpose=0`.
#[inline]
pub fn is_on() -> bool {
    answer().load(Relaxed) == ON
}

/// Returns whether this process is a forked child.
pub(super) fn is_child() -> bool {
    answer().load(Relaxed) == FORKED
}

/// Notes, in the child, that the process was forked.
pub extern "C" fn note_fork() {
    answer().store(FORKED, Relaxed);
}

/// Decides about [`is_on`], when a runtime starts.
pub(crate) fn note_decision() {
    static ONCE: Once = Once::new();
    if super::is_linked() {
        ONCE.call_once(make_page);
    }
    let is_on = current::own_tls() && crate::debug_env::get().interpose;
    if !is_child() {
        answer().store(if is_on { ON } else { OFF }, Relaxed);
    }
}

/// Moves the answer to a page that the kernel wipes in a child. Without memory, or before Linux 4.14, it stays.
fn make_page() {
    const SIZE: usize = 4096; // at least a page is mapped
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which is the process's own until its end unless it is given back here.
    unsafe {
        let page = libc::mmap(null_mut(), SIZE, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return;
        }
        if libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, SIZE);
            return;
        }
        let on_page = page.cast::<AtomicU8>();
        (*on_page).store(answer().load(Relaxed), Relaxed);
        ANSWER.store(on_page, Release); // ORDERING: with `answer`
    }
}
