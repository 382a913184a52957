//! `block_on`: polls, parks, and is woken, by anybody, at any time.

mod common;

use common::{PATIENCE, hasty_runtime, runtime, wait_until};
use futures::channel::oneshot;
use futures::future::{Either, join, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};
use mungo::time::sleep_async;
use mungo::{block_on, go};
use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Runs `f` on a goroutine and on a plain thread.
fn on_both(f: fn()) {
    go(f).join().unwrap();
    std::thread::spawn(f).join().unwrap();
}

#[test]
fn ready_futures_and_what_becomes_one() {
    on_both(|| {
        assert_eq!(block_on(ready(3)), 3);
        assert_eq!(block_on(async { 1 + ready(2).await }), 3);
        assert_eq!(block_on(go(|| 5)).unwrap(), 5);
    });
}

#[test]
fn wakes_between_poll_and_park_are_not_lost() {
    on_both(|| {
        let mut left = 1000;
        let polls = block_on(poll_fn(|cx| {
            left -= 1;
            if left == 0 {
                return Poll::Ready("done");
            }
            // By reference and by value, once and twice.
            cx.waker().wake_by_ref();
            if left % 2 == 0 {
                let by_value = cx.waker().clone();
                drop(by_value.clone());
                by_value.wake();
            }
            Poll::Pending
        }));
        assert_eq!((polls, left), ("done", 0));
    });
}

#[test]
fn the_goroutine_parks_and_its_processor_runs_others() {
    let runtime = runtime(1);
    runtime.run(|| {
        let (tx, rx) = oneshot::channel();
        let waits = go(|| block_on(rx).unwrap());
        let sends = go(move || tx.send(7).unwrap());
        assert_eq!((waits.join().unwrap(), sends.join().unwrap()), (7, ()));
    });
    common::end(runtime);
}

#[test]
fn a_future_of_threads_only() {
    let (tx, rx) = oneshot::channel();
    let answer = go(move || block_on(rx).unwrap());
    std::thread::spawn(move || tx.send(1).unwrap()).join().unwrap();
    assert_eq!(answer.join().unwrap(), 1);
}

#[test]
fn tokens_of_unpark_survive() {
    go(|| {
        let me = mungo::current();
        me.unpark();
        block_on(sleep_async(Duration::from_millis(2)));
        block_on(async { go(|| ()).await.unwrap() });
        mungo::park(); // returns at once: the token is still there
    })
    .join()
    .unwrap();
}

#[test]
fn an_unpark_does_not_poll() {
    let polls = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = oneshot::channel::<()>();
    let counted = polls.clone();
    let waits = go(move || {
        let mut rx = rx;
        block_on(poll_fn(|cx| {
            counted.fetch_add(1, SeqCst);
            std::pin::Pin::new(&mut rx).poll(cx)
        }))
    });
    wait_until("it was polled", || polls.load(SeqCst) == 1);
    waits.goroutine().unpark();
    block_on(sleep_async(Duration::from_millis(5)));
    assert_eq!(polls.load(SeqCst), 1);
    tx.send(()).unwrap();
    waits.join().unwrap().unwrap();
}

/// The inner one's wait must not swallow what was meant for the outer one.
#[test]
fn calls_nest() {
    on_both(|| {
        let (tx, rx) = oneshot::channel();
        let (inner_tx, inner_rx) = oneshot::channel();
        let mut inner_rx = Some(inner_rx);
        let mut rx = pin!(rx);
        let mut tx = Some((tx, inner_tx));
        let value = block_on(poll_fn(|cx| {
            let outer = rx.as_mut().poll(cx);
            if let Some(inner) = inner_rx.take() {
                let (tx, inner_tx) = tx.take().unwrap();
                let both = go(move || {
                    tx.send(2).unwrap(); // wakes the outer one while the inner one waits
                    inner_tx.send(1).unwrap();
                });
                assert_eq!(block_on(inner), Ok(1));
                both.join().unwrap();
            }
            outer
        }));
        assert_eq!(value, Ok(2));
    });
}

/// Keeps the waker of the future that is polled, and never is ready by itself.
fn steal_waker(kept: &Mutex<Vec<Waker>>, stop: &AtomicU32) -> impl Future<Output = ()> {
    poll_fn(move |cx| {
        kept.lock().unwrap().push(cx.waker().clone());
        if stop.load(SeqCst) == 0 { Poll::Pending } else { Poll::Ready(()) }
    })
}

