//! std's locks, conditions and channels park goroutines, beside plain threads that wait in the kernel.

#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{go_named, runtime, wait_until, wait_until_parked};
use mungo_interpose as _;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock, mpsc};
use std::time::{Duration, Instant};

/// Makes the system call as a C program does. Returns the result, or the error as a negative number.
fn futex(word: *const AtomicU32, op: i32, value: u32, time: Option<&libc::timespec>, bits: u32) -> i64 {
    let time = time.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: words of the test; the time outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_futex, word, op, value, time, 0_usize, bits) };
    if result == -1 { -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap()) } else { result }
}

const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAIT_BITS: i32 = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
const WAKE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
const WAKE_BITS: i32 = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;

#[test]
fn a_crowd_in_stds_primitives_needs_one_p() {
    const CROWD: usize = 1000;
    let runtime = runtime(1);
    runtime.run(|| {
        let pair = (Mutex::new(0), Condvar::new());
        mungo::scope(|s| {
            for _ in 0..CROWD {
                s.spawn(|| {
                    let mut here = pair.0.lock().unwrap();
                    *here += 1;
                    pair.1.notify_all();
                    drop(pair.1.wait_while(here, |here| *here < CROWD).unwrap());
                });
            }
        });
        let barrier = Barrier::new(CROWD);
        let leaders = AtomicUsize::new(0);
        let shared = RwLock::new(0);
        let once = OnceLock::new();
        mungo::scope(|s| {
            for i in 0..CROWD {
                let (barrier, leaders, shared, once) = (&barrier, &leaders, &shared, &once);
                s.spawn(move || {
                    leaders.fetch_add(usize::from(barrier.wait().is_leader()), SeqCst);
                    if i % 4 == 0 {
                        *shared.write().unwrap() += 1
                    } else {
                        _ = *shared.read().unwrap()
                    }
                    assert!(
                        *once.get_or_init(|| {
                            std::thread::sleep(Duration::from_millis(1));
                            i
                        }) < CROWD
                    );
                });
            }
        });
        assert_eq!((leaders.into_inner(), shared.into_inner().unwrap()), (1, CROWD / 4));
    });
    let threads = runtime.metrics().threads;
    assert!(threads < 100, "{threads} threads");
}

#[test]
fn messages_pass_between_goroutines_and_threads() {
    const MESSAGES: u64 = 20_000;
    let (there, here) = mpsc::sync_channel::<u64>(4);
    let (back, answers) = mpsc::channel::<u64>();
    let echo = std::thread::spawn(move || here.iter().for_each(|n| back.send(n + 1).unwrap()));
    let sum: u64 = runtime(2).run(move || {
        let sender = mungo::go(move || (0..MESSAGES).for_each(|n| there.send(n).unwrap()));
        let sum = answers.iter().sum();
        sender.join().unwrap();
        sum
    });
    echo.join().unwrap();
    assert_eq!(sum, MESSAGES * (MESSAGES + 1) / 2);
}

/// Threads and goroutines lock one mutex, and wait for one condition: no wake-up is lost between the two kinds.
#[test]
fn threads_and_goroutines_share_a_lock_and_a_condition() {
    const EACH: usize = 4;
    const TURNS: usize = 3000;
    let turn = (Mutex::new(0), Condvar::new());
    // Each waits for its number; the next may be of the other kind.
    let play = |me: usize| {
        for round in 0..TURNS {
            let mut now = turn.0.lock().unwrap();
            while *now != round * 2 * EACH + me {
                now = turn.1.wait(now).unwrap();
            }
            *now += 1;
            turn.1.notify_all();
        }
    };
    let runtime = runtime(2);
    std::thread::scope(|threads| {
        for i in 0..EACH {
            threads.spawn(move || play(2 * i + 1));
        }
        runtime.run(|| {
            mungo::scope(|s| {
                for i in 0..EACH {
                    s.spawn(move || play(2 * i));
                }
            });
        });
    });
    assert_eq!(turn.0.into_inner().unwrap(), TURNS * 2 * EACH);
}

