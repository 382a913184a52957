//! When goroutines have ended and nobody needs their stacks, the memory goes back: stacks, thread blocks, and what
//! malloc caches for a thread.
#![cfg(mungo_own_tls)]

mod common;
mod tls_support;

use common::child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

own_thread_locals_only!();
children!(
    goroutines_that_freed_much,
    goroutines_that_used_libc,
    stacks_that_were_deep,
    goroutines_that_wait,
    goroutines_that_wait_with_room
);

const GOROUTINES: usize = 20_000;

/// Bytes that may stay for each goroutine, though they be more than a fifth of the page that it needs: the G, which
/// is used again, and what malloc does not give back of the chunks that were freed. With two pages it was 1,800.
const STAYS: usize = 1_300;

/// Goroutines that are alive at the same time run `body`, wait for each other, and end. Waits until at most 20 % of the
/// memory is left that they took, which comes true within three seconds, and returns how much they took, in bytes.
#[track_caller]
fn rise_and_fall(goroutines: usize, body: fn()) -> usize {
    let runtime = common::runtime(2);
    let rss = || common::status_bytes("VmRSS");
    let before = rss();
    let peak = runtime.run(move || {
        let (open, gate) = mungo::chan::bounded::<()>(0);
        let waiting = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..goroutines)
            .map(|_| {
                let (gate, waiting) = (gate.clone(), waiting.clone());
                mungo::go(move || {
                    body();
                    waiting.fetch_add(1, SeqCst);
                    _ = gate.recv();
                })
            })
            .collect();
        common::wait_until("all wait", || waiting.load(SeqCst) == goroutines);
        let peak = rss();
        drop(open);
        all.into_iter().for_each(|g| g.join().expect("no panic"));
        peak
    });
    let (ended, rise) = (Instant::now(), peak - before);
    let stays = (rise / 5).max(goroutines * STAYS);
    common::wait_until("the memory came back", || rss().saturating_sub(before) <= stays);
    println!(
        "{} KiB before, {} at the peak, {} after {:?}",
        before >> 10,
        peak >> 10,
        rss() >> 10,
        ended.elapsed()
    );
    // What was taken apart is as good as new.
    runtime.run(move || {
        let all: Vec<_> = (0..goroutines / 10).map(|_| mungo::go(body)).collect();
        all.into_iter().for_each(|g| g.join().expect("no panic"));
    });
    common::end(runtime);
    rise
}

/// Seven blocks each of 63 sizes: as much as malloc keeps for a thread.
fn free_blocks_of_many_sizes() {
    let blocks: Vec<Vec<u8>> = (0..7 * 63).map(|i| vec![1; 16 * (i % 63 + 1)]).collect();
    drop(std::hint::black_box(blocks));
}

fn goroutines_that_freed_much() {
    let rise = rise_and_fall(GOROUTINES, free_blocks_of_many_sizes);
    assert!(rise / GOROUTINES < 16 << 10, "malloc caches {} bytes for each goroutine", rise / GOROUTINES);
}

#[test]
#[cfg_attr(mungo_asan, ignore = "malloc is not glibc's, so that no thread block is taken apart")]
fn what_malloc_caches_does_not_stay_with_goroutines_that_ended() {
    child::run("goroutines_that_freed_much").assert_success();
}

static KEYS: [AtomicU32; 40] = [const { AtomicU32::new(0) }; 40];

unsafe extern "C" {
    fn __res_init() -> std::ffi::c_int;
}

/// glibc allocates for a thread that resolves names, and for one that uses more than 32 keys.
fn use_libc() {
    // SAFETY: makes the resolver's state of this thread.
    assert_eq!(unsafe { __res_init() }, 0);
    for key in &KEYS {
        // SAFETY: a key of ours; the value is only passed around.
        assert_eq!(unsafe { libc::pthread_setspecific(key.load(SeqCst), (&raw const KEYS).cast()) }, 0);
    }
}

fn goroutines_that_used_libc() {
    for key in &KEYS {
        let mut made = 0;
        // SAFETY: writes to `made`.
        assert_eq!(unsafe { libc::pthread_key_create(&mut made, None) }, 0);
        key.store(made, SeqCst);
    }
    rise_and_fall(5_000, use_libc);
    for fd in 0..3 {
        // SAFETY: asks for flags.
        assert!(unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0, "descriptor {fd} of others was closed");
    }
}

#[test]
#[cfg_attr(mungo_asan, ignore = "malloc is not glibc's, so that no thread block is taken apart")]
fn blocks_that_libc_allocated_for_are_taken_apart() {
    child::run("goroutines_that_used_libc").assert_success();
}

fn stacks_that_were_deep() {
    rise_and_fall(2_000, || {
        let pages = [1u8; 64 << 10];
        std::hint::black_box(&pages);
    });
}

#[test]
#[cfg_attr(
    mungo_asan,
    ignore = "thread blocks stay, as above, and so does the shadow of the stacks, an eighth"
)]
fn deep_stacks_go_back() {
    child::run("stacks_that_were_deep").assert_success();
}

/// Returns the bytes of memory that each of many goroutines takes that wait in a channel.
fn bytes_each(runtime: &mungo::Runtime) -> usize {
    runtime.run(|| {
        let wait = |goroutines: usize| {
            let (open, gate) = mungo::chan::bounded::<()>(0);
            let waiting = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..goroutines)
                .map(|_| {
                    let (gate, waiting) = (gate.clone(), waiting.clone());
                    mungo::go(move || {
                        waiting.fetch_add(1, SeqCst);
                        _ = gate.recv();
                    })
                })
                .collect();
            common::wait_until("all wait", || waiting.load(SeqCst) == goroutines);
            let rss = common::status_bytes("VmRSS");
            drop(open);
            all.into_iter().for_each(|g| g.join().expect("no panic"));
            rss
        };
        let few = wait(1000); // with all that the runtime itself needs
        (wait(1000 + GOROUTINES) - few) / GOROUTINES
    })
}

fn goroutines_that_wait() {
    let each = bytes_each(&common::runtime(2));
    assert!(each < 6 << 10, "{each} bytes, more than a page and some");
}

fn goroutines_that_wait_with_room() {
    let runtime = mungo::Runtime::builder().procs(2).late_static_tls(true).build().expect("a runtime");
    let each = bytes_each(&runtime);
    assert!((8 << 10..10 << 10).contains(&each), "{each} bytes, not two pages and some");
}

#[test]
#[cfg_attr(
    any(debug_assertions, mungo_asan),
    ignore = "frames are too large for one page without optimisation"
)]
fn a_goroutine_that_waits_needs_one_page_or_two_with_room_for_late_libraries() {
    child::run("goroutines_that_wait").assert_success();
    child::run("goroutines_that_wait_with_room").assert_success();
}
