//! Tables in the terminal.

use crate::compare::{Comparison, Row};
use crate::out::{Ink, Out};
use crate::stats::Summary;
use comfy_table::presets::{ASCII_FULL_CONDENSED, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Three digits that matter.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e4 {
        format!("{value}")
    } else if size >= 1e9 {
        format!("{:.3}G", value / 1e9)
    } else if size >= 1e6 {
        format!("{:.2}M", value / 1e6)
    } else if size >= 1e4 {
        format!("{:.1}k", value / 1e3)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// The unit that suits a value, and the factor to it.
fn suited(value: f64, unit: &str) -> (f64, &str) {
    match (unit, value.abs()) {
        ("us", us) if us >= 1e6 => (1e-6, "s"),
        ("us", us) if us >= 1e3 => (1e-3, "ms"),
        ("us", us) if us >= 1.0 || us == 0.0 => (1.0, "µs"),
        ("us", _) => (1e3, "ns"),
        _ => (1.0, unit),
    }
}

/// A value with its unit; times in the unit that suits them.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    let (factor, unit) = suited(value, unit);
    format!("{} {unit}", number(value * factor)).trim_end().to_owned()
}

/// The mean of measurements and how sure it is, both in one unit.
pub(crate) fn interval(summary: &Summary, unit: &str) -> String {
    let Some(margin) = summary.margin else { return quantity(summary.mean, unit) };
    let (factor, unit) = suited(summary.mean, unit);
    let [mean, margin] = [summary.mean, margin].map(|v| number(v * factor));
    format!("{mean} ± {margin} {unit}").trim_end().to_owned()
}

/// The first `texts` columns are text, the others are numbers.
pub(crate) fn render(out: &Out, texts: usize, head: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(if out.glyph("u", "a") == "u" { UTF8_FULL_CONDENSED } else { ASCII_FULL_CONDENSED });
    if head.iter().any(|h| !h.is_empty()) {
        table.set_header(head);
    }
    table.add_rows(rows);
    if let Some(columns) = out.columns() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns as u16);
    }
    for column in table.column_iter_mut().skip(texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn cell(row: &Row, who: usize, out: &Out) -> String {
    let Some(summary) = &row.summaries[who] else { return "-".to_owned() };
    let text = interval(summary, row.unit);
    if row.best == Some(who) { format!("{} {text}", star(out)) } else { text }
}

fn star(out: &Out) -> &'static str {
    out.glyph("★", "*")
}

/// Paints what follows a star, up to the end of its cell. Only now: escape codes in a cell would count as its width.
fn paint_stars(table: &str, out: &Out) -> String {
    let mut parts = table.split(star(out));
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |done, part| {
        let (cell, rest) = part.split_at(part.find(['┆', '│', '|']).unwrap_or(part.len()));
        done + &out.paint(Ink::Good, format!("{}{cell}", star(out))) + rest
    })
}

/// Why a comparison is worth less than it should be.
pub(super) fn remarks(c: &Comparison) -> Vec<String> {
    let done = || c.contenders.iter().map(|c| format!("{} {}", c.repeats.len(), c.name)).collect::<Vec<_>>();
    let interrupted =
        c.interrupted.then(|| format!("interrupted; whole repeats until then: {}", done().join(", ")));
    interrupted.into_iter().chain(c.disturbance.clone()).collect()
}

/// How to read the figures of a comparison.
pub(super) fn note(c: &Comparison, star: &str) -> String {
    match (c.contenders.len(), c.rounds) {
        (_, 1) => "one round: no intervals, and none is marked as the best".to_owned(),
        (1, _) => "mean ± 95 % confidence interval".to_owned(),
        _ => format!("mean ± 95 % confidence interval; {star} = better than all others by more than the noise"),
    }
}

/// A comparison: a row a figure, a column a policy.
pub(crate) fn comparison(c: &Comparison, out: &Out) -> String {
    let title = format!(
        "{}: {} procs, {:?} x {} interleaved rounds, seeds {} to {}",
        c.workload,
        c.procs,
        c.duration,
        c.rounds,
        c.seed.wrapping_add(1),
        c.seed.wrapping_add(c.rounds as u64)
    );
    let mut lines = vec![out.paint(Ink::Heading, title), out.paint(Ink::Faint, out.fold("", c.about))];
    lines.extend(remarks(c).iter().map(|remark| out.fold("", remark)));
    let mut head = vec!["".to_owned()];
    head.extend(c.contenders.iter().map(|c| c.name.clone()));
    let body = c.rows().into_iter().map(|row| {
        let cells = (0..c.contenders.len()).map(|who| cell(&row, who, out));
        std::iter::once(row.label.clone()).chain(cells).collect()
    });
    lines.push(paint_stars(&render(out, 1, head, body.collect()), out));
    lines.push(out.paint(Ink::Faint, out.fold("", &note(c, star(out)))));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Out, Summary, interval, number, quantity};

    #[test]
    fn colours_do_not_move_columns() {
        let table = "│ a ┆ ★ 1 ± 2 │\n│ b ┆     3   │";
        let painted = super::paint_stars(table, &Out::colourful());
        assert_eq!(painted, "│ a ┆ \x1b[1;32m★ 1 ± 2 \x1b[0m│\n│ b ┆     3   │");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let cases = [(0.0, "0 µs"), (0.25, "250 ns"), (12.34, "12.3 µs"), (2500.0, "2.50 ms"), (3e6, "3 s")];
        assert!(cases.iter().all(|(us, text)| quantity(*us, "us") == *text));
        assert_eq!(quantity(56_789.0, "1/s"), "56.8k 1/s");
        assert_eq!(quantity(7.0, ""), "7");
        let summary = |margin| Summary { n: 2, mean: 2500.0, margin, min: 0.0, median: 0.0, max: 0.0 };
        assert_eq!(interval(&summary(Some(20.0)), "us"), "2.50 ± 0.020 ms");
        assert_eq!(interval(&summary(None), "1/s"), "2500 1/s");
    }

    #[test]
    fn numbers_are_short() {
        let cases = [(0.0, "0"), (0.98765, "0.988"), (12.345, "12.3"), (1234.5, "1234"), (56_789.0, "56.8k")];
        for (value, text) in cases.into_iter().chain([(2_500_000.0, "2.50M"), (-3.0, "-3"), (2.0, "2")]) {
            assert_eq!(number(value), text);
        }
    }
}
