//! Metrics: histograms that make sense, and a text that Prometheus reads.

mod common;

use common::{end, runtime, wait_until};
use mungo::{MetricValue, chan, go};
use std::time::{Duration, Instant};

#[test]
fn histograms_count_what_the_counters_count() {
    let rt = runtime(2);
    rt.run(|| {
        let (tx, rx) = chan::bounded::<u32>(0);
        let echo = go(move || rx.iter().count());
        for i in 0..200_000 {
            tx.send(i).unwrap();
            if i % 4 == 0 {
                mungo::yield_now();
            }
        }
        drop(tx);
        assert_eq!(echo.join().unwrap(), 200_000);
    });
    let m = rt.metrics();
    let switches: u64 = m.per_proc.iter().map(|p| p.switches).sum();
    // Each sample stands for those before it on the average, and the last ones may have none: a coarse bound.
    let (least, most) = (switches / 4, switches * 4);
    assert!((least..=most).contains(&m.run_time.count()), "{switches} switches: {m:#?}");
    assert!(m.queue_wait.count() > 0 && m.wakeup_latency.count() > 0, "{m:#?}");
    assert!(m.wakeup_latency.count() <= m.queue_wait.count(), "{m:#?}");
    end(rt);
}

/// Where switches are rare, each of them is timed.
#[test]
fn rare_switches_are_all_timed() {
    let rt = runtime(1);
    let computed = rt.run(|| {
        (0..10)
            .map(|_| {
                mungo::sleep(Duration::from_millis(5));
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(4) {}
                start.elapsed()
            })
            .sum::<Duration>()
    });
    wait_until("it is over", || rt.metrics().goroutines == 0);
    let m = rt.metrics();
    let switches: u64 = m.per_proc.iter().map(|p| p.switches).sum();
    assert!(m.run_time.count() + 2 >= switches && m.run_time.count() <= switches + 2, "{m:#?}");
    assert!(m.run_time.sum() >= computed / 2, "{computed:?}: {m:#?}");
    assert!(m.run_time.quantile(0.9) >= Duration::from_millis(4), "{m:#?}");
    end(rt);
}

#[test]
fn waits_are_waits() {
    let rt = runtime(1);
    rt.run(|| {
        // One P, and each computes for longer than it takes to make room: the last one waits for all others.
        let compute = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(400) {}
        };
        let waiting: Vec<_> = (0..40).map(|_| go(compute)).collect();
        waiting.into_iter().for_each(|w| w.join().unwrap());
    });
    let m = rt.metrics();
    assert!(m.queue_wait.quantile(1.0) >= Duration::from_millis(4), "{m:#?}");
    end(rt);
}

#[test]
fn each_metric_has_a_name_and_a_value() {
    let rt = runtime(3);
    rt.run(|| mungo::sleep(Duration::from_millis(1)));
    let m = rt.metrics();
    let named = |name: &str| {
        m.each().filter(|metric| metric.name == name).map(|metric| metric.value).collect::<Vec<_>>()
    };
    assert!(matches!(named("mungo_procs")[..], [MetricValue::Gauge(3)]));
    assert!(matches!(named("mungo_goroutines_spawned")[..], [MetricValue::Counter(1)]));
    let switches = named("mungo_proc_switches");
    assert_eq!(switches.len(), 3);
    assert!(matches!(switches[2], MetricValue::ProcCounter(2, _)));
    assert!(matches!(named("mungo_run_time")[..], [MetricValue::Times(times)] if times.count() > 0));
    end(rt);
}

#[cfg(feature = "prometheus")]
mod prometheus {
    use super::*;
    use std::collections::HashMap;

    /// Reads the format: types by family, and values by name with labels. Panics at anything that does not belong.
    fn parse(text: &str) -> (HashMap<String, String>, Vec<(String, f64)>) {
        let (mut types, mut values) = (HashMap::new(), Vec::new());
        assert!(text.ends_with("# EOF\n"), "{text}");
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "TYPE", family, kind] => {
                    assert!(types.insert(family.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                }
                ["#", "HELP", family, help] => {
                    assert!(!types.contains_key(family) && !help.is_empty(), "{line}")
                }
                ["#", "UNIT", family, "seconds"] => assert!(family.ends_with("_seconds"), "{line}"),
                ["#", "EOF"] => {}
                [name, value] => {
                    let family = name.split('{').next().unwrap();
                    let known = types.keys().any(|t| family.starts_with(t.as_str()));
                    assert!(known && name.starts_with("mungo_"), "{line}");
                    values.push((name.to_owned(), value.parse().expect("a number")));
                }
                _ => panic!("not understood: {line}"),
            }
        }
        (types, values)
    }

    #[test]
    fn the_text_is_complete_and_consistent() {
        let rt = runtime(2);
        rt.run(|| (0..100).map(|_| go(mungo::yield_now)).for_each(|g| g.join().unwrap()));
        let metrics = rt.metrics();
        let (types, values) = parse(&metrics.to_prometheus());
        let value = |name: &str| values.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        assert_eq!(value("mungo_procs"), Some(2.0));
        assert_eq!(value("mungo_goroutines_spawned_total"), Some(101.0));
        for p in 0..2 {
            let switches = metrics.per_proc[p].switches as f64;
            assert_eq!(value(&format!("mungo_proc_switches_total{{proc=\"{p}\"}}")), Some(switches));
        }
        let names: std::collections::HashSet<_> = metrics.each().map(|m| m.name).collect();
        assert_eq!(types.len(), names.len());
        for family in ["mungo_queue_wait_seconds", "mungo_wakeup_latency_seconds", "mungo_run_time_seconds"] {
            assert_eq!(types[family], "histogram");
            let buckets: Vec<f64> = values
                .iter()
                .filter(|(n, _)| n.starts_with(&format!("{family}_bucket{{")))
                .map(|(_, v)| *v)
                .collect();
            assert!(buckets.len() > 20 && buckets.is_sorted(), "cumulative: {buckets:?}");
            assert_eq!(buckets.last().copied(), value(&format!("{family}_count")));
            assert_eq!(value(&format!("{family}_bucket{{le=\"+Inf\"}}")), buckets.last().copied());
        }
        end(rt);
    }
}

/// The sums are not taken at one moment; still none of them goes back.
#[test]
fn counts_of_goroutines_do_not_go_back() {
    let rt = runtime(2);
    let spawner = rt.spawn(|| {
        for _ in 0..50_000 {
            go(|| ()).join().unwrap();
        }
    });
    let mut last = rt.metrics();
    while last.finished < 50_000 {
        let now = rt.metrics();
        assert!(now.spawned >= last.spawned, "{} after {}", now.spawned, last.spawned);
        assert!(now.finished >= last.finished && now.spawned - now.finished == now.goroutines);
        last = now;
    }
    spawner.join().unwrap();
    end(rt);
}
