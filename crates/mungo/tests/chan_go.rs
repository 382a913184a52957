//! Go's way to use channels: programs that every Go programmer has seen, written for this crate.

mod common;

use mungo::chan::{Receiver, Sender, TryRecvError, after, bounded, never, select, unbounded};
use mungo::go;
use std::time::Duration;

/// A chain of filters, one goroutine for each prime.
#[test]
fn prime_sieve() {
    fn generate(out: Sender<u32>) {
        for i in 2.. {
            if out.send(i).is_err() {
                return;
            }
        }
    }
    fn filter(input: Receiver<u32>, out: Sender<u32>, prime: u32) {
        for i in input {
            if i % prime != 0 && out.send(i).is_err() {
                return;
            }
        }
    }
    let (tx, mut source) = bounded(0);
    go(move || generate(tx));
    let mut primes = Vec::new();
    for _ in 0..25 {
        let prime = source.recv().unwrap();
        primes.push(prime);
        let (tx, next) = bounded(0);
        let input = std::mem::replace(&mut source, next);
        go(move || filter(input, tx, prime));
    }
    assert_eq!(primes[..10], [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
    assert_eq!(primes[24], 97);
    // Dropping the last channel ends the whole chain: nobody can send any more.
}

/// Power series as streams of coefficients that come on demand: a value is sent only if somebody asks.
mod power_series {
    use super::*;

    type Series = Receiver<f64>;

    fn stream(f: impl FnOnce(Sender<f64>) + Send + 'static) -> Series {
        let (tx, rx) = bounded(0);
        go(move || f(tx));
        rx
    }

    fn constant_then(first: f64, rest: Series) -> Series {
        stream(move |out| {
            let mut series = std::iter::once(first).chain(rest);
            while series.next().is_some_and(|c| out.send(c).is_ok()) {}
        })
    }

    /// Two readers of one series. Each goes on at its own pace, so what the faster one took is kept for the other.
    fn split(input: Series) -> (Series, Series) {
        let ((to_a, a), (to_b, b)) = (unbounded(), unbounded());
        let ask = stream(move |out| {
            for c in input {
                _ = to_a.send(c);
                _ = to_b.send(c);
                if out.send(c).is_err() {
                    return;
                }
            }
        });
        let reader = |own: Series, ask: Series| {
            stream(move |out| {
                loop {
                    let c = match own.try_recv() {
                        Ok(c) => c,
                        Err(TryRecvError::Disconnected) => return,
                        Err(TryRecvError::Empty) => {
                            select! {
                                recv(ask) -> _ => continue,
                                recv(own) -> c => match c { Ok(c) => c, Err(_) => return },
                            }
                        }
                    };
                    if out.send(c).is_err() {
                        return;
                    }
                }
            })
        };
        (reader(a, ask.clone()), reader(b, ask))
    }

    fn add(a: Series, b: Series) -> Series {
        stream(move |out| while out.send(a.recv().unwrap_or(0.0) + b.recv().unwrap_or(0.0)).is_ok() {})
    }

    fn scale(by: f64, a: Series) -> Series {
        stream(move |out| a.iter().take_while(|c| out.send(by * c).is_ok()).for_each(drop))
    }

    fn integrate(constant: f64, a: Series) -> Series {
        let terms = stream(move |out| {
            for (i, c) in a.into_iter().enumerate() {
                if out.send(c / (i + 1) as f64).is_err() {
                    return;
                }
            }
        });
        constant_then(constant, terms)
    }

    /// A product by its first term: `(a + x·A)·B = a·B + x·A·B`.
    fn multiply(a: Series, b: Series) -> Series {
        stream(move |out| {
            let (Ok(a0), (b_now, b_later)) = (a.recv(), split(b)) else { return };
            let Ok(b0) = b_now.recv() else { return };
            if out.send(a0 * b0).is_err() {
                return;
            }
            let (b_copy, b_rest) = split(b_later);
            let skipped = b_copy.recv();
            debug_assert_eq!(skipped, Ok(b0));
            let sum = add(scale(a0, b_now), multiply(a, b_rest));
            drop(b_copy);
            sum.iter().take_while(|c| out.send(*c).is_ok()).for_each(drop);
        })
    }

    fn ones() -> Series {
        stream(|out| while out.send(1.0).is_ok() {})
    }

    fn close(got: Vec<f64>, want: &[f64]) {
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{got:?} is not {want:?}");
    }

    #[test]
    fn sums_and_integrals() {
        close(add(ones(), scale(2.0, ones())).iter().take(4).collect(), &[3.0; 4]);
        // -ln(1-x) = x + x²/2 + x³/3 + …
        let log = integrate(0.0, ones());
        close(log.iter().take(5).collect(), &[0.0, 1.0, 0.5, 1.0 / 3.0, 0.25]);
    }

    #[test]
    fn split_series_are_the_same() {
        let (a, b) = split(integrate(0.0, ones()));
        let from_a: Vec<_> = a.iter().take(20).collect();
        let from_b: Vec<_> = b.iter().take(20).collect();
        assert_eq!(from_a, from_b);
    }

    #[test]
    fn the_square_of_a_geometric_series() {
        close(multiply(ones(), ones()).iter().take(6).collect(), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}

/// Two selects on the same pair of channels: every value arrives, and only one arm goes on at a time.
#[test]
fn double_select() {
    const N: usize = 20_000;
    let channels = [(); 4].map(|()| bounded::<usize>(0));
    let [c1, c2, c3, c4] = channels.clone();
    go(move || {
        for i in 0..N {
            select! {
                send(c1.0, i) -> _ => {}
                send(c2.0, i) -> _ => {}
                send(c3.0, i) -> _ => {}
                send(c4.0, i) -> _ => {}
            }
        }
    });
    let (out, merged) = bounded(0);
    for (_, rx) in channels {
        let out = out.clone();
        go(move || rx.iter().take_while(|v| out.send(*v).is_ok()).for_each(drop));
    }
    drop(out);
    let mut seen = vec![false; N];
    for _ in 0..N {
        let value: usize = merged.recv().unwrap();
        assert!(!std::mem::replace(&mut seen[value], true), "{value} came twice");
    }
    assert!(merged.recv().is_err(), "that was all");
}

#[test]
fn fan_in() {
    fn producer(name: &'static str, n: usize) -> Receiver<String> {
        let (tx, rx) = bounded(0);
        go(move || (0..n).for_each(|i| tx.send(format!("{name} {i}")).unwrap()));
        rx
    }
    let (mut joe, mut ann) = (producer("joe", 50), producer("ann", 70));
    let (mut joes, mut anns, mut open) = (0, 0, 2);
    while open > 0 {
        select! {
            recv(joe) -> line => match line {
                Ok(line) => { assert_eq!(line, format!("joe {joes}")); joes += 1 }
                Err(_) => { joe = never(); open -= 1 }
            },
            recv(ann) -> line => match line {
                Ok(line) => { assert_eq!(line, format!("ann {anns}")); anns += 1 }
                Err(_) => { ann = never(); open -= 1 }
            },
        }
    }
    assert_eq!((joes, anns), (50, 70));
}

/// Every way to receive from every kind of closed channel, before and after it is empty.
#[test]
fn closed_channel_table() {
    type Receive = fn(&Receiver<i32>) -> Option<i32>;
    let ways: [(&str, Receive); 5] = [
        ("recv", |rx| rx.recv().ok()),
        ("try_recv", |rx| {
            assert_ne!(rx.try_recv().err(), Some(TryRecvError::Empty));
            None
        }),
        ("recv_timeout", |rx| {
            let result = rx.recv_timeout(Duration::from_secs(600));
            assert!(result.is_ok() || result.unwrap_err().is_disconnected());
            result.ok()
        }),
        ("select", |rx| select! { recv(rx) -> v => v.ok() }),
        ("select with default", |rx| select! { recv(rx) -> v => v.ok(), default => panic!("closed is ready") }),
    ];
    for (name, receive) in ways {
        for (tx, rx) in [bounded(0), bounded(1), bounded(10), unbounded()] {
            let has_value = tx.try_send(5).is_ok();
            tx.close().unwrap();
            let first = receive(&rx);
            assert!(first == has_value.then_some(5) || name == "try_recv", "{name}");
            for _ in 0..3 {
                assert_eq!(receive(&rx), None, "{name}");
            }
            assert!(tx.send(6).is_err() && tx.close().is_err());
            select! {
                send(tx, 7) -> result => assert!(result.is_err()),
                default => panic!("closed is ready"),
            }
        }
    }
}

/// Two full channels, read by a select that is never out of work: neither starves, nor does a third one that seldom
/// has something.
#[test]
fn select_fairness() {
    const TRIALS: usize = 10_000;
    let ((tx1, rx1), (tx2, rx2)) = (bounded(TRIALS + 1), bounded(TRIALS + 1));
    for _ in 0..=TRIALS {
        tx1.send(1).unwrap();
        tx2.send(2).unwrap();
    }
    let (_tx3, rx3) = bounded::<i32>(0);
    let (_tx4, rx4) = bounded::<i32>(0);
    let (out, results) = bounded(0);
    go(move || {
        loop {
            let value = select! {
                recv(rx3) -> v => v,
                recv(rx1) -> v => v,
                recv(rx4) -> v => v,
                recv(rx2) -> v => v,
            };
            if value.is_err() || out.send(value).is_err() {
                return;
            }
        }
    });
    let ones = (0..TRIALS).filter(|_| results.recv() == Ok(Ok(1))).count();
    // The mean is TRIALS / 2, one standard deviation 50: ten of them never happen.
    assert!(ones.abs_diff(TRIALS / 2) < 500, "{ones} of {TRIALS}");
}

/// The worker pool: jobs in, results out, a time-out around it all.
#[test]
fn worker_pool_with_a_time_out() {
    let ((jobs, job), (results, result)) = (bounded(0), bounded(0));
    for _ in 0..8 {
        let (job, results) = (job.clone(), results.clone());
        go(move || job.iter().for_each(|n: u64| results.send(n * n).unwrap()));
    }
    drop((job, results));
    go(move || (1..=100).for_each(|n| jobs.send(n).unwrap()));
    let give_up = after(Duration::from_secs(60));
    let mut sum = 0;
    loop {
        select! {
            recv(result) -> r => match r {
                Ok(r) => sum += r,
                Err(_) => break,
            },
            recv(give_up) -> _ => panic!("too slow"),
        }
    }
    assert_eq!(sum, 338_350);
}
