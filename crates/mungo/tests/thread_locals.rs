//! A goroutine's thread-locals are its own: they migrate with it, end with it, and the next one finds them fresh.
//!
//! Most of what can go wrong here does so in optimised code alone, where the compiler keeps addresses of thread-locals
//! in registers: run these with `--release` too.
#![cfg(mungo_own_tls)]

mod tls_support;

own_thread_locals_only!();

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use tls_support::*;

fn own_thread_locals(rt: &mungo::Runtime) {
    assert_eq!(rt.info().thread_locals, mungo::ThreadLocals::Own, "this platform has them");
}

/// Runs `body` in `n` goroutines at the same time on four Ps.
fn in_goroutines(n: u64, body: fn(u64)) {
    let rt = runtime(4);
    own_thread_locals(&rt);
    rt.run(|| {
        let all: Vec<_> = (0..n).map(|i| mungo::go(move || body(i))).collect();
        all.into_iter().for_each(|h| h.join().expect("no panic"));
    });
    finish(rt);
}

// ---- values ----

fn start_value() -> u64 {
    77
}

thread_local! {
    static EAGER: Cell<u64> = const { Cell::new(7) };
    static LAZY: Cell<u64> = Cell::new(start_value());
    static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// What went wrong in 15,293 of 15,293 cases with shared thread-locals: the address is taken once for all accesses.
#[test]
fn inlined_reads_after_a_migration_see_the_goroutines_value() {
    in_goroutines(16, |id| {
        assert_eq!((EAGER.get(), LAZY.get()), (7, 77), "fresh");
        for round in 0..20 {
            let value = id * 1000 + round;
            EAGER.set(value);
            LAZY.set(!value);
            let from = os_thread();
            migrate();
            assert_ne!(os_thread(), from);
            assert_eq!((EAGER.get(), LAZY.get()), (value, !value));
        }
    });
    assert!(MIGRATIONS.load(Relaxed) >= 320);
}

#[test]
fn borrows_are_held_over_migrations() {
    in_goroutines(8, |id| {
        LIST.with_borrow_mut(|list| {
            for i in 0..20 {
                list.push(id);
                match i % 2 {
                    0 => migrate(),
                    _ => _ = yield_and_count(),
                }
            }
            assert_eq!(*list, vec![id; 20], "nobody else pushed");
        });
        LIST.with_borrow(|list| {
            let borrowed: &[u64] = list;
            let me = mungo::current();
            let waker = mungo::go(move || me.unpark());
            mungo::park();
            waker.join().unwrap();
            migrate();
            assert_eq!(borrowed.iter().sum::<u64>(), 20 * id);
        });
    });
}

#[test]
fn an_rc_lives_in_a_thread_local() {
    thread_local! {
        static SHARED: Rc<Cell<u64>> = Rc::new(Cell::new(0));
    }
    in_goroutines(8, |id| {
        let mut clones = Vec::new();
        for _ in 0..20 {
            clones.push(SHARED.with(Rc::clone));
            clones.last().unwrap().set(id);
            migrate();
            // Not atomic: a race with another goroutine would lose counts.
            for _ in 0..1000 {
                clones.push(clones[0].clone());
            }
            clones.truncate(clones.len() - 1000);
        }
        assert_eq!(Rc::strong_count(&clones[0]), 21);
        assert!(SHARED.with(|rc| rc.get() == id && clones.iter().all(|c| Rc::ptr_eq(c, rc))));
    });
}

#[test]
fn a_reused_block_is_fresh() {
    let rt = runtime(1);
    rt.run(|| {
        for i in 0..10_000u64 {
            let fresh = mungo::go(move || {
                let seen = (EAGER.replace(i), LAZY.replace(i), LIST.with_borrow(Vec::len));
                LIST.with_borrow_mut(|list| list.push(i));
                // SAFETY: the calling goroutine's errno.
                let errno = unsafe { &mut *libc::__errno_location() };
                (seen, std::mem::replace(errno, 99))
            });
            assert_eq!(fresh.join().unwrap(), ((7, 77, 0), 0));
        }
    });
    finish(rt);
}

#[test]
fn errno_is_the_goroutines() {
    in_goroutines(16, |id| {
        for round in 0..10 {
            let value = (id * 100 + round) as i32;
            // SAFETY: the calling goroutine's errno; its address does not change.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: as above.
            unsafe { *errno = value };
            migrate();
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(value));
            // SAFETY: no memory involved; the descriptor does not exist.
            assert_eq!(unsafe { libc::close(-1) }, -1);
            yield_and_count();
            // SAFETY: as above.
            assert_eq!(unsafe { *errno }, libc::EBADF);
        }
    });
}

