//! `scope`: the guarantees of `std::thread::scope`.

mod common;

use common::{Drops, end, runtime, wait_until};
use mungo::{Builder, go, park, scope, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Release, SeqCst},
};

/// On a plain thread, in a goroutine, and on one P.
fn everywhere(f: fn()) {
    f();
    go(f).join().unwrap();
    let rt = runtime(1);
    rt.run(f);
    end(rt);
}

#[test]
fn goroutines_borrow_and_are_waited_for() {
    everywhere(|| {
        let mut a = vec![1, 2, 3];
        let mut x = 0;
        let ended = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..50 {
                s.spawn(|| {
                    (0..3).for_each(|_| yield_now());
                    assert_eq!(a.len(), 3);
                    ended.fetch_add(1, SeqCst);
                });
            }
            s.spawn(|| x += a[0] + a[2]);
        });
        a.push(4);
        assert_eq!((x, a.len(), ended.load(SeqCst)), (4, 4, 50));
    });
}

#[test]
fn join_returns_what_borrows() {
    everywhere(|| {
        let text = String::from("one two");
        let word = scope(|s| {
            let h = s.spawn(|| text.split(' ').nth(1).unwrap());
            assert!(h.goroutine().name().is_none());
            h.join().unwrap()
        });
        assert_eq!(word, "two");
        let named = scope(|s| {
            let b = Builder::new().name("scoped".to_owned());
            b.spawn_scoped(s, || mungo::current().name().map(str::to_owned)).unwrap().join().unwrap()
        });
        assert_eq!(named.as_deref(), Some("scoped"));
    });
}

#[test]
fn goroutines_of_a_scope_spawn_into_it() {
    everywhere(|| {
        let n = AtomicUsize::new(0);
        scope(|s| {
            s.spawn(|| {
                for _ in 0..10 {
                    s.spawn(|| {
                        n.fetch_add(1, SeqCst);
                        s.spawn(|| n.fetch_add(1, SeqCst));
                    });
                }
            });
        });
        assert_eq!(n.load(SeqCst), 20);
    });
}

#[test]
fn scopes_nest() {
    everywhere(|| {
        fn sum(list: &[u64]) -> u64 {
            if list.len() < 4 {
                return list.iter().sum();
            }
            let (a, b) = list.split_at(list.len() / 2);
            scope(|s| {
                let a = s.spawn(|| sum(a));
                sum(b) + a.join().unwrap()
            })
        }
        let list: Vec<u64> = (0..300).collect();
        assert_eq!(sum(&list), 299 * 300 / 2);
    });
}

#[test]
fn a_panic_in_the_closure_waits_first() {
    everywhere(|| {
        let ended = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| {
                    (0..100).for_each(|_| yield_now());
                    ended.store(true, SeqCst);
                });
                panic!("in the closure");
            })
        }));
        assert!(ended.load(SeqCst));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"in the closure"));
    });
}

#[test]
fn a_panic_that_nobody_joins_comes_out_of_the_scope() {
    everywhere(|| {
        for handle_dropped_late in [false, true] {
            let others = AtomicUsize::new(0);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                scope(|s| {
                    let h = s.spawn(|| panic!("in a goroutine"));
                    if handle_dropped_late {
                        wait_until("it ended", || h.is_finished());
                    }
                    drop(h);
                    s.spawn(|| others.fetch_add(1, SeqCst));
                })
            }));
            let payload = caught.unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"a scoped goroutine panicked"));
            assert_eq!(others.load(SeqCst), 1);
        }
    });
}

#[test]
fn a_panic_that_somebody_joins_stays_inside() {
    everywhere(|| {
        let text = scope(|s| {
            let payload = s.spawn(|| panic!("joined")).join().unwrap_err();
            *payload.downcast_ref::<&str>().unwrap()
        });
        assert_eq!(text, "joined");
    });
}

/// A result that nobody asks for may borrow: it is dropped before the scope returns, whenever its handle went.
#[test]
fn results_are_dropped_before_the_scope_ends() {
    everywhere(|| {
        for _ in 0..200 {
            let drops = Drops::default();
            let open = AtomicBool::new(false);
            scope(|s| {
                s.spawn(|| drops.one()); // detached at once
                let h = s.spawn(|| drops.one()); // at the end of the closure
                s.spawn(|| {
                    while !open.load(Acquire) {
                        yield_now();
                    }
                    drops.one()
                });
                let moved = s.spawn(|| drops.one());
                s.spawn(move || drop(moved)); // by another goroutine
                open.store(true, Release);
                _ = &h;
            });
            assert_eq!(drops.count(), 4);
        }
    });
}

#[test]
fn a_scope_goes_on_although_its_threads_change() {
    let rt = runtime(3);
    rt.run(|| {
        let n = AtomicUsize::new(0);
        scope(|s| {
            let parked: Vec<_> = (0..50)
                .map(|_| {
                    s.spawn(|| {
                        park();
                        n.fetch_add(1, SeqCst);
                    })
                })
                .collect();
            parked.iter().for_each(|h| h.goroutine().unpark());
            // A plain thread spawns into it, too.
            std::thread::scope(|threads| _ = threads.spawn(|| s.spawn(|| n.fetch_add(1, SeqCst))));
        });
        assert_eq!(n.load(SeqCst), 51);
    });
    end(rt);
}

#[test]
fn an_empty_scope_returns_at_once() {
    everywhere(|| assert_eq!(scope(|_| 3), 3));
}
