//! `select!`, `select_biased!` and `Select`, in all their forms.

mod common;

use common::{Drops, go_named, wait_until, wait_until_parked};
use mungo::chan::{
    ReadyTimeoutError, RecvError, Select, SelectTimeoutError, SendError, TryReadyError, TrySelectError, after,
    at, bounded, never, select, select_biased, tick, unbounded,
};
use mungo::go;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn the_ready_arm_is_chosen() {
    let ((tx1, rx1), (_tx2, rx2)) = (bounded(1), bounded::<&str>(1));
    tx1.send("one").unwrap();
    let got = select! {
        recv(rx2) -> v => v,
        recv(rx1) -> v => v,
    };
    assert_eq!(got, Ok("one"));
    let sent = select! {
        recv(rx1) -> _ => unreachable!(),
        send(tx1, "two") -> result => result,
    };
    assert_eq!((sent, rx1.recv()), (Ok(()), Ok("two")));
}

#[test]
fn default_arms() {
    let (tx, rx) = bounded::<i32>(0);
    assert!(select! { recv(rx) -> _ => false, default => true });
    assert!(select! { send(tx, 1) -> _ => false, default() => true });
    let start = Instant::now();
    assert!(select! { recv(rx) -> _ => false, send(tx, 1) -> _ => false, default(ms(5)) => true });
    assert!(start.elapsed() >= ms(5));
    assert_eq!(select! { default => 7 }, 7);
    assert_eq!(select! { default(ms(1)) => 7 }, 7);
}

#[test]
fn disconnected_arms_are_ready() {
    let (tx, rx) = bounded::<i32>(0);
    let (dead_tx, dead_rx) = (bounded(0).0, bounded::<i32>(0).1);
    assert_eq!(select! { recv(rx) -> v => v, recv(dead_rx) -> v => v }, Err(RecvError));
    assert_eq!(select! { send(tx, 1) -> v => v, send(dead_tx, 2) -> v => v }, Err(SendError(2)));
    tx.close().unwrap();
    assert_eq!(select! { recv(rx) -> v => v, default => Ok(0) }, Err(RecvError));
    assert_eq!(select! { send(tx, 3) -> v => v, default => Ok(()) }, Err(SendError(3)));
}

#[test]
fn a_select_without_arms_blocks_for_ever() {
    let runtime = common::runtime(1);
    let blocked = mungo::Builder::new().spawn_on(&runtime, || select! {}).unwrap();
    mungo::sleep(ms(20));
    assert!(!blocked.is_finished());
    std::mem::forget(runtime); // it cannot end
}

#[test]
#[allow(clippy::redundant_closure_call, clippy::unnecessary_literal_unwrap, clippy::manual_unwrap_or)]
fn arms_take_handles_of_all_sorts_and_bodies_too() {
    struct Mine {
        rx: mungo::chan::Receiver<i32>,
    }
    let (tx, rx) = unbounded::<i32>();
    let mine = Box::new(Mine { rx: rx.clone() });
    (0..9).for_each(|i| tx.send(i).unwrap());
    select! { recv(rx) -> v => assert_eq!(v, Ok(0)) }
    select! { recv(&&&rx) -> v => assert_eq!(v, Ok(1)), }
    select! { recv(Box::new(rx.clone())) -> v => { assert_eq!(v, Ok(2)) } }
    select! { recv(mine.rx) -> v => { assert_eq!(v, Ok(3)); }, }
    select! { recv((|| rx.clone())(),) -> v => assert_eq!(v, Ok(4)) }
    select! { recv(Some(&rx).unwrap_or(&never())) -> (Ok(5) | _) => {} }
    let six = select! { recv(rx) -> v => v.unwrap(), default(ms(1)) => -1 };
    let seven = select! {
        recv(rx) -> v => match v { Ok(v) => v, Err(_) => -1 },
        default => -1
    };
    assert_eq!((six, seven), (6, 7));
    for _ in 0.. {
        select! {
            recv(rx) -> v => if v == Ok(8) { continue },
            default => break,
        }
    }
    let mut rx = rx;
    select! {
        recv(rx) -> _ => unreachable!(),
        default => rx = never(),
    }
    assert_eq!(rx.capacity(), Some(0));
    let dead = bounded::<i32>(0).1;
    let question = || -> Result<i32, RecvError> { Ok(select! { recv(dead) -> v => v? }) };
    assert_eq!(question(), Err(RecvError));
    let moved = String::from("moved");
    let (string_tx, string_rx) = bounded(1);
    loop {
        select! {
            recv(rx) -> _ => {}
            send(string_tx, moved) -> _ => break,
        }
    }
    assert_eq!(string_rx.recv(), Ok("moved".to_owned()));
}

