//! What becomes of ticks that no receiver took in time.

/// Says what becomes of ticks that no receiver took in time, because the work of the last one took longer than the
/// period: tokio's `MissedTickBehavior`. See [`interval`](crate::time::interval).
///
/// With a period of 10 ms, and a receiver that is away from 10 ms to 35 ms:
///
/// | | ticks come at |
/// |---|---|
/// | `Skip` | 10, 35 (late), 40, 50, 60 |
/// | `Delay` | 10, 35 (late), 45, 55, 65 |
/// | `Burst` | 10, 35 (late), 35 (late), 40, 50 |
///
/// ```
/// use mungo::time::MissedTicks;
///
/// assert_eq!(MissedTicks::default(), MissedTicks::Skip);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTicks {
    /// They are dropped, and the others stay in step with the first: Go's way, and [`Ticker`](crate::time::Ticker)'s.
    #[default]
    Skip,
    /// They are dropped, and the next one comes a period after the late one was taken: for at most one piece of work in
    /// each period.
    Delay,
    /// They come one after the other, as fast as they are taken: for work that has to be done a number of times.
    Burst,
}

impl MissedTicks {
    /// Returns when the next tick is due, if the one that was due at `due_ns` is taken at `now_ns`.
    pub(crate) fn next_ns(self, due_ns: u64, now_ns: u64, period_ns: u64) -> u64 {
        match self {
            MissedTicks::Burst => due_ns.saturating_add(period_ns),
            MissedTicks::Delay => due_ns.max(now_ns).saturating_add(period_ns),
            MissedTicks::Skip => {
                let missed = now_ns.saturating_sub(due_ns) / period_ns;
                due_ns.saturating_add(period_ns.saturating_mul(missed + 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MissedTicks::{self, Burst, Delay, Skip};

    /// Takes ticks: the first one in time, then after a pause from 10 to 35, then each as it comes.
    fn taken(missed: MissedTicks) -> Vec<u64> {
        let (mut now, mut due, mut times) = (10, 10, Vec::new());
        for _ in 0..5 {
            now = due.max(now);
            times.push(now);
            due = missed.next_ns(due, now, 10);
            now = if now == 10 { 35 } else { now };
        }
        times
    }

    #[test]
    fn the_table_is_true() {
        assert_eq!(taken(Skip), [10, 35, 40, 50, 60]);
        assert_eq!(taken(Delay), [10, 35, 45, 55, 65]);
        assert_eq!(taken(Burst), [10, 35, 35, 40, 50]);
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        for missed in [Skip, Delay, Burst] {
            assert_eq!(missed.next_ns(u64::MAX - 5, u64::MAX - 1, 10), u64::MAX);
        }
    }
}
