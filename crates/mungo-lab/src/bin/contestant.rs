//! mungo as a contestant of the side-by-side benchmarks: `contestant WORKLOAD [key=value]...` prints a JSON line per
//! metric. What each workload does is fixed by the peers that it is compared with.

#[path = "contestant/bimodal.rs"]
mod bimodal;
#[path = "contestant/servers.rs"]
mod servers;

use mungo::chan;
use mungo_lab::goroutines::{self, sky};
use mungo_lab::{cpu_seconds, mix, status_bytes};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The command line.
struct Args {
    workload: String,
    values: HashMap<String, String>,
}

impl Args {
    fn parse() -> Args {
        let mut args = std::env::args().skip(1);
        let workload = args.next().unwrap_or_else(|| {
            eprintln!("usage: contestant WORKLOAD [key=value]...");
            std::process::exit(2)
        });
        let pair = |a: String| a.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        Args { workload, values: args.filter_map(pair).collect() }
    }

    fn num(&self, key: &str, default: usize) -> usize {
        match self.values.get(key).map(|v| v.parse()) {
            None => default,
            Some(Ok(n)) => n,
            Some(Err(_)) => {
                eprintln!("contestant: {key} must be a number");
                std::process::exit(2)
            }
        }
    }

    fn emit(&self, metric: &str, value: f64, unit: &str) {
        let workload = &self.workload;
        println!(
            "{{\"workload\":\"{workload}\",\"metric\":\"{metric}\",\"value\":{value:.3},\"unit\":\"{unit}\"}}"
        );
    }

    fn not_available(&self, reason: &str) {
        println!("{{\"workload\":\"{}\",\"metric\":\"n/a\",\"reason\":\"{reason}\"}}", self.workload);
    }

    /// Percentiles of `samples` (ns) in units of `div` ns.
    fn emit_lateness(
        &self,
        prefix: &str,
        mut samples: Vec<u64>,
        unit: &str,
        div: f64,
        quantiles: &[(&str, f64)],
    ) {
        samples.sort_unstable();
        self.emit(&format!("{prefix}samples"), samples.len() as f64, "n");
        for (name, q) in quantiles.iter().filter(|_| !samples.is_empty()) {
            let at = ((samples.len() as f64 * q).ceil() as usize).clamp(1, samples.len()) - 1;
            self.emit(&format!("{prefix}{name}"), samples[at] as f64 / div, unit);
        }
    }
}

const P50_99_MAX: &[(&str, f64)] = &[("p50", 0.5), ("p99", 0.99), ("max", 1.0)];
const P50_99_999: &[(&str, f64)] = &[("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

fn main() {
    let args = Arc::new(Args::parse());
    let slice = Duration::from_micros(args.num("slice_us", 10_000) as u64);
    let builder = mungo::Runtime::builder().procs(args.num("procs", 2)).time_slice(slice);
    let runtime = Arc::new(builder.build().expect("a runtime"));
    if args.num("metrics", 0) != 0 {
        print_interruptions(runtime.clone());
    }
    let a = args.clone();
    runtime.run(move || match a.workload.as_str() {
        "spawn_join" => spawn_join(&a),
        "yield" => yields(&a),
        "pingpong_unbuf" => pingpong(&a),
        "chan_buf" => chan_buf(&a),
        "select" => select(&a),
        "skynet" => skynet(&a),
        "mutex" => mutex(&a),
        "parked_memory" => parked_memory(&a),
        "timers" => timers(&a),
        "timer_lateness" => timer_lateness(&a),
        "cpu_starve" => cpu_starve(&a),
        "from_outside" => from_outside(&a),
        "from_inside" => from_inside(&a),
        "blocking" => blocking(&a),
        "bimodal" => bimodal::run(&a),
        "computing" => computing(&a),
        "parallel" => parallel(&a),
        "echo_server" => servers::echo(&a),
        "http_server" => servers::http(&a),
        _ => a.not_available("not yet"),
    });
    std::process::exit(0); // goroutines that are left end with the process
}

/// Says on stderr, once a second, how goroutines were interrupted.
fn print_interruptions(runtime: Arc<mungo::Runtime>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let metrics = runtime.metrics();
            let preemptions: u64 = metrics.per_proc.iter().map(|p| p.preemptions).sum();
            eprintln!("{preemptions} preemptions, {:?}, {} threads", metrics.interruptions, metrics.threads);
        }
    });
}

