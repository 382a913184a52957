//! An open loop of short requests with a few long ones among them: when they come is drawn beforehand, and latency is
//! measured from then, whether or not the generator was late.

use crate::servers::{additions, additions_per_ns};
use crate::{Args, P50_99_999, P50_99_MAX};
use mungo_lab::{cpu_seconds, mix};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// A request: when it is to come, in ns, and how long it takes, in additions.
struct Request {
    at_ns: u64,
    is_long: bool,
    latency_ns: AtomicU64,
}

/// Requests at Poisson times for `secs` seconds, `permille` of a thousand of them long, that keep all processors busy
/// for `load` percent of the time.
fn plan(a: &Args) -> Vec<Request> {
    let f = |key, default| a.num(key, default) as f64;
    let (short_ns, long_ns, permille) = (f("short_us", 20) * 1e3, f("long_us", 2000) * 1e3, f("permille", 5));
    let mean_ns = (short_ns * (1000.0 - permille) + long_ns * permille) / 1000.0;
    let gap_ns = mean_ns / (f("load", 60) / 100.0 * f("procs", 2));
    let end_ns = f("secs", 3) * 1e9;
    let mut at_ns = 0.0;
    let mut requests = Vec::new();
    while at_ns < end_ns {
        let i = requests.len() as u64;
        let uniform = ((mix(2 * i) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        at_ns -= uniform.ln() * gap_ns;
        let is_long = ((mix(2 * i + 1) % 1000) as f64) < permille;
        requests.push(Request { at_ns: at_ns as u64, is_long, latency_ns: AtomicU64::new(0) });
    }
    requests
}

/// A goroutine for each request; the generator yields until the next one is due.
pub(super) fn run(a: &Args) {
    let requests = Arc::new(plan(a));
    let rate = additions_per_ns();
    let adds = |key, default| (a.num(key, default) as f64 * 1e3 * rate) as u64;
    let (short, long) = (adds("short_us", 20), adds("long_us", 2000));
    let (cpu, start) = (cpu_seconds(), Instant::now());
    let since = move || start.elapsed().as_nanos() as u64;
    let mut all = Vec::with_capacity(requests.len());
    for i in 0..requests.len() {
        while since() < requests[i].at_ns {
            mungo::yield_now();
        }
        let requests = requests.clone();
        all.push(mungo::go(move || {
            let request = &requests[i];
            black_box(additions(if request.is_long { long } else { short }));
            request.latency_ns.store(since() - request.at_ns, Relaxed);
        }));
    }
    all.into_iter().for_each(|g| g.join().unwrap());
    let (wall, cpu) = (start.elapsed(), cpu_seconds() - cpu);
    let of = |long| requests.iter().filter(|r| r.is_long == long).map(|r| r.latency_ns.load(Relaxed)).collect();
    a.emit_lateness("short_", of(false), "us", 1e3, P50_99_999);
    a.emit_lateness("long_", of(true), "us", 1e3, P50_99_MAX);
    a.emit("wall", wall.as_secs_f64(), "s");
    a.emit("cpu", cpu, "s");
}
