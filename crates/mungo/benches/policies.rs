//! The policies side by side on one mix of work: `cargo bench -p mungo --bench policies [-- SECONDS [POLICY]...]`.
//!
//! On each P two goroutines compute without end. Among them run periodic ones (1 ms of work each 20 ms, with high
//! priority, or with a declared budget), pairs that ask and answer over channels, and one of high priority that does
//! nothing but wake up: by a timer, and by a message from a plain thread. For each policy:
//!
//! * `loops/s`: what the computing ones got done; `answers/s`: what the pairs did;
//! * `wait`: how long goroutines were in run queues (not measured for the built-in `default`);
//! * `late`: jobs of the periodic ones that were not done when their period was over;
//! * `timer`, `message`: how long the urgent one waited after its timer was due, or its message sent.

use mungo::policy::{self, Priority};
use mungo::{Builder, Runtime, chan};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

const PROCS: usize = 2;
const POLICIES: [&str; 9] =
    ["default", "default:measured=1", "fifo", "lifo", "work_stealing", "priority", "deadline", "fair", "numa"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let under_test = std::env::args().any(|a| a == "--test");
    let seconds = args.first().and_then(|a| a.parse().ok()).unwrap_or(if under_test { 0.05 } else { 2.0 });
    let chosen: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let names = if chosen.is_empty() { POLICIES.to_vec() } else { chosen };
    println!(
        "{:<19} {:>9} {:>9} | {:>7} {:>7} {:>7} | {:>9} | {:>7} {:>7} {:>7} | {:>7} {:>7} {:>7}",
        "policy",
        "loops/s",
        "answers/s",
        "wait50",
        "wait99",
        "wait999",
        "late",
        "timer50",
        "99",
        "max",
        "msg50",
        "99",
        "max",
    );
    for name in names {
        let mix = Mix::run(name, Duration::from_secs_f64(seconds));
        mix.print(name, seconds);
    }
}

/// What one policy made of it.
struct Mix {
    loops: u64,
    answers: u64,
    jobs: u64,
    late: u64,
    timer: Vec<u64>,
    message: Vec<u64>,
    wait: mungo::Histogram,
}

impl Mix {
    fn run(name: &str, time: Duration) -> Mix {
        let policy = policy::by_name(name).unwrap_or_else(|e| panic!("{e}"));
        let rt = Runtime::builder().procs(PROCS).scheduler(policy).build().expect("a runtime");
        let stop = Arc::new(AtomicBool::new(false));
        let [loops, answers, jobs, late]: [Arc<AtomicU64>; 4] = Default::default();
        let mut handles = Vec::new();
        for _ in 0..2 * PROCS {
            let (stop, loops) = (stop.clone(), loops.clone());
            let builder = Builder::new().priority(Priority::LOW).name("hog".to_owned());
            let hog = builder.spawn_on(&rt, move || {
                while !stop.load(Acquire) {
                    (0..1000).for_each(|i| _ = black_box(i));
                    loops.fetch_add(1, Relaxed);
                }
            });
            handles.push(hog.expect("a goroutine"));
        }
        for _ in 0..4 {
            let (tx, rx) = chan::bounded::<Instant>(0);
            let (back, answer) = chan::bounded::<Instant>(0);
            let server = move || {
                while let Ok(at) = rx.recv() {
                    compute(Duration::from_micros(20));
                    if back.send(at).is_err() {
                        break;
                    }
                }
            };
            let (stop, answers) = (stop.clone(), answers.clone());
            let client = move || {
                while !stop.load(Acquire) {
                    _ = tx.send(Instant::now());
                    _ = answer.recv();
                    answers.fetch_add(1, Relaxed);
                }
            };
            handles.push(rt.spawn(server));
            handles.push(rt.spawn(client));
        }
        handles.extend(periodic(&rt, &stop, &jobs, &late));
        let (timer, message) = urgent(&rt, &stop, time);
        stop.store(true, Release);
        handles.into_iter().for_each(|h| h.join().expect("no panic"));
        let wait = rt.policy_stats().wait;
        assert_eq!(rt.policy_stats().replaced, 0, "{:?}", rt.policy_stats().last_fault);
        rt.shutdown(Duration::from_secs(30)).expect("an end");
        let [loops, answers, jobs, late] = [loops, answers, jobs, late].map(|n| n.load(Relaxed));
        Mix { loops, answers, jobs, late, timer, message, wait }
    }