/// Neither kind starves: `notify_one` reaches all of both.
#[test]
fn one_wake_up_at_a_time_reaches_both_kinds() {
    const EACH: usize = 20;
    let gate = (Mutex::new((0, 0)), Condvar::new());
    let enter = || {
        let mut state = gate.0.lock().unwrap();
        state.0 += 1;
        state = gate.1.wait_while(state, |(_, permits)| *permits == 0).unwrap();
        state.1 -= 1;
        state.0 -= 1;
    };
    let runtime = runtime(2);
    std::thread::scope(|threads| {
        (0..EACH).for_each(|_| _ = threads.spawn(enter));
        runtime.run(|| {
            mungo::scope(|s| {
                (0..EACH).for_each(|_| _ = s.spawn(enter));
                wait_until("all wait", || gate.0.lock().unwrap().0 == 2 * EACH);
                for left in (0..2 * EACH).rev() {
                    gate.0.lock().unwrap().1 += 1;
                    gate.1.notify_one();
                    wait_until("one went on", || gate.0.lock().unwrap().0 == left);
                }
            });
        });
    });
}

#[test]
fn parks_of_std_belong_to_the_goroutine() {
    runtime(2).run(|| {
        let (sender, receiver) = mpsc::channel();
        let sleeper = go_named("std_park", move || {
            sender.send(std::thread::current()).unwrap();
            std::thread::park_timeout(Duration::from_micros(1));
            std::thread::park();
        });
        let handle = receiver.recv().unwrap();
        wait_until_parked("std_park");
        // Its thread handle is its own; a dump names what it waits for.
        let dump = mungo::debug::DumpOptions::new().stacks(false).dump();
        let found = dump.goroutines().iter().find(|g| g.name.as_deref() == Some("std_park")).unwrap();
        assert_eq!(found.state, mungo::debug::State::Waiting(mungo::WaitReason::Futex));
        handle.unpark();
        sleeper.join().unwrap();
    });
}

#[test]
fn wake_ups_are_counted_exactly() {
    const WAITERS: usize = 10;
    runtime(2).run(|| {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let back = Arc::new(AtomicUsize::new(0));
        let waiters: Vec<_> = (0..WAITERS)
            .map(|i| {
                let back = back.clone();
                go_named(&format!("counted {i}"), move || {
                    let bits = if i < 3 { 1 } else { 2 };
                    assert_eq!(futex(word, WAIT_BITS, 0, None, bits), 0);
                    back.fetch_add(1, SeqCst);
                })
            })
            .collect();
        (0..WAITERS).for_each(|i| wait_until_parked(&format!("counted {i}")));
        assert_eq!(futex(word, WAKE_BITS, 2, None, 4), 0, "none waits for these bits");
        assert_eq!(futex(word, WAKE_BITS, 100, None, 1), 3);
        wait_until("three are back", || back.load(SeqCst) == 3);
        assert_eq!(futex(word, WAKE, 5, None, 0), 5);
        assert_eq!(std::thread::spawn(move || futex(word, WAKE, 1, None, 0)).join().unwrap(), 1);
        assert_eq!(futex(word, WAKE, 0, None, 0), 1, "the kernel wakes one for zero, too");
        assert_eq!(futex(word, WAKE, i32::MAX as u32, None, 0), 0);
        waiters.into_iter().for_each(|w| w.join().unwrap());
    });
}