#[test]
#[allow(unreachable_code, clippy::diverging_sub_expression)]
fn a_value_is_made_only_if_its_arm_is_chosen() {
    let (tx, _rx) = bounded::<i32>(0);
    select! {
        send(tx, panic!("not chosen")) -> _ => {}
        default => {}
    }
}

#[test]
fn both_ends_of_a_channel_in_one_select() {
    let (tx, rx) = bounded::<usize>(0);
    let alone = select! {
        send(tx, 1) -> _ => false,
        recv(rx) -> _ => false,
        default(ms(5)) => true,
    };
    assert!(alone, "it must not meet itself");
    // An even number of them pair up.
    let all: Vec<_> = (0..100)
        .map(|i| {
            let (tx, rx) = (tx.clone(), rx.clone());
            go(move || {
                select! {
                    send(tx, i) -> r => r.map(|()| usize::MAX).unwrap(),
                    recv(rx) -> v => v.unwrap(),
                }
            })
        })
        .collect();
    let received: Vec<_> = all.into_iter().map(|g| g.join().unwrap()).collect();
    let sends = received.iter().filter(|&&v| v == usize::MAX).count();
    assert_eq!(sends, 50);
    assert!(received.iter().enumerate().all(|(i, &v)| v != i), "nobody got its own");
}

#[test]
fn one_channel_in_many_arms() {
    let (tx, rx) = bounded(0);
    let sender = go(move || (0..3000).for_each(|i| tx.send(i).unwrap()));
    let mut hits = [0; 3];
    for i in 0..3000 {
        select! {
            recv(rx) -> v => { assert_eq!(v, Ok(i)); hits[0] += 1 }
            recv(rx) -> v => { assert_eq!(v, Ok(i)); hits[1] += 1 }
            recv(rx) -> v => { assert_eq!(v, Ok(i)); hits[2] += 1 }
        }
    }
    sender.join().unwrap();
    assert!(hits.iter().all(|&n| n > 700), "{hits:?}");
}

#[test]
fn the_choice_is_uniform_or_biased() {
    let channels: Vec<_> = (0..4).map(|_| unbounded()).collect();
    for (tx, _) in &channels {
        (0..20_000).for_each(|i| tx.send(i).unwrap());
    }
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| &channels[i].1);
    let mut hits = [0; 4];
    for _ in 0..12_000 {
        select! {
            recv(a) -> _ => hits[0] += 1,
            recv(b) -> _ => hits[1] += 1,
            recv(never::<i32>()) -> _ => unreachable!(),
            recv(c) -> _ => hits[2] += 1,
            recv(d) -> _ => hits[3] += 1,
        }
    }
    // 3000 each, give or take: six standard deviations are 285.
    assert!(hits.iter().all(|n| (2700..3300).contains(n)), "{hits:?}");
    for _ in 0..100 {
        select_biased! {
            recv(never::<i32>()) -> _ => unreachable!(),
            recv(b) -> _ => {}
            recv(a) -> _ => unreachable!(),
        }
    }
}

