//! A program with a megabyte of thread-locals, in each goroutine.

mod common;

use common::{PATIENCE, end, runtime, status_bytes};
use std::cell::Cell;
use std::hint::black_box;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const MIB: usize = 1 << 20;

thread_local! {
    static ZEROED: [Cell<u8>; MIB] = const { [const { Cell::new(0) }; MIB] };
    static IMAGE: [Cell<u8>; 100_000] = const { [const { Cell::new(5) }; 100_000] };
}

/// Uses some of the stack that every goroutine has.
#[inline(never)]
fn deep(n: usize) -> usize {
    let frame = black_box([n; 128]);
    if n == 0 { frame[0] } else { deep(n - 1) + black_box(&frame)[1] - n }
}

fn is_fresh() -> bool {
    ZEROED.with(|all| all.iter().all(|b| b.get() == 0)) && IMAGE.with(|all| all.iter().all(|b| b.get() == 5))
}

fn fill(with: u8) {
    ZEROED.with(|all| all.iter().for_each(|b| b.set(with)));
    IMAGE.with(|all| all.iter().for_each(|b| b.set(with)));
}

fn holds(what: u8) -> bool {
    let all = |cells: &[Cell<u8>]| cells.iter().all(|b| b.get() == what);
    ZEROED.with(|cells| all(cells)) && IMAGE.with(|cells| all(cells))
}

#[test]
fn each_goroutine_has_its_own_and_finds_them_fresh() {
    let rt = runtime(2);
    for round in 0..5 {
        let all: Vec<_> = (1..20u8)
            .map(|i| {
                rt.spawn(move || {
                    assert!(is_fresh(), "round {round}, goroutine {i}");
                    fill(i);
                    mungo::yield_now();
                    assert_eq!(deep(150), 0);
                    assert!(holds(i), "round {round}, goroutine {i}");
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    }
    let small = mungo::Builder::new().stack_size(16 << 10).spawn(|| is_fresh() && deep(5) == 0).unwrap();
    assert!(small.join().unwrap());
    end(rt);
}

/// Threads of the runtime itself have the stack that they need as well: policies run there.
#[test]
fn workers_have_room() {
    use mungo::policy::{Fifo, Policy};
    let rt = mungo::Runtime::builder().procs(2).scheduler(Policy::from(Fifo::new())).build().unwrap();
    let all: Vec<_> =
        (0..100).map(|_| rt.spawn(|| mungo::sleep(std::time::Duration::from_millis(1)))).collect();
    all.into_iter().for_each(|h| h.join().unwrap());
    assert!(mungo::debug::dump().to_string().contains("goroutine"));
    end(rt);
}

/// Those that nobody touched cost nothing.
#[test]
fn untouched_ones_take_no_memory() {
    let rt = runtime(2);
    let parked = Arc::new(AtomicUsize::new(0));
    let before = status_bytes("VmRSS");
    let all: Vec<_> = (0..200)
        .map(|_| {
            let parked = parked.clone();
            rt.spawn(move || {
                parked.fetch_add(1, SeqCst);
                mungo::park();
            })
        })
        .collect();
    common::wait_until("all are parked", || parked.load(SeqCst) == 200);
    let each = status_bytes("VmRSS").saturating_sub(before) / 200;
    assert!(each < MIB / 2, "{each} bytes each");
    all.iter().for_each(|h| h.goroutine().unpark());
    all.into_iter().for_each(|h| h.join().unwrap());
    assert!(rt.shutdown(PATIENCE).is_ok());
}

#[test]
fn a_stack_that_cannot_be_had_is_an_error() {
    for size in [usize::MAX, 1 << 50, (16 << 30) - 1] {
        let error = mungo::Runtime::builder().procs(1).stack_size(size).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("too large"), "{error}");
    }
}
