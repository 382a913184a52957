//! Plots as SVG. Colours are classes, so that the page's style sheet can turn them for a dark screen.

use super::table::{interval, number, quantity};
use crate::compare::Row;
use crate::stats::Times;
use std::fmt::Write;

/// As wide as a small screen, so that text there is not much smaller than elsewhere.
const WIDTH: f64 = 440.0;
/// Below a plot: its ticks and what they count.
const BELOW: f64 = 40.0;

/// Text that is safe inside of HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn open(height: f64, label: &str) -> String {
    let label = escape(label);
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">")
}

/// The class of the policy with this number: eight colours, and dashes after them.
pub(super) fn color(policy: usize) -> String {
    format!("c{}{}", policy % 8, if policy < 8 { "" } else { " again" })
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, what: &str) {
    let what = escape(what);
    _ = write!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>");
}

fn line(svg: &mut String, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
    _ = write!(svg, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

/// A round step near `span / 5`.
fn step(span: f64) -> f64 {
    let rough = (span / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(power)
}

/// Values up to `high`, `step` apart: with as many digits as tell one from the next.
fn tick(value: f64, step: f64, high: f64) -> String {
    let (scale, suffix) = match high {
        _ if value == 0.0 => (1.0, ""),
        high if high >= 1e9 => (1e9, "G"),
        high if high >= 1e6 => (1e6, "M"),
        high if high >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let digits = (-(step / scale).log10().floor()).max(0.0) as usize;
    format!("{:.digits$}{suffix}", value / scale)
}

/// A name that leaves room for a figure beside it.
fn shortened(name: &str) -> String {
    const MOST: usize = 34;
    match name.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// For each policy its repeats as dots, the mean and its confidence interval. Nothing if there is only zero to show.
pub(super) fn dots(axis: &str, row: &Row, policies: &[(&str, Vec<f64>)]) -> String {
    const ROW: f64 = 44.0;
    const SIDE: f64 = 24.0;
    let ends = row.summaries.iter().flatten().flat_map(|s| {
        let margin = s.margin.unwrap_or(0.0);
        [s.min, s.max, s.mean - margin, s.mean + margin]
    });
    let (low, high) = ends.fold((f64::MAX, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)));
    if high == 0.0 {
        return String::new();
    }
    // Room at both ends; nothing that we measure is below zero.
    let room = ((high - low) * 0.04).max(high * 0.01);
    let (low, high) = ((low - room).max(0.0), high + room);
    let bottom = ROW * policies.len() as f64;
    let x = |v: f64| SIDE + (v.max(low) - low) / (high - low) * (WIDTH - 2.0 * SIDE);
    let mut svg = open(bottom + BELOW, &row.label);
    let step = step(high - low);
    for i in (low / step).ceil() as i64..=(high / step).floor() as i64 {
        let value = i as f64 * step;
        line(&mut svg, "grid", [x(value), 0.0, x(value), bottom]);
        text(&mut svg, "", x(value), bottom + 16.0, "middle", &tick(value, step, high));
    }
    text(&mut svg, "", WIDTH / 2.0, bottom + 35.0, "middle", axis);
    for (i, ((name, values), summary)) in policies.iter().zip(&row.summaries).enumerate() {
        let (above, y) = (ROW * i as f64 + 14.0, ROW * i as f64 + 29.0);
        text(&mut svg, "name", 0.0, above, "start", &shortened(name));
        let Some(summary) = summary else { continue };
        let (class, star) = if row.best == Some(i) { ("best", "★ ") } else { ("name", "") };
        text(&mut svg, class, WIDTH, above, "end", &format!("{star}{}", interval(summary, row.unit)));
        let color = color(i);
        if let Some(margin) = summary.margin {
            let [from, to] = [summary.mean - margin, summary.mean + margin].map(x);
            line(&mut svg, &format!("ci {color}"), [from, y, to, y]);
        }
        for value in values {
            let (cx, shown) = (x(*value), number(*value));
            _ = write!(svg, "<circle class=\"dot {color}\" cx=\"{cx:.1}\" cy=\"{y:.1}\" r=\"4\">");
            _ = write!(svg, "<title>{}: {shown} {}</title></circle>", escape(name), row.unit);
        }
        line(&mut svg, &format!("mean {color}"), [x(summary.mean), y - 9.0, x(summary.mean), y + 9.0]);
    }
    svg + "</svg>"
}

/// How far right the percentile `q` stands: each nine as wide as the one before.
fn nines(q: f64) -> f64 {
    -(1.0 - q).log10()
}

/// The percentiles at which a curve of `len` values has points: as far as there are values beyond.
fn quantiles(len: u64) -> impl Iterator<Item = f64> {
    let last = (len as f64).log10().clamp(0.3, 5.0);
    let points = 100;
    (0..=points).map(move |i| 1.0 - 10f64.powf(-last * f64::from(i) / f64::from(points)))
}

/// Percentile curves, one a policy; both axes logarithmic.
pub(super) fn curves(label: &str, series: &[(&str, Times)]) -> String {
    const LEFT: f64 = 56.0;
    const RIGHT: f64 = WIDTH - 20.0;
    const TOP: f64 = 10.0;
    const BOTTOM: f64 = 220.0;
    let point = |times: &Times, q| (nines(q), times.quantile_us(q).max(0.01));
    let curve = |times: &Times| quantiles(times.len()).map(|q| point(times, q)).collect::<Vec<_>>();
    let some = series.iter().enumerate().filter(|(_, (_, times))| times.len() > 0);
    let all: Vec<_> = some.map(|(i, (name, times))| (i, *name, curve(times))).collect();
    let points = || all.iter().flat_map(|(_, _, points)| points);
    let right = points().map(|p| p.0).fold(0.0, f64::max);
    if right == 0.0 {
        return String::new();
    }
    // 10 ns, 20 ns, 50 ns and so on, further than any wait.
    let marks: Vec<f64> = (-2..11).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e))).collect();
    let (least, most) = points().fold((f64::MAX, 0.0), |(l, m): (f64, f64), p| (l.min(p.1), m.max(p.1)));
    let first = marks.iter().rposition(|mark| *mark <= least).unwrap_or(0);
    let last = marks.iter().position(|mark| *mark >= most).unwrap_or(marks.len() - 1).max(first + 1);
    let (low, high) = (marks[first].log10(), marks[last].log10());
    let x = |n: f64| LEFT + n / right * (RIGHT - LEFT);
    let y = |us: f64| BOTTOM - (us.log10() - low) / (high - low) * (BOTTOM - TOP);
    let mut svg = open(BOTTOM + BELOW, label);
    line(&mut svg, "grid", [LEFT, BOTTOM, RIGHT, BOTTOM]);
    let each = if last - first > 7 { 3 } else { 1 };
    for mark in (first..=last).filter(|mark| mark % each == 0).map(|mark| marks[mark]) {
        line(&mut svg, "grid", [LEFT, y(mark), RIGHT, y(mark)]);
        text(&mut svg, "", LEFT - 8.0, y(mark) + 4.0, "end", &quantity(mark, "us"));
    }
    for (q, name) in [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")] {
        if nines(q) <= right {
            line(&mut svg, "grid", [x(nines(q)), TOP, x(nines(q)), BOTTOM]);
            text(&mut svg, "", x(nines(q)), BOTTOM + 16.0, "middle", name);
        }
    }
    text(&mut svg, "", (LEFT + RIGHT) / 2.0, BOTTOM + 35.0, "middle", "percentile");
    for (i, name, points) in &all {
        let path: Vec<String> = points.iter().map(|(n, us)| format!("{:.1},{:.1}", x(*n), y(*us))).collect();
        _ = write!(svg, "<polyline class=\"curve {}\" points=\"{}\">", color(*i), path.join(" "));
        _ = write!(svg, "<title>{}</title></polyline>", escape(name));
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;

    fn dots(policies: &[(&str, Vec<f64>)]) -> String {
        let summaries = policies.iter().map(|(_, values)| Summary::of(values)).collect();
        let row = Row { key: String::new(), label: String::new(), unit: "", summaries, best: None };
        super::dots("axis", &row, policies)
    }

    #[test]
    fn plots_of_nothing_are_nothing() {
        assert_eq!(dots(&[("x", vec![])]), "");
        assert_eq!(dots(&[("x", vec![0.0, 0.0])]), "");
        assert_eq!(curves("a", &[("x", Times::default())]), "");
    }

    #[test]
    fn plots_have_finite_coordinates() {
        let one: Times = [1].into_iter().collect();
        let many: Times = (0..10_000).map(|i| i * 100).collect();
        for svg in [
            dots(&[("x<y", vec![0.0]), ("z", vec![5.0, 5.0])]),
            dots(&[("x", vec![]), ("y", vec![1e-9])]),
            curves("c", &[("x", one), ("y", many)]),
        ] {
            assert!(svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(!svg.contains("x<y"), "names are escaped");
        }
    }

    #[test]
    fn round_steps() {
        assert_eq!(step(10.0), 2.0);
        assert!((step(0.7) - 0.2).abs() < 1e-12);
        let cases =
            [(1380.0, 20.0, "1380"), (33_020.0, 20.0, "33.02k"), (0.98, 0.02, "0.98"), (2e6, 5e5, "2.0M")];
        assert!(cases.iter().all(|(value, step, text)| tick(*value, *step, *value) == *text));
    }

    #[test]
    fn long_names_leave_room() {
        assert_eq!(shortened("fair"), "fair");
        assert_eq!(shortened(&"µ".repeat(40)).chars().count(), 35);
    }
}
