//! Plots as SVG. Colours are classes, so that the page's style sheet can turn them for a dark screen.

use super::table::number;
use crate::stats::{Summary, Times};
use std::fmt::Write;

const WIDTH: f64 = 640.0;
/// Around a plot: left, right, top, bottom.
const MARGIN: [f64; 4] = [64.0, 16.0, 12.0, 40.0];

/// Text that is safe inside of HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn open(height: f64, label: &str) -> String {
    let label = escape(label);
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">")
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    let what = escape(what);
    _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>");
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

/// One row a policy: its repeats as dots, the mean and its confidence interval.
pub(super) fn dots(label: &str, unit: &str, rows: &[(&str, Vec<f64>)]) -> String {
    const ROW: f64 = 34.0;
    const NAMES: f64 = 130.0;
    let summaries: Vec<Option<Summary>> = rows.iter().map(|(_, values)| Summary::of(values)).collect();
    let ends = summaries.iter().flatten().flat_map(|s| {
        let margin = s.margin.unwrap_or(0.0);
        [s.min, s.max, s.mean - margin, s.mean + margin]
    });
    let (low, high) = ends.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return String::new();
    }
    // Room at both ends; nothing that we measure is below zero.
    let room = ((high - low) * 0.08).max(high.abs() * 0.01).max(1e-9);
    let (low, high) = ((low - room).max(0.0), high + room);
    let height = MARGIN[2] + ROW * rows.len() as f64 + MARGIN[3];
    let bottom = height - MARGIN[3];
    let x = |v: f64| NAMES + (v - low) / (high - low) * (WIDTH - NAMES - MARGIN[1] - 16.0);
    let mut svg = open(height, label);
    let step = step(high - low);
    let mut tick = (low / step).ceil() * step;
    while tick <= high {
        line(&mut svg, "grid", [x(tick), MARGIN[2], x(tick), bottom]);
        text(&mut svg, x(tick), bottom + 16.0, "middle", &number(tick));
        tick += step;
    }
    text(&mut svg, WIDTH - MARGIN[1], bottom + 34.0, "end", &format!("{label} {unit}"));
    for (i, ((name, values), summary)) in rows.iter().zip(&summaries).enumerate() {
        let y = MARGIN[2] + ROW * (i as f64 + 0.5);
        text(&mut svg, NAMES - 12.0, y + 4.0, "end", name);
        let Some(summary) = summary else { continue };
        let color = i % 8;
        if let Some(margin) = summary.margin {
            line(
                &mut svg,
                &format!("ci s{color}"),
                [x((summary.mean - margin).max(low)), y, x(summary.mean + margin), y],
            );
        }
        for value in values {
            let (cx, shown) = (x(*value), number(*value));
            _ = write!(svg, "<circle class=\"f{color} dot\" cx=\"{cx:.1}\" cy=\"{y:.1}\" r=\"4\">");
            _ = write!(svg, "<title>{}: {shown} {unit}</title></circle>", escape(name));
        }
        line(&mut svg, &format!("mean s{color}"), [x(summary.mean), y - 9.0, x(summary.mean), y + 9.0]);
    }
    svg + "</svg>"
}

/// A time in the unit that suits it.
fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us if us >= 1.0 => format!("{us} µs"),
        us => format!("{} ns", us * 1e3),
    }
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
    const HEIGHT: f64 = 300.0;
    let point = |times: &Times, q| (nines(q), times.quantile_us(q).max(0.01));
    let curve = |times: &Times| quantiles(times.len()).map(|q| point(times, q)).collect::<Vec<_>>();
    let some = series.iter().enumerate().filter(|(_, (_, times))| times.len() > 0);
    let all: Vec<_> = some.map(|(i, (name, times))| (i, *name, curve(times))).collect();
    let points = || all.iter().flat_map(|(_, _, points)| points);
    let right = points().map(|p| p.0).fold(0.0, f64::max);
    if right == 0.0 {
        return String::new();
    }
    let low = points().map(|p| p.1).fold(f64::MAX, f64::min).log10().floor();
    let high = points().map(|p| p.1).fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    let bottom = HEIGHT - MARGIN[3];
    let x = |n: f64| MARGIN[0] + n / right * (WIDTH - MARGIN[0] - MARGIN[1]);
    let y = |us: f64| bottom - (us.log10() - low) / (high - low) * (bottom - MARGIN[2]);
    let mut svg = open(HEIGHT, label);
    for decade in low as i32..=high as i32 {
        let us = 10f64.powi(decade);
        line(&mut svg, "grid", [MARGIN[0], y(us), WIDTH - MARGIN[1], y(us)]);
        text(&mut svg, MARGIN[0] - 8.0, y(us) + 4.0, "end", &time(us));
    }
    for (q, name) in [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")] {
        if nines(q) <= right {
            line(&mut svg, "grid", [x(nines(q)), MARGIN[2], x(nines(q)), bottom]);
            text(&mut svg, x(nines(q)), bottom + 16.0, "middle", name);
        }
    }
    text(&mut svg, WIDTH - MARGIN[1], bottom + 34.0, "end", &format!("{label}, by percentile"));
    for (i, name, points) in &all {
        let path: Vec<String> = points.iter().map(|(n, us)| format!("{:.1},{:.1}", x(*n), y(*us))).collect();
        _ = write!(svg, "<polyline class=\"curve s{}\" points=\"{}\">", i % 8, path.join(" "));
        _ = write!(svg, "<title>{}</title></polyline>", escape(name));
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_of_nothing_are_nothing() {
        assert_eq!(dots("a", "b", &[("x", vec![])]), "");
        assert_eq!(curves("a", &[("x", Times::default())]), "");
    }

    #[test]
    fn plots_have_finite_coordinates() {
        let one: Times = [1].into_iter().collect();
        let many: Times = (0..10_000).map(|i| i * 100).collect();
        for svg in [
            dots("a", "b", &[("x<y", vec![0.0]), ("z", vec![5.0, 5.0])]),
            dots("a", "b", &[("x", vec![0.0, 0.0])]),
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
        assert_eq!(time(1500.0), "1.5 ms");
    }
}