fn spawn_join(a: &Args) {
    a.emit("ns_per_task", goroutines::spawn_join(a.num("n", 1_000_000), a.num("batch", 1000)), "ns");
}

fn yields(a: &Args) {
    a.emit("ns_per_switch", goroutines::yields(a.num("tasks", 2), a.num("n", 5_000_000)), "ns");
}

fn pingpong(a: &Args) {
    a.emit("ns_per_roundtrip", goroutines::pingpong(a.num("n", 1_000_000), a.num("depth", 0)), "ns");
}

fn chan_buf(a: &Args) {
    let (n, prod, cons, cap) = (a.num("n", 5_000_000), a.num("prod", 1), a.num("cons", 1), a.num("cap", 128));
    a.emit("ns_per_msg", goroutines::chan_buf(n, prod, cons, cap), "ns");
}

fn select(a: &Args) {
    a.emit("ns_per_msg", goroutines::select(a.num("n", 1_000_000), a.num("cap", 0)), "ns");
}

fn skynet(a: &Args) {
    let n = a.num("n", 1_000_000) as u64;
    let (tx, rx) = chan::bounded(0);
    let t = Instant::now();
    mungo::go(move || sky(&tx, 0, n));
    assert_eq!(rx.recv().unwrap(), n * (n - 1) / 2);
    a.emit("wall", t.elapsed().as_secs_f64() * 1e3, "ms");
}

fn mutex(a: &Args) {
    a.emit("ns_per_op", goroutines::mutex(a.num("tasks", 8), a.num("each", 500_000)), "ns");
}

fn parked_memory(a: &Args) {
    let parked = goroutines::parked(a.num("n", 100_000));
    a.emit("rss_per_task", parked.rss, "B");
    a.emit("pagetable_per_task", parked.tables, "B");
    a.emit("create", parked.create.as_secs_f64(), "s");
    a.emit("wake_finish", parked.wake.as_secs_f64(), "s");
}

fn timers(a: &Args) {
    let (cpu, rss) = (cpu_seconds(), status_bytes("VmRSS"));
    let (wall, created) = goroutines::timers(a.num("n", 1_000_000), Duration::from_secs(1));
    a.emit("wall_beyond_1000", wall.as_secs_f64() * 1e3 - 1000.0, "ms");
    a.emit("create", created.as_secs_f64() * 1e3, "ms");
    a.emit("cpu", cpu_seconds() - cpu, "s");
    a.emit("rss_after", (status_bytes("VmRSS") - rss) / 1e6, "MB");
}

fn late(start: Instant, want: Duration) -> u64 {
    start.elapsed().saturating_sub(want).as_nanos() as u64
}

fn timer_lateness(a: &Args) {
    let (tasks, reps) = (a.num("tasks", 1000), a.num("reps", 20));
    let one = |i: usize| {
        mungo::go(move || {
            let sample = |r| {
                let d = Duration::from_micros(1000 + mix((i * reps + r) as u64) % 99_000);
                let start = Instant::now();
                mungo::sleep(d);
                late(start, d)
            };
            (0..reps).map(sample).collect::<Vec<u64>>()
        })
    };
    let handles: Vec<_> = (0..tasks).map(one).collect();
    let all = handles.into_iter().flat_map(|h| h.join().unwrap()).collect();
    a.emit_lateness("", all, "us", 1e3, P50_99_999);
}