    fn print(&self, name: &str, seconds: f64) {
        let per_s = |n: u64| n as f64 / seconds;
        let us = |d: Duration| match d.is_zero() {
            true => "-".to_owned(),
            false => format!("{:.0}", d.as_nanos() as f64 / 1000.0),
        };
        let [t50, t99, tmax] = quantiles(&self.timer);
        let [m50, m99, mmax] = quantiles(&self.message);
        println!(
            "{name:<19} {:>9.0} {:>9.0} | {:>7} {:>7} {:>7} | {:>4}/{:<4} | {t50:>7} {t99:>7} {tmax:>7} | \
             {m50:>7} {m99:>7} {mmax:>7}",
            per_s(self.loops),
            per_s(self.answers),
            us(self.wait.quantile(0.5)),
            us(self.wait.quantile(0.99)),
            us(self.wait.quantile(0.999)),
            self.late,
            self.jobs,
        );
    }
}

/// Keeps the CPU busy.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Two goroutines with 1 ms of work in each 20 ms.
fn periodic(
    rt: &Runtime,
    stop: &Arc<AtomicBool>,
    jobs: &Arc<AtomicU64>,
    late: &Arc<AtomicU64>,
) -> Vec<mungo::JoinHandle<()>> {
    const PERIOD: Duration = Duration::from_millis(20);
    let one = || {
        let (stop, jobs, late) = (stop.clone(), jobs.clone(), late.clone());
        let builder = Builder::new().priority(Priority::HIGH).period_budget(PERIOD, Duration::from_millis(3));
        let work = move || {
            let mut release = Instant::now();
            while !stop.load(Acquire) {
                compute(Duration::from_millis(1));
                jobs.fetch_add(1, Relaxed);
                late.fetch_add(u64::from(release.elapsed() > PERIOD), Relaxed);
                release = (release + PERIOD).max(Instant::now() - PERIOD);
                mungo::time::sleep_until(release);
            }
        };
        builder.spawn_on(rt, work).expect("room for it")
    };
    vec![one(), one()]
}

/// How late a goroutine of high priority wakes up, in ns: by timers, then by messages of a plain thread.
fn urgent(rt: &Runtime, stop: &Arc<AtomicBool>, time: Duration) -> (Vec<u64>, Vec<u64>) {
    let urgent = || Builder::new().priority(Priority::HIGHEST).deadline(Duration::from_millis(1));
    let end = Instant::now() + time;
    let by_timer = move || {
        let mut lateness = Vec::new();
        while Instant::now() < end {
            let due = Instant::now() + Duration::from_micros(2500);
            mungo::time::sleep_until(due);
            lateness.push(due.elapsed().as_nanos() as u64);
        }
        lateness
    };
    let (tx, rx) = chan::bounded::<Instant>(1);
    let by_message = move || {
        let mut lateness = Vec::new();
        while let Ok(sent) = rx.recv() {
            lateness.push(sent.elapsed().as_nanos() as u64);
        }
        lateness
    };
    // The deadline is that of each wake-up: a period of 1 ms, of which they use next to nothing.
    let reserved = |b: Builder| b.period_budget(Duration::from_millis(1), Duration::from_micros(100));
    let by_timer = reserved(urgent()).spawn_on(rt, by_timer).expect("room for it");
    let by_message = reserved(urgent()).spawn_on(rt, by_message).expect("room for it");
    while Instant::now() < end && !stop.load(Acquire) {
        std::thread::sleep(Duration::from_micros(2700));
        _ = tx.send(Instant::now());
    }
    drop(tx);
    (by_timer.join().expect("no panic"), by_message.join().expect("no panic"))
}

/// The median, the 99th percentile and the longest, in µs.
fn quantiles(samples: &[u64]) -> [String; 3] {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let at = |q: f64| sorted.get(((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1)));
    [0.5, 0.99, 1.0].map(|q| at(q).map_or("-".to_owned(), |ns| (ns / 1000).to_string()))
}
