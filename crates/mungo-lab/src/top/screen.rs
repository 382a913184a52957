//! The picture of `mungo top`: the program, its Ps, the times of waits, and a table of goroutines or threads.

use super::keys::{HELP, Sort, Table as Shown, View};
use super::sample::{Rates, Row as Item, Runtime, Sample, TIMES};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};
use std::cmp::Reverse;

/// Columns of a P in the long form before the place where its goroutine was spawned.
const BEFORE_PLACE: usize = 50;
/// Columns of a P in the short form.
const CELL: u16 = 16;

/// Draws a sample. Of several runtimes it draws the one with the most goroutines, and names the others.
pub(super) fn draw(frame: &mut Frame<'_>, sample: &Sample, view: &View) {
    let all: Vec<_> = sample.runtimes().collect();
    let Some((runtime, rates)) = all.iter().max_by_key(|(r, _)| r.number("goroutines")).copied() else {
        let text = format!("{} (pid {}) has no runtime now", sample.text("program"), sample.pid());
        return frame.render_widget(Paragraph::new(text), frame.area());
    };
    let area = frame.area();
    let ps: Vec<_> = runtime.rows("ps").collect();
    let most = (area.height.saturating_sub(8) / 2).max(1);
    let is_long = ps.len() <= usize::from(most);
    let in_a_row = (area.width / CELL).max(1);
    let wanted = if is_long { ps.len() as u16 } else { (ps.len() as u16).div_ceil(in_a_row).min(most) };
    let help = u16::from(!view.is_once);
    let [head, procs, times, table, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(wanted),
        Constraint::Length(2),
        Constraint::Min(2),
        Constraint::Length(help),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(heading(sample, runtime, rates, all.len(), view, area.width)), head);
    match is_long {
        true => frame.render_widget(Paragraph::new(long_ps(&ps, rates, area.width)), procs),
        false => frame.render_widget(Paragraph::new(short_ps(&ps, in_a_row, wanted)), procs),
    }
    frame.render_widget(Paragraph::new(latencies(runtime, rates)), times);
    draw_table(frame, table, runtime, view);
    if help == 1 {
        let line = if view.note.is_empty() { HELP.dark_gray() } else { Span::from(&view.note).bold() };
        frame.render_widget(Paragraph::new(Line::from(line)), foot);
    }
}

fn heading<'a>(
    sample: &'a Sample,
    runtime: Runtime<'_>,
    rates: Option<&Rates>,
    runtimes: usize,
    view: &View,
    width: u16,
) -> Vec<Line<'a>> {
    let n = |key| grouped(runtime.number(key));
    let others = if runtimes > 1 { format!(", {} more runtimes", runtimes - 1) } else { String::new() };
    let paused = if view.is_paused { " PAUSED" } else { "" };
    let busy = runtime.number("procs").saturating_sub(runtime.number("idle_procs"));
    let (pid, gs, ps, ms) = (sample.pid(), n("goroutines"), n("procs"), n("threads"));
    let (idle, queue, timers) = (n("idle_threads"), n("global_queue"), n("timers"));
    let room = usize::from(width).saturating_sub(sample.text("program").chars().count() + paused.len());
    let first = first_that_fits(
        room,
        [
            format!(
                " {pid}: {gs} goroutines, Ps {busy} of {ps}, threads {ms} ({idle} idle), queue {queue}, \
                 timers {timers}{others}"
            ),
            format!(
                " {pid}: {gs} G, {busy}/{ps} P, {ms} M ({idle} idle), queue {queue}, timers {timers}{others}"
            ),
            format!(" {pid}: {gs} G, {busy}/{ps} P, {ms} M, queue {queue}, timers {timers}"),
            format!(" {pid}: {gs} G, {busy}/{ps} P, {ms} M, queue {queue}"),
        ],
    );
    let rates = rates.map_or_else(
        || "rates after the next look".to_owned(),
        |rates| {
            let shown = |least: f64, gap: &str, text: fn(&str, f64) -> String| {
                let all = rates.total.iter().filter(|(_, rate)| *rate >= least);
                format!(
                    "/s: {}",
                    all.map(|(name, rate)| text(brief(name), *rate)).collect::<Vec<_>>().join(gap)
                )
            };
            let long = |name: &str, rate| format!("{name} {}", short(rate));
            let tight = |name: &str, rate| {
                let name = name.replace("switch", "sw").replace("preempt", "pre");
                format!("{name} {}", whole(rate))
            };
            // Where there is no room, those that do not happen are left out.
            first_that_fits(
                width.into(),
                [shown(0.0, "  ", long), shown(0.5, "  ", long), shown(0.5, " ", tight)],
            )
        },
    );
    vec![Line::from(vec![sample.text("program").bold(), first.into(), paused.reversed()]), Line::from(rates)]
}

