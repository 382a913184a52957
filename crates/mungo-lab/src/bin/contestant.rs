//! mungo as a contestant of the side-by-side benchmarks: `contestant WORKLOAD [key=value]...` prints a JSON line per
//! metric. What each workload does is fixed by the peers that it is compared with.

#[path = "contestant/servers.rs"]
mod servers;

use mungo::chan;
use mungo::sync::WaitGroup;
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
    let runtime = mungo::Runtime::builder().procs(args.num("procs", 2)).build().expect("a runtime");
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
        "blocking" => blocking(&a),
        "parallel" => parallel(&a),
        "echo_server" => servers::echo(&a),
        "http_server" => servers::http(&a),
        _ => a.not_available("not yet"),
    });
    std::process::exit(0); // goroutines that are left end with the process
}

fn ns_per(since: Instant, n: usize) -> f64 {
    since.elapsed().as_nanos() as f64 / n as f64
}

fn spawn_join(a: &Args) {
    let (n, batch) = (a.num("n", 1_000_000), a.num("batch", 1000));
    let t = Instant::now();
    for _ in 0..n / batch {
        let handles: Vec<_> = (0..batch).map(|_| mungo::go(|| {})).collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
    }
    a.emit("ns_per_task", ns_per(t, n), "ns");
}

fn yields(a: &Args) {
    let (tasks, n) = (a.num("tasks", 2), a.num("n", 5_000_000));
    let each = n / tasks;
    let t = Instant::now();
    let handles: Vec<_> =
        (0..tasks).map(|_| mungo::go(move || (0..each).for_each(|_| mungo::yield_now()))).collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    a.emit("ns_per_switch", ns_per(t, each * tasks), "ns");
}

fn pingpong(a: &Args) {
    let n = a.num("n", 1_000_000);
    let (to, from_there) = chan::bounded::<u64>(0);
    let (back, from_here) = chan::bounded::<u64>(0);
    let t = Instant::now();
    let pong = mungo::go(move || (0..n).for_each(|_| back.send(from_there.recv().unwrap()).unwrap()));
    let ping = mungo::go(move || {
        for i in 0..n {
            to.send(i as u64).unwrap();
            from_here.recv().unwrap();
        }
    });
    ping.join().unwrap();
    pong.join().unwrap();
    a.emit("ns_per_roundtrip", ns_per(t, n), "ns");
}

fn chan_buf(a: &Args) {
    let (n, prod, cons) = (a.num("n", 5_000_000), a.num("prod", 1), a.num("cons", 1));
    let (tx, rx) = chan::bounded::<u64>(a.num("cap", 128));
    let t = Instant::now();
    for _ in 0..prod {
        let tx = tx.clone();
        mungo::go(move || (0..n / prod).for_each(|i| tx.send(i as u64).unwrap()));
    }
    drop(tx);
    let consumers: Vec<_> = (0..cons)
        .map(|_| {
            let rx = rx.clone();
            mungo::go(move || rx.iter().count())
        })
        .collect();
    let total: usize = consumers.into_iter().map(|c| c.join().unwrap()).sum();
    assert_eq!(total, n / prod * prod);
    a.emit("ns_per_msg", ns_per(t, n), "ns");
}

fn select(a: &Args) {
    let (n, cap) = (a.num("n", 1_000_000), a.num("cap", 0));
    let t = Instant::now();
    let mut keep = Vec::new();
    let channels: [chan::Receiver<u64>; 4] = std::array::from_fn(|_| {
        let (tx, rx) = chan::bounded(cap);
        keep.push(tx.clone());
        mungo::go(move || (0..n / 4).for_each(|j| tx.send(j as u64).unwrap()));
        rx
    });
    let [one, two, three, four] = &channels;
    let mut sum = 0;
    for _ in 0..n / 4 * 4 {
        mungo::select! {
            recv(one) -> v => sum += v.unwrap(),
            recv(two) -> v => sum += v.unwrap(),
            recv(three) -> v => sum += v.unwrap(),
            recv(four) -> v => sum += v.unwrap(),
        }
    }
    black_box(sum);
    a.emit("ns_per_msg", ns_per(t, n), "ns");
}

fn sky(c: &chan::Sender<u64>, id: u64, size: u64) {
    if size == 1 {
        return c.send(id).unwrap();
    }
    let (tx, rx) = chan::bounded(0);
    for i in 0..10 {
        let tx = tx.clone();
        mungo::go(move || sky(&tx, id + i * (size / 10), size / 10));
    }
    c.send((0..10).map(|_| rx.recv().unwrap()).sum()).unwrap();
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
    let (tasks, each) = (a.num("tasks", 8), a.num("each", 500_000));
    let lock = Arc::new(mungo::sync::Mutex::new(0usize));
    let t = Instant::now();
    let handles: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = lock.clone();
            mungo::go(move || (0..each).for_each(|_| *lock.lock() += 1))
        })
        .collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(*lock.lock(), tasks * each);
    a.emit("ns_per_op", ns_per(t, tasks * each), "ns");
}

/// A figure of `/proc/self/status`, in bytes.
fn status_bytes(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(key));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|v| v.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}

fn parked_memory(a: &Args) {
    let n = a.num("n", 100_000);
    let (tx, rx) = chan::bounded::<u64>(0);
    let started = Arc::new(AtomicUsize::new(0));
    let all = Arc::new(WaitGroup::new());
    all.add(n);
    let (rss, tables) = (status_bytes("VmRSS"), status_bytes("VmPTE"));
    let t = Instant::now();
    for _ in 0..n {
        let (started, rx, all) = (started.clone(), rx.clone(), all.clone());
        mungo::go(move || {
            started.fetch_add(1, Relaxed);
            rx.recv().expect("a message");
            all.done();
        });
    }
    while started.load(Relaxed) != n {
        mungo::sleep(Duration::from_millis(1));
    }
    let create = t.elapsed();
    mungo::sleep(Duration::from_millis(100));
    let (rss, tables) = (status_bytes("VmRSS") - rss, status_bytes("VmPTE") - tables);
    let t = Instant::now();
    (0..n).for_each(|_| tx.send(1).expect("receivers wait"));
    all.wait();
    let wake = t.elapsed();
    a.emit("rss_per_task", rss / n as f64, "B");
    a.emit("pagetable_per_task", tables / n as f64, "B");
    a.emit("create", create.as_secs_f64(), "s");
    a.emit("wake_finish", wake.as_secs_f64(), "s");
}

/// The peers' pseudo-random stream (splitmix64).
fn mix(i: u64) -> u64 {
    let mut z = i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn timers(a: &Args) {
    let n = a.num("n", 1_000_000);
    let (cpu, rss) = (cpu_seconds(), status_bytes("VmRSS"));
    let t = Instant::now();
    let handles: Vec<_> = (0..n)
        .map(|i| {
            let d = Duration::from_micros(mix(i as u64) % 1_000_000);
            mungo::go(move || mungo::sleep(d))
        })
        .collect();
    let created = t.elapsed();
    handles.into_iter().for_each(|h| h.join().unwrap());
    a.emit("wall_beyond_1000", t.elapsed().as_secs_f64() * 1e3 - 1000.0, "ms");
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
