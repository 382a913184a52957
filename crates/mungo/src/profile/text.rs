//! A profile as a text for people.

use super::{Profile, Sample};
use std::fmt::Write;

/// Most samples that are printed.
const PRINTED: usize = 100;

impl Profile {
    /// Returns it as a text: a line with the sums, then the samples, those with the most time or goroutines first, with
    /// their calls. At most a hundred are printed; the rest is counted.
    ///
    /// ```
    /// assert!(mungo::profile::goroutine().to_text().starts_with("goroutine profile: "));
    /// ```
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        _ = self.write_text(&mut text); // a string takes it all
        text
    }

    fn write_text(&self, to: &mut String) -> std::fmt::Result {
        let what = match self.kind.values()[0].0 {
            "goroutine" => "goroutines",
            "contentions" => "waits",
            other => other,
        };
        let has_time = self.kind.values().len() > 1;
        write!(to, "{} profile: {} {what}", self.kind.as_str(), self.total_count())?;
        if has_time {
            write!(to, ", {:?}", self.total_time())?;
        }
        if !self.duration.is_zero() {
            write!(to, " in {:.1}s", self.duration.as_secs_f64())?;
        }
        writeln!(to)?;
        for remark in self.remarks() {
            writeln!(to, "({remark})")?;
        }
        let mut samples: Vec<&Sample> = self.samples.iter().collect();
        samples.sort_by_key(|sample| std::cmp::Reverse((sample.time, sample.count)));
        for sample in samples.iter().take(PRINTED) {
            writeln!(to)?;
            self.write_sample(sample, has_time, to)?;
        }
        match samples.len().saturating_sub(PRINTED) {
            0 => Ok(()),
            n => writeln!(to, "\n... {n} more samples are not printed"),
        }
    }

    fn write_sample(&self, sample: &Sample, has_time: bool, to: &mut String) -> std::fmt::Result {
        let share = |part: f64, all: f64| if all > 0.0 { 100.0 * part / all } else { 0.0 };
        match has_time {
            true => {
                let percent = share(sample.time.as_secs_f64(), self.total_time().as_secs_f64());
                write!(to, "{:?} ({percent:.1} %), {}", sample.time, sample.count)?;
            }
            false => write!(to, "{}", sample.count)?,
        }
        if let Some(state) = sample.state {
            write!(to, " [{state}]")?;
        }
        if let Some(goroutine) = sample.goroutine {
            write!(to, " goroutine {goroutine}")?;
        }
        for (key, value) in &sample.labels {
            write!(to, " {key}={value}")?;
        }
        writeln!(to, ":")?;
        for frame in sample.frames() {
            writeln!(to, "    {frame}")?;
        }
        if let Some(note) = sample.note().filter(|_| sample.stack.calls.iter().any(|call| call.address != 0)) {
            writeln!(to, "    ({note})")?;
        }
        match sample.spawned_at {
            Some(place) => writeln!(to, "spawned at {place}"),
            None => Ok(()),
        }
    }
}
