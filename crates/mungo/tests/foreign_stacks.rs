//! Goroutines on stacks that are not theirs: those of `stacker`, of a coroutine, of a virtual machine's fibers.

#[macro_use]
mod common;

use common::{Deadline, child, end, hasty_runtime, preemptions, runtime, wait_until};
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use mungo::chan;
use mungo::debug::dump;
use std::cell::Cell;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

children!(
    parks_above_its_slot,
    parks_below_its_slot,
    dumped_above_its_slot,
    dumped_below_its_slot,
    runs_and_is_dumped,
    the_hole_above_is_used_by_stacker,
);

const SIZE: usize = 256 << 10;

/// Memory for a stack at a place of our choice.
#[derive(Clone, Copy)]
struct Foreign(usize);

impl Foreign {
    /// A stack between unmapped pages, `above` or below the address `slot`.
    fn near(slot: usize, above: bool) -> Foreign {
        const STEP: usize = 64 << 20;
        let step = |i: usize| if above { slot + i * STEP } else { slot - i * STEP };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let page = 4096;
        let place = (1..10_000).map(step).map(|at| at & !(page - 1)).find(|at| {
            // SAFETY: new mappings where there are none; the pages at both ends go away again.
            unsafe {
                let all = SIZE + 2 * page;
                let got = libc::mmap(*at as *mut _, all, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                if got as usize == *at {
                    libc::munmap(got, page);
                    libc::munmap((at + all - page) as *mut _, page);
                }
                got as usize == *at
            }
        });
        Foreign(place.expect("a free place") + page)
    }

    fn range(&self) -> Range<usize> {
        self.0..self.0 + SIZE
    }

    /// Runs `f` there, on the calling goroutine.
    fn run(self, f: impl FnOnce() + 'static) {
        let range = self.range();
        let mut coroutine = Coroutine::with_stack(self, move |_: &Yielder<(), ()>, ()| {
            assert!(range.contains(&here()), "on the other stack");
            f();
        });
        assert!(matches!(coroutine.resume(()), CoroutineResult::Return(())));
    }
}

// SAFETY: the bounds of a mapping that is never unmapped.
unsafe impl Stack for Foreign {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.0 + SIZE).expect("not 0")
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.0).expect("not 0")
    }
}

/// About where the stack pointer is.
#[inline(never)]
fn here() -> usize {
    let marker = 0u8;
    black_box(&raw const marker) as usize
}

/// Goroutines that park with used pages below their stack pointers; `after` both of them have lost those pages, the
/// monitor has looked at all that parked before.
fn wait_for_the_trimmer() {
    #[inline(never)]
    fn dirty() -> usize {
        let bytes = black_box([1u8; 64 << 10]);
        &raw const bytes[0] as usize
    }
    let resident = |at: usize| {
        let mut page = 0u8;
        // SAFETY: asks about a page of a slot, which is never unmapped.
        assert_eq!(unsafe { libc::mincore((at & !4095) as *mut _, 4096, &mut page) }, 0);
        page & 1 != 0
    };
    for _ in 0..2 {
        let (tx, rx) = chan::bounded::<usize>(1);
        let companion = mungo::go(move || {
            tx.send(dirty()).unwrap();
            mungo::park();
        });
        let at = rx.recv().unwrap();
        wait_until("the companion's pages are gone", || !resident(at));
        companion.goroutine().unpark();
        companion.join().unwrap();
    }
}

fn parks_on_another_stack(above: bool) {
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(3) };
    }
    let (tx, rx) = chan::bounded::<()>(0);
    let parked = Arc::new(AtomicBool::new(false));
    let (says, neighbours) = (parked.clone(), chan::bounded::<()>(0));
    // The slots next to it.
    let others: Vec<_> = (0..8)
        .map(|_| {
            let rx = neighbours.1.clone();
            mungo::go(move || {
                let x = black_box([9u8; 4096]);
                rx.recv().unwrap_err();
                assert!(black_box(&x).iter().all(|b| *b == 9));
            })
        })
        .collect();
    let h = mungo::go(move || {
        OWN.set(7);
        let x = black_box([7u8; 4096]);
        let other = Foreign::near(here(), above);
        assert_eq!(other.0 > here(), above);
        other.run(move || {
            let y = black_box([8u8; 4096]);
            says.store(true, SeqCst);
            rx.recv().unwrap();
            assert!(black_box(&y).iter().all(|b| *b == 8));
        });
        assert!(black_box(&x).iter().all(|b| *b == 7));
        assert_eq!(OWN.get(), 7);
    });
    wait_until("it is parked", || parked.load(SeqCst));
    wait_for_the_trimmer();
    tx.send(()).unwrap();
    h.join().unwrap();
    drop(neighbours.0);
    others.into_iter().for_each(|h| h.join().unwrap());
}

