//! Comparisons: the reports agree with each other and with themselves.

use super::{mungo, scratch, succeeds};
use serde_json::Value;
use std::collections::BTreeMap;

/// A short comparison of a policy with itself, as JSON.
fn compare(workload: &str, seed: &str) -> Value {
    let arguments = ["compare", "-w", workload, "-p", "default,default", "--procs", "2", "--seed", seed];
    let text = succeeds(mungo(&arguments).args(["--duration", "60ms", "--repeat", "3", "--json"]));
    serde_json::from_str(&text).expect("JSON and nothing else")
}

fn items(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn check_repeat(repeat: &Value) {
    let count = |key: &str| repeat[key].as_u64().unwrap_or_else(|| panic!("no {key} in {repeat}"));
    assert_eq!(count("generated"), count("completed") + count("cut_off"), "{repeat}");
    let throughput = count("completed") as f64 / number(&repeat["elapsed_s"]);
    let reported = number(&repeat["figures"]["throughput"]);
    assert!((throughput - reported).abs() <= throughput * 1e-6, "{throughput} {reported}");
    for class in items(&repeat["classes"]) {
        let name = class["name"].as_str().expect("a name").replace(' ', ".");
        for (what, key) in [("wait", "waits"), ("latency", "latencies")] {
            let figure = |p: &str| repeat["figures"][format!("{name}.{what}.{p}")].as_f64();
            if class[key].as_u64().is_none_or(|n| n == 0) {
                assert_eq!(figure("p50"), None);
                continue;
            }
            let quantiles = ["p50", "p99", "p999", "max"].map(|p| figure(p).expect("a percentile"));
            assert!(quantiles.is_sorted() && quantiles[0] >= 0.0, "{quantiles:?}");
        }
        if let Some(missed) = class["missed"].as_u64() {
            assert!(missed <= class["deadlines"].as_u64().expect("a count"), "{class}");
        }
    }
}

fn check_policy(policy: &Value, rounds: usize) {
    let repeats = items(&policy["repeats"]);
    assert_eq!(repeats.len(), rounds);
    repeats.iter().for_each(check_repeat);
    for (key, summary) in policy["summary"].as_object().expect("figures") {
        if summary.is_null() {
            continue; // the other policy had this figure
        }
        let values: Vec<f64> = repeats.iter().filter_map(|r| r["figures"][key].as_f64()).collect();
        assert_eq!(summary["n"].as_u64(), Some(values.len() as u64), "{key}");
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((number(&summary["mean"]) - mean).abs() <= mean.abs() * 1e-9, "{key}: {summary}");
        let [min, median, max] = ["min", "median", "max"].map(|k| number(&summary[k]));
        assert!(
            min <= median && median <= max && min <= mean * (1.0 + 1e-9) && mean <= max * (1.0 + 1e-9),
            "{key}"
        );
        assert_eq!(summary["margin"].is_null(), values.len() < 2, "{key}");
    }
}

#[test]
fn json_is_consistent() {
    for workload in ["pingpong", "mixed-service", "periodic", "blocking"] {
        let report = compare(workload, "7");
        assert_eq!(report["workload"], workload);
        assert_eq!(report["interrupted"], false);
        let policies = items(&report["policies"]);
        let names: Vec<_> = policies.iter().map(|p| p["policy"].as_str().expect("a name")).collect();
        assert_eq!(names, ["default", "default (2)"]);
        for policy in policies {
            check_policy(policy, 3);
        }
        for key in policies[0]["summary"].as_object().expect("figures").keys() {
            let best = policies.iter().filter(|p| p["summary"][key]["best"] == true).count();
            assert!(best <= 1, "{key}: {best} are the best");
        }
    }
}

/// The fingerprint of each round's load, the same for all policies.
fn fingerprints(report: &Value) -> BTreeMap<u64, String> {
    let mut rounds = BTreeMap::new();
    for repeat in items(&report["policies"]).iter().flat_map(|p| items(&p["repeats"])) {
        let print = repeat["load_fingerprint"].as_str().expect("a fingerprint").to_owned();
        let known = rounds.entry(repeat["round"].as_u64().expect("a round")).or_insert_with(|| print.clone());
        assert_eq!(*known, print, "policies had different loads in one round");
    }
    rounds
}

#[test]
fn seeds_reproduce_the_generated_load() {
    let [one, again, other] = ["1", "1", "20"].map(|seed| fingerprints(&compare("bimodal", seed)));
    assert_eq!(one.len(), 3);
    assert_eq!(one, again);
    assert!(one.values().all(|print| !other.values().any(|o| o == print)), "{one:?} {other:?}");
}

#[test]
fn csv_says_what_json_says() {
    let (json, csv) = (scratch("agree.json"), scratch("agree.csv"));
    let reports = [format!("--json={}", json.display()), format!("--csv={}", csv.display())];
    let arguments =
        ["compare", "-w", "spawn-storm", "-p", "default,default", "--duration", "50ms", "--repeat", "2"];
    let table = succeeds(mungo(&arguments).args(&reports));
    assert!(table.contains("goroutine wait p99.9") && table.contains('±'), "{table}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    let csv = std::fs::read_to_string(csv).expect("a file");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("workload,policy,procs,round,seed,metric,unit,value"));
    let mut figures = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let [workload, policy, _, round, seed, metric, _, value] = fields[..] else {
            panic!("8 fields: {line}")
        };
        assert_eq!(workload, "spawn-storm");
        let policy = items(&json["policies"]).iter().find(|p| p["policy"] == policy).expect("the policy");
        let same_round = |r: &&Value| r["round"].as_u64() == round.parse().ok();
        let repeat = items(&policy["repeats"]).iter().find(same_round).expect("the round");
        assert_eq!(repeat["seed"].as_u64(), seed.parse().ok());
        let expected = match metric.strip_prefix("count.") {
            Some(count) => &repeat[count],
            None => &repeat["figures"][metric],
        };
        // JSON's reader is content with the nearest number but one.
        let (expected, value) = (number(expected), value.parse::<f64>().expect("a number"));
        assert!((expected - value).abs() <= expected.abs() * 1e-12, "{line}: {expected}");
        figures += 1;
    }
    let repeats: usize =
        items(&json["policies"]).iter().flat_map(|p| items(&p["repeats"])).map(count_figures).sum();
    assert_eq!(figures, repeats);
}

/// The figures of a repeat, and its three counts.
fn count_figures(repeat: &Value) -> usize {
    repeat["figures"].as_object().expect("figures").len() + 3
}

#[test]
fn one_round_claims_nothing() {
    let arguments = ["compare", "-w", "skynet", "--duration", "20ms", "--repeat", "1"];
    let table = succeeds(&mut mungo(&arguments));
    assert!(table.contains("none is marked") && !table.contains('★'), "{table}");
}