#[test]
fn clocks_take_part() {
    let (_tx, rx) = bounded::<i32>(0);
    let start = Instant::now();
    let ticks = tick(ms(2));
    let mut count = 0;
    let end = after(ms(30));
    loop {
        select! {
            recv(rx) -> _ => unreachable!(),
            recv(ticks) -> t => { assert!(t.unwrap() <= Instant::now()); count += 1 }
            recv(end) -> _ => break,
        }
    }
    assert!(start.elapsed() >= ms(30) && count >= 1);
    assert_eq!(select! { recv(at(start)) -> t => t, default => unreachable!() }, Ok(start));
}

#[test]
fn a_select_is_chosen_by_its_partner() {
    for capacity in [0, 1] {
        let ((tx1, rx1), (tx2, rx2)) = (bounded(capacity), bounded::<i32>(capacity));
        let selecting = go(move || {
            let first = select! { recv(rx1) -> v => v, recv(rx2) -> v => v };
            let second = select! { recv(rx1) -> v => v, recv(rx2) -> v => v };
            (first, second)
        });
        tx2.send(2).unwrap();
        let other = go(move || tx1.send(1));
        let (first, second) = selecting.join().unwrap();
        assert!(matches!((first, second), (Ok(2), Ok(1)) | (Ok(1), Ok(2))));
        other.join().unwrap().unwrap();
        drop(tx2);
    }
}

#[test]
#[allow(unreachable_code, clippy::diverging_sub_expression)]
fn a_chosen_sender_that_changes_its_mind() {
    for capacity in [0, 1] {
        let (tx, rx) = bounded::<i32>(capacity);
        let receiver = go(move || rx.recv());
        let other = tx.clone();
        let selecting = go(move || {
            select! {
                send(other, return "left") -> _ => "sent",
            }
        });
        assert_eq!(selecting.join().unwrap(), "left");
        let panics = tx.clone();
        let panicking = go(move || select! { send(panics, panic!("no value")) -> _ => {} });
        assert!(panicking.join().is_err());
        assert!(!receiver.is_finished());
        tx.send(7).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));
    }
}

#[test]
fn dynamic_lists() {
    let channels: Vec<_> = (0..100).map(|_| bounded(1)).collect();
    let mut select = Select::new();
    let indices: Vec<_> = channels.iter().map(|(_, rx)| select.recv(rx)).collect();
    assert!(indices.iter().copied().eq(0..100));
    assert_eq!(select.try_select().map(|_| ()), Err(TrySelectError));
    assert_eq!(select.select_timeout(ms(1)).map(|_| ()), Err(SelectTimeoutError));
    let tx = channels[77].0.clone();
    let sender = go(move || tx.send("here").unwrap());
    let operation = select.select();
    assert_eq!(operation.index(), 77);
    assert_eq!(operation.recv(&channels[77].1), Ok("here"));
    sender.join().unwrap();
    channels[5].0.send("removed").unwrap();
    select.remove(5);
    assert_eq!(select.try_ready(), Err(TryReadyError));
    let send = select.send(&channels[9].0);
    assert_eq!((send, select.ready()), (100, 100));
    let clone_of = select.clone().select();
    clone_of.send(&channels[9].0, "by the clone").unwrap();
    assert_eq!(select.select().recv(&channels[9].1), Ok("by the clone"));
}

#[test]
fn wrong_use_of_select_panics() {
    let panics = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    let ((tx, rx), (other_tx, other_rx)) = (bounded(1), bounded(1));
    panics(&|| drop(Select::new().select()));
    panics(&|| _ = Select::new().ready());
    panics(&|| Select::new().remove(0));
    panics(&|| {
        let mut select = Select::new();
        select.send(&tx);
        drop(select.select());
    });
    panics(&|| {
        let mut select = Select::new();
        select.send(&tx);
        _ = select.select().send(&other_tx, 1);
    });
    panics(&|| {
        let mut select = Select::new();
        select.send(&tx);
        _ = select.select().recv(&other_rx);
    });
    // The reservations were given back each time.
    assert_eq!((tx.try_send(1), rx.recv()), (Ok(()), Ok(1)));
}

