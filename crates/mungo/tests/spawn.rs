//! `go`, `spawn`, `Builder`, `JoinHandle`.

mod common;

use common::{Drops, end, runtime, wait_until};
use mungo::{Builder, Goroutine, JoinHandle, Runtime, current, go, park, yield_now};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Release, SeqCst},
};

#[test]
fn go_and_spawn_return_the_result() {
    assert_eq!(go(|| 1).join().unwrap(), 1);
    assert_eq!(mungo::spawn(|| "x".to_owned()).join().unwrap(), "x");
    go(|| ()).join().unwrap();
    let (a, b) = (runtime(1), runtime(2));
    assert_eq!(a.spawn(mungo::procs).join().unwrap(), 1);
    assert_eq!(Builder::new().spawn_on(&b, mungo::procs).unwrap().join().unwrap(), 2);
    // A goroutine's goroutines belong to its runtime.
    assert_eq!(b.run(|| go(mungo::procs).join().unwrap()), 2);
    end(a);
    end(b);
}

#[test]
fn run_may_borrow() {
    let rt = runtime(2);
    let mut list = vec![1, 2];
    let n = rt.run(|| {
        list.push(3);
        list.len()
    });
    assert_eq!((n, list), (3, vec![1, 2, 3]));
    end(rt);
}

#[test]
fn a_builder_gives_name_and_stack() {
    let name = |g: Goroutine| g.name().map(str::to_owned);
    let h = Builder::new().name("gopher ☺".to_owned()).spawn(move || name(current())).unwrap();
    assert_eq!(h.goroutine().name(), Some("gopher ☺"));
    assert_eq!(h.join().unwrap().as_deref(), Some("gopher ☺"));
    assert_eq!(go(move || name(current())).join().unwrap(), None);
    for size in [16 << 10, 100_000, 1 << 20, 64 << 20] {
        assert_eq!(Builder::new().stack_size(size).spawn(move || size).unwrap().join().unwrap(), size);
    }
    assert_eq!(runtime(1).run(move || name(current())).as_deref(), Some("main"));
}

#[test]
fn senseless_settings_are_refused() {
    let refused = |builder: Builder| {
        let e = builder.spawn(|| ()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e}");
        e.to_string()
    };
    assert!(refused(Builder::new().name("a\0b".to_owned())).contains("NUL"));
    assert!(refused(Builder::new().stack_size(0)).contains("too small"));
    assert!(refused(Builder::new().stack_size(1)).contains("too small"));
    assert!(refused(Builder::new().stack_size(1 << 40)).contains("too large"));
    assert!(refused(Builder::new().stack_size(usize::MAX)).contains("too large"));
    assert!(Runtime::builder().stack_size(1).build().is_err());
    assert!(Runtime::builder().stack_size(usize::MAX).build().is_err());
}

/// The closure of a refused spawn is dropped like any value: its destructor may block.
#[test]
fn a_refused_closure_may_block_when_it_is_dropped() {
    struct Blocks(Option<JoinHandle<()>>);
    impl Drop for Blocks {
        fn drop(&mut self) {
            let inner = self.0.take().unwrap();
            inner.goroutine().unpark();
            inner.join().unwrap();
            yield_now();
        }
    }
    let try_all = || {
        let refuse = |size: usize| {
            let blocks = Blocks(Some(go(park)));
            // So much address space there is not.
            let spawned: Vec<_> =
                (0..100_000).map_while(|_| Builder::new().stack_size(size).spawn(park).ok()).collect();
            let refused = Builder::new().stack_size(size).spawn(move || drop(blocks));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfMemory);
            spawned.iter().for_each(|h| h.goroutine().unpark());
            spawned.into_iter().for_each(|h| h.join().unwrap());
        };
        refuse((8 << 30) - (1 << 20));
        go(|| (0..10).for_each(|_| yield_now())).join().unwrap();
    };
    let rt = runtime(2);
    rt.run(try_all);
    rt.run(|| go(|| 1).join().unwrap());
    end(rt);
}

#[test]
fn a_panic_comes_out_of_join() {
    let text = go(|| panic!("plain")).join().unwrap_err();
    assert_eq!(text.downcast_ref::<&str>(), Some(&"plain"));
    let n = std::hint::black_box(7);
    let text = go(move || panic!("number {n}")).join().unwrap_err();
    assert_eq!(text.downcast_ref::<String>().unwrap(), "number 7");
    let value = go(|| std::panic::panic_any(42u64)).join().unwrap_err();
    assert_eq!(value.downcast_ref::<u64>(), Some(&42));
    let rt = runtime(1);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rt.run(|| panic!("through run"))));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"through run"));
    assert_eq!(rt.run(|| 1), 1);
    end(rt);
}

#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Aligned(u8);

#[test]
fn closures_and_results_of_all_sizes() {
    fn round<const N: usize>() {
        let input = [N as u8; N];
        let h = go(move || {
            yield_now();
            input.map(|b| b.wrapping_add(1))
        });
        assert_eq!(h.join().unwrap(), [(N as u8).wrapping_add(1); N]);
    }
    round::<0>();
    round::<1>();
    round::<55>();
    round::<56>();
    round::<63>();
    round::<64>();
    round::<65>();
    round::<4096>();
    round::<8_000>(); // unoptimised code copies it a dozen times
    let value = Aligned(9);
    let h = go(move || {
        assert!((&raw const value).is_aligned());
        value
    });
    let back = h.join().unwrap();
    assert!((&raw const back).is_aligned());
    assert_eq!(back.0, 9);
}

