//! What we run on, as far as `/proc` tells.

use std::fs;

fn kib_of(file: &str, key: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A figure of `/proc/self/status` in bytes, `VmRSS` for example; 0 where there is none.
pub fn status_bytes(key: &str) -> f64 {
    kib_of("/proc/self/status", key).unwrap_or(0.0) * 1024.0
}

/// CPU time of this process so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// OS threads of this process.
pub(crate) fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Memory that can be had without swapping, in bytes: the machine's, or what is left of the cgroup's limit.
pub(crate) fn available_memory() -> Option<f64> {
    let machine = kib_of("/proc/meminfo", "MemAvailable").map(|kib| kib * 1024.0);
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<f64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max");
    let used = number("/sys/fs/cgroup/memory.current");
    match (machine, limit.zip(used).map(|(limit, used)| (limit - used).max(0.0))) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A remark if other programs keep the machine busy: what is measured then is less sure.
pub(crate) fn disturbance() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let cpus = mungo::num_cpus();
    let remark = format!("other programs keep this machine busy (load {load:.1} on {cpus} CPUs): expect noise");
    (load > 0.5 * cpus as f64).then_some(remark)
}

/// One line: processor, CPUs, kernel.
pub(crate) fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} x {model}, Linux {}", mungo::num_cpus(), kernel.trim())
}
