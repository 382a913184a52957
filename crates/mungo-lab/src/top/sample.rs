//! One answer of a program, and the rates between two.

use super::source::check_protocol;
use crate::error::{Error, Result};
use serde_json::{Value, json};

/// What a program said, with the rates since it said so before.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    said: Value,
    /// By runtime: events a second.
    rates: Vec<Rates>,
}

/// Events a second in one runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub(super) total: Vec<(&'static str, f64)>,
    /// Switches a second of each P.
    pub(super) switches: Vec<f64>,
    /// Times since the look before, below a number of ns: queue wait, wake-up latency.
    pub(super) waits: [Vec<(u64, u64)>; 2],
}

/// Names of the counters of a P whose rates are shown.
const COUNTERS: [&str; 6] = ["switches", "parks", "yields", "preemptions", "retakes", "steals"];
/// Names of the histograms that are shown.
pub(super) const TIMES: [&str; 2] = ["queue_wait", "wakeup_latency"];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

impl Sample {
    pub(super) fn parse(line: &str) -> Result<Sample> {
        let said: Value = serde_json::from_str(line)
            .map_err(|e| Error::Failed(format!("the program's answer is not what it should be: {e}")))?;
        if !said["runtimes"].is_array() {
            let why = said["error"].as_str().unwrap_or("it has no 'runtimes'");
            return Err(Error::Failed(format!("the program's answer is not what it should be: {why}")));
        }
        // Over HTTP there is no greeting that says it.
        check_protocol(&said)?;
        Ok(Sample { said, rates: Vec::new() })
    }

    pub(super) fn pid(&self) -> u64 {
        number(&self.said["pid"])
    }

    pub(super) fn text(&self, key: &str) -> &str {
        self.said[key].as_str().unwrap_or("")
    }

    /// Returns the runtimes, each with its rates.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = (Runtime<'_>, Option<&Rates>)> {
        let all = self.said["runtimes"].as_array().into_iter().flatten();
        all.enumerate().map(|(i, runtime)| (Runtime(runtime), self.rates.get(i)))
    }

    /// Computes the rates since an earlier sample of the same program.
    pub(super) fn rates_since(&mut self, before: &Sample) {
        let ns = number(&self.said["time_ns"]).saturating_sub(number(&before.said["time_ns"])).max(1);
        let seconds = ns as f64 / 1e9;
        let old = |number: &Value| before.runtimes().map(|(r, _)| r.0).find(|r| r["number"] == *number);
        self.rates = self
            .runtimes()
            .map(|(now, _)| Rates::between(old(&now.0["number"]).unwrap_or(&Value::Null), now.0, seconds))
            .collect();
    }

    /// Returns what the program said, with the rates, as JSON.
    pub(super) fn to_json(&self) -> String {
        let mut all = self.said.clone();
        for (i, rates) in self.rates.iter().enumerate() {
            let total: serde_json::Map<String, Value> =
                rates.total.iter().map(|(name, rate)| ((*name).to_owned(), json!(rate))).collect();
            all["runtimes"][i]["rates"] = Value::Object(total);
        }
        all.to_string()
    }
}

impl Rates {
    fn between(old: &Value, now: &Value, seconds: f64) -> Rates {
        let rate = |old: u64, now: u64| now.saturating_sub(old) as f64 / seconds;
        let of_p = |p: usize, key: &str| rate(number(&old["ps"][p][key]), number(&now["ps"][p][key]));
        let ps = now["ps"].as_array().map_or(0, Vec::len);
        let mut total: Vec<_> =
            ["spawned", "finished"].map(|key| (key, rate(number(&old[key]), number(&now[key])))).into();
        total.extend(COUNTERS.map(|key| (key, (0..ps).map(|p| of_p(p, key)).sum())));
        let waits = TIMES.map(|key| {
            let old: Vec<(u64, u64)> = Runtime(old).times(key).collect();
            let before = |ns| old.iter().find(|(below, _)| *below == ns).map_or(0, |(_, n)| *n);
            Runtime(now).times(key).map(|(ns, n)| (ns, n.saturating_sub(before(ns)))).collect()
        });
        Rates { total, switches: (0..ps).map(|p| of_p(p, "switches")).collect(), waits }
    }
}

/// A runtime of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runtime<'a>(&'a Value);

impl<'a> Runtime<'a> {
    pub(super) fn number(self, key: &str) -> u64 {
        number(&self.0[key])
    }

    /// Returns the rows of one of its lists.
    pub(super) fn rows(self, key: &str) -> impl Iterator<Item = Row<'a>> {
        self.0[key].as_array().into_iter().flatten().map(Row)
    }

    /// Returns a quantile of one of its histograms, in ns.
    pub(super) fn quantile(self, times: &str, which: &str) -> u64 {
        number(&self.0[times][which])
    }

    fn times(self, key: &str) -> impl Iterator<Item = (u64, u64)> {
        let all = self.0[key]["below_ns"].as_array().into_iter().flatten();
        all.map(|bucket| (number(&bucket["ns"]), number(&bucket["count"])))
    }
}

/// A row of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a>(&'a Value);

impl<'a> Row<'a> {
    pub(super) fn number(self, key: &str) -> u64 {
        number(&self.0[key])
    }

    pub(super) fn optional(self, key: &str) -> Option<u64> {
        self.0[key].as_u64()
    }

    pub(super) fn text(self, key: &str) -> &'a str {
        self.0[key].as_str().unwrap_or("")
    }

    /// Returns the row inside of this one.
    pub(super) fn row(self, key: &str) -> Option<Row<'a>> {
        self.0.get(key).map(Row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let said = |ns: u64, n: u64| {
            let times = json!({ "below_ns": [{ "ns": 256, "count": n }] });
            json!({ "protocol": 1, "pid": 1, "time_ns": ns,
                "runtimes": [{ "number": 0, "spawned": n, "ps": [{ "switches": 10 * n }],
                "queue_wait": times, "wakeup_latency": times }] })
            .to_string()
        };
        let before = Sample::parse(&said(1_000_000_000, 100)).unwrap();
        let mut now = Sample::parse(&said(3_000_000_000, 200)).unwrap();
        now.rates_since(&before);
        let (_, rates) = now.runtimes().next().unwrap();
        let rates = rates.unwrap();
        assert_eq!((rates.total[0], rates.switches[0]), (("spawned", 50.0), 500.0));
        assert_eq!(rates.waits[0], [(256, 100)]);
        let json: Value = serde_json::from_str(&now.to_json()).unwrap();
        assert_eq!(json["runtimes"][0]["rates"]["switches"], 500.0);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(Sample::parse("{").is_err());
        let of = |protocol: &str| Sample::parse(&format!("{{{protocol}\"mungo\":\"0.0.9\",\"runtimes\":[]}}"));
        assert!(of("\"protocol\":1,").is_ok());
        for (protocol, complaint) in [
            ("\"protocol\":0,", "an older version of the protocol (0, this is 1)"),
            ("\"protocol\":2,", "a newer version of the protocol (2, this is 1)"),
            ("", "does not say which version"),
        ] {
            let said = of(protocol).unwrap_err().to_string();
            assert!(said.contains(complaint), "{said}");
        }
        assert!(Sample::parse("{\"error\":\"no\"}").unwrap_err().to_string().contains("no"));
    }
}