#[test]
fn wakers_outlive_future_goroutine_and_runtime() {
    static KEPT: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
    static STOP: AtomicU32 = AtomicU32::new(0);
    let runtime = runtime(2);
    let waits = runtime.spawn(|| block_on(steal_waker(&KEPT, &STOP)));
    wait_until("it waits", || !KEPT.lock().unwrap().is_empty());
    STOP.store(1, SeqCst);
    let first = KEPT.lock().unwrap()[0].clone();
    // From a goroutine of another runtime.
    go({
        let first = first.clone();
        move || first.wake()
    })
    .join()
    .unwrap();
    waits.join().unwrap();
    first.wake_by_ref(); // the future is over
    common::end(runtime);
    // Others take the goroutine's place, and must not notice.
    let others: Vec<_> = (0..100).map(|i| go(move || (mungo::yield_now(), i).1)).collect();
    for waker in KEPT.lock().unwrap().drain(..) {
        waker.wake_by_ref();
        waker.wake();
    }
    first.wake();
    assert_eq!(others.into_iter().map(|g| g.join().unwrap()).sum::<i32>(), 4950);
}

#[test]
fn a_panic_passes_through() {
    let panics = go(|| block_on(async { panic!("of the future") }));
    assert_eq!(*panics.join().unwrap_err().downcast::<&str>().unwrap(), "of the future");
}

#[test]
fn timers_and_combinators() {
    on_both(|| {
        let start = Instant::now();
        block_on(async {
            let (a, b) = join(sleep_async(Duration::from_millis(3)), async { 4 }).await;
            assert_eq!((a, b), ((), 4));
            match select(pin!(pending::<()>()), pin!(sleep_async(Duration::from_millis(2)))).await {
                Either::Right(((), _)) => {}
                Either::Left(_) => unreachable!(),
            }
            // Each has a waker of its own, not ours: it must not run inside the runtime.
            let sleeps: FuturesUnordered<_> =
                (0..50).map(|i| sleep_async(Duration::from_micros(100 * i))).collect();
            assert_eq!(sleeps.count().await, 50);
            assert_eq!(join_all((0..50).map(|i| go(move || i))).await.len(), 50);
        });
        assert!(start.elapsed() >= Duration::from_millis(5));
    });
}

#[test]
fn a_sleep_can_be_put_off_and_called_off() {
    on_both(|| {
        let mut sleep = sleep_async(Duration::from_secs(3600));
        let mut polled = 0;
        let start = Instant::now();
        block_on(poll_fn(|cx| {
            polled += 1;
            let poll = std::pin::Pin::new(&mut sleep).poll(cx);
            if polled == 1 {
                sleep.reset(start + Duration::from_millis(3)); // the waker stays
            }
            poll
        }));
        assert!(start.elapsed() >= Duration::from_millis(3));
        let mut never = sleep_async(Duration::MAX);
        block_on(poll_fn(|cx| {
            assert!(std::pin::Pin::new(&mut never).poll(cx).is_pending());
            Poll::Ready(())
        }));
        drop(never);
    });
}

#[test]
fn a_sleep_wakes_the_task_that_polled_it_last() {
    let ((first, old), (last, new)) = (common::counting(), common::counting());
    let mut sleep = sleep_async(Duration::from_millis(3));
    for waker in [&old, &new] {
        _ = std::pin::Pin::new(&mut sleep).poll(&mut std::task::Context::from_waker(waker));
    }
    // It may have been over before it was polled.
    let over = std::pin::Pin::new(&mut sleep).poll(&mut std::task::Context::from_waker(&new)).is_ready();
    wait_until("the last one is woken", || over || last.count() == 1);
    assert!(over || first.count() == 0);
}

/// An executor's waker that does what must not be done inside the runtime: it takes a lock that may be held for long,
/// blocks, and looks at who it is.
struct Nasty {
    lock: mungo::sync::Mutex<u32>,
    woken: AtomicU32,
    task: Waker,
}

impl Wake for Nasty {
    fn wake(self: Arc<Self>) {
        *self.lock.lock() += 1;
        mungo::sleep(Duration::from_micros(100));
        mungo::yield_now();
        self.woken.fetch_add(1, SeqCst);
        self.task.wake_by_ref();
    }
}