/// Returns the first text that fits, else the last one.
fn first_that_fits<const N: usize>(room: usize, mut texts: [String; N]) -> String {
    let fits = texts.iter().position(|text| text.chars().count() <= room).unwrap_or(N - 1);
    std::mem::take(&mut texts[fits])
}

fn title(g: Item<'_>) -> String {
    match g.text("name") {
        "" => format!("G{}", g.number("id")),
        name => format!("G{} '{name}'", g.number("id")),
    }
}

/// The verb of a counter.
fn brief(counter: &str) -> &str {
    match counter {
        "spawned" => "spawn",
        "finished" => "end",
        "switches" => "switch",
        "preemptions" => "preempt",
        other => other.trim_end_matches('s'),
    }
}

/// The end of a place that is too long: the file's name and the line tell most.
fn fitted(place: &str, room: usize) -> String {
    match place.chars().count().checked_sub(room) {
        None | Some(0) => place.to_owned(),
        Some(more) => format!("…{}", place.chars().skip(more + 1).collect::<String>()),
    }
}

/// A line for each P.
fn long_ps<'a>(ps: &[Item<'_>], rates: Option<&Rates>, width: u16) -> Vec<Line<'a>> {
    let line = |(i, p): (usize, &Item<'_>)| {
        let rate =
            rates.and_then(|rates| rates.switches.get(i)).map_or(String::new(), |rate| short(*rate) + "/s");
        let (runs, place) =
            p.row("runs").map_or((idle(*p).to_owned(), ""), |g| (title(g), g.text("spawned_at")));
        Line::from(vec![
            format!("P{:<3}", p.number("id")).bold(),
            format!(" queue {:>3} {} {rate:>8}  {runs:<14} ", p.number("queue"), bar(p.number("queue"))).into(),
            fitted(place, usize::from(width).saturating_sub(BEFORE_PLACE)).dark_gray(),
        ])
    };
    ps.iter().enumerate().map(line).collect()
}

fn idle(p: Item<'_>) -> &'static str {
    match p.optional("m") {
        Some(_) => "looks",
        None if p.number("queue") > 0 => "no thread",
        None => "idle",
    }
}

/// As many Ps in a row as there is room for.
fn short_ps<'a>(ps: &[Item<'_>], in_a_row: u16, rows: u16) -> Vec<Line<'a>> {
    let room = usize::from(in_a_row * rows);
    let cell = |p: &Item<'_>| {
        let short = |what| if what == "no thread" { "none" } else { what };
        let runs = p.row("runs").map_or(short(idle(*p)).to_owned(), |g| format!("G{}", g.number("id")));
        format!("{:<width$}", format!("P{} {runs} +{}", p.number("id"), p.number("queue")), width = CELL.into())
    };
    let mut cells: Vec<String> = ps.iter().take(room).map(cell).collect();
    if ps.len() > room
        && let Some(last) = cells.last_mut()
    {
        *last = format!("and {} more", ps.len() - room + 1);
    }
    cells.chunks(in_a_row.into()).map(|cells| Line::from(cells.concat())).collect()
}

/// A line for each of the two times of waits: the shape since the look before, and quantiles since the start.
fn latencies<'a>(runtime: Runtime<'_>, rates: Option<&Rates>) -> Vec<Line<'a>> {
    let line = |(i, key): (usize, &&str)| {
        let name = if i == 0 { "queue wait" } else { "wake-up" };
        let q = |which| time(runtime.quantile(key, which));
        let shape = rates.map_or(String::new(), |rates| shape(&rates.waits[i]));
        let numbers = format!("p50 {} p99 {} max {}", q("p50_ns"), q("p99_ns"), q("max_ns"));
        Line::from(vec![format!("{name:<11}").bold(), format!("{numbers}  now {shape}").into()])
    };
    TIMES.iter().enumerate().map(line).collect()
}