#[test]
fn ready_tells_and_takes_nothing() {
    let (tx, rx) = bounded(0);
    let sender = {
        let tx = tx.clone();
        go(move || tx.send(5).unwrap())
    };
    let mut select = Select::new();
    select.recv(&rx);
    assert_eq!(select.ready(), 0);
    assert_eq!(select.try_ready(), Ok(0), "still there");
    assert_eq!(rx.try_recv(), Ok(5));
    sender.join().unwrap();
    assert_eq!(select.ready_timeout(ms(1)), Err(ReadyTimeoutError));
    assert_eq!(select.ready_deadline(Instant::now()), Err(ReadyTimeoutError));
    let watching = go(move || {
        let mut select = Select::new();
        select.recv(&rx);
        (select.ready(), rx.recv())
    });
    drop(tx);
    assert_eq!(watching.join().unwrap(), (0, Err(RecvError)));
}

#[test]
fn selected_values_are_dropped_once() {
    let drops = Drops::leaked();
    let (tx, rx) = bounded(0);
    let (done_tx, done) = bounded::<()>(0);
    let receivers: Vec<_> = (0..4)
        .map(|_| {
            let (rx, done) = (rx.clone(), done.clone());
            go(move || {
                let mut n = 0;
                loop {
                    select! {
                        recv(rx) -> v => n += usize::from(v.is_ok()),
                        recv(done) -> _ => return n,
                    }
                }
            })
        })
        .collect();
    for i in 0..1000 {
        if i % 2 == 0 {
            tx.send(drops.one()).unwrap();
        } else {
            select! { send(tx, drops.one()) -> r => assert!(r.is_ok()) }
        }
    }
    drop(done_tx);
    let received: usize = receivers.into_iter().map(|g| g.join().unwrap()).sum();
    assert_eq!((received, drops.count()), (1000, 1000));
    wait_until("nobody is left in a queue", || tx.try_send(drops.one()).is_err());
}

#[test]
fn who_watches_for_a_place_hears_of_it() {
    let (tx, rx) = bounded(1);
    tx.send(1).unwrap();
    let watched = tx.clone();
    let watching = go_named("watches for a place", move || {
        let mut select = Select::new();
        select.send(&watched);
        select.ready()
    });
    wait_until_parked("watches for a place");
    assert_eq!(rx.recv(), Ok(1));
    assert_eq!(watching.join().unwrap(), 0);
}

#[test]
fn a_place_is_promised_to_one_sender_only() {
    let (tx, rx) = bounded(1);
    let mut select = Select::new();
    select.send(&tx);
    let first = select.select();
    assert!(tx.is_full() && tx.is_empty());
    assert!(tx.try_send(2).is_err());
    let mut other = Select::new();
    other.send(&tx);
    assert!(other.try_select().is_err());
    first.send(&tx, 1).unwrap();
    assert_eq!((rx.recv(), rx.try_recv().is_err()), (Ok(1), true));
}

#[test]
fn a_promised_place_that_is_given_back_goes_to_the_next_sender() {
    let (tx, rx) = bounded(1);
    let mut select = Select::new();
    select.send(&tx);
    let promised = select.select();
    let blocked = tx.clone();
    let sender = go_named("waits for the place", move || blocked.send(7));
    wait_until_parked("waits for the place");
    assert!(catch_unwind(AssertUnwindSafe(|| drop(promised))).is_err(), "it was not completed");
    assert_eq!(sender.join().unwrap(), Ok(()));
    assert_eq!(rx.recv(), Ok(7));
}

#[test]
fn a_select_that_was_promised_a_value_in_vain_waits_on() {
    let ((tx, rx), (_other, never_sent)) = (bounded::<i32>(0), bounded::<i32>(0));
    let receiver = go_named("selects a receive", move || {
        select! {
            recv(rx) -> v => v,
            recv(never_sent) -> v => v,
        }
    });
    wait_until_parked("selects a receive");
    let mut select = Select::new();
    select.send(&tx);
    let promised = select.select();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(promised))).is_err(), "it was not completed");
    wait_until_parked("selects a receive");
    tx.send(7).unwrap();
    assert_eq!(receiver.join().unwrap(), Ok(7));
}
