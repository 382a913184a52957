//! A worker pool for a service: jobs that compute, at most one a processor, and jobs that wait for I/O.

use super::timeline::{Span, row};
use super::{Stage, WIDTH};
use crate::error::Result;
use crate::work::compute;
use mungo::chan::{self, Receiver, Sender};
use mungo::context::Context;
use mungo::sync::Semaphore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const CPU_JOB: Duration = Duration::from_millis(12);
const IO_JOB: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Computing,
    WaitingForCpu,
    WaitingForIo,
}

/// What happened in the pool, one entry a span.
type Log = Vec<(Doing, Span)>;

struct Pool {
    start: Instant,
    cpu: Semaphore,
    done: AtomicU64,
    cpu_done: AtomicU64,
}

impl Pool {
    fn span(&self, from: Duration) -> Span {
        Span { start: from, end: self.start.elapsed() }
    }

    /// Works on jobs until there are no more; job `i` computes if `i` is even.
    fn work(&self, jobs: &Receiver<usize>) -> Log {
        let mut log = Vec::new();
        for job in jobs {
            let from = self.start.elapsed();
            if job % 2 == 1 {
                mungo::sleep(IO_JOB);
                log.push((Doing::WaitingForIo, self.span(from)));
            } else {
                let _permit = self.cpu.acquire();
                log.push((Doing::WaitingForCpu, self.span(from)));
                let from = self.start.elapsed();
                compute(CPU_JOB);
                log.push((Doing::Computing, self.span(from)));
                self.cpu_done.fetch_add(1, Relaxed);
            }
            self.done.fetch_add(1, Relaxed);
        }
        log
    }

    /// Notes how many jobs are done, until it is told to stop.
    fn monitor(&self, context: &Context) -> Vec<u64> {
        let mut seen = Vec::new();
        let tick = chan::tick(Duration::from_millis(5));
        loop {
            mungo::select! {
                recv(tick) -> _ => seen.push(self.done.load(Relaxed)),
                recv(context.done()) -> _ => return seen,
            }
        }
    }
}

fn submit(jobs: &Sender<usize>, count: usize) {
    (0..count).for_each(|job| jobs.send(job).expect("workers wait for jobs"));
}

pub(super) fn show(stage: &Stage<'_>) -> Result<()> {
    let (workers, permits) = (2 * stage.procs(), stage.procs());
    let jobs = workers * if stage.quick { 6 } else { 16 };
    stage.heading(
        "A worker pool",
        &format!(
            "{workers} workers, {jobs} jobs: half of them compute ({CPU_JOB:?}), half wait for I/O ({IO_JOB:?})."
        ),
    )?;
    let pool = Arc::new(Pool {
        start: Instant::now(),
        cpu: Semaphore::new(permits),
        done: AtomicU64::new(0),
        cpu_done: AtomicU64::new(0),
    });
    let shared = pool.clone();
    let ((logs, monitored, total), _) = stage.watch("worker pool", Duration::from_millis(20), move || {
        let (submitted, queue) = chan::bounded(workers * 2);
        let (context, cancel) = Context::background().with_cancel();
        let pool = shared.clone();
        let monitor = mungo::go(move || pool.monitor(&context));
        let work = |_| {
            let (pool, queue) = (shared.clone(), queue.clone());
            mungo::go(move || pool.work(&queue))
        };
        let handles: Vec<_> = (0..workers).map(work).collect();
        submit(&submitted, jobs);
        drop(submitted); // no more jobs: workers end when the queue is empty
        let logs: Vec<Log> = handles.into_iter().map(|h| h.join().expect("a worker does not panic")).collect();
        let total = shared.start.elapsed();
        cancel.cancel();
        (logs, monitor.join().expect("the monitor does not panic"), total)
    })?;
    let out = stage.out;
    for (who, log) in logs.iter().enumerate().take(2 * super::DRAWN_PROCS) {
        let spans: Vec<Span> = log.iter().map(|(_, span)| *span).collect();
        let doing = |span: &Span| log.iter().find(|(_, s)| s.start == span.start).map(|(doing, _)| *doing);
        let picture: String = row(spans.iter(), WIDTH, total)
            .into_iter()
            .map(|span| match span.and_then(doing) {
                Some(Doing::Computing) => out.glyph("█", "#"),
                Some(Doing::WaitingForCpu) => out.glyph("·", "."),
                Some(Doing::WaitingForIo) => out.glyph("░", "~"),
                None => " ",
            })
            .collect();
        stage.draw(&format!("worker {who}"), who, &picture, "")?;
    }
    let progress = super::watch::fit(&monitored, WIDTH);
    stage.draw("jobs done", 0, &out.sparkline(&progress, jobs as u64), "")?;
    stage.say(format!(
        "{} computing, {} waiting for I/O, {} waiting for one of {permits} CPU permits; all of it took {total:.0?}",
        out.glyph("█", "#"),
        out.glyph("░", "~"),
        out.glyph("·", ".")
    ))?;
    let (done, cpu) = (pool.done.load(Relaxed), pool.cpu_done.load(Relaxed));
    stage.say(format!(
        "{done} jobs done, {cpu} of them computed; while one waits for I/O, others have the processors"
    ))
}