/// Sleeps 1 ms again and again; how late were the sleeps that ended after `from`?
fn tick(from: Instant, stop: impl Fn() -> bool, mut each: impl FnMut()) -> Vec<u64> {
    let mut out = Vec::new();
    while !stop() {
        let start = Instant::now();
        mungo::sleep(Duration::from_millis(1));
        if Instant::now() >= from {
            out.push(late(start, Duration::from_millis(1)));
            each();
        }
    }
    out
}

/// A loop without a call into the runtime.
#[inline(never)]
fn spin_until(deadline: Instant) -> u64 {
    let mut x: u64 = 88_172_645_463_325_252;
    loop {
        for _ in 0..1_000_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        if Instant::now() >= deadline {
            return black_box(x);
        }
    }
}

fn cpu_starve(a: &Args) {
    let tasks = a.num("tasks", 8);
    let from = Instant::now() + Duration::from_millis(20);
    let deadline = from + Duration::from_millis(a.num("ms", 3000) as u64);
    let spawned = Arc::new(AtomicUsize::new(0));
    let delays = Arc::new(Mutex::new(Vec::new()));
    let (counter, sink) = (spawned.clone(), delays.clone());
    let victim = move || {
        counter.fetch_add(1, AcqRel);
        let (sink, start) = (sink.clone(), Instant::now());
        mungo::go(move || sink.lock().unwrap().push(late(start, Duration::ZERO)));
    };
    let ticker = mungo::go(move || tick(from, || Instant::now() >= deadline, victim));
    mungo::sleep(from.saturating_duration_since(Instant::now()));
    let hogs: Vec<_> = (0..tasks).map(|_| mungo::go(move || spin_until(deadline))).collect();
    let ticks = ticker.join().unwrap();
    hogs.into_iter().for_each(|h| _ = h.join().unwrap());
    while delays.lock().unwrap().len() < spawned.load(Acquire) {
        mungo::sleep(Duration::from_millis(1));
    }
    a.emit_lateness("", ticks, "ms", 1e6, P50_99_MAX);
    let delays = std::mem::take(&mut *delays.lock().unwrap());
    a.emit_lateness("spawn_", delays, "ms", 1e6, P50_99_MAX);
}

/// A plain thread sends to a goroutine each 2 to 5 ms, while others compute: how late the goroutine runs.
fn from_outside(a: &Args) {
    let deadline = Instant::now() + Duration::from_millis(a.num("ms", 3000) as u64);
    let (hogs, ms) = (a.num("tasks", 8), Duration::from_millis(1));
    let hogs: Vec<_> = (0..hogs).map(|_| mungo::go(move || spin_until(deadline))).collect();
    let (sender, receiver) = chan::unbounded();
    let sends = std::thread::spawn(move || {
        for nth in 0.. {
            std::thread::sleep(2 * ms + Duration::from_micros(mix(nth) % 3000));
            if Instant::now() >= deadline || sender.send(Instant::now()).is_err() {
                break;
            }
        }
    });
    let delays = mungo::go(move || receiver.iter().map(|sent| late(sent, Duration::ZERO)).collect());
    sends.join().unwrap();
    a.emit_lateness("", delays.join().unwrap(), "ms", 1e6, P50_99_MAX);
    hogs.into_iter().for_each(|h| _ = h.join().unwrap());
}

/// Goroutines that compute, as many as there are Ps, each wake another one each 3 to 20 ms: how late that runs.
fn from_inside(a: &Args) {
    let deadline = Instant::now() + Duration::from_millis(a.num("ms", 3000) as u64);
    let hogs = a.num("tasks", mungo::procs());
    let receivers: Vec<_> = (0..hogs as u64)
        .map(|hog| {
            let (sender, receiver) = chan::unbounded();
            mungo::go(move || {
                for nth in 0.. {
                    let next = Instant::now() + Duration::from_micros(3_000 + mix(nth << 8 | hog) % 17_000);
                    spin_until(next.min(deadline));
                    if next >= deadline || sender.send(Instant::now()).is_err() {
                        break;
                    }
                }
            });
            mungo::go(move || receiver.iter().map(|sent| late(sent, Duration::ZERO)).collect::<Vec<_>>())
        })
        .collect();
    let delays = receivers.into_iter().flat_map(|receiver| receiver.join().unwrap()).collect();
    a.emit_lateness("", delays, "ms", 1e6, P50_99_MAX);
}