/// However a goroutine is let go of, its closure and its result are dropped once.
#[test]
fn everything_is_dropped_once() {
    let (closures, results) = (Drops::leaked(), Drops::leaked());
    let rt = runtime(2);
    let spawn = |open: Option<Arc<AtomicBool>>| {
        let captured = closures.one();
        rt.spawn(move || {
            while open.as_ref().is_some_and(|open| !open.load(Acquire)) {
                yield_now();
            }
            drop(captured);
            (results.one(), [0u64; 16])
        })
    };
    // Joined.
    drop(spawn(None).join().unwrap());
    assert_eq!((closures.count(), results.count()), (1, 1));
    // Detached before the end.
    let open = Arc::new(AtomicBool::new(false));
    drop(spawn(Some(open.clone())));
    assert_eq!(results.count(), 1);
    open.store(true, Release);
    wait_until("the detached result is dropped", || results.count() == 2);
    // Detached after the end: by whoever drops the handle.
    let h = spawn(None);
    wait_until("it ended", || h.is_finished());
    assert_eq!(results.count(), 2);
    drop(h);
    assert_eq!(results.count(), 3);
    // Detached at any moment.
    let n = 20_000;
    for i in 0..n {
        let h = spawn(None);
        (0..i % 200).for_each(|k| _ = std::hint::black_box(k));
        drop(h);
    }
    end(rt);
    assert_eq!((closures.count(), results.count()), (3 + n, 3 + n));
}

#[test]
fn is_finished_tells_the_end() {
    let open = Arc::new(AtomicBool::new(false));
    let wait_for = open.clone();
    let h = go(move || {
        while !wait_for.load(Acquire) {
            park();
        }
    });
    assert!(!h.is_finished());
    open.store(true, Release);
    h.goroutine().unpark();
    wait_until("it ended", || h.is_finished());
    h.join().unwrap();
}

#[test]
fn anybody_may_join() {
    let (a, b) = (runtime(1), runtime(1));
    let h = a.spawn(|| {
        yield_now();
        5
    });
    let n = b.run(move || h.join().unwrap());
    let h = b.spawn(move || n + 1);
    let n = std::thread::spawn(move || h.join().unwrap()).join().unwrap();
    assert_eq!(a.run(move || go(move || n + 1).join().unwrap()), 7);
    // Many of both at a time, in chains.
    let chain = (0..500).fold(a.spawn(|| 0), |before, i| {
        let rt = if i % 2 == 0 { &a } else { &b };
        rt.spawn(move || before.join().unwrap() + 1)
    });
    assert_eq!(chain.join().unwrap(), 500);
    end(a);
    end(b);
}

#[test]
fn handles_outlive_the_runtime() {
    let rt = runtime(2);
    let drops = Drops::leaked();
    let handles: Vec<_> = (0..10).map(|i| rt.spawn(move || (i, drops.one()))).collect();
    let gs: Vec<_> = handles.iter().map(JoinHandle::goroutine).collect();
    end(rt);
    for (i, h) in handles.into_iter().enumerate() {
        assert!(h.is_finished());
        if i % 2 == 0 { assert_eq!(h.join().unwrap().0, i) } else { drop(h) }
    }
    assert_eq!(drops.count(), 10);
    gs.iter().for_each(Goroutine::unpark);
}

#[test]
fn ids_are_unique_and_names_are_not_inherited() {
    let rt = runtime(4);
    let from_inside = rt.run(|| {
        let all: Vec<_> = (0..2000).map(|_| go(|| current().id())).collect();
        all.into_iter().map(|h| (h.goroutine().id(), h.join().unwrap())).collect::<Vec<_>>()
    });
    let from_outside: Vec<_> = (0..2000)
        .map(|_| rt.spawn(|| current().id()))
        .map(|h| (h.goroutine().id(), h.join().unwrap()))
        .collect();
    let all: Vec<_> = from_inside.into_iter().chain(from_outside).collect();
    assert!(all.iter().all(|(by_handle, by_itself)| by_handle == by_itself));
    assert_eq!(all.iter().map(|(id, _)| *id).collect::<HashSet<_>>().len(), 4000);
    let mine = current().id();
    assert!(!all.iter().any(|(id, _)| *id == mine), "a plain thread's id is apart");
    assert_ne!(std::thread::spawn(|| current().id()).join().unwrap(), mine);
    end(rt);
}

#[test]
fn num_goroutines_counts_the_living() {
    let rt = runtime(2);
    rt.run(|| {
        assert_eq!(mungo::num_goroutines(), 1);
        let parked: Vec<_> = (0..10).map(|_| go(park)).collect();
        assert_eq!(mungo::num_goroutines(), 11);
        parked.iter().for_each(|h| h.goroutine().unpark());
        parked.into_iter().for_each(|h| h.join().unwrap());
        wait_until("they are gone", || mungo::num_goroutines() == 1);
    });
    wait_until("all are gone", || rt.metrics().goroutines == 0);
    let m = rt.metrics();
    assert_eq!((m.spawned, m.finished), (11, 11));
    end(rt);
}

#[test]
fn plain_threads_spawn_at_the_same_time() {
    let rt = runtime(2);
    let ran = AtomicUsize::new(0);
    let ran: &'static AtomicUsize = Box::leak(Box::new(ran));
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for i in 0..2000 {
                    let h = rt.spawn(move || ran.fetch_add(1, SeqCst));
                    if i % 16 == 0 {
                        h.join().unwrap();
                    }
                }
            });
        }
    });
    end(rt);
    assert_eq!(ran.load(SeqCst), 16_000);
}

#[test]
fn handles_can_be_shown_whatever_they_return() {
    struct Opaque;
    let h = go(|| Opaque);
    assert!(format!("{h:?}").contains("JoinHandle"));
    _ = h.join();
}
