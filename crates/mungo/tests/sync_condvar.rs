//! Condvar: notifications, time-outs, no lost wake-up.

mod sync_util;

use mungo::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync_util::{KINDS, Kind, Rng, on_two_procs, run, scaled, seed};

/// A queue with a bound: the classic.
#[derive(Default)]
struct Queue {
    items: Mutex<VecDeque<usize>>,
    not_empty: Condvar,
    not_full: Condvar,
}

const BOUND: usize = 3;

impl Queue {
    fn push(&self, item: usize) {
        let mut items = self.items.lock();
        self.not_full.wait_while(&mut items, |items| items.len() == BOUND);
        items.push_back(item);
        drop(items);
        self.not_empty.notify_one();
    }

    fn pop(&self) -> usize {
        let mut items = self.items.lock();
        self.not_empty.wait_while(&mut items, |items| items.is_empty());
        let item = items.pop_front().unwrap();
        drop(items);
        self.not_full.notify_one();
        item
    }
}

#[test]
fn a_bounded_queue() {
    for kind in KINDS {
        let queue = Arc::new(Queue::default());
        let n = scaled(20_000);
        // 0..4 produce, 4..8 consume: with Mixed there are goroutines and threads on both sides.
        let sums = run(kind, 8, move |i| match i {
            0..4 => {
                (0..n).for_each(|k| queue.push(k));
                0
            }
            _ => (0..n).map(|_| queue.pop()).sum(),
        });
        assert_eq!(sums.iter().sum::<usize>(), 4 * n * (n - 1) / 2, "{kind:?}");
    }
}

#[test]
fn notify_all_wakes_all_and_counts_them() {
    for kind in KINDS {
        let state = Arc::new((Mutex::new((0, false)), Condvar::new()));
        let shared = state.clone();
        let all = std::thread::spawn(move || {
            run(kind, 5, move |_| {
                let mut guard = shared.0.lock();
                guard.0 += 1;
                shared.1.wait_while(&mut guard, |(_, go)| !*go);
            })
        });
        // Under the mutex, all five have waited once they have counted.
        let woken = loop {
            let mut guard = state.0.lock();
            if guard.0 == 5 {
                guard.1 = true;
                break state.1.notify_all();
            }
            drop(guard);
            std::thread::yield_now();
        };
        assert_eq!(woken, 5, "{kind:?}");
        all.join().unwrap();
        assert_eq!(state.1.notify_all(), 0);
        assert!(!state.1.notify_one());
    }
}

#[test]
fn notify_one_wakes_the_longest_waiting() {
    on_two_procs(|| {
        let state = Arc::new((Mutex::new(Vec::new()), Condvar::new(), Mutex::new(0)));
        let mut waiting = Vec::new();
        for i in 0..4 {
            let shared = state.clone();
            waiting.push(mungo::go(move || {
                let mut order = shared.0.lock();
                *shared.2.lock() += 1;
                shared.1.wait(&mut order);
                order.push(i);
            }));
            while *state.2.lock() <= i || state.0.is_locked() {
                mungo::yield_now();
            }
        }
        for i in 0..4 {
            assert!(state.1.notify_one());
            while state.0.lock().len() <= i {
                mungo::yield_now();
            }
        }
        waiting.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(*state.0.lock(), [0, 1, 2, 3]);
    });
}

#[test]
fn timeouts_are_never_early_and_leave_nothing_behind() {
    for kind in [Kind::Goroutines, Kind::Threads] {
        let state = Arc::new((Mutex::new(()), Condvar::new()));
        let shared = state.clone();
        run(kind, 4, move |i| {
            let timeout = Duration::from_millis(2 * i as u64);
            let start = Instant::now();
            let mut guard = shared.0.lock();
            assert!(shared.1.wait_for(&mut guard, timeout).timed_out());
            assert!(start.elapsed() >= timeout);
            let deadline = Instant::now() + timeout;
            assert!(shared.1.wait_until(&mut guard, deadline).timed_out());
            assert!(Instant::now() >= deadline);
            assert!(shared.1.wait_while_for(&mut guard, |()| true, timeout).timed_out());
            assert!(!shared.1.wait_while_for(&mut guard, |()| false, timeout).timed_out());
        });
        assert_eq!(state.1.notify_all(), 0, "{kind:?}");
    }
}

/// Waits with deadlines around the moment of the notification: each notification that says it woke somebody ends a
/// wait that says it was notified.
#[test]
fn stress_notifications_against_timeouts() {
    let seed = seed();
    on_two_procs(move || {
        let state = Arc::new((Mutex::new(true), Condvar::new()));
        let waiters: Vec<_> = (0..5)
            .map(|i| {
                let state = state.clone();
                mungo::go(move || {
                    let mut rng = Rng::new(seed ^ i);
                    let mut notified = 0;
                    let mut running = state.0.lock();
                    while *running {
                        let timeout = Duration::from_nanos(rng.below(40_000));
                        notified += usize::from(!state.1.wait_for(&mut running, timeout).timed_out());
                    }
                    notified
                })
            })
            .collect();
        let mut rng = Rng::new(seed);
        let mut woken = 0;
        for _ in 0..scaled(20_000) {
            woken += match rng.below(3) {
                0 => state.1.notify_all(),
                _ => usize::from(state.1.notify_one()),
            };
            if rng.below(4) == 0 {
                mungo::sleep(Duration::from_nanos(rng.below(20_000)));
            }
        }
        *state.0.lock() = false;
        let notified: usize = waiters.into_iter().map(|w| w.join().unwrap()).sum();
        assert_eq!(notified, woken);
    });
}

#[test]
fn a_condition_that_comes_true_at_the_last_moment_is_no_timeout() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let mut looks = 0;
    let result = condvar.wait_while_for(
        &mut mutex.lock(),
        |()| {
            looks += 1;
            looks == 1
        },
        Duration::from_millis(1),
    );
    assert_eq!((looks, result.timed_out()), (2, false));
}

/// Its state says whether somebody waits: that spares those who notify the lock.
#[test]
fn nobody_is_left_in_line() {
    let waits = |condvar: &Condvar| format!("{condvar:?}").contains("waiting: true");
    let (mutex, condvar) = (Mutex::new(()), Arc::new(Condvar::new()));
    assert!(!waits(&condvar));
    assert!(condvar.wait_for(&mut mutex.lock(), Duration::from_millis(1)).timed_out());
    assert!(!waits(&condvar), "after a time-out");
    let shared = Arc::new((Mutex::new(false), condvar));
    let waiting = shared.clone();
    let thread = std::thread::spawn(move || waiting.1.wait_while(&mut waiting.0.lock(), |done| !*done));
    while !waits(&shared.1) {
        std::thread::yield_now();
    }
    *shared.0.lock() = true;
    assert!(shared.1.notify_one());
    assert!(!waits(&shared.1), "after a notification");
    thread.join().unwrap();
}
