//! A worker pool that knows its scheduler: a port of a Go program that explains Go's. Jobs that compute are limited to
//! the number of processors, jobs that wait are not; a monitor reports; the shutdown has a time limit.

use mungo::chan::{Receiver, Sender, bounded};
use mungo::context::{Cancel, Context, ContextError};
use mungo::sync::{Semaphore, WaitGroup};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Stats {
    completed: AtomicU64,
    computed: AtomicU64,
}

struct Job {
    id: u64,
    computes: bool,
    units: u64,
}

struct Pool {
    jobs: Sender<Job>,
    workers: WaitGroup,
    cancel: Cancel,
    stats: Arc<Stats>,
}

impl Pool {
    fn start(workers: usize) -> (Pool, Receiver<(u64, u64, Duration)>) {
        println!("starting: {workers} workers, {} procs, {} CPUs", mungo::procs(), mungo::num_cpus());
        let (ctx, cancel) = Context::background().with_cancel();
        let ((jobs, to_do), (results, done)) = (bounded::<Job>(workers * 2), bounded(workers * 2));
        let (group, stats) = (WaitGroup::new(), Arc::new(Stats::default()));
        let computing = Arc::new(Semaphore::new(mungo::procs()));
        for _ in 0..workers {
            let (ctx, to_do, results) = (ctx.clone(), to_do.clone(), results.clone());
            let (stats, computing) = (stats.clone(), computing.clone());
            group.go(move || {
                while let Ok(job) = ctx.recv(&to_do) {
                    let start = Instant::now();
                    let Ok(value) = process(&ctx, &job, &computing, &stats) else { return };
                    _ = ctx.send(&results, (job.id, value, start.elapsed()));
                    stats.completed.fetch_add(1, Relaxed);
                }
            });
        }
        let watched = stats.clone();
        mungo::go(move || {
            while ctx.sleep(Duration::from_millis(20)).is_ok() {
                let completed = watched.completed.load(Relaxed);
                println!("monitor: {} goroutines, {completed} jobs completed", mungo::num_goroutines());
            }
        });
        (Pool { jobs, workers: group, cancel, stats }, done)
    }

    fn submit(&self, job: Job) -> Result<(), &'static str> {
        self.jobs.send_timeout(job, Duration::from_secs(10)).map_err(|_| "the queue is full")
    }

    fn shut_down(self, limit: Duration) -> u64 {
        drop(self.jobs); // no more jobs
        println!("{}", if self.workers.wait_timeout(limit) { "all workers finished" } else { "cancelling" });
        self.cancel.cancel();
        self.stats.computed.load(Relaxed)
    }
}

fn process(ctx: &Context, job: &Job, computing: &Semaphore, stats: &Stats) -> Result<u64, ContextError> {
    if !job.computes {
        return ctx.sleep(Duration::from_millis(job.units)).map(|()| job.units); // stands for I/O
    }
    let _place = ctx.acquire(computing)?;
    stats.computed.fetch_add(1, Relaxed);
    Ok((0..job.units * 1_000_000).fold(0u64, |sum, i| sum.wrapping_add(std::hint::black_box(i * i % 1000))))
}

#[mungo::main]
fn main() {
    let (pool, results) = Pool::start(mungo::procs() * 2);
    let collector = mungo::go(move || {
        results.iter().inspect(|(job, value, took)| println!("job {job}: {value} in {took:?}")).count()
    });
    for id in 0..20 {
        pool.submit(Job { id, computes: id % 2 == 0, units: 3 }).expect("a place in the queue");
    }
    let computed = pool.shut_down(Duration::from_secs(60));
    println!("{} results, {computed} computed", collector.join().unwrap());

    // Uneven work: processors that run out of it steal.
    let (start, work) = (Instant::now(), WaitGroup::new());
    for p in 0..mungo::procs() {
        (0..100 + p * 50).for_each(|_| drop(work.go(|| (0..10_000u64).map(std::hint::black_box).sum::<u64>())));
    }
    work.wait();
    println!("uneven work done in {:?}", start.elapsed());
}
