//! Time lines: what each goroutine did, when.

use std::time::Duration;

/// Something went on from `start` to `end` after the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: Duration,
    pub(super) end: Duration,
}

impl Span {
    fn contains(&self, at: Duration) -> bool {
        self.start <= at && at < self.end
    }
}

fn column(i: usize, columns: usize, total: Duration) -> Duration {
    total.mul_f64((i as f64 + 0.5) / columns as f64)
}

/// Which span each of `columns` moments lies in, if any.
pub(super) fn row<'a>(
    spans: impl Iterator<Item = &'a Span> + Clone,
    columns: usize,
    total: Duration,
) -> Vec<Option<&'a Span>> {
    (0..columns).map(|i| spans.clone().find(|s| s.contains(column(i, columns, total)))).collect()
}

/// A letter for each of the first 52; then they begin again.
pub(crate) fn letter(who: usize) -> char {
    char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[who % 52])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64) -> Span {
        Span { start: Duration::from_millis(start), end: Duration::from_millis(end) }
    }

    #[test]
    fn rows_have_holes() {
        let spans = [span(0, 10), span(20, 30)];
        let row = row(spans.iter(), 3, Duration::from_millis(30));
        assert_eq!(row.iter().map(|s| s.is_some()).collect::<Vec<_>>(), [true, false, true]);
    }
}