/// Draws counts by powers of two from the first to the last that occurred: `256ns▂█▁4.10µs`.
fn shape(counts: &[(u64, u64)]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let seen: Vec<_> = counts.iter().filter(|(_, n)| *n > 0).collect();
    let (Some((first, _)), Some((last, _))) = (seen.first(), seen.last()) else { return "nothing".to_owned() };
    let most = seen.iter().map(|(_, n)| *n).max().unwrap_or(1);
    let mut bars = String::new();
    let mut ns = *first;
    while ns <= *last {
        let n = seen.iter().find(|(below, _)| *below == ns).map_or(0, |(_, n)| *n);
        bars.push(if n == 0 { ' ' } else { BLOCKS[(n * 7).div_ceil(most) as usize] });
        ns *= 2;
    }
    format!("<{}{bars}<{}", time(*first), time(*last))
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, runtime: Runtime<'_>, view: &View) {
    let bold = Style::new().bold().reversed();
    let (widths, head, rows): (Vec<Constraint>, Vec<&str>, Vec<Vec<String>>) = match view.table {
        Shown::Groups => (
            vec![Constraint::Length(10), Constraint::Length(14), Constraint::Length(9), Constraint::Min(20)],
            vec!["goroutines", "state", "longest", "spawned at"],
            groups(runtime, view.sort),
        ),
        Shown::Waiters => (
            vec![Constraint::Length(18), Constraint::Length(14), Constraint::Length(9), Constraint::Min(20)],
            vec!["waits longest", "state", "for", "spawned at"],
            runtime.rows("waiters").map(|g| waiter(g)).collect(),
        ),
        Shown::Threads => (
            vec![Constraint::Length(8), Constraint::Length(10), Constraint::Length(11), Constraint::Min(20)],
            vec!["thread", "tid", "state", "has"],
            runtime.rows("ms").map(|m| thread(m)).collect(),
        ),
    };
    let room = usize::from(area.height.saturating_sub(1));
    let scrolled = view.scrolled.min(rows.len().saturating_sub(room));
    let before: u16 =
        widths[..3].iter().map(|width| if let Constraint::Length(n) = width { n + 1 } else { 0 }).sum();
    let room = usize::from(area.width.saturating_sub(before));
    let rows = rows.into_iter().skip(scrolled).map(|mut row| {
        row[3] = fitted(&row[3], room);
        Row::new(row)
    });
    frame.render_widget(Table::new(rows, widths).header(Row::new(head).style(bold)), area);
}

fn groups(runtime: Runtime<'_>, sort: Sort) -> Vec<Vec<String>> {
    let mut groups: Vec<_> = runtime.rows("groups").collect();
    match sort {
        Sort::Count => groups.sort_by_key(|g| Reverse(g.number("count"))),
        Sort::Longest => groups.sort_by_key(|g| Reverse(g.number("longest_ns"))),
        Sort::State => groups.sort_by_key(|g| g.text("state")),
        Sort::Place => groups.sort_by_key(|g| g.text("spawned_at")),
    }
    let longest =
        |g: Item<'_>| if g.number("longest_ns") == 0 { String::new() } else { time(g.number("longest_ns")) };
    let row = |g: Item<'_>| {
        vec![
            grouped(g.number("count")),
            g.text("state").to_owned(),
            longest(g),
            g.text("spawned_at").to_owned(),
        ]
    };
    groups.into_iter().map(row).collect()
}

fn waiter(g: Item<'_>) -> Vec<String> {
    vec![title(g), g.text("state").to_owned(), time(g.number("waited_ns")), g.text("spawned_at").to_owned()]
}

fn thread(m: Item<'_>) -> Vec<String> {
    let p = m.optional("p").map(|p| format!("P{p}"));
    let g = m.optional("g").map(|g| format!("G{g}"));
    let has = [p, g].into_iter().flatten().collect::<Vec<_>>().join(" ");
    vec![format!("M{}", m.number("id")), m.number("tid").to_string(), m.text("state").to_owned(), has]
}

/// A bar for the length of a run queue, by its logarithm: a full one is 256.
fn bar(queue: u64) -> String {
    let blocks = (u64::BITS - queue.leading_zeros()).min(9) as usize;
    format!("{:<9}", "█".repeat(blocks))
}

/// A time with three digits and its unit.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        0.0..1e3 => format!("{ns:.0}ns"),
        1e3..1e6 => format!("{:.1}µs", ns / 1e3),
        1e6..1e9 => format!("{:.1}ms", ns / 1e6),
        _ => format!("{:.1}s", ns / 1e9),
    }
}

/// A rate with few digits.
fn short(rate: f64) -> String {
    match rate {
        0.0..1e3 => format!("{rate:.0}"),
        1e3..1e6 => format!("{:.1}k", rate / 1e3),
        _ => format!("{:.1}M", rate / 1e6),
    }
}

/// A rate with as few digits as possible.
fn whole(rate: f64) -> String {
    if (1e3..1e6).contains(&rate) { format!("{:.0}k", rate / 1e3) } else { short(rate) }
}

