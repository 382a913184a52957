//! Tables in the terminal.

use crate::compare::{Comparison, Row};
use crate::out::{Ink, Out};
use comfy_table::presets::{ASCII_MARKDOWN, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, Table};

/// Three digits that matter.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
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
    } else {
        format!("{value:.3}")
    }
}

/// The first column is text, the others are numbers.
pub(crate) fn render(out: &Out, head: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(if out.glyph("u", "a") == "u" { UTF8_HORIZONTAL_ONLY } else { ASCII_MARKDOWN });
    if head.iter().any(|h| !h.is_empty()) {
        table.set_header(head.iter().map(|h| out.paint(Ink::Heading, h)));
    }
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn cell(row: &Row, who: usize, out: &Out) -> String {
    let Some(summary) = &row.summaries[who] else { return "-".to_owned() };
    let text = match summary.margin {
        Some(margin) => format!("{} ± {}", number(summary.mean), number(margin)),
        None => number(summary.mean),
    };
    match row.best == Some(who) {
        true => out.paint(Ink::Good, format!("{} {text}", out.glyph("★", "*"))),
        false => text,
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
    let mut lines = vec![out.paint(Ink::Heading, title), out.paint(Ink::Faint, c.about)];
    if c.interrupted {
        let done: Vec<String> = c.contenders.iter().map(|c| format!("{} {}", c.repeats.len(), c.name)).collect();
        lines.push(format!("interrupted; whole repeats until then: {}", done.join(", ")));
    }
    let mut head = vec!["".to_owned()];
    head.extend(c.contenders.iter().map(|c| c.name.clone()));
    let body = c.rows().into_iter().map(|row| {
        let label = format!("{} {}", row.label, row.unit);
        let cells = (0..c.contenders.len()).map(|who| cell(&row, who, out));
        std::iter::once(label.trim_end().to_owned()).chain(cells).collect()
    });
    lines.push(render(out, head, body.collect()));
    let star = out.glyph("★", "*");
    lines.push(out.paint(Ink::Faint, match (c.contenders.len(), c.rounds) {
        (_, 1) => "one round: no intervals, and nobody is marked as the best".to_owned(),
        (1, _) => "mean ± 95 % confidence interval".to_owned(),
        _ => format!("mean ± 95 % confidence interval; {star} = better than each of the others by more than the noise"),
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_short() {
        let cases = [(0.0, "0"), (0.98765, "0.988"), (12.345, "12.3"), (1234.5, "1234"), (56_789.0, "56.8k")];
        for (value, text) in cases.into_iter().chain([(2_500_000.0, "2.50M"), (-3.0, "-3.000")]) {
            assert_eq!(number(value), text);
        }
    }
}
