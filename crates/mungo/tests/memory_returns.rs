//! When goroutines have ended and nobody needs their stacks, the memory goes back: stacks, thread blocks, and what
//! malloc caches for a thread.
#![cfg(mungo_own_tls)]

mod common;
mod tls_support;

use common::child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

own_thread_locals_only!();
children!(
    goroutines_that_freed_much,
    goroutines_that_used_libc,
    goroutines_with_texts,
    stacks_that_were_deep,
    goroutines_that_wait,
    goroutines_that_wait_with_room
);

const GOROUTINES: usize = 20_000;

/// The time after which at most 20 % of the memory may be left: it is given back at the third of the looks that the
/// runtime takes, one a second, and usually at the second.
const PROMISED: Duration = Duration::from_secs(3);

/// The time that the runtime has let pass by its own will, since a moment.
///
/// WHY NOT the time alone: on a busy machine that would say how long threads wait for a CPU. So the time does not count
/// in which the process had a CPU, or a thread of it waited for one.
struct Idled(Instant, Duration);

impl Idled {
    fn start() -> Idled {
        Idled(Instant::now(), Idled::busy())
    }

    fn get(&self) -> Duration {
        self.0.elapsed().saturating_sub(Idled::busy().saturating_sub(self.1))
    }

    /// The time on a CPU, which the first word of `schedstat` says in ns, and that of the wait for one, the second.
    fn busy() -> Duration {
        let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten();
        let text = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
        let ns =
            |text: String| text.split_whitespace().take(2).filter_map(|n| n.parse::<u64>().ok()).sum::<u64>();
        Duration::from_nanos(text.map(ns).sum())
    }
}

/// Returns how many of the pages at these addresses are in memory.
fn resident(addresses: &[usize]) -> usize {
    let size = page_size();
    let is_resident = |address: &&usize| {
        let mut answer = 0;
        // SAFETY: asks about a page, and writes a byte.
        let asked = unsafe { libc::mincore((**address & !(size - 1)) as *mut _, size, &mut answer) };
        assert_eq!(asked, 0, "slabs are never unmapped");
        answer & 1 != 0
    };
    addresses.iter().filter(is_resident).count()
}

fn page_size() -> usize {
    // SAFETY: a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Runs `body` on goroutines that are alive at the same time, and ends them. Fails if more than 20 % of the memory that
/// they took, or of the pages of the slabs that they stood on, is left when [`PROMISED`] is over. Returns how much they
/// took, in bytes.
#[track_caller]
fn rise_and_fall(runtime: &mungo::Runtime, goroutines: usize, body: fn()) -> usize {
    let rss = || common::status_bytes("VmRSS");
    let before = rss();
    let (peak, pages) = runtime.run(move || {
        let (open, gate) = mungo::chan::bounded::<()>(0);
        let waiting = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..goroutines)
            .map(|_| {
                let (gate, waiting) = (gate.clone(), waiting.clone());
                mungo::go(move || {
                    body();
                    waiting.fetch_add(1, SeqCst);
                    _ = gate.recv();
                    // SAFETY: the goroutine's own block, which lies in its slot.
                    [(&raw const waiting).addr(), unsafe { libc::pthread_self() } as usize]
                })
            })
            .collect();
        common::wait_until("all wait", || waiting.load(SeqCst) == goroutines);
        let peak = rss();
        drop(open);
        let pages: Vec<_> = all.into_iter().flat_map(|g| g.join().expect("no panic")).collect();
        (peak, pages)
    });
    let (idled, rise) = (Idled::start(), peak - before);
    let is_back = || rss().saturating_sub(before) <= rise / 5 && resident(&pages) <= pages.len() / 5;
    while !is_back() && idled.get() < PROMISED {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "{} KiB before, {} at the peak, {} after {:?}; {} of {} pages are left",
        before >> 10,
        peak >> 10,
        rss() >> 10,
        idled.get(),
        resident(&pages),
        pages.len()
    );
    assert!(is_back(), "the memory did not come back in {PROMISED:?}");
    // What was taken apart is as good as new.
    runtime.run(move || {
        let all: Vec<_> = (0..goroutines / 10).map(|_| mungo::go(body)).collect();
        all.into_iter().for_each(|g| g.join().expect("no panic"));
    });
    rise
}