fn parks_above_its_slot() {
    parks_on_another_stack(true);
}

fn parks_below_its_slot() {
    parks_on_another_stack(false);
}

#[test]
#[cfg_attr(mungo_asan, ignore = "the sanitizer leaves no room above")]
fn a_goroutine_may_be_parked_for_long_on_a_stack_above_its_own() {
    child::run("parks_above_its_slot").assert_success();
}

#[test]
fn a_goroutine_may_be_parked_for_long_on_a_stack_below_its_own() {
    child::run("parks_below_its_slot").assert_success();
}

fn dumped_on_another_stack(above: bool) {
    let (tx, rx) = chan::bounded::<()>(0);
    let parked = Arc::new(AtomicBool::new(false));
    let says = parked.clone();
    let h = mungo::go(move || {
        let other = Foreign::near(here(), above);
        other.run(move || {
            says.store(true, SeqCst);
            rx.recv().unwrap();
        });
    });
    wait_until("it is there", || parked.load(SeqCst));
    let id = h.goroutine().id().to_string();
    wait_until("it is listed as waiting", || {
        let text = dump().to_string();
        text.contains(&id) && text.contains("another stack")
    });
    tx.send(()).unwrap();
    h.join().unwrap();
}

fn dumped_above_its_slot() {
    dumped_on_another_stack(true);
}

fn dumped_below_its_slot() {
    dumped_on_another_stack(false);
}

#[test]
#[cfg_attr(mungo_asan, ignore = "the sanitizer leaves no room above")]
fn a_dump_survives_a_goroutine_that_waits_above_its_own_stack() {
    child::run("dumped_above_its_slot").assert_success();
}

#[test]
fn a_dump_survives_a_goroutine_that_waits_below_its_own_stack() {
    child::run("dumped_below_its_slot").assert_success();
}

fn runs_and_is_dumped() {
    let rt = hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let there = Arc::new(AtomicUsize::new(0));
    let all: Vec<_> = [true, false, true, false]
        .into_iter()
        .map(|above| {
            let (stop, there) = (stop.clone(), there.clone());
            rt.spawn(move || {
                let other = Foreign::near(here(), above);
                other.run(move || {
                    there.fetch_add(1, SeqCst);
                    let x = black_box([5u8; 4096]);
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                    assert!(black_box(&x).iter().all(|b| *b == 5));
                });
            })
        })
        .collect();
    wait_until("all of them run, two at a time", || there.load(SeqCst) == 4);
    let before = preemptions(&rt);
    for _ in 0..20 {
        assert!(dump().to_string().contains("foreign_stacks.rs"));
    }
    wait_until("they are interrupted", || preemptions(&rt) > before + 20);
    stop.store(true, SeqCst);
    all.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}

#[test]
#[cfg_attr(mungo_asan, ignore = "the sanitizer leaves no room above")]
fn a_goroutine_is_interrupted_and_dumped_while_it_runs_on_another_stack() {
    child::run("runs_and_is_dumped").assert_success();
}

fn the_hole_above_is_used_by_stacker() {
    let hole = Vec::<u8>::with_capacity(64 << 20);
    mungo::go(|| ()).join().unwrap(); // slabs lie below the hole
    drop(hole);
    let (tx, rx) = chan::bounded::<()>(0);
    let h = mungo::go(move || {
        let x = black_box([7u8; 4096]);
        stacker::grow(1 << 20, || rx.recv()).unwrap();
        assert!(black_box(&x).iter().all(|b| *b == 7));
    });
    wait_for_the_trimmer();
    tx.send(()).unwrap();
    h.join().unwrap();
}

#[test]
fn a_goroutine_may_be_parked_for_long_in_stacker() {
    child::run("the_hole_above_is_used_by_stacker").assert_success();
}

#[test]
fn stacker_does_not_switch_without_need() {
    let rt = runtime(2);
    rt.run(|| {
        let stack = own_stack().expect("known");
        let left = stacker::remaining_stack().expect("known too");
        assert!(left <= stack.len() && left > stack.len() / 2, "{left} of {}", stack.len());
        stacker::maybe_grow(32 << 10, 1 << 20, || assert!(stack.contains(&here()), "a switch"));
        stacker::maybe_grow(stack.len(), 1 << 20, || assert!(!stack.contains(&here()), "no switch"));
        assert!(stack.contains(&here()));
    });
    end(rt);
}

