//! `RateLimiter`, `SingleFlight` and the ways to treat missed ticks.

mod common;

use common::{PATIENCE, go_named, runtime, wait_until_parked};
use mungo::context::{Context, ContextError};
use mungo::sync::{RateLimiter, SingleFlight};
use mungo::time::{MissedTicks, interval};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn no_more_than_the_rate_gets_through() {
    let rt = runtime(4);
    rt.run(|| {
        let limiter = Arc::new(RateLimiter::new(2000.0, 10));
        let start = Instant::now();
        let all: Vec<_> = (0..50)
            .map(|_| {
                let limiter = limiter.clone();
                mungo::go(move || (0..2).for_each(|_| limiter.wait()))
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
        assert!(start.elapsed() >= Duration::from_millis(45), "100 tokens, 10 at once, then 2 a millisecond");
    });
    common::end(rt);
}

#[test]
fn a_bucket_holds_no_more_than_its_burst() {
    let limiter = RateLimiter::every(Duration::from_secs(3600), 3);
    assert_eq!((0..10).filter(|_| limiter.try_acquire()).count(), 3);
    assert!(limiter.reserve(1).delay() > Duration::from_secs(3500));
    assert_eq!(limiter.burst(), 3);
}

#[test]
fn several_tokens_at_once() {
    let limiter = RateLimiter::every(Duration::from_secs(3600), 5);
    assert!(!limiter.try_acquire_many(6), "more than the bucket holds");
    assert!(limiter.try_acquire_many(0));
    assert!(limiter.try_acquire_many(4) && !limiter.try_acquire_many(2) && limiter.try_acquire());
    let (ctx, _cancel) = Context::background().with_timeout(PATIENCE);
    assert_eq!(limiter.wait_many_with(&ctx, u32::MAX), Err(ContextError::DeadlineExceeded));
    assert!(limiter.reserve(1).delay() <= Duration::from_secs(3600), "none was taken");
    let start = Instant::now();
    let limiter = RateLimiter::new(1000.0, 1);
    limiter.wait_many(6);
    assert!(start.elapsed() >= Duration::from_millis(5), "one at once, then one a millisecond");
}

#[test]
fn reservations_add_up_and_can_be_given_back() {
    let limiter = RateLimiter::every(Duration::from_secs(100), 1);
    limiter.wait();
    let first = limiter.reserve(1);
    let (low, high) = (Duration::from_secs(60), Duration::from_secs(100));
    assert!((low..=high).contains(&first.delay()));
    let many = limiter.reserve(5);
    assert!(many.delay() > Duration::from_secs(500));
    many.cancel();
    first.cancel();
    assert!((low..=high).contains(&limiter.reserve(1).delay()));
}

#[test]
fn a_token_whose_time_has_come_is_not_given_back() {
    let limiter = RateLimiter::new(0.001, 1);
    limiter.reserve(1).cancel();
    assert!(!limiter.try_acquire());
}

#[test]
fn a_context_ends_the_wait_and_the_token_comes_back() {
    let limiter = Arc::new(RateLimiter::every(Duration::from_secs(1000), 1));
    limiter.wait();
    let (ctx, cancel) = Context::background().with_cancel();
    let waiting = {
        let limiter = limiter.clone();
        go_named("limited", move || limiter.wait_with(&ctx))
    };
    wait_until_parked("limited");
    cancel.cancel();
    assert_eq!(waiting.join().unwrap(), Err(ContextError::Canceled));
    assert!(limiter.reserve(1).delay() <= Duration::from_secs(1000), "the next one has its turn");
}

#[test]
fn odd_rates_are_refused_and_great_ones_work() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(std::panic::catch_unwind(|| RateLimiter::new(rate, 1)).is_err(), "{rate}");
    }
    let fast = RateLimiter::new(1e12, 1);
    (0..1000).for_each(|_| fast.wait());
    let slow = RateLimiter::every(Duration::MAX, u32::MAX);
    assert!(slow.try_acquire());
    assert!(slow.reserve(u32::MAX).delay() > PATIENCE);
}

#[test]
fn callers_of_one_key_share_one_call() {
    let rt = runtime(4);
    rt.run(|| {
        let (flights, calls) = (Arc::new(SingleFlight::new()), Arc::new(AtomicUsize::new(0)));
        let (release, released) = mungo::chan::bounded::<()>(0);
        let leader = {
            let (flights, calls) = (flights.clone(), calls.clone());
            go_named("leads", move || {
                flights.call("key", || {
                    calls.fetch_add(1, SeqCst);
                    _ = released.recv();
                    7
                })
            })
        };
        wait_until_parked("leads");
        let others: Vec<_> = (0..20)
            .map(|i| {
                let flights = flights.clone();
                go_named(&format!("joins {i}"), move || {
                    flights.call("key", || unreachable!("one is under way"))
                })
            })
            .collect();
        (0..20).for_each(|i| wait_until_parked(&format!("joins {i}")));
        assert_eq!(flights.call("another", || 8), 8);
        drop(release);
        assert_eq!(leader.join().unwrap(), 7);
        others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), 7));
        assert_eq!(calls.load(SeqCst), 1);
        assert_eq!(flights.call("key", || 9), 9, "nothing is kept");
    });
    common::end(rt);
}

