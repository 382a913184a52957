//! The program has a `malloc` of its own, with one lock that threads sleep for, so the C library calls it too, also to
//! start a thread. Goroutines are interrupted in it, since its code is the program's, and keep their threads. Nothing
//! hangs. Each case is a process of its own.
#![cfg(all(mungo_own_tls, not(mungo_asan), not(mungo_tsan)))]

#[macro_use]
mod common;

use common::{child, wait_until};
use mungo::{Runtime, RuntimeBuilder};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hint::{black_box, spin_loop};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

children!(one_p, two_ps, with_bound_ones, with_a_policy, with_inject);

/// What is freed is not used again. Each block has its length in front.
struct Heap {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    next: AtomicUsize,
    end: AtomicUsize,
}

// SAFETY: a lock of the C library's, and atomics.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    next: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
};

/// Turns of the loop that the lock is held for; the child makes it long.
static TURNS: AtomicUsize = AtomicUsize::new(0);

impl Heap {
    fn take(&self, align: usize, len: usize) -> *mut c_void {
        // SAFETY: the static lock.
        unsafe { libc::pthread_mutex_lock(self.lock.get()) };
        (0..TURNS.load(Relaxed)).for_each(|_| spin_loop());
        let place = |next: usize| (next + 16).next_multiple_of(align.max(16));
        if place(self.next.load(Relaxed)) + len > self.end.load(Relaxed) {
            let size = (64 << 20).max(len + align + 4096);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a fresh mapping.
            let fresh =
                unsafe { libc::mmap(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            if fresh == libc::MAP_FAILED {
                std::process::abort();
            }
            self.next.store(fresh.addr(), Relaxed);
            self.end.store(fresh.addr() + size, Relaxed);
        }
        let at = place(self.next.load(Relaxed));
        self.next.store(at + len, Relaxed);
        // SAFETY: in the mapping, below `at`, which is aligned.
        unsafe { *(at as *mut usize).sub(1) = len };
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
        at as *mut c_void
    }
}

#[unsafe(no_mangle)]
extern "C" fn malloc(len: usize) -> *mut c_void {
    HEAP.take(16, len)
}

#[unsafe(no_mangle)]
extern "C" fn calloc(n: usize, len: usize) -> *mut c_void {
    HEAP.take(16, n * len)
}

#[unsafe(no_mangle)]
extern "C" fn free(_at: *mut c_void) {}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(at: *mut c_void, len: usize) -> *mut c_void {
    let new = HEAP.take(16, len);
    if !at.is_null() {
        // SAFETY: its length is in front; both have the smaller number of bytes.
        unsafe {
            let old = *at.cast::<usize>().sub(1);
            at.cast::<u8>().copy_to_nonoverlapping(new.cast(), old.min(len));
        }
    }
    new
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, len: usize) -> *mut c_void {
    HEAP.take(align, len)
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, len: usize) -> *mut c_void {
    HEAP.take(align, len)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(at: *mut *mut c_void, align: usize, len: usize) -> i32 {
    // SAFETY: by the caller.
    unsafe { *at = HEAP.take(align, len) };
    0
}

fn builder(procs: usize) -> RuntimeBuilder {
    Runtime::builder().procs(procs).time_slice(Duration::from_millis(1))
}

/// Some goroutines call malloc all the time, and others sleep on their threads, so that threads have to be started.
fn allocate(builder: RuntimeBuilder, bound: bool) {
    let runtime = builder.build().unwrap();
    TURNS.store(2_000, Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (0..4)
        .map(|n| {
            let stop = stop.clone();
            runtime.spawn(move || {
                let _bound = (bound && n % 2 == 0).then(mungo::lock_os_thread);
                while !stop.load(Relaxed) {
                    drop(black_box(Box::new([0u8; 64])));
                    (0..2_000).for_each(|_| spin_loop()); // the lock is not fair: others shall get it at all
                }
            })
        })
        .collect();
    let sleepers: Vec<_> = (0..8)
        .map(|_| runtime.spawn(|| (0..40).for_each(|_| std::thread::sleep(Duration::from_millis(2)))))
        .collect();
    sleepers.into_iter().for_each(|g| g.join().unwrap());
    wait_until("goroutines were interrupted", || runtime.metrics().interruptions.by_thread >= 4);
    stop.store(true, Relaxed);
    loads.into_iter().for_each(|g| g.join().unwrap());
    let interruptions = runtime.metrics().interruptions;
    assert_eq!(interruptions.injected, 0, "{interruptions:?}");
    common::end(runtime);
    println!("done");
}

fn one_p() {
    allocate(builder(1), false);
}

fn two_ps() {
    allocate(builder(2), false);
}

fn with_bound_ones() {
    allocate(builder(1), true);
}

/// The policy allocates, and so does what asks it.
fn with_a_policy() {
    allocate(builder(1).scheduler(mungo::policy::PriorityLevels::new()), false);
}

/// The user knows that the lock is not slept for, or does no harm.
fn with_inject() {
    let runtime = builder(1).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let both: Vec<_> = (0..2)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(move || while !stop.load(Relaxed) {})
        })
        .collect();
    wait_until("goroutines were interrupted", || runtime.metrics().interruptions.injected >= 4);
    stop.store(true, Relaxed);
    both.into_iter().for_each(|g| g.join().unwrap());
    common::end(runtime);
    println!("done");
}

#[track_caller]
fn goes_on(name: &str) {
    for _ in 0..3 {
        let ended = child::run(name);
        assert!(ended.assert_success().stdout.contains("done"), "{ended:#?}");
    }
}

#[test]
fn goroutines_interrupted_in_the_programs_malloc_go_on() {
    goes_on("one_p");
}

#[test]
fn two_processors_go_on() {
    goes_on("two_ps");
}

#[test]
fn goroutines_that_are_locked_to_their_threads_go_on() {
    goes_on("with_bound_ones");
}

#[test]
fn a_policy_that_allocates_goes_on() {
    goes_on("with_a_policy");
}

#[test]
fn calls_are_injected_where_the_user_asks_for_it() {
    let mut command = child::command("with_inject");
    command.env("MUNGO_DEBUG", "asyncpreempt=inject");
    assert!(child::finish(command).assert_success().stdout.contains("done"));
}
