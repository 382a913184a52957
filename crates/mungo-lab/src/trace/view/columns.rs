//! Tables as columns: each a run of numbers in as few bytes as they need (LEB128), as text (base64).

use crate::trace::model::{Model, NONE, UNKNOWN};
use std::collections::HashMap;
use std::io::{self, Write};

/// One column.
#[derive(Debug, Default)]
struct Column(Vec<u8>);

impl Column {
    fn push(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn of(numbers: impl Iterator<Item = u64>) -> Column {
        let mut column = Column::default();
        numbers.for_each(|n| column.push(n));
        column
    }
}

/// 0 is "none", all others are one more than they are.
fn optional(index: u32) -> u64 {
    if index == NONE { 0 } else { u64::from(index) + 1 }
}

/// Differences from one to the next, which never goes back.
fn deltas(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut last = 0;
    numbers.map(move |n| n - std::mem::replace(&mut last, n))
}

/// Writes all columns as elements of the page; a script knows them by their names.
pub(super) fn write(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let spans = || model.spans.iter();
    let mut put = |name: &str, column: Column| element(out, name, &column);
    put("start", Column::of(deltas(spans().map(|s| s.start))))?;
    put("ran", Column::of(spans().map(|s| s.ran())))?;
    put("waited", Column::of(spans().map(|s| s.waited())))?;
    put("g", Column::of(spans().map(|s| s.g.into())))?;
    put("p", Column::of(spans().map(|s| s.p.into())))?;
    put("home", Column::of(spans().map(|s| optional(s.home))))?;
    put("waker", Column::of(spans().map(|s| optional(s.waker))))?;
    // Both are below 16.
    put("tag", Column(spans().map(|s| s.why as u8 | s.cause << 4).collect()))?;
    put("reason", Column::of(spans().map(|s| s.reason.into())))?;
    put("stack", Column::of(spans().map(|s| s.stack.into())))?;
    let goroutines = || model.goroutines.iter();
    let time = |ns: u64| if ns == UNKNOWN { 0 } else { ns.saturating_add(1) };
    put("id", Column::of(goroutines().map(|g| g.id)))?;
    put("runtime", Column::of(goroutines().map(|g| g.runtime.into())))?;
    put("place", Column::of(goroutines().map(|g| g.place.into())))?;
    put("parent", Column::of(goroutines().map(|g| optional(g.parent))))?;
    put("made-in", Column::of(goroutines().map(|g| g.made_in.into())))?;
    put("created", Column::of(goroutines().map(|g| time(g.created))))?;
    put("ended", Column::of(goroutines().map(|g| time(g.ended))))?;
    let names = region_names(model);
    let numbers: HashMap<&str, u64> = names.iter().enumerate().map(|(i, name)| (*name, i as u64)).collect();
    let regions = || model.regions.iter();
    put("region-name", Column::of(regions().map(|r| numbers[r.name.as_str()] << 1 | u64::from(r.is_task))))?;
    put("region-g", Column::of(regions().map(|r| optional(r.g))))?;
    put("region-start", Column::of(regions().map(|r| r.start)))?;
    put("region-length", Column::of(regions().map(|r| r.end - r.start)))
}

/// The names of regions and tasks, each once.
pub(super) fn region_names(model: &Model) -> Vec<&str> {
    let mut names: Vec<&str> = model.regions.iter().map(|r| r.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn element(out: &mut dyn Write, name: &str, column: &Column) -> io::Result<()> {
    write!(out, "<script type=\"application/octet-stream\" id=\"column-{name}\">")?;
    // A multiple of three, so that only the last piece is padded.
    for piece in column.0.chunks(3 << 16) {
        out.write_all(&base64(piece))?;
    }
    out.write_all(b"</script>\n")
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for piece in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|i| u32::from(piece.get(i).copied().unwrap_or(0)));
        let all = a << 16 | b << 8 | c;
        let digits = [18, 12, 6, 0].map(|shift| DIGITS[(all >> shift & 63) as usize]);
        let kept = piece.len() + 1;
        text.extend(digits.iter().take(kept));
        text.extend(std::iter::repeat_n(b'=', 4 - kept));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_bytes() {
        // The test vectors of RFC 4648.
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes.as_bytes()), text.as_bytes());
        }
    }

    #[test]
    fn small_numbers_are_short() {
        assert_eq!(Column::of([0, 127, 128, 300].into_iter()).0, [0, 127, 0x80, 1, 0xAC, 2]);
        assert_eq!(deltas([3, 3, 10].into_iter()).collect::<Vec<_>>(), [3, 0, 7]);
    }
}
