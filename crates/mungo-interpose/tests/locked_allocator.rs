//! The process's allocator has a lock of std, for which goroutines park and workers inside the runtime wait in the
//! kernel. The wake-up must reach the worker first, since it holds the P that a goroutine needs.

#[macro_use]
#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{child, runtime};
use mungo_interpose as _;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::{black_box, spin_loop};
use std::sync::Mutex;

children!(one_p, two_ps);

/// The system's allocator, one call at a time. The lock is held for a while, so that others come to wait for it.
struct Locked(Mutex<()>);

#[global_allocator]
static ALLOCATOR: Locked = Locked(Mutex::new(()));

impl Locked {
    fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        let _only = self.0.lock();
        let result = f();
        (0..100).for_each(|_| spin_loop());
        result
    }
}

// SAFETY: the system's allocator, one call at a time.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        self.with(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        self.with(|| unsafe { System.dealloc(at, layout) })
    }
}

#[test]
fn on_one_p() {
    child::run("one_p").assert_success();
}

#[test]
fn on_two_ps() {
    child::run("two_ps").assert_success();
}

fn one_p() {
    contend(1);
}

fn two_ps() {
    contend(2);
}

/// Threads and goroutines allocate, and goroutines are spawned, sleep and end, for which the runtime allocates.
fn contend(procs: usize) {
    const ROUNDS: usize = 3000;
    let busy = || (0..ROUNDS).for_each(|i| drop(black_box(vec![0_u8; i % 100 + 1])));
    let runtime = runtime(procs);
    std::thread::scope(|threads| {
        (0..2).for_each(|_| _ = threads.spawn(busy));
        runtime.run(|| {
            mungo::scope(|s| {
                for _ in 0..4 {
                    s.spawn(busy);
                    s.spawn(|| {
                        for i in 0..ROUNDS / 10 {
                            mungo::go(move || black_box(vec![i; 10])).join().unwrap();
                            mungo::sleep(std::time::Duration::from_micros(10));
                        }
                    });
                }
            });
        });
    });
}
