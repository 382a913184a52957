//! Panics: where they are reported.

#[macro_use]
mod common;

use common::{child, runtime, wait_until};
use mungo::{Builder, go, yield_now};
use std::any::Any;
use std::cell::RefCell;

children!(
    detached,
    detached_late,
    joined,
    scoped,
    in_destructor_of_result,
    small_stack,
    named,
    hook_of_the_programs_own,
    hook_around_the_former_one
);

const UNJOINED: &str = "panicked and no handle joins it";

fn detached() {
    let rt = runtime(1);
    let h = Builder::new().name("lonely".to_owned()).spawn_on(&rt, || panic!("the reason")).unwrap();
    println!("{}", h.goroutine().id());
    drop(h);
    rt.spawn(|| std::panic::panic_any(7u8));
    common::end(rt);
}

fn detached_late() {
    let rt = runtime(1);
    let h = Builder::new().name("lonely".to_owned()).spawn_on(&rt, || panic!("the reason")).unwrap();
    println!("{}", h.goroutine().id());
    wait_until("it ended", || h.is_finished());
    drop(h);
    common::end(rt);
}

#[test]
fn a_detached_panic_is_reported() {
    for name in ["detached", "detached_late"] {
        let ended = child::run(name);
        let id = ended.stdout.trim();
        ended
            .assert_success()
            .assert_says(&format!("mungo: goroutine {id} 'lonely' (spawned at crates/mungo/tests/panics.rs:"))
            .assert_says(&format!("{UNJOINED}: the reason"));
    }
    child::run("detached").assert_says(&format!("{UNJOINED}: Box<dyn Any>"));
}

fn named() {
    let parser = Builder::new().name("parser".to_owned()).spawn(|| {
        assert_eq!(std::thread::current().name(), Some("parser"));
        panic!("the reason")
    });
    let parser = parser.unwrap();
    println!("{}", parser.goroutine().id());
    parser.join().unwrap_err();
    // Nothing is left of the name in the block, nor in the handle that outlives it.
    let thread = go(std::thread::current).join().unwrap();
    assert_eq!(thread.name(), None);
    let again = Builder::new().name("n".repeat(1000)).spawn(std::thread::current).unwrap();
    assert_eq!(again.join().unwrap().name(), Some(&*"n".repeat(1000)));
    go(|| panic!("unnamed")).join().unwrap_err();
}

#[test]
fn a_panic_names_its_goroutine() {
    let ended = child::run("named");
    let id: u64 = ended.stdout.trim().parse().unwrap();
    ended
        .assert_success()
        .assert_says("thread 'parser' (")
        .assert_says(&format!("mungo: goroutine {id} 'parser' (spawned at crates/mungo/tests/panics.rs:"))
        .assert_says("thread '<unnamed>' (")
        .assert_does_not_say(UNJOINED);
    assert_eq!(ended.stderr.matches("mungo: goroutine ").count(), 2, "{ended:#?}");
}

fn hook_of_the_programs_own() {
    std::panic::set_hook(Box::new(|_| eprintln!("own hook")));
    joined();
}

fn hook_around_the_former_one() {
    joined();
    let former = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("own hook");
        former(info);
    }));
    joined();
}

#[test]
fn the_programs_own_panic_hook_is_kept() {
    let own = child::run("hook_of_the_programs_own");
    assert_eq!(own.assert_success().stderr, "own hook\n");
    let around = child::run("hook_around_the_former_one");
    around.assert_success().assert_says("own hook\n");
    assert_eq!(around.stderr.matches("panicked\n").count(), 2, "{around:#?}");
}

fn joined() {
    assert!(go(|| panic!("the reason")).join().is_err());
}

fn scoped() {
    mungo::scope(|s| assert!(s.spawn(|| panic!("the reason")).join().is_err()));
}

#[test]
fn a_joined_panic_is_the_joiners() {
    for name in ["joined", "scoped"] {
        child::run(name).assert_success().assert_says("the reason").assert_does_not_say(UNJOINED);
    }
}

fn in_destructor_of_result() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let h = go(|| Bad);
    wait_until("it ended", || h.is_finished());
    drop(h);
}

#[test]
fn a_result_that_panics_when_dropped_aborts() {
    let ended = child::run("in_destructor_of_result");
    ended.assert_signal(libc::SIGABRT).assert_says("panicked when it was dropped");
}

/// The smallest stack is enough to say what happened.
fn small_stack() {
    let h = Builder::new().stack_size(16 << 10).spawn(|| panic!("in a small room")).unwrap();
    assert!(h.join().is_err());
}

#[test]
fn a_small_stack_is_enough_to_panic_on() {
    child::run("small_stack").assert_success().assert_says("in a small room");
}

#[test]
fn a_backtrace_fits_the_default_stack() {
    let mut command = child::command("joined");
    command.env("RUST_BACKTRACE", "1");
    child::finish(command).assert_success().assert_says("stack backtrace");
}

#[test]
fn payloads_keep_their_type() {
    let payload = |f: fn()| -> Box<dyn Any + Send> { go(f).join().unwrap_err() };
    assert!(payload(|| panic!("x")).is::<&str>());
    assert!(payload(|| std::panic::panic_any(String::from("x"))).is::<String>());
    assert!(payload(|| std::panic::panic_any(vec![1u8])).is::<Vec<u8>>());
    assert!(payload(|| std::panic::resume_unwind(Box::new(3i32))).is::<i32>());
}

/// Goroutines that unwind and switch while they do so do not see each other's panics.
#[test]
fn unwinding_is_each_goroutines_own() {
    struct YieldsInDrop;
    impl Drop for YieldsInDrop {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            (0..20).for_each(|_| yield_now());
            assert!(std::thread::panicking());
        }
    }
    let rt = runtime(2);
    if rt.info().thread_locals != mungo::ThreadLocals::Own {
        return eprintln!("skipped: goroutines share thread-locals here");
    }
    rt.run(|| {
        let all: Vec<_> = (0..200)
            .map(|i| {
                go(move || {
                    if i % 2 == 0 {
                        let _yields = YieldsInDrop;
                        std::panic::resume_unwind(Box::new(i)); // without a message each
                    }
                    (0..20).for_each(|_| {
                        yield_now();
                        assert!(!std::thread::panicking());
                    });
                })
            })
            .collect();
        let panicked = all.into_iter().filter_map(|h| h.join().err()).count();
        assert_eq!(panicked, 100);
    });
    common::end(rt);
}

#[test]
fn a_borrow_of_a_thread_local_survives_a_switch() {
    thread_local!(static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
    let rt = runtime(2);
    if rt.info().thread_locals != mungo::ThreadLocals::Own {
        return eprintln!("skipped: goroutines share thread-locals here");
    }
    rt.run(|| {
        let all: Vec<_> = (0..100)
            .map(|i| {
                go(move || {
                    LIST.with_borrow_mut(|list| {
                        (0..50).for_each(|k| {
                            list.push(i * k);
                            yield_now();
                        });
                    });
                    LIST.with_borrow(|list| list.iter().sum::<u64>())
                })
            })
            .collect();
        for (i, h) in all.into_iter().enumerate() {
            assert_eq!(h.join().unwrap(), i as u64 * 49 * 25);
        }
    });
    common::end(rt);
}
