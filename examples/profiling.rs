//! Profiles of a small service: a lock that is held for long, labels for requests, files for `go tool pprof`.

use mungo::debug::label;
use mungo::profile;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Serves a request: computes, then appends to a list under a lock that it holds for too long.
fn serve(request: usize, list: &mungo::sync::Mutex<Vec<usize>>) {
    let _request = label("kind", if request.is_multiple_of(10) { "large" } else { "small" });
    let sum = compute(if request.is_multiple_of(10) { 20 } else { 2 });
    let mut list = list.lock();
    list.push(sum);
    mungo::sleep(Duration::from_millis(1)); // as if it wrote to a disk
}

fn compute(ms: u64) -> usize {
    let start = Instant::now();
    let mut sum = 0usize;
    while start.elapsed() < Duration::from_millis(ms) {
        sum = sum.wrapping_mul(31).wrapping_add(7);
    }
    sum
}

#[mungo::main]
fn main() -> std::io::Result<()> {
    profile::set_block_rate(Duration::from_micros(10))?;
    let cpu = profile::start_cpu(100)?;
    let list = Arc::new(mungo::sync::Mutex::new(Vec::new()));
    let requests: Vec<_> = (0..100)
        .map(|request| {
            let list = list.clone();
            mungo::go(move || serve(request, &list))
        })
        .collect();
    let goroutines = profile::goroutine();
    requests.into_iter().for_each(|request| request.join().expect("a request"));

    let folder = std::env::temp_dir();
    for profile in [goroutines, cpu.stop()?, profile::block(), profile::mutex(), profile::runnable()] {
        let name = folder.join(format!("mungo-{}.pb.gz", profile.kind().as_str()));
        profile.write_to(File::create(&name)?)?;
        println!("go tool pprof -top {}", name.display());
    }
    let mutex = profile::mutex();
    println!("\n{}", mutex.to_text().lines().take(8).collect::<Vec<_>>().join("\n"));
    assert!(mutex.total_time() > Duration::from_millis(100), "the lock was waited for");
    Ok(())
}
