//! Rounds of work for goroutines that are interrupted by injected calls: each checks what an interruption could change.
#![allow(dead_code)] // each test binary uses its own part

#[cfg_attr(target_arch = "aarch64", path = "registers_aarch64.rs")]
pub(crate) mod registers;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hint::black_box;

/// One round of work, some 10 to 100 µs. Panics if something has changed under it.
pub(crate) type Round = fn(u64);

/// All kinds of rounds: the registers', and these.
pub(crate) fn rounds() -> impl Iterator<Item = (&'static str, Round)> {
    let others: [(&str, Round); 4] =
        [("errno", errno), ("thread-locals", thread_locals), ("unwinding", unwinding), ("malloc", malloc)];
    registers::ROUNDS.into_iter().chain(others)
}

/// Turns of a loop that take some 20 µs.
pub(crate) const TURNS: u64 = 40_000;

/// Computes without a call.
#[inline(never)]
pub(crate) fn compute(mut n: u64, turns: u64) -> u64 {
    for i in 0..turns {
        n = black_box(n.rotate_left(5) ^ i);
    }
    n
}

fn errno(n: u64) {
    let number = (n % 100) as i32 + 1;
    // SAFETY: this goroutine's errno.
    unsafe { *libc::__errno_location() = number };
    black_box(compute(n, TURNS / 4));
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, number, "errno");
}

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
    static LAZY: Box<Cell<u64>> = Box::new(Cell::new(0));
}

fn thread_locals(n: u64) {
    let addresses = || (OWN.with(|own| std::ptr::from_ref(own).addr()), LAZY.with(|lazy| lazy.as_ptr().addr()));
    let before = addresses();
    OWN.set(n);
    LAZY.with(|lazy| lazy.set(!n));
    black_box(compute(n, TURNS / 4));
    assert_eq!(addresses(), before, "a thread-local moved");
    assert_eq!((OWN.get(), LAZY.with(|lazy| lazy.get())), (n, !n), "a thread-local of another goroutine");
}

fn unwinding(n: u64) {
    struct Count<'a>(&'a Cell<u64>);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    #[inline(never)]
    fn descend(depth: u64, n: u64, drops: &Cell<u64>) {
        let _count = Count(drops);
        match depth {
            0 => std::panic::resume_unwind(Box::new(n)),
            _ => descend(depth - 1, n, drops),
        }
        black_box(());
    }
    let drops = Cell::new(0);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| descend(7, n, &drops)));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&n));
    assert_eq!(drops.get(), 8);
    assert!(!std::thread::panicking());
}

fn malloc(n: u64) {
    let mut map = BTreeMap::new();
    for i in 0..40 {
        let size = (n.wrapping_mul(31).wrapping_add(i * 97) % 600) as usize;
        map.insert(i, vec![n as u8 ^ i as u8; size]);
    }
    for (i, bytes) in map {
        assert!(bytes.iter().all(|byte| *byte == n as u8 ^ i as u8), "the heap");
    }
}