/// A number with commas.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::top::drawn;
    use serde_json::json;

    /// A busy program, as it is seen the second time.
    fn sample(procs: u64) -> Sample {
        let said = |look: u64| {
            let times = json!({ "p50_ns": 251_700_000, "p99_ns": 1_600_000_000, "max_ns": 2_100_000_000,
                "below_ns": [{ "ns": 8192, "count": look }, { "ns": 1 << 20, "count": 5 * look }] });
            let p = |id: u64| {
                let mut p = json!({ "id": id, "queue": id % 200, "switches": look * 54_321, "parks": look * 12_345,
                    "yields": look * 1234, "preemptions": look * 441, "retakes": look * 17, "steals": look * 99 });
                match id % 3 {
                    0 => {
                        p["m"] = json!(id);
                        p["runs"] = json!({ "id": 123_456 + id, "name": "",
                            "spawned_at": "crates/some-server/src/listener/connections/handler.rs:184:15" });
                    }
                    1 => p["m"] = json!(null),
                    _ => p["m"] = json!(id),
                }
                p
            };
            let group = |n: u64| {
                json!({ "count": 1_234_567 / n, "state": "chan receive", "longest_ns": n * 1_000_000,
                    "spawned_at": format!("crates/some-server/src/listener/connections/handler.rs:{n}:15") })
            };
            json!({ "protocol": 1, "pid": 1_234_567, "program": "some-server", "time_ns": look * 1_000_000_000,
                "runtimes": [{ "number": 1, "procs": procs, "idle_procs": 0, "goroutines": 1_234_567,
                    "spawned": look * 98_765, "finished": look * 98_765, "global_queue": 12_345, "timers": 12_345,
                    "threads": 223, "idle_threads": 14, "queue_wait": times, "wakeup_latency": times,
                    "ps": (0..procs).map(p).collect::<Vec<_>>(),
                    "groups": (1..100).map(group).collect::<Vec<_>>() }] })
            .to_string()
        };
        let before = Sample::parse(&said(1)).unwrap();
        let mut now = Sample::parse(&said(2)).unwrap();
        now.rates_since(&before);
        now
    }

    /// Two and 64 Ps, on a small and on a wide terminal: nothing that counts is cut off.
    #[test]
    fn pictures_fit_their_terminals() {
        for (procs, size) in [(2, (80, 24)), (64, (80, 24)), (2, (200, 50)), (64, (200, 50))] {
            let lines = drawn(&sample(procs), &View::default(), size).unwrap();
            let all = lines.join("\n");
            assert_eq!(lines.len(), usize::from(size.1), "{all}");
            assert!(
                lines[0].starts_with("some-server 1234567: 1,234,567 ") && lines[0].contains("timers"),
                "{all}"
            );
            assert!(lines[1].starts_with("/s: spawn 9") && lines[1].contains("steal "), "{all}");
            let ps = (0..procs).filter(|p| all.contains(&format!("P{p} "))).count();
            match (procs, size.0) {
                (64, 80) => assert!(ps >= 39 && all.contains("and 25 more"), "{ps}: {all}"),
                (procs, _) => assert_eq!(ps as u64, procs, "{all}"),
            }
            let long = if size.0 == 80 { "…" } else { "crates/some-server/src/" };
            assert!(procs != 2 || lines[2].contains(long) && lines[2].ends_with("handler.rs:184:15"), "{all}");
            assert!(all.contains("queue wait p50 251.7ms p99 1.6s max 2.1s  now <8.2µs▃"), "{all}");
            assert!(all.contains("goroutines state          longest   spawned at"), "{all}");
            assert!(all.contains("1,234,567  chan receive   1.0ms "), "{all}");
            assert_eq!(lines.last().unwrap(), HELP);
        }
    }

    /// On a terminal that is too small for anything there is no panic.
    #[test]
    fn small_terminals_do_no_harm() {
        for size in [(1, 1), (5, 3), (20, 5), (200, 4), (7, 60)] {
            for table in [Shown::Groups, Shown::Waiters, Shown::Threads] {
                drawn(&sample(64), &View { table, scrolled: 1000, ..View::default() }, size).unwrap();
            }
        }
    }

    #[test]
    fn the_last_picture_of_a_program_that_ended_says_so() {
        let note = "the program has ended; q quits".to_owned();
        let lines = drawn(&sample(2), &View { note, is_paused: true, ..View::default() }, (80, 24)).unwrap();
        assert_eq!(lines.last().unwrap(), "the program has ended; q quits");
        assert!(lines[0].contains("1,234,567 G") && lines[0].ends_with(" PAUSED"), "{lines:#?}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([grouped(7), grouped(1_234_567)], ["7", "1,234,567"]);
        assert_eq!(
            [time(12), time(1500), time(2_000_000), time(3_000_000_000)],
            ["12ns", "1.5µs", "2.0ms", "3.0s"]
        );
        assert_eq!([short(12.0), short(1500.0), short(2.5e6)], ["12", "1.5k", "2.5M"]);
        assert_eq!(shape(&[(256, 1), (1024, 8)]), "<256ns▂ █<1.0µs");
        assert_eq!(shape(&[]), "nothing");
        assert_eq!([fitted("src/main.rs:1", 20), fitted("src/main.rs:1", 8)], ["src/main.rs:1", "…in.rs:1"]);
        assert_eq!(["switches", "parks", "spawned"].map(brief), ["switch", "park", "spawn"]);
    }
}