/// Polls `future` with such a waker until it is ready. Returns how often it was woken, and had to be: once, unless it
/// was ready at first, as on a busy machine a timer may be.
fn run_nastily<F: Future>(future: F) -> (F::Output, u32, u32) {
    let mut future = pin!(future);
    let mut nasty = None;
    let mut waited = 0;
    let output = block_on(poll_fn(|cx| {
        let nasty = nasty.get_or_insert_with(|| {
            Arc::new(Nasty {
                lock: mungo::sync::Mutex::new(0),
                woken: AtomicU32::new(0),
                task: cx.waker().clone(),
            })
        });
        let polled = future.as_mut().poll(&mut std::task::Context::from_waker(&nasty.clone().into()));
        waited |= u32::from(polled.is_pending());
        polled
    }));
    (output, nasty.unwrap().woken.load(SeqCst), waited)
}

#[test]
fn foreign_wakers_run_outside_of_the_runtime() {
    let runtime = hasty_runtime(2);
    runtime.run(|| {
        for _ in 0..20 {
            let ((), woken, waited) = run_nastily(sleep_async(Duration::from_micros(500)));
            assert_eq!(woken, waited);
            let timer = mungo::time::Timer::new(Duration::from_micros(500));
            let (_, woken, waited) = run_nastily(timer.c().recv_async());
            assert_eq!(woken, waited);
            let (value, woken, _) = run_nastily(go(|| {
                mungo::sleep(Duration::from_micros(500));
                3
            }));
            assert!(value.is_ok_and(|v| v == 3) && woken <= 1);
            let (tx, rx) = mungo::chan::bounded(0);
            let sends = go(move || tx.send(4));
            assert_eq!(run_nastily(rx.recv_async()).0, Ok(4));
            sends.join().unwrap().unwrap();
            let (ctx, _cancel) = mungo::context::Context::background().with_timeout(Duration::from_micros(500));
            assert!(run_nastily(ctx.done().recv_async()).0.is_err());
        }
    });
    common::end(runtime);
}

#[test]
fn a_waker_that_panics_does_not_keep_the_others_asleep() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    go(|| {
        let (tx, rx) = mungo::chan::bounded::<()>(0);
        let mut bombs: Vec<_> = (0..2).map(|_| Box::pin(rx.recv_async())).collect();
        for bomb in &mut bombs {
            let waker = Waker::from(Arc::new(Bomb));
            assert!(bomb.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        }
        let waits = go({
            let rx = rx.clone();
            move || block_on(rx.recv_async())
        });
        mungo::yield_now();
        let closed = std::panic::catch_unwind(|| drop(tx));
        assert_eq!(*closed.unwrap_err().downcast::<&str>().unwrap(), "a waker");
        assert!(waits.join().unwrap().is_err());
        mungo::yield_now(); // still a goroutine in good order
    })
    .join()
    .unwrap();
}

/// Ping-pong of wake-ups between a future that waits for a number and a waker that counts up.
fn race(rounds: u32, waker_is: fn(Box<dyn FnOnce() + Send>)) {
    struct Shared {
        number: AtomicU32,
        waker: Mutex<Option<Waker>>,
        wanted: AtomicU32,
    }
    let shared =
        Arc::new(Shared { number: AtomicU32::new(0), waker: Mutex::new(None), wanted: AtomicU32::new(0) });
    let theirs = shared.clone();
    waker_is(Box::new(move || {
        let start = Instant::now();
        for i in 1..=rounds {
            while theirs.wanted.load(SeqCst) < i {
                assert!(start.elapsed() < PATIENCE, "the future is stuck before {i}");
                mungo::yield_now();
            }
            theirs.number.store(i, SeqCst);
            let waker = theirs.waker.lock().unwrap().take();
            if let Some(waker) = waker {
                waker.wake_by_ref();
                waker.wake();
            }
        }
    }));
    for i in 1..=rounds {
        shared.wanted.store(i, SeqCst);
        block_on(poll_fn(|cx| {
            if shared.number.load(SeqCst) == i {
                return Poll::Ready(());
            }
            *shared.waker.lock().unwrap() = Some(cx.waker().clone());
            if shared.number.load(SeqCst) == i { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}

#[test]
fn stress_wake_races() {
    let rounds = if cfg!(miri) { 20 } else { 5_000 };
    let runtime = hasty_runtime(2);
    for _ in 0..3 {
        runtime.run(move || race(rounds, |f| drop(go(f))));
        runtime.run(move || race(rounds, |f| drop(std::thread::spawn(f))));
        race(rounds, |f| drop(go(f)));
        race(rounds, |f| drop(std::thread::spawn(f)));
    }
    common::end(runtime);
}
