//! `sync::Group`: results in order, the first error ends all, panics come out of `wait`, limits hold.

mod common;

use common::{PATIENCE, runtime, wait_until};
use mungo::context::{Context, ContextError};
use mungo::sync::Group;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[test]
fn results_come_in_the_order_of_the_calls() {
    let rt = runtime(4);
    let results = rt.run(|| {
        let group = Group::<usize, String>::new();
        for i in 0..1000 {
            group.go(move |_| {
                (0..i % 7).for_each(|_| mungo::yield_now());
                Ok(i)
            });
        }
        group.wait()
    });
    assert_eq!(results, Ok((0..1000).collect()));
    common::end(rt);
}

#[test]
fn the_first_error_cancels_the_others_and_is_returned() {
    let group = Group::<(), String>::new();
    for i in 0..20 {
        group.go(move |ctx| {
            _ = ctx.sleep(PATIENCE);
            Err(format!("late {i}"))
        });
    }
    group.go(|_| Err("first".to_owned()));
    assert_eq!(group.wait(), Err("first".to_owned()));
    assert_eq!(group.context().cause().unwrap().to_string(), "a goroutine of the group failed");
}

/// The context that a caller took before it set the limit is the group's own, not its parent.
#[test]
fn a_limit_leaves_the_context_and_its_clones_as_they_are() {
    let group = Group::<(), &str>::new();
    let (ctx, same) = (group.context().clone(), group.clone());
    let group = group.limit(2);
    group.go(|_| Err("no"));
    assert_eq!(group.wait(), Err("no"));
    assert_eq!(ctx.cause().unwrap().to_string(), "a goroutine of the group failed");
    assert!(same.context().is_done());

    let group = Group::<(), &str>::new();
    let same = group.clone();
    let _limited = group.limit(1);
    let (done, end) = mungo::chan::bounded::<()>(0);
    same.go(move |_| Ok(_ = end.recv()));
    assert!(same.try_go(|_| Ok(())).is_err(), "the limit holds for clones too");
    drop(done);
    same.wait().unwrap();
}

#[test]
fn the_parent_cancels_the_group_and_not_the_other_way_round() {
    let (ctx, cancel) = Context::background().with_cancel();
    let group = Group::<(), ContextError>::with_context(&ctx);
    group.go(|ctx| ctx.sleep(PATIENCE));
    cancel.cancel();
    assert_eq!(group.wait(), Err(ContextError::Canceled));

    let (ctx, _cancel) = Context::background().with_cancel();
    let group = Group::<(), &str>::with_context(&ctx);
    group.go(|_| Err("no"));
    assert_eq!(group.wait(), Err("no"));
    assert!(!ctx.is_done());
}

#[test]
fn a_panic_cancels_and_comes_out_of_wait() {
    let group = Group::<(), ContextError>::new();
    group.go(|ctx| {
        _ = ctx.sleep(PATIENCE);
        Ok(())
    });
    group.go(|_| std::panic::resume_unwind(Box::new("on purpose")));
    let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    assert!(group.context().is_done());
    assert_eq!(group.wait(), Ok(vec![]), "it comes out once");
}

#[test]
fn limits_hold_and_go_waits_for_a_place() {
    let rt = runtime(4);
    rt.run(|| {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let group = Group::<(), ()>::new().limit(5);
        for _ in 0..500 {
            let (running, most) = (running.clone(), most.clone());
            group.go(move |_| {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                mungo::yield_now();
                running.fetch_sub(1, SeqCst);
                Ok(())
            });
        }
        group.wait().unwrap();
        assert!((1..=5).contains(&most.load(SeqCst)), "{most:?}");
    });
    common::end(rt);
}

#[test]
fn a_panic_gives_the_place_back() {
    let group = Group::<u32, ()>::new().limit(1);
    group.go(|_| std::panic::resume_unwind(Box::new(())));
    group.go(|_| Ok(1)); // waits for the place
    assert!(catch_unwind(AssertUnwindSafe(|| group.wait())).is_err());
}

#[test]
fn goroutines_of_the_group_start_more() {
    fn visit(group: &Group<u64, ()>, depth: u32) {
        let more = group.clone();
        group.go(move |_| {
            (0..2).filter(|_| depth > 0).for_each(|_| visit(&more, depth - 1));
            Ok(1)
        });
    }
    let group = Group::new();
    visit(&group, 9);
    assert_eq!(group.wait().unwrap().len(), 1023);
}

#[test]
fn try_go_refuses_when_full() {
    let group = Group::<(), ()>::new().limit(2);
    let (end, ended) = mungo::chan::bounded::<()>(0);
    for _ in 0..2 {
        let ended = ended.clone();
        group.go(move |_| Ok(_ = ended.recv()));
    }
    assert!(group.try_go(|_| Ok(())).is_err());
    drop(end);
    wait_until("there is a place", || group.try_go(|_| Ok(())).is_ok());
    group.wait().unwrap();
}

#[test]
fn scoped_goroutines_borrow() {
    let rt = runtime(2);
    rt.run(|| {
        let words = ["a".to_owned(), "bb".to_owned(), "ccc".to_owned()];
        let seen = AtomicUsize::new(0);
        let longest = mungo::scope(|scope| {
            let group = Group::<&str, ()>::new().limit(2);
            for word in &words {
                group.go_scoped(scope, |_| {
                    seen.fetch_add(word.len(), SeqCst);
                    Ok(word.as_str())
                });
            }
            group.wait()
        });
        assert_eq!(longest, Ok(vec!["a", "bb", "ccc"]));
        assert_eq!(seen.into_inner(), 6);
    });
    common::end(rt);
}

#[test]
fn on_a_plain_thread_too() {
    let group = Group::<i32, ()>::new().limit(1);
    (0..50).for_each(|i| group.go(move |_| Ok(i)));
    assert_eq!(group.wait().unwrap().len(), 50);
}