/// The same on a runtime of its own.
#[track_caller]
fn rise_and_fall_once(goroutines: usize, body: fn()) -> usize {
    let runtime = common::runtime(2);
    let rise = rise_and_fall(&runtime, goroutines, body);
    common::end(runtime);
    rise
}

/// Seven blocks each of 63 sizes: as much as malloc keeps for a thread.
fn free_blocks_of_many_sizes() {
    let blocks: Vec<Vec<u8>> = (0..7 * 63).map(|i| vec![1; 16 * (i % 63 + 1)]).collect();
    drop(std::hint::black_box(blocks));
}

fn goroutines_that_freed_much() {
    let rise = rise_and_fall_once(GOROUTINES, free_blocks_of_many_sizes);
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
    fn strerror_l(error: std::ffi::c_int, locale: libc::locale_t) -> *const std::ffi::c_char;
}

/// glibc allocates for a thread that resolves names, that uses more than 32 keys, that looks for a symbol that is not
/// there, or that asks for the name of an error or a signal that has none.
fn use_libc() {
    use_texts();
    // SAFETY: a NUL-terminated name.
    assert!(unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"no_such_symbol_anywhere".as_ptr()) }.is_null());
    // SAFETY: makes the resolver's state of this thread.
    assert_eq!(unsafe { __res_init() }, 0);
    for key in &KEYS {
        // SAFETY: a key of ours; the value is only passed around.
        assert_eq!(unsafe { libc::pthread_setspecific(key.load(SeqCst), (&raw const KEYS).cast()) }, 0);
    }
}

/// What glibc makes for a thread in its `struct pthread`: two texts.
fn use_texts() {
    const GLOBAL: libc::locale_t = -1isize as libc::locale_t; // `LC_GLOBAL_LOCALE` of <locale.h>
    // SAFETY: any number will do, and the texts last until the next call.
    let texts = unsafe { [strerror_l(123_456, GLOBAL), libc::strsignal(123_456)] };
    // SAFETY: as above.
    let texts = texts.map(|text| unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy());
    assert!(texts.iter().all(|text| text.contains("123456")), "{texts:?}");
}

/// Blocks are taken apart after each round, and what they had of malloc is free again.
fn goroutines_with_texts() {
    const GOROUTINES: usize = 5_000;
    let runtime = common::runtime(2);
    // SAFETY: numbers.
    let in_use = || unsafe { libc::mallinfo2() }.uordblks;
    let rounds = [(); 4].map(|()| {
        rise_and_fall(&runtime, GOROUTINES, use_texts);
        in_use()
    });
    // A text takes 32 bytes at the least, and each goroutine makes two. The rest is what malloc caches for threads.
    let grown = rounds[3].saturating_sub(rounds[0]);
    println!("{rounds:?} bytes in use after each round");
    assert!(grown < GOROUTINES * 2 * 32 / 2, "{grown} bytes in three rounds: {rounds:?}");
    common::end(runtime);
}

#[test]
#[cfg_attr(mungo_asan, ignore = "malloc is not glibc's, so that no thread block is taken apart")]
fn texts_that_libc_made_for_a_block_are_freed_with_it() {
    child::run("goroutines_with_texts").assert_success();
}

fn goroutines_that_used_libc() {
    for key in &KEYS {
        let mut made = 0;
        // SAFETY: writes to `made`.
        assert_eq!(unsafe { libc::pthread_key_create(&mut made, None) }, 0);
        key.store(made, SeqCst);
    }
    rise_and_fall_once(5_000, use_libc);
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
    rise_and_fall_once(2_000, || {
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
