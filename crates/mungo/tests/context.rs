//! Contexts: trees of cancellation, deadlines, values, and that nothing is left of them.

mod sync_util;

use mungo::chan::{bounded, select, unbounded};
use mungo::context::{Context, ContextError, ContextRecvError, ContextSendError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sync_util::{KINDS, Kind, Rng, on_two_procs, run, scaled, seed};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn cancelling_reaches_all_below_and_nothing_above() {
    for kind in KINDS {
        run(kind, 2, |_| {
            let (root, cancel_root) = Context::background().with_cancel();
            let (left, cancel_left) = root.with_cancel();
            let right = root.with_value("right");
            let (below_left, _c) = left.with_value(1u8).with_cancel();
            let (below_right, _c) = right.with_timeout(HOUR);
            cancel_left.cancel();
            assert!(left.is_done() && below_left.is_done());
            assert!(!root.is_done() && !right.is_done() && !below_right.is_done());
            assert!(left.with_cancel().0.is_done(), "born dead");
            cancel_root.cancel();
            for ctx in [&root, &right, &below_right] {
                assert_eq!(ctx.err(), Some(ContextError::Canceled));
                assert!(ctx.done().recv().is_err());
            }
        });
    }
}

#[test]
fn the_first_cause_counts() {
    let (ctx, cancel) = Context::background().with_cancel_cause();
    let (child, cancel_child) = ctx.with_cancel_cause();
    cancel_child.cancel("child");
    cancel.cancel("parent");
    cancel.cancel("again");
    assert_eq!(child.cause().unwrap().to_string(), "child");
    assert_eq!(ctx.cause().unwrap().to_string(), "parent");
    let (late, _c) = ctx.with_cancel();
    assert_eq!(late.cause().unwrap().to_string(), "parent");
    assert_eq!((late.err(), ctx.check()), (Some(ContextError::Canceled), Err(ContextError::Canceled)));
}

#[test]
fn deadlines_are_never_early_and_the_earliest_counts() {
    for kind in [Kind::Goroutines, Kind::Threads] {
        run(kind, 3, |i| {
            let start = Instant::now();
            let timeout = (1 + i as u32) * 2 * MS;
            let (outer, _c) = Context::background().with_timeout(timeout);
            let (inner, _c) = outer.with_timeout(HOUR);
            assert_eq!(inner.deadline(), outer.deadline());
            assert!(inner.done().recv().is_err());
            assert!(start.elapsed() >= timeout);
            assert_eq!(inner.err(), Some(ContextError::DeadlineExceeded));
            assert_eq!(inner.cause().unwrap().to_string(), "context deadline exceeded");
            let (past, _c) = Context::background().with_deadline(start);
            assert!(past.done().recv().is_err());
            let (never, cancel) = Context::background().with_timeout(Duration::MAX);
            assert!(never.deadline().is_none() && !never.is_done());
            cancel.cancel();
        });
    }
}

#[test]
fn cancelling_before_the_deadline_is_cancelling() {
    let (ctx, cancel) = Context::background().with_timeout(5 * MS);
    cancel.cancel();
    mungo::sleep(8 * MS);
    assert_eq!(ctx.err(), Some(ContextError::Canceled));
}

#[test]
fn values_are_found_by_type_and_hidden_by_nearer_ones() {
    #[derive(Debug, PartialEq)]
    struct Id(u32);
    let outer = Context::background().with_value(Id(1)).with_value("text");
    let (inner, _c) = outer.with_cancel();
    let inner = inner.with_value(Id(2));
    assert_eq!((outer.value::<Id>(), inner.value::<Id>()), (Some(&Id(1)), Some(&Id(2))));
    assert_eq!(inner.value::<&str>(), Some(&"text"));
    assert_eq!(inner.value::<u64>(), None);
}

#[test]
fn done_wakes_all_who_wait_in_select() {
    for kind in KINDS {
        let (ctx, cancel) = Context::background().with_cancel();
        let (tx, rx) = unbounded::<()>();
        let (started, start) = unbounded();
        let all = std::thread::spawn(move || {
            run(kind, 10, move |_| {
                started.send(()).unwrap();
                select! {
                    recv(rx) -> _ => false,
                    recv(ctx.done()) -> nothing => nothing.is_err(),
                }
            })
        });
        start.iter().take(10).for_each(drop);
        cancel.cancel();
        assert!(all.join().unwrap().into_iter().all(|done| done));
        drop(tx);
    }
}

#[test]
fn blocking_helpers_end_with_the_context() {
    on_two_procs(|| {
        let (ctx, cancel) = Context::background().with_cancel();
        assert_eq!(ctx.sleep(MS), Ok(()));
        assert_eq!(ctx.sleep_until(Instant::now() + MS), Ok(()));
        let (tx, rx) = bounded::<u8>(0);
        let waiting = [
            {
                let ctx = ctx.clone();
                mungo::go(move || ctx.sleep(HOUR))
            },
            {
                let ctx = ctx.clone();
                mungo::go(move || ctx.sleep(Duration::MAX))
            },
            {
                let ctx = ctx.clone();
                mungo::go(move || ctx.sleep_until(Instant::now() + HOUR))
            },
            {
                let (ctx, rx) = (ctx.clone(), rx.clone());
                mungo::go(move || match ctx.recv(&rx) {
                    Err(ContextRecvError::Done(e)) => Err(e),
                    other => panic!("{other:?}"),
                })
            },
        ];
        let (full, _keep) = bounded(0);
        let sending = {
            let ctx = ctx.clone();
            mungo::go(move || ctx.send(&full, String::from("kept")))
        };
        cancel.cancel();
        for w in waiting {
            assert_eq!(w.join().unwrap(), Err(ContextError::Canceled));
        }
        let error = sending.join().unwrap().unwrap_err();
        assert_eq!(error, ContextSendError::Done(ContextError::Canceled, "kept".to_owned()));
        assert_eq!(error.into_inner(), "kept");
        drop(tx);
    });
}

#[test]
fn a_guard_cancels_on_panic_too() {
    let (ctx, cancel) = Context::background().with_cancel();
    let failed = mungo::go(move || {
        let _guard = cancel.on_drop();
        panic!("expected");
    });
    assert!(ctx.done().recv().is_err());
    assert!(failed.join().is_err());
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        mungo::yield_now(); // user code: it may do what goroutines do
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn nothing_is_left_of_contexts_that_nobody_holds() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (parent, _cancel) = Context::background().with_cancel();
    for i in 0..1000 {
        let (child, cancel) = parent.with_timeout(HOUR);
        let child = child.with_value(Counted(dropped.clone()));
        let (grandchild, _c) = child.with_cancel();
        match i % 3 {
            0 => cancel.cancel(),
            1 => drop(grandchild.done().clone()),
            _ => {}
        }
    }
    assert_eq!(dropped.load(Relaxed), 1000);
}

#[test]
fn a_deep_chain_is_cancelled_and_dropped_without_recursion() {
    on_two_procs(|| {
        let (root, cancel) = Context::background().with_cancel();
        let mut leaf = root.clone();
        for i in 0..100_000u32 {
            leaf = if i % 2 == 0 { leaf.with_cancel().0 } else { leaf.with_value(i) };
            if i == 50_000 {
                cancel.cancel();
            }
        }
        assert!(leaf.is_done());
        drop(root);
        drop(leaf);
        let mut whole = Context::background().with_cancel().0;
        for _ in 0..100_000 {
            whole = whole.with_cancel().0;
        }
        drop(whole);
    });
}

/// Deadlines pass while contexts are dropped, cancelled and derived from, by many at once.
#[test]
fn stress_deadlines_against_cancels_and_drops() {
    let seed = seed();
    on_two_procs(move || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let n = scaled(3_000);
        let workers: Vec<_> = (0..6)
            .map(|i| {
                let dropped = dropped.clone();
                mungo::go(move || {
                    let mut rng = Rng::new(seed ^ i);
                    for _ in 0..n {
                        let (ctx, cancel) = Context::background()
                            .with_value(Counted(dropped.clone()))
                            .with_timeout(Duration::from_nanos(rng.below(60_000)));
                        let (child, _c) = ctx.with_timeout(Duration::from_nanos(rng.below(60_000)));
                        match rng.below(4) {
                            0 => assert!(child.done().recv().is_err()),
                            1 => cancel.cancel(),
                            2 => drop(ctx),
                            _ => _ = child.sleep(Duration::from_nanos(rng.below(60_000))),
                        }
                        if rng.below(2) == 0 {
                            cancel.cancel();
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
        // Some are dropped by a goroutine of their own.
        while dropped.load(Relaxed) < 6 * n {
            mungo::yield_now();
        }
        assert_eq!(dropped.load(Relaxed), 6 * n);
    });
}

/// Children are born while the tree is cancelled: each of them is done in the end.
#[test]
fn stress_births_against_cancellation() {
    on_two_procs(|| {
        for _ in 0..scaled(2_000) {
            let (root, cancel) = Context::background().with_cancel();
            let stop = Arc::new(AtomicBool::new(false));
            let births: Vec<_> = (0..2)
                .map(|_| {
                    let (root, stop) = (root.clone(), stop.clone());
                    mungo::go(move || {
                        let mut all = Vec::new();
                        while !stop.load(Relaxed) && all.len() < 50 {
                            all.push(root.with_cancel().0);
                            all.push(all[all.len() - 1].with_timeout(HOUR).0);
                        }
                        all
                    })
                })
                .collect();
            mungo::yield_now();
            cancel.cancel();
            stop.store(true, Relaxed);
            for ctx in births.into_iter().flat_map(|b| b.join().unwrap()) {
                assert!(ctx.is_done() && ctx.done().recv().is_err());
            }
        }
    });
}
