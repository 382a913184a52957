//! Time lines: who did what, when.

use std::time::Duration;

/// Somebody did something from `start` to `end` after the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) who: usize,
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

/// Who ran at each of `columns` moments, in as many rows as run at the same time, `rows` at most. Whoever goes on stays
/// in its row.
pub(super) fn lanes(spans: &[Span], rows: usize, columns: usize, total: Duration) -> Vec<Vec<Option<usize>>> {
    let mut lanes = vec![vec![None; columns]; rows];
    for i in 0..columns {
        let at = column(i, columns, total);
        let mut running: Vec<usize> = spans.iter().filter(|s| s.contains(at)).map(|s| s.who).collect();
        if i > 0 {
            for lane in &mut lanes {
                if let Some(place) = running.iter().position(|who| lane[i - 1] == Some(*who)) {
                    lane[i] = Some(running.swap_remove(place));
                }
            }
        }
        for lane in lanes.iter_mut().filter(|lane| lane[i].is_none()) {
            lane[i] = running.pop();
        }
    }
    lanes
}

/// A letter for each.
pub(super) fn letter(who: usize) -> char {
    char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[who % 52])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(who: usize, start: u64, end: u64) -> Span {
        Span { who, start: Duration::from_millis(start), end: Duration::from_millis(end) }
    }

    #[test]
    fn whoever_goes_on_stays_in_its_row() {
        let spans = [span(0, 0, 20), span(1, 0, 40), span(2, 20, 40)];
        let lanes = lanes(&spans, 2, 4, Duration::from_millis(40));
        let mut text: Vec<String> =
            lanes.iter().map(|lane| lane.iter().map(|who| who.map_or('.', letter)).collect()).collect();
        text.sort();
        assert_eq!(text, ["AACC", "BBBB"]);
    }

    #[test]
    fn rows_have_holes() {
        let spans = [span(0, 0, 10), span(0, 20, 30)];
        let row = row(spans.iter(), 3, Duration::from_millis(30));
        assert_eq!(row.iter().map(|s| s.is_some()).collect::<Vec<_>>(), [true, false, true]);
    }
}
