//! Looking at a runtime while something runs on it.

use super::Stage;
use crate::error::{Error, Result};
use crate::progress::Progress;
use std::time::{Duration, Instant};

/// What was seen at one moment.
pub(super) struct Sample {
    /// Length of each processor's queue.
    pub(super) queues: Vec<u64>,
}

impl Stage<'_> {
    /// Runs `f` as a goroutine, and looks at the queues every `period` until it ends. What takes longer than a second
    /// gets a bar with the queues on it.
    pub(super) fn watch<T: Send + 'static>(
        &self,
        what: &str,
        period: Duration,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Vec<Sample>)> {
        let start = Instant::now();
        let main = self.runtime.spawn(f);
        let mut samples = Vec::new();
        let mut bar = None;
        while !main.is_finished() {
            let metrics = self.runtime.metrics();
            if start.elapsed() > Duration::from_secs(1) {
                let bar = bar.get_or_insert_with(|| Progress::spinner(what));
                let queued: u64 = metrics.per_proc.iter().map(|p| p.queue).sum();
                bar.doing(format!(
                    "{} goroutines, {} queued",
                    metrics.goroutines,
                    queued + metrics.global_queue
                ));
            }
            let queues = metrics.per_proc.iter().map(|p| p.queue).collect();
            samples.push(Sample { queues });
            self.interrupt.check()?; // what runs ends with the process
            std::thread::sleep(period);
        }
        drop(bar);
        let result = main.join().map_err(|_| Error::Failed(format!("{what}: a goroutine panicked")))?;
        Ok((result, samples))
    }
}

/// As many values as a picture is wide: the largest of each stretch, or each value several times.
pub(super) fn fit(values: &[u64], width: usize) -> Vec<u64> {
    let part = |i: usize| {
        let (start, end) = (i * values.len() / width, (i + 1) * values.len() / width);
        values.get(start..end.max(start + 1)).unwrap_or_default()
    };
    (0..width).map(|i| part(i).iter().copied().max().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn fitting_keeps_the_peaks() {
        assert_eq!(fit(&[1, 2], 4), [1, 1, 2, 2]);
        assert_eq!(fit(&[], 2), [0, 0]);
        assert_eq!(fit(&[1, 9, 2, 3, 4, 0], 3), [9, 3, 4]);
        let many: Vec<u64> = (0..1000).collect();
        assert_eq!(fit(&many, 60).last(), Some(&999));
    }
}