#[test]
fn time_is_up_and_errors_are_the_kernels() {
    runtime(2).run(|| {
        let word = AtomicU32::new(7);
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let start = Instant::now();
        assert_eq!(futex(&word, WAIT, 7, Some(&moment), 0), -i64::from(libc::ETIMEDOUT));
        assert!(start.elapsed() >= Duration::from_millis(2));
        // An absolute time that has passed, on the monotonic clock.
        assert_eq!(futex(&word, WAIT_BITS, 7, Some(&moment), u32::MAX), -i64::from(libc::ETIMEDOUT));
        assert_eq!(futex(&word, WAIT, 8, None, 0), -i64::from(libc::EAGAIN));
        assert_eq!(futex(&word, WAIT_BITS, 7, None, 0), -i64::from(libc::EINVAL));
        let odd = (&raw const word).wrapping_byte_add(1);
        assert_eq!(futex(odd, WAIT, 7, None, 0), -i64::from(libc::EINVAL));
        assert_eq!(futex(std::ptr::null(), WAIT, 7, None, 0), -i64::from(libc::EFAULT));
        let never = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
        assert_eq!(futex(&word, WAIT, 7, Some(&never), 0), -i64::from(libc::EINVAL));
        // Memory that is gone may be named by a wake-up.
        let gone = Box::into_raw(Box::new(AtomicU32::new(0)));
        // SAFETY: not used any more.
        drop(unsafe { Box::from_raw(gone) });
        assert_eq!(futex(gone, WAKE, 1, None, 0), 0);
        assert_eq!(futex((1_usize << 40) as *const AtomicU32, WAKE, 1, None, 0), 0);
    });
}

/// Deadlines and wake-ups that come at the same moment: each wait ends once, one way or the other.
#[test]
fn stress_deadlines_against_wake_ups() {
    runtime(2).run(|| {
        let pair = (Mutex::new(0_u64), Condvar::new());
        let rounds = 2000;
        mungo::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for i in 0..rounds {
                        let held = pair.0.lock().unwrap();
                        let (mut held, _) = pair.1.wait_timeout(held, Duration::from_micros(i % 60)).unwrap();
                        *held += 1;
                        pair.1.notify_one();
                    }
                });
            }
        });
        assert_eq!(pair.0.into_inner().unwrap(), 8 * rounds);
    });
}

#[test]
fn panics_poison_and_errno_stays_the_goroutines() {
    runtime(2).run(|| {
        let lock = Arc::new(Mutex::new(()));
        let poisoner = lock.clone();
        assert!(
            mungo::go(move || {
                let _held = poisoner.lock();
                std::panic::resume_unwind(Box::new(()));
            })
            .join()
            .is_err()
        );
        assert!(lock.is_poisoned());
        static ONCE: Once = Once::new();
        mungo::scope(|s| {
            for i in 1..50 {
                s.spawn(move || {
                    // SAFETY: the goroutine's own.
                    let errno = unsafe { &mut *libc::__errno_location() };
                    for _ in 0..20 {
                        *errno = i;
                        ONCE.call_once(|| std::thread::sleep(Duration::from_millis(1)));
                        // A futex whose word has changed before the wait says so, here as in the kernel.
                        assert!([i, libc::EAGAIN].contains(errno), "{errno} instead of {i}");
                        *errno = i;
                        std::thread::yield_now();
                        std::thread::sleep(Duration::from_micros(10));
                        assert_eq!(*errno, i);
                    }
                });
            }
        });
    });
}

/// Operations of the kernel's on threads wake the goroutines that wait at the same addresses.
#[test]
fn requeued_goroutines_are_woken() {
    static WORDS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
    // The second word becomes 0, and one waits there if it was 0 (`FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_EQ, 0)`).
    let (first, second) = (&raw const WORDS[0], &raw const WORDS[1]);
    let (first, second) = (first as usize, second as usize);
    let wait = |at: usize| {
        let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: a word of our own.
        unsafe { libc::syscall(libc::SYS_futex, at, op, 0, 0_usize) }
    };
    runtime(2).run(|| {
        for (command, waits_at) in [
            (libc::FUTEX_REQUEUE, first),
            (libc::FUTEX_CMP_REQUEUE, first),
            (libc::FUTEX_WAKE_OP, first),
            (libc::FUTEX_WAKE_OP, second),
        ] {
            let waiter = common::go_named("requeued", move || wait(waits_at));
            common::wait_until_parked("requeued");
            let op = command | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: words of our own.
            let woken = unsafe { libc::syscall(libc::SYS_futex, first, op, 1, 1_usize, second, 0_usize) };
            assert_eq!((woken, waiter.join().unwrap()), (1, 0), "{command}");
        }
    });
}
