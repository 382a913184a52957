//! Workers that take jobs from a queue until Ctrl-C: jobs that were begun are finished, the others are counted. With an
//! argument it works until it is interrupted, without one it interrupts itself.

use mungo::chan::{Receiver, bounded};
use mungo::context::Context;
use mungo::signal::{Signal, raise};
use mungo::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const WORKERS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

struct Job(u64);

/// Takes jobs until the queue is closed and empty, or the context is done.
fn work(ctx: &Context, jobs: &Receiver<Job>, finished: &AtomicU64) {
    while let Ok(Job(n)) = ctx.recv(jobs) {
        mungo::sleep(Duration::from_micros(500 + n % 7 * 100)); // some work, which is not interrupted
        finished.fetch_add(1, Relaxed);
    }
}

#[mungo::main]
fn main() {
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let (queue, jobs) = bounded(WORKERS * 2);
    let (workers, finished) = (WaitGroup::new(), Arc::new(AtomicU64::new(0)));
    for _ in 0..WORKERS {
        let (ctx, jobs, finished) = (ctx.clone(), jobs.clone(), finished.clone());
        workers.go(move || work(&ctx, &jobs, &finished));
    }
    if std::env::args().len() == 1 {
        let seen = finished.clone();
        mungo::go(move || {
            while seen.load(Relaxed) < 100 {
                mungo::sleep(Duration::from_millis(1));
            }
            raise(Signal::INTERRUPT);
        });
    }
    println!("working; ^C ends, a second ^C ends at once");
    let mut submitted = 0;
    while ctx.send(&queue, Job(submitted)).is_ok() {
        submitted += 1; // waits while the queue is full
    }
    println!("{}: finishing what was begun", ctx.cause().expect("the context is done"));
    let (patience, _cancel) = Context::background().with_timeout(PATIENCE);
    match patience.wait(&workers) {
        Ok(()) => {
            let finished = finished.load(Relaxed);
            println!("{finished} jobs finished, {} left in the queue", jobs.len());
            assert_eq!(finished + jobs.len() as u64, submitted);
        }
        Err(_) => println!("{} workers did not end within {PATIENCE:?}", workers.count()),
    }
}
