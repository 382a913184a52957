//! Numbers about numbers: percentiles, confidence intervals, fairness.

use hdrhistogram::Histogram;
use std::time::Duration;

/// How sure an interval is.
const CONFIDENCE: f64 = 0.95;

/// Times in ns, three digits of each.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(Histogram::new(3).expect("three digits are allowed"))
    }
}

impl Times {
    /// Two digits of each time: for tables with thousands of these.
    pub(crate) fn coarse() -> Times {
        Times(Histogram::new(2).expect("two digits are allowed"))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.record_ns(time.as_nanos() as u64);
    }

    pub(crate) fn record_ns(&mut self, ns: u64) {
        self.0.record(ns).expect("it grows as needed");
    }

    pub(crate) fn add(&mut self, other: &Times) {
        self.0.add(&other.0).expect("it grows as needed");
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The value that the share `q` of all values does not exceed, in µs.
    pub(crate) fn quantile_us(&self, q: f64) -> f64 {
        self.0.value_at_quantile(q) as f64 / 1e3
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}

impl FromIterator<u64> for Times {
    fn from_iter<I: IntoIterator<Item = u64>>(ns: I) -> Times {
        let mut times = Times::default();
        ns.into_iter().for_each(|ns| times.record_ns(ns));
        times
    }
}

/// Jain's index (Jain, Chiu, Hawe 1984): 1 if all get the same, 1/n if one of n gets everything.
pub(crate) fn jain(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Several measurements of one thing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) mean: f64,
    /// Half of the confidence interval around the mean; none of a single measurement.
    pub(crate) margin: Option<f64>,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of nothing there is none.
    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        Some(Summary { n, mean: mean(values), margin: margin(values, CONFIDENCE), min, median, max })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half of the interval in which the mean lies with that confidence, if the errors are normal.
fn margin(values: &[f64], confidence: f64) -> Option<f64> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    let mean = mean(values);
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    Some(t_quantile(confidence, n - 1) * (variance / n as f64).sqrt())
}

/// How sure a claim that one is the best must be. Higher than that of an interval: a report makes many claims.
const CLAIM: f64 = 0.99;

/// Which contestant is the best, if it beats each of the others by more than the noise: by more than either's interval,
/// and by a test of the pairs. `rounds[c][r]` is what contestant c achieved in round r; a round is a pair, so that
/// what disturbs a whole round disturbs no comparison. The error of the claim as a whole stays below 1 % (Bonferroni).
pub(crate) fn best(rounds: &[Vec<f64>], higher_is_better: bool) -> Option<usize> {
    let sign = if higher_is_better { 1.0 } else { -1.0 };
    let winner =
        (0..rounds.len()).max_by(|&a, &b| (sign * mean(&rounds[a])).total_cmp(&(sign * mean(&rounds[b]))))?;
    let rivals = rounds.len() - 1;
    let confidence = 1.0 - (1.0 - CLAIM) / rivals.max(1) as f64;
    let beats = |other: &Vec<f64>| {
        let gains: Vec<f64> = rounds[winner].iter().zip(other).map(|(a, b)| sign * (a - b)).collect();
        let noise =
            [margin(&gains, confidence), margin(&rounds[winner], CONFIDENCE), margin(other, CONFIDENCE)];
        noise.into_iter().all(|noise| noise.is_some_and(|noise| mean(&gains) > noise))
    };
    let others = || (0..rounds.len()).filter(|&c| c != winner);
    (rivals > 0 && others().all(|c| beats(&rounds[c]))).then_some(winner)
}

/// The t that a Student-distributed value with `df` degrees of freedom exceeds in neither direction, with that
/// probability.
fn t_quantile(probability: f64, df: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if t_between(middle, df) < probability { low = middle } else { high = middle }
    }
    high
}

/// The probability of -t..t: the finite series for whole degrees of freedom (Abramowitz, Stegun 26.7.3 and 26.7.4).
fn t_between(t: f64, df: usize) -> f64 {
    let theta = (t / (df as f64).sqrt()).atan();
    let (sin, cos) = theta.sin_cos();
    let odd = df % 2 == 1;
    // cos + 2/3 cos^3 + 2*4/(3*5) cos^5 ... for odd, 1 + 1/2 cos^2 + 1*3/(2*4) cos^4 ... for even numbers.
    let (mut term, mut sum) = (if odd { cos } else { 1.0 }, 0.0);
    let mut k = if odd { 1 } else { 0 };
    while k + 2 <= df {
        sum += term;
        k += 2;
        term *= cos * cos * (k - 1) as f64 / k as f64;
    }
    if odd { (theta + sin * sum) * std::f64::consts::FRAC_2_PI } else { sin * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student() {
        // From any table: two-sided 95 % and 99 %.
        for (df, t95, t99) in
            [(1, 12.706, 63.657), (2, 4.303, 9.925), (4, 2.776, 4.604), (9, 2.262, 3.250), (30, 2.042, 2.750)]
        {
            assert!((t_quantile(0.95, df) - t95).abs() < 1e-3, "{df}: {}", t_quantile(0.95, df));
            assert!((t_quantile(0.99, df) - t99).abs() < 1e-3, "{df}: {}", t_quantile(0.99, df));
        }
    }

    #[test]
    fn summaries() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[3.0]).unwrap().margin, None);
        let s = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((s.n, s.mean, s.min, s.median, s.max), (4, 2.5, 1.0, 2.5, 4.0));
        assert!((s.margin.unwrap() - 2.054).abs() < 1e-2, "{:?}", s.margin);
    }

    #[test]
    fn fairness() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn the_best_must_beat_the_noise() {
        let steady = vec![10.0, 11.0, 10.5, 10.2];
        let better: Vec<f64> = steady.iter().map(|v| v + 1.0 + v / 100.0).collect();
        let noisy = vec![5.0, 19.0, 14.0, 6.0];
        assert_eq!(best(&[steady.clone(), better.clone()], true), Some(1));
        assert_eq!(best(&[steady.clone(), better.clone()], false), Some(0));
        assert_eq!(best(&[steady.clone(), noisy], true), None);
        assert_eq!(best(&[steady.clone(), steady.clone()], true), None);
        assert_eq!(best(&[vec![1.0], vec![2.0]], true), None, "one round proves nothing");
        assert_eq!(best(&[steady], true), None, "none to beat");
        assert_eq!(best(&[], true), None);
    }

    #[test]
    fn times() {
        let times: Times = (1..=1000).map(|i| i * 1000).collect();
        assert_eq!(times.len(), 1000);
        assert!((times.quantile_us(0.5) - 500.0).abs() < 1.0);
        assert!((times.max_us() - 1000.0).abs() < 1.0);
    }
}
