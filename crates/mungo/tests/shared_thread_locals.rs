//! Where goroutines cannot have thread-locals of their own they share those of their thread. The same is forced here
//! by `MUNGO_DEBUG=owntls=0`, each test in a process of its own.
#![cfg(all(target_os = "linux", not(miri)))]

mod tls_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tls_support::*;

const FORCED: &[(&str, &str)] = &[("MUNGO_DEBUG", "owntls=0")];

#[test]
fn the_runtime_says_so() {
    if in_child("the_runtime_says_so", FORCED).is_some() {
        return;
    }
    let rt = runtime(2);
    match rt.info().thread_locals {
        mungo::ThreadLocals::Shared(why) => assert!(!why.is_empty()),
        other => panic!("{other:?}"),
    }
    finish(rt);
}

#[test]
fn unknown_switches_are_named_once() {
    let Some(output) = in_child("unknown_switches_are_named_once", &[("MUNGO_DEBUG", "owntls=0,warp=9")])
    else {
        for _ in 0..3 {
            let rt = runtime(1);
            assert_eq!(rt.run(|| 1), 1);
            finish(rt);
        }
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches("MUNGO_DEBUG: 'warp'").count(), 1, "{text}");
    assert!(!text.contains("'owntls"), "{text}");
}

#[test]
fn goroutines_know_who_they_are_after_migrations() {
    if in_child("goroutines_know_who_they_are_after_migrations", FORCED).is_some() {
        return;
    }
    let rt = runtime(4);
    let ferry = Ferry::new(2);
    rt.run(|| {
        let all: Vec<_> = (0..100)
            .map(|i| {
                let boat = ferry.boat();
                mungo::go(move || {
                    let id = mungo::current().id();
                    for round in 0..200 {
                        match (i + round) % 3 {
                            0 => mungo::yield_now(),
                            1 => boat.cross(),
                            _ => assert_eq!(mungo::go(move || i).join().unwrap(), i),
                        }
                        assert_eq!(mungo::current().id(), id, "right after a switch");
                    }
                    id
                })
            })
            .collect();
        let mut ids: Vec<_> = all.into_iter().map(|h| h.join().unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 100);
        for _ in 0..20 {
            let id = mungo::current().id();
            migrate();
            assert_eq!(mungo::current().id(), id);
        }
    });
    finish(rt);
    let migrations = MIGRATIONS.load(SeqCst);
    assert!(migrations > 100, "{migrations} migrations");
}

/// The count of panics is the thread's. A goroutine that switches in the middle of one keeps its thread to itself.
#[test]
fn a_panicking_goroutine_keeps_its_thread() {
    if in_child("a_panicking_goroutine_keeps_its_thread", FORCED).is_some() {
        return;
    }
    quiet_panics();
    let rt = runtime(4);
    let ferry = Ferry::new(1);
    struct SwitchesInDrop(Boat);
    impl Drop for SwitchesInDrop {
        fn drop(&mut self) {
            let thread = os_thread();
            for _ in 0..20 {
                mungo::yield_now();
                self.0.cross();
                assert_eq!(os_thread(), thread);
                assert!(std::thread::panicking());
            }
        }
    }
    let strangers = Arc::new(AtomicUsize::new(0));
    rt.run(|| {
        let all: Vec<_> = (0..60)
            .map(|i| {
                let (boat, strangers) = (ferry.boat(), strangers.clone());
                mungo::go(move || {
                    if i % 10 == 0 {
                        let switches = SwitchesInDrop(boat);
                        let _held = &switches;
                        panic!("{EXPECTED}{i}");
                    }
                    for _ in 0..100 {
                        strangers.fetch_add(usize::from(std::thread::panicking()), SeqCst);
                        boat.cross();
                    }
                })
            })
            .collect();
        for (i, handle) in all.into_iter().enumerate() {
            assert_eq!(handle.join().is_err(), i % 10 == 0);
        }
        // And it is free again afterwards.
        migrate();
    });
    assert_eq!(strangers.load(SeqCst), 0, "a stranger saw a panic");
    finish(rt);
}

#[test]
fn panics_leave_mutexes_alone() {
    if in_child("panics_leave_mutexes_alone", FORCED).is_none() {
        panics_stay_private(4);
    }
}

#[test]
fn parks_scopes_and_joins_work() {
    if in_child("parks_scopes_and_joins_work", FORCED).is_some() {
        return;
    }
    let rt = runtime(2);
    let sum = rt.run(|| {
        let numbers: Vec<u64> = (0..1000).collect();
        mungo::scope(|s| {
            let parts: Vec<_> = numbers.chunks(10).map(|part| s.spawn(|| part.iter().sum::<u64>())).collect();
            parts.into_iter().map(|p| p.join().unwrap()).sum::<u64>()
        })
    });
    assert_eq!(sum, 499_500);
    let migrations = malloc_storm(4, 500, 20);
    assert!(migrations > 0);
    finish(rt);
}