// ---- std ----

#[test]
fn std_sees_a_thread_in_each_goroutine() {
    static IDS: Mutex<Option<HashSet<std::thread::ThreadId>>> = Mutex::new(None);
    *IDS.lock().unwrap() = Some(HashSet::new());
    let alive = Arc::new(AtomicUsize::new(0));
    let rt = runtime(4);
    rt.run(|| {
        let all: Vec<_> = (0..16)
            .map(|_| {
                let alive = alive.clone();
                mungo::go(move || {
                    let id = std::thread::current().id();
                    let is_new = IDS.lock().unwrap().as_mut().unwrap().insert(id);
                    assert!(is_new, "two living goroutines with one id");
                    alive.fetch_add(1, SeqCst);
                    while alive.load(SeqCst) < 16 {
                        mungo::yield_now();
                    }
                    for _ in 0..5 {
                        migrate();
                        assert_eq!(std::thread::current().id(), id);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    });
    finish(rt);
}

#[test]
fn a_hash_map_keeps_its_keys() {
    in_goroutines(8, |id| {
        let mut map = HashMap::new();
        for i in 0..200 {
            map.insert((id, i), i);
            if i % 20 == 0 {
                migrate();
                let other: HashMap<u64, u64> = (0..10).map(|k| (k, k)).collect();
                assert_eq!(other.get(&9), Some(&9));
            }
        }
        assert!((0..200).all(|i| map.get(&(id, i)) == Some(&i)));
    });
}

#[test]
fn the_stdout_lock_belongs_to_the_goroutine() {
    static HOLDER: AtomicUsize = AtomicUsize::new(usize::MAX);
    // One P for the holder, one for the other, which blocks its thread, two to migrate between.
    let rt = runtime(4);
    rt.run(|| {
        let all: Vec<_> = (0..2)
            .map(|me| {
                mungo::go(move || {
                    for _ in 0..10 {
                        let outer = std::io::stdout().lock();
                        assert_eq!(HOLDER.swap(me, SeqCst), usize::MAX, "two holders");
                        migrate();
                        let inner = std::io::stdout().lock(); // re-entrant for the same owner only
                        assert_eq!(HOLDER.load(SeqCst), me);
                        drop(inner);
                        HOLDER.store(usize::MAX, SeqCst);
                        drop(outer);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    });
    finish(rt);
}

#[test]
fn threads_can_be_started_from_goroutines() {
    in_goroutines(8, |id| {
        EAGER.set(id);
        let thread = std::thread::Builder::new().name(format!("child-{id}"));
        let child = thread.spawn(move || {
            assert_eq!(EAGER.get(), 7, "a thread has thread-locals of its own");
            std::thread::sleep(std::time::Duration::from_millis(1));
            // From a plain thread into the default runtime and back.
            mungo::go(move || EAGER.replace(id)).join().unwrap()
        });
        let name = child.unwrap();
        assert_eq!(name.thread().name(), Some(format!("child-{id}").as_str()));
        assert_eq!(name.join().unwrap(), 7);
        migrate();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(EAGER.get(), id);
    });
}

// ---- panics ----

#[test]
fn a_panic_is_the_goroutines_own() {
    panics_stay_private(4);
}

#[test]
fn two_goroutines_panic_at_the_same_time() {
    quiet_panics();
    let rt = runtime(4);
    rt.run(|| {
        let both_panic = Arc::new(Barrier::new(2));
        struct Meets(Arc<Barrier>);
        impl Drop for Meets {
            fn drop(&mut self) {
                assert!(std::thread::panicking());
                self.0.wait(); // blocks the thread: two Ps
                migrate();
                assert!(std::thread::panicking());
            }
        }
        let all: Vec<_> = (0..2)
            .map(|i| {
                let meets = Meets(both_panic.clone());
                mungo::go(move || {
                    let _meets = &meets;
                    panic!("{EXPECTED}{i}");
                })
            })
            .collect();
        for handle in all {
            assert!(handle.join().is_err());
            assert!(!std::thread::panicking());
        }
    });
    finish(rt);
}

#[test]
fn catch_unwind_nests_across_yields() {
    quiet_panics();
    struct CatchesInDrop;
    impl Drop for CatchesInDrop {
        fn drop(&mut self) {
            migrate();
            let inner = catch_unwind(|| {
                yield_and_count();
                std::panic::resume_unwind(Box::new("inner"));
            });
            assert_eq!(*inner.unwrap_err().downcast::<&str>().unwrap(), "inner");
            migrate();
            assert!(std::thread::panicking(), "the outer one goes on");
        }
    }
    in_goroutines(8, |id| {
        for _ in 0..5 {
            let outer = catch_unwind(AssertUnwindSafe(|| {
                let _catches = CatchesInDrop;
                migrate();
                panic!("{EXPECTED}{id}");
            }));
            assert_eq!(*outer.unwrap_err().downcast::<String>().unwrap(), format!("{EXPECTED}{id}"));
            assert!(!std::thread::panicking());
            migrate();
            assert!(!std::thread::panicking());
        }
    });
}

// ---- destructors ----

/// Counts its drops, once a value.
struct Counted(&'static AtomicUsize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn destructors_run_once_and_before_join_returns() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static FIRST: Counted = const { Counted(&DROPS) };
        static SECOND: RefCell<Option<Counted>> = const { RefCell::new(None) };
    }
    let rt = runtime(4);
    rt.run(|| {
        for _ in 0..2000 {
            let before = DROPS.load(SeqCst);
            let handle = mungo::go(|| {
                FIRST.with(|_| ());
                mungo::yield_now();
                SECOND.set(Some(Counted(&DROPS)));
            });
            handle.join().unwrap();
            assert_eq!(DROPS.load(SeqCst), before + 2);
        }
        for _ in 0..500 {
            let before = DROPS.load(SeqCst);
            mungo::go(|| ()).join().unwrap();
            assert_eq!(DROPS.load(SeqCst), before, "a goroutine that used none drops none");
        }
    });
    finish(rt);
}

#[test]
fn destructors_may_use_the_runtime_and_other_thread_locals() {
    static LOG: Mutex<Vec<(u64, &str)>> = Mutex::new(Vec::new());
    struct Late(Cell<u64>);
    impl Drop for Late {
        fn drop(&mut self) {
            migrate();
            LOG.lock().unwrap().push((self.0.get(), "late"));
        }
    }
    thread_local! {
        static LATE: Late = const { Late(Cell::new(0)) };
        static EARLY: RefCell<Option<Early>> = const { RefCell::new(None) };
    }
    struct Early(u64, std::thread::ThreadId);
    impl Drop for Early {
        fn drop(&mut self) {
            migrate();
            LOG.lock().unwrap().push((self.0, "early"));
            assert_eq!(std::thread::current().id(), self.1, "std's own is dropped last");
            // Registered while destructors run.
            LATE.with(|late| late.0.set(self.0));
            assert_eq!(mungo::go(|| 1).join().unwrap(), 1);
            assert!(EARLY.try_with(|_| ()).is_err(), "it is being dropped");
        }
    }
    in_goroutines(16, |id| EARLY.set(Some(Early(id, std::thread::current().id()))));
    let mut log = LOG.lock().unwrap();
    log.sort_unstable();
    let expected: Vec<_> = (0..16).flat_map(|id| [(id, "early"), (id, "late")]).collect();
    assert_eq!(*log, expected);
}

static KEY_DROPS: AtomicUsize = AtomicUsize::new(0);

fn new_key(destructor: unsafe extern "C" fn(*mut libc::c_void)) -> libc::pthread_key_t {
    let mut key = 0;
    // SAFETY: a new key for this process.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(destructor)) }, 0);
    key
}

#[test]
fn pthread_keys_are_the_goroutines() {
    unsafe extern "C" fn count(value: *mut libc::c_void) {
        assert_ne!(value as usize, 0);
        KEY_DROPS.fetch_add(1, SeqCst);
    }
    // Enough to leave the block of 32 keys that lies in the thread block itself.
    let keys: Arc<Vec<_>> = Arc::new((0..70).map(|_| new_key(count)).collect());
    let rt = runtime(4);
    rt.run(|| {
        for round in 0..50 {
            let all: Vec<_> = (1..=4usize)
                .map(|id| {
                    let keys = keys.clone();
                    mungo::go(move || {
                        for &key in keys.iter() {
                            // SAFETY: a key of ours; the value is a number.
                            unsafe {
                                assert!(libc::pthread_getspecific(key).is_null(), "fresh");
                                libc::pthread_setspecific(key, id as *const _);
                            }
                        }
                        migrate();
                        for &key in keys.iter() {
                            // SAFETY: as above.
                            assert_eq!(unsafe { libc::pthread_getspecific(key) } as usize, id);
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|h| h.join().unwrap());
            assert_eq!(KEY_DROPS.load(SeqCst), (round + 1) * 4 * 70);
        }
    });
    finish(rt);
}

/// glibc runs the keys' destructors after those of thread-locals. One that touches a thread-local for the first time
/// registers a destructor too late for a thread; on a block that is used again it would hit the next goroutine.
#[test]
fn a_key_destructor_may_touch_a_thread_local() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    static AGAIN: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static TOUCHED: RefCell<Option<Counted>> = const { RefCell::new(None) };
    }
    unsafe extern "C" fn touch(_: *mut libc::c_void) {
        TOUCHED.set(Some(Counted(&DROPS)));
    }
    unsafe extern "C" fn set_again(value: *mut libc::c_void) {
        AGAIN.fetch_add(1, SeqCst);
        // SAFETY: the value is the key itself; POSIX ends this after some rounds.
        unsafe { libc::pthread_setspecific(value as libc::pthread_key_t - 1, value) };
    }
    let (touching, endless) = (new_key(touch), new_key(set_again));
    let rt = runtime(1);
    rt.run(|| {
        for i in 1..=1000 {
            let handle = mungo::go(move || {
                // SAFETY: keys of ours; the values are numbers.
                unsafe {
                    assert!(libc::pthread_getspecific(endless).is_null(), "fresh");
                    libc::pthread_setspecific(touching, endless as usize as *const _);
                    libc::pthread_setspecific(endless, (endless + 1) as usize as *const _);
                }
            });
            handle.join().unwrap();
            assert_eq!(DROPS.load(SeqCst), i, "dropped with its goroutine");
            // The next one on the same block: nothing lies in wait.
            mungo::go(|| TOUCHED.with_borrow(|t| assert!(t.is_none()))).join().unwrap();
            assert_eq!(DROPS.load(SeqCst), i);
        }
    });
    let rounds = AGAIN.load(SeqCst);
    assert!((1000..=8000).contains(&rounds), "{rounds}");
    finish(rt);
}

/// What was set under a key that is deleted since belongs to nobody: not to a new key in its place either.
#[test]
fn a_deleted_keys_values_are_left_alone() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn count(_: *mut libc::c_void) {
        DROPS.fetch_add(1, SeqCst);
    }
    let rt = runtime(1);
    // Other tests make keys too, so the place may go to one of them.
    let reused = rt.run(|| {
        (0..1000).any(|_| {
            let body = || {
                let old = new_key(count);
                // SAFETY: a key of ours; the value is a number.
                unsafe {
                    libc::pthread_setspecific(old, std::ptr::dangling());
                    libc::pthread_key_delete(old);
                }
                let new = new_key(count);
                (old, new)
            };
            let (old, new) = mungo::go(body).join().unwrap();
            // SAFETY: a key of ours.
            unsafe { libc::pthread_key_delete(new) };
            old == new
        })
    });
    assert!(reused, "the place was never used again");
    assert_eq!(DROPS.load(SeqCst), 0);
    finish(rt);
}

/// Values that their destructors set again and again are forgotten in the end, wherever they lie.
#[test]
fn no_key_outlives_its_goroutine() {
    unsafe extern "C" fn set_again(value: *mut libc::c_void) {
        // SAFETY: the value is the key itself and one; POSIX ends this after some rounds.
        unsafe { libc::pthread_setspecific(value as libc::pthread_key_t - 1, value) };
    }
    let keys: Arc<Vec<_>> = Arc::new((0..100).map(|_| new_key(set_again)).collect());
    let rt = runtime(1);
    rt.run(|| {
        for _ in 0..3 {
            let keys = keys.clone();
            let body = move || {
                for &key in keys.iter() {
                    // SAFETY: a key of ours; the value is a number.
                    unsafe {
                        assert!(libc::pthread_getspecific(key).is_null(), "fresh");
                        libc::pthread_setspecific(key, (key + 1) as usize as *const _);
                    }
                }
            };
            mungo::go(body).join().unwrap();
        }
    });
    finish(rt);
}

/// The handle goes away while the goroutine ends: whoever drops the result finds thread-locals to do it with.
#[test]
fn a_result_that_uses_thread_locals_is_dropped_by_whoever_is_last() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static USED: RefCell<Vec<u64>> = RefCell::new(vec![1]);
    }
    struct UsesTls;
    impl Drop for UsesTls {
        fn drop(&mut self) {
            USED.with_borrow_mut(|used| used.push(2));
            DROPS.fetch_add(1, SeqCst);
        }
    }
    let rt = runtime(4);
    let rounds = 20_000;
    rt.run(|| {
        for i in 0..rounds {
            let running = Arc::new(AtomicBool::new(false));
            let started = running.clone();
            let handle = mungo::go(move || {
                USED.with_borrow_mut(|used| used.push(3));
                started.store(true, SeqCst);
                MADE.fetch_add(1, SeqCst);
                UsesTls
            });
            while !running.load(SeqCst) {
                mungo::yield_now();
            }
            // Around the moment of its end.
            (0..i % 64).for_each(|_| std::hint::spin_loop());
            drop(handle);
        }
    });
    finish(rt);
    assert_eq!((MADE.load(SeqCst), DROPS.load(SeqCst)), (rounds, rounds));
}

// ---- load ----

#[test]
fn ten_thousand_goroutines_allocate_while_they_migrate() {
    if emulator::is_emulated("minutes") {
        return;
    }
    // All goroutines share one lock of the sanitizer's allocator, and wait for each other.
    let (rounds, least) = if cfg!(mungo_asan) { (5, 1_000) } else { (60, 100_000) };
    let migrations = malloc_storm(4, 10_000, rounds);
    println!("{migrations} migrations");
    assert!(migrations > least, "{migrations} migrations are no storm");
}

#[test]
fn goroutines_are_preempted_while_they_allocate() {
    let preemptions = preempted_storm();
    assert!(preemptions > 0, "nobody was preempted");
}

#[test]
fn a_million_goroutines_leave_nothing_behind() {
    if emulator::is_emulated("minutes") {
        return;
    }
    if in_child("a_million_goroutines_leave_nothing_behind", &[]).is_some() {
        return;
    }
    assert_flat(2, |i| {
        thread_local! {
            static WORDS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
        }
        WORDS.with_borrow_mut(|words| words.resize(20 + i % 50, 0));
        if i % 16 == 0 {
            _ = std::thread::current().id();
        }
    });
}
