//! `mungo tour`: each step says what to look at, does it, and shows what was measured.

use mungo::{Runtime, ThreadLocals};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Goroutines of the first step.
const SLEEPERS: usize = 100_000;
const BAR: usize = 40;

/// Runs all steps.
pub(crate) fn run() -> ExitCode {
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("mungo: the runtime cannot be started: {e}");
            return ExitCode::FAILURE;
        }
    };
    configuration(&runtime);
    many_sleepers(&runtime);
    uneven_load(&runtime);
    tight_loops(&runtime);
    blocking_calls(&runtime);
    println!("\nThat was {} goroutines. See README.md for what to do with them.", runtime.metrics().spawned);
    ExitCode::SUCCESS
}

fn heading(title: &str, look_at: &str) {
    println!("\n== {title}\n   {look_at}");
}

fn configuration(runtime: &Runtime) {
    let info = runtime.info();
    println!("mungo {}: {} procs ({})", info.version, info.procs, info.procs_source);
    match info.thread_locals {
        ThreadLocals::Own => println!("each goroutine has its own thread-locals"),
        ThreadLocals::Shared(why) => println!("goroutines share their thread's thread-locals: {why}"),
        _ => {}
    }
}

/// Resident memory in MiB.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn many_sleepers(runtime: &Runtime) {
    heading("Many goroutines", "Each sleeps for half a second. All of them together take little longer.");
    let before = resident_mib();
    let start = Instant::now();
    let (spawned, threads, resident) = runtime.run(move || {
        let sleepers: Vec<_> =
            (0..SLEEPERS).map(|_| mungo::go(|| mungo::sleep(Duration::from_millis(500)))).collect();
        let spawned = start.elapsed();
        mungo::sleep(Duration::from_millis(100));
        let resident = resident_mib();
        let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
        sleepers.into_iter().for_each(|s| s.join().expect("a sleeper does not panic"));
        (spawned, threads, resident)
    });
    println!(
        "   {SLEEPERS} goroutines on {threads} threads: spawned in {spawned:.0?}, all awake after {:.0?}",
        start.elapsed()
    );
    println!("   {:.1} KiB of memory each", (resident - before) * 1024.0 / SLEEPERS as f64);
}

/// Something to compute, a few hundred microseconds.
fn work(rounds: u64) -> u64 {
    (0..rounds).fold(1u64, |x, i| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i)))
}

fn uneven_load(runtime: &Runtime) {
    heading("Work stealing", "One goroutine spawns all the work; the other procs come and steal their share.");
    let before = runtime.metrics();
    runtime.run(|| {
        let tasks: Vec<_> = (0..2000u64).map(|_| mungo::go(|| work(100_000))).collect();
        tasks.into_iter().for_each(|t| _ = t.join());
    });
    let after = runtime.metrics();
    let switches: Vec<u64> =
        after.per_proc.iter().zip(&before.per_proc).map(|(a, b)| a.switches - b.switches).collect();
    let most = switches.iter().copied().max().unwrap_or(1).max(1);
    for (id, n) in switches.iter().enumerate() {
        println!("   P{id:<3} {:<BAR$} {n} goroutines", "#".repeat((n * BAR as u64 / most) as usize));
    }
    let steals: u64 = after.per_proc.iter().zip(&before.per_proc).map(|(a, b)| a.steals - b.steals).sum();
    println!("   {steals} raids brought home half of somebody's queue");
}

fn tight_loops(runtime: &Runtime) {
    let hogs = 4 * runtime.info().procs;
    heading(
        "Preemption",
        &format!(
            "{hogs} goroutines spin without ever calling the runtime; another one sleeps 1 ms, again and again."
        ),
    );
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..hogs).map(|_| AtomicU64::new(0)).collect());
    for i in 0..hogs {
        let (stop, counts) = (stop.clone(), counts.clone());
        runtime.spawn(move || {
            while !stop.load(Relaxed) {
                counts[i].fetch_add(1, Relaxed);
            }
        });
    }
    let mut late: Vec<Duration> = runtime.run(|| {
        let one = |_| {
            let start = Instant::now();
            mungo::sleep(Duration::from_millis(1));
            start.elapsed().saturating_sub(Duration::from_millis(1))
        };
        (0..300).map(one).collect()
    });
    stop.store(true, Relaxed);
    late.sort();
    println!("   the sleeper was late by {:.1?} (median), {:.1?} (worst of 300)", late[150], late[299]);
    let most = counts.iter().map(|c| c.load(Relaxed)).max().unwrap_or(1).max(1);
    for (i, count) in counts.iter().enumerate() {
        let n = count.load(Relaxed);
        println!(
            "   hog {i:<2} {:<BAR$} {} M rounds",
            "#".repeat((n * BAR as u64 / most) as usize),
            n / 1_000_000
        );
    }
}

fn blocking_calls(runtime: &Runtime) {
    heading(
        "Blocking calls",
        "64 goroutines block their threads for 100 ms in std::thread::sleep, without a word.",
    );
    let start = Instant::now();
    runtime.run(|| {
        let block = || std::thread::sleep(Duration::from_millis(100));
        let tasks: Vec<_> = (0..64).map(|_| mungo::go(block)).collect();
        tasks.into_iter().for_each(|t| t.join().expect("a sleep does not panic"));
    });
    let retakes: u64 = runtime.metrics().per_proc.iter().map(|p| p.retakes).sum();
    println!(
        "   all done after {:.0?}: each time the monitor took the proc away ({retakes} times)",
        start.elapsed()
    );
}