#[test]
fn a_panic_reaches_all_who_wait_and_nobody_later() {
    let flights = Arc::new(SingleFlight::<_, u32>::new());
    let (release, released) = mungo::chan::bounded::<()>(0);
    let fly = |name: &str| {
        let (flights, released) = (flights.clone(), released.clone());
        go_named(name, move || {
            flights.call(1, || {
                _ = released.recv();
                std::panic::resume_unwind(Box::new("on purpose"))
            })
        })
    };
    let leader = fly("panics");
    wait_until_parked("panics");
    let follower = fly("follows");
    wait_until_parked("follows");
    drop(release);
    assert!(leader.join().is_err() && follower.join().is_err());
    assert_eq!(flights.call(1, || 5), 5);
}

#[test]
fn a_call_goes_on_when_its_caller_has_no_more_time() {
    let flights = Arc::new(SingleFlight::new());
    let (release, released) = mungo::chan::bounded::<()>(0);
    let (ctx, cancel) = Context::background().with_cancel();
    let first = {
        let flights = flights.clone();
        go_named("impatient", move || flights.call_with(&ctx, 1, move || _ = released.recv()))
    };
    wait_until_parked("impatient");
    cancel.cancel();
    assert_eq!(first.join().unwrap(), Err(ContextError::Canceled));
    let second = {
        let flights = flights.clone();
        go_named("patient", move || flights.call_with(&Context::background(), 1, || unreachable!()))
    };
    wait_until_parked("patient");
    drop(release);
    assert_eq!(second.join().unwrap(), Ok(()));
}

/// Many keys and many callers: each gets what belongs to its key.
/// The end of a call that was forgotten does not end the one that came after it.
#[test]
fn a_forgotten_call_leaves_the_next_one_in_flight() {
    let flights = Arc::new(SingleFlight::new());
    let fly = |value: u32| {
        let (flights, (land, landing), (began, begins)) =
            (flights.clone(), mungo::chan::bounded::<()>(1), mungo::chan::bounded::<()>(1));
        let flight = std::thread::spawn(move || {
            flights.call("key", || {
                began.send(()).unwrap();
                landing.recv().unwrap();
                value
            })
        });
        begins.recv().unwrap();
        (flight, land)
    };
    let (first, land_first) = fly(1);
    flights.forget(&"key");
    let (second, land_second) = fly(2);
    land_first.send(()).unwrap();
    assert_eq!(first.join().unwrap(), 1);
    let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(300));
    assert_eq!(
        flights.call_with(&ctx, "key", || 3),
        Err(ContextError::DeadlineExceeded),
        "it joins the second"
    );
    land_second.send(()).unwrap();
    assert_eq!(second.join().unwrap(), 2);
}

#[test]
fn stress_many_keys() {
    let rt = runtime(4);
    rt.run(|| {
        let flights = Arc::new(SingleFlight::new());
        let all: Vec<_> = (0..200u64)
            .map(|i| {
                let flights = flights.clone();
                mungo::go(move || {
                    for round in 0..50 {
                        let key = (i * 31 + round) % 7;
                        let answer = flights.call(key, || {
                            mungo::yield_now();
                            key * 10
                        });
                        assert_eq!(answer, key * 10);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    common::end(rt);
}

#[test]
fn missed_ticks_come_as_asked() {
    let period = Duration::from_millis(10);
    let late = Duration::from_millis(55);
    let start = Instant::now();
    let kinds = [MissedTicks::Burst, MissedTicks::Delay, MissedTicks::Skip];
    let [burst, delay, skip] = kinds.map(|missed| interval(period, missed));
    mungo::sleep(late);
    assert!(burst.try_iter().take(5).count() == 5, "all that were missed are there");
    assert_eq!(delay.try_iter().take(1).count(), 1);
    let due = delay.recv_timeout(PATIENCE).unwrap();
    assert!(due - start >= late + period, "a period after the late one was taken");
    assert_eq!(skip.try_iter().take(1).count(), 1);
    let due = skip.recv_timeout(PATIENCE).unwrap();
    assert!(due - start > late, "{:?}", due - start);
}