/// Recursion that needs many times the stack, with switches between goroutines all the way.
#[test]
fn recursion_grows_by_stacker_while_goroutines_switch() {
    fn sum(n: u64) -> u64 {
        stacker::maybe_grow(64 << 10, 512 << 10, || {
            let frame = black_box([n; 64]);
            if n.is_multiple_of(64) {
                mungo::yield_now();
            }
            let below = if n == 0 { 0 } else { sum(n - 1) };
            below + black_box(&frame)[(n % 64) as usize]
        })
    }
    let rt = runtime(2);
    let all: Vec<_> = (0..8).map(|_| rt.spawn(|| sum(4000))).collect();
    all.into_iter().for_each(|h| assert_eq!(h.join().unwrap(), 4000 * 4001 / 2));
    end(rt);
}

/// What `pthread_getattr_np` says about the caller's stack.
fn own_stack() -> Result<Range<usize>, i32> {
    // SAFETY: asks about the calling thread or goroutine.
    stack_of(unsafe { libc::pthread_self() })
}

fn stack_of(thread: libc::pthread_t) -> Result<Range<usize>, i32> {
    // SAFETY: the thread, or goroutine, is alive; the attributes are initialised by a call that succeeds.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        match libc::pthread_getattr_np(thread, &mut attr) {
            0 => {}
            error => return Err(error),
        }
        let (mut low, mut len, mut guard) = (std::ptr::null_mut(), 0, 0);
        assert_eq!(libc::pthread_attr_getstack(&attr, &mut low, &mut len), 0);
        assert_eq!(libc::pthread_attr_getguardsize(&attr, &mut guard), 0);
        assert_eq!(libc::pthread_attr_destroy(&mut attr), 0);
        assert!(guard >= 4096, "a guard of {guard} bytes");
        Ok(low as usize..low as usize + len)
    }
}

#[test]
fn the_c_library_knows_the_stack_of_a_goroutine() {
    let rt = runtime(2);
    rt.run(|| {
        let stack = own_stack().expect("an answer");
        assert!(stack.contains(&here()) && stack.len() > 128 << 10 && stack.len() < 256 << 10, "{stack:x?}");
        let big = mungo::Builder::new().stack_size(2 << 20).spawn(|| {
            let stack = own_stack().expect("an answer");
            assert!(stack.contains(&here()) && stack.len() >= 2 << 20);
        });
        big.unwrap().join().unwrap();
        // Another goroutine's.
        let (tx, rx) = chan::bounded(1);
        let (done, wait) = chan::bounded::<()>(0);
        let other = mungo::go(move || {
            // SAFETY: a number.
            tx.send((unsafe { libc::pthread_self() }, here())).unwrap();
            wait.recv().unwrap_err();
        });
        let (thread, at) = rx.recv().unwrap();
        let theirs = stack_of(thread).expect("an answer");
        assert!(theirs.contains(&at) && !theirs.contains(&here()));
        drop(done);
        other.join().unwrap();
    });
    end(rt);
    assert!(own_stack().expect("a thread's").contains(&here()));
    let thread = std::thread::spawn(|| own_stack().expect("a thread's").contains(&here()));
    assert!(thread.join().unwrap());
}

#[test]
fn the_c_library_knows_where_a_goroutine_may_run() {
    /// The CPUs, by the thread's handle and by the kernel.
    fn both() -> [libc::cpu_set_t; 2] {
        // SAFETY: room for the sets; the calling thread or goroutine.
        unsafe {
            let mut sets: [libc::cpu_set_t; 2] = std::mem::zeroed();
            let size = size_of::<libc::cpu_set_t>();
            assert_eq!(libc::pthread_getaffinity_np(libc::pthread_self(), size, &mut sets[0]), 0);
            assert_eq!(libc::sched_getaffinity(0, size, &mut sets[1]), 0);
            sets
        }
    }
    // SAFETY: sets of the right size.
    let same = |[a, b]: [libc::cpu_set_t; 2]| unsafe { libc::CPU_EQUAL(&a, &b) && libc::CPU_COUNT(&a) > 0 };
    assert!(same(both()));
    assert!(mungo::go(move || same(both())).join().unwrap());
}

/// The answers are had without a lock, so also while everything is interrupted all the time.
#[test]
fn asking_for_the_stack_goes_on_under_preemption() {
    let rt = hasty_runtime(2);
    let until = Deadline::after(Duration::from_millis(300));
    let all: Vec<_> = (0..8)
        .map(|_| {
            rt.spawn(move || {
                while !until.passed() {
                    assert!(own_stack().expect("an answer").contains(&here()));
                }
            })
        })
        .collect();
    all.into_iter().for_each(|h| h.join().unwrap());
    end(rt);
}
