//! A service under random arrivals: a goroutine a request. Requests come when they come, whether or not the earlier
//! ones are done, and their times count from the moment when they should have come; so a slow scheduler cannot hide.

use super::{Class, Outcome, Setting};
use crate::rng::{Rng, fingerprint};
use crate::stats::Times;
use crate::work::compute_ns;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Requests of one size.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Of all requests.
    pub(super) share: f64,
    /// The work of one request; it varies by a quarter around this.
    pub(super) work: Duration,
    /// A request that takes longer is a miss.
    pub(super) limit: Duration,
}

/// A request as it is planned.
#[derive(Clone, Copy, Debug)]
struct Request {
    at_ns: u64,
    work_ns: u64,
    kind: usize,
}

/// What became of a request; `UNDONE` as long as nothing did.
#[derive(Debug)]
struct Record {
    wait_ns: AtomicU64,
    latency_ns: AtomicU64,
}

const UNDONE: u64 = u64::MAX;

/// Which of `kinds`, and all that comes in the time of `setting`, so that the processors are busy for `load` of the
/// time.
fn plan(kinds: &[Kind], load: f64, setting: &Setting) -> Vec<Request> {
    let mean_work: f64 = kinds.iter().map(|k| k.share * k.work.as_nanos() as f64).sum();
    let mean_gap = mean_work / (load * setting.procs as f64);
    let mut rng = Rng::new(setting.seed, 0);
    let mut at = 0.0;
    std::iter::from_fn(|| {
        at += rng.exponential(mean_gap);
        let mut dice = rng.unit();
        let kind = kinds.iter().position(|k| {
            dice -= k.share;
            dice < 0.0
        });
        let kind = kind.unwrap_or(kinds.len() - 1);
        let work = kinds[kind].work.as_nanos() as u64;
        let work_ns = rng.between(work * 3 / 4, work * 5 / 4);
        Some(Request { at_ns: at as u64, work_ns, kind })
    })
    .take_while(|r| r.at_ns < setting.length.as_nanos() as u64)
    // However long the time is: a plan that fits into memory.
    .take(20_000_000)
    .collect()
}

/// Runs requests of several kinds at that load.
pub(super) fn serve(kinds: &[Kind], load: f64, setting: &Setting) -> Outcome {
    let plan = plan(kinds, load, setting);
    let record = |_: &Request| Record { wait_ns: UNDONE.into(), latency_ns: UNDONE.into() };
    let records: Vec<Record> = plan.iter().map(record).collect();
    let since = |request: &Request| setting.elapsed().as_nanos() as u64 - request.at_ns;
    let handle = |request: &Request, record: &Record| {
        if setting.over() {
            return;
        }
        record.wait_ns.store(since(request), Relaxed);
        compute_ns(request.work_ns);
        record.latency_ns.store(since(request), Relaxed);
    };
    mungo::scope(|s| {
        for (request, record) in plan.iter().zip(&records) {
            if !setting.sleep_until(Duration::from_nanos(request.at_ns)) {
                break;
            }
            s.spawn(move || handle(request, record));
        }
    });
    account(kinds, &plan, &records, setting)
}

fn account(kinds: &[Kind], plan: &[Request], records: &[Record], setting: &Setting) -> Outcome {
    let (mut waits, mut latencies) = (vec![Times::default(); kinds.len()], vec![Times::default(); kinds.len()]);
    let mut missed = vec![0; kinds.len()];
    for (request, record) in plan.iter().zip(records) {
        let latency = record.latency_ns.load(Relaxed);
        if latency != UNDONE {
            waits[request.kind].record_ns(record.wait_ns.load(Relaxed));
            latencies[request.kind].record_ns(latency);
            missed[request.kind] += u64::from(latency > kinds[request.kind].limit.as_nanos() as u64);
        }
    }
    let generated = plan.len() as u64;
    let completed: u64 = latencies.iter().map(Times::len).sum();
    let parts = kinds.iter().zip(waits).zip(latencies).zip(missed);
    let class = |(((kind, wait), latency), missed): (((&Kind, Times), Times), u64)| Class {
        name: kind.name,
        deadlines: Some((latency.len(), missed)),
        wait: Some(wait),
        latency: Some(latency),
    };
    Outcome {
        generated,
        completed,
        cut_off: generated - completed,
        fingerprint: fingerprint(plan.iter().flat_map(|r| [r.at_ns, r.work_ns, r.kind as u64])),
        elapsed: setting.elapsed(),
        classes: parts.map(class).collect(),
        fairness: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;

    #[test]
    fn a_plan_has_the_load_and_the_shares_that_were_asked_for() {
        let ms = Duration::from_millis;
        let kinds = [
            Kind { name: "a", share: 0.8, work: ms(1), limit: ms(9) },
            Kind { name: "b", share: 0.2, work: ms(6), limit: ms(9) },
        ];
        let setting = Setting::start(3, 4, Duration::from_secs(100), &Interrupt::default());
        let plan = plan(&kinds, 0.5, &setting);
        let work: u64 = plan.iter().map(|r| r.work_ns).sum();
        let load = work as f64 / 4.0 / 100e9;
        let share = plan.iter().filter(|r| r.kind == 1).count() as f64 / plan.len() as f64;
        assert!((0.48..0.52).contains(&load), "{load}");
        assert!((0.19..0.21).contains(&share), "{share}");
        assert!(plan.is_sorted_by_key(|r| r.at_ns));
    }
}