/// Goroutines that compute for a fixed number of additions each, all at once.
fn computing(a: &Args) {
    let (tasks, us) = (a.num("tasks", 8), a.num("us", 1_000_000) as f64);
    // `adds` compares builds where the machine's speed varies; otherwise additions that take `us` microseconds now.
    let n = match a.num("adds", 0) as u64 {
        0 => (us * 1e3 * servers::additions_per_ns()) as u64,
        adds => adds,
    };
    let most = Arc::new(AtomicUsize::new(0));
    let (cpu, t) = (cpu_seconds(), Instant::now());
    let all: Vec<_> = (0..tasks).map(|_| mungo::go(move || black_box(servers::additions(n)))).collect();
    let (seen, done) = (most.clone(), Arc::new(AtomicUsize::new(0)));
    let stop = done.clone();
    let watcher = std::thread::spawn(move || {
        while stop.load(Acquire) == 0 {
            let threads = std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count());
            seen.fetch_max(threads.saturating_sub(1), Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    all.into_iter().for_each(|g| _ = g.join().unwrap());
    a.emit("wall", t.elapsed().as_secs_f64(), "s");
    a.emit("cpu", cpu_seconds() - cpu, "s");
    done.store(1, Release);
    watcher.join().unwrap();
    a.emit("work", tasks as f64 * us / 1e6, "s");
    a.emit("threads", most.load(Relaxed) as f64, "n");
}

/// A blocking system call that no library wrapper could catch.
fn blocking_sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn blocking(a: &Args) {
    let (tasks, reps, ms) = (a.num("tasks", 64), a.num("reps", 2), a.num("ms", 100) as u64);
    let announced = match a.values.get("mode").map(String::as_str) {
        None | Some("plain") => false,
        Some("offload") => true,
        Some(_) => return a.not_available("Go only"),
    };
    let from = Instant::now() + Duration::from_millis(20);
    let running = Arc::new(AtomicUsize::new(tasks));
    let seen = running.clone();
    let ticker = mungo::go(move || tick(from, || seen.load(Acquire) == 0, || {}));
    mungo::sleep(from.saturating_duration_since(Instant::now()));
    let t = Instant::now();
    for _ in 0..tasks {
        let running = running.clone();
        mungo::go(move || {
            (0..reps).for_each(|_| match announced {
                true => mungo::blocking(|| blocking_sleep(ms)),
                false => blocking_sleep(ms),
            });
            running.fetch_sub(1, AcqRel);
        });
    }
    let samples = ticker.join().unwrap();
    a.emit("wall", t.elapsed().as_secs_f64() * 1e3, "ms");
    a.emit_lateness("", samples, "ms", 1e6, P50_99_MAX);
}

#[inline(never)]
fn fib(n: u64) -> u64 {
    if n < 2 { n } else { fib(black_box(n - 1)) + fib(black_box(n - 2)) }
}

fn forked_fib(n: u64, cutoff: u64) -> u64 {
    if n <= cutoff {
        return fib(n);
    }
    let left = mungo::go(move || forked_fib(n - 1, cutoff));
    let right = forked_fib(n - 2, cutoff);
    left.join().unwrap() + right
}

fn parallel(a: &Args) {
    let (n, cutoff) = (a.num("n", 35) as u64, a.num("cutoff", 20) as u64);
    assert_eq!(forked_fib(n, cutoff), fib(n));
    let t = Instant::now();
    black_box(forked_fib(n, cutoff));
    a.emit("wall", t.elapsed().as_secs_f64() * 1e3, "ms");
}
