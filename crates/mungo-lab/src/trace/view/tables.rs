//! What the page says before it draws: verdicts, latency, tables. Plain HTML.

use crate::report::svg::escape;
use crate::stats::Times;
use crate::tour::grouped;
use crate::trace::analysis::{Analysis, Moment, PARTS, Part, Severity, Split, Verdict, moment, time};
use crate::trace::model::{CAUSES, Model, NONE};
use std::fmt::Write;

/// Rows of a table.
const ROWS: usize = 20;

/// A place in the source, which may be broken into lines between its folders, and nowhere else.
fn breakable(place: &str) -> String {
    escape(place).replace('/', "/<wbr>")
}

/// A link to a stretch of the trace, with some room around it.
fn link(moment: &Moment) -> String {
    let around = (moment.end.saturating_sub(moment.start) / 2).max(50_000);
    let (from, to) = (moment.start.saturating_sub(around), moment.end.saturating_add(around));
    let mut link = format!("#t={from},{to}&mark={},{}", moment.start, moment.end);
    if moment.g != NONE {
        _ = write!(link, "&g={}", moment.g);
    }
    link
}

/// The verdicts, the worst first.
pub(super) fn verdicts(a: &Analysis) -> String {
    let mut html = "<section aria-labelledby=\"verdicts\">\n<h2 id=\"verdicts\">Verdicts</h2>\n".to_owned();
    if a.verdicts.is_empty() {
        html += "<p class=\"fine\">Nothing stands out: no long waits, no long runs, no long queues.</p>\n";
    }
    html += "<ul class=\"verdicts\">\n";
    a.verdicts.iter().for_each(|v| verdict(&mut html, v));
    html += "</ul>\n</section>\n";
    html
}

fn verdict(html: &mut String, v: &Verdict) {
    let sign = match v.severity {
        Severity::Bad => "✗",
        Severity::Warning => "!",
        Severity::Note => "i",
    };
    let severity = v.severity.text();
    _ = writeln!(
        html,
        "<li class=\"{severity}\" data-key=\"{}\"><span class=\"sign\" aria-label=\"{severity}\">{sign}</span>\
         <div><b>{}</b>\n<p class=\"faint\">{}</p>",
        v.key,
        escape(&v.title),
        escape(v.advice).replace(" `", " <code>").replace('`', "</code>")
    );
    let item = |m: &Moment| {
        let at = moment(m.start);
        format!("<li><a class=\"moment\" href=\"{}\">at {at}</a> {}</li>\n", link(m), escape(&m.text))
    };
    let (first, rest) = v.moments.split_at(v.moments.len().min(1));
    if let [first] = first {
        _ = write!(html, "<ol>{}</ol>", item(first));
    }
    if !rest.is_empty() {
        let items: String = rest.iter().map(item).collect();
        _ = write!(html, "<details><summary>{} more</summary><ol>{items}</ol></details>", rest.len());
    }
    *html += "</div></li>\n";
}

fn cells(html: &mut String, cells: &[String]) {
    *html += "<tr>";
    for (i, cell) in cells.iter().enumerate() {
        let tag = if i == 0 { "th scope=\"row\"" } else { "td" };
        _ = write!(html, "<{tag}>{cell}</{}>", &tag[..2]);
    }
    *html += "</tr>\n";
}

fn table(html: &mut String, title: &str, note: &str, head: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    _ = writeln!(
        html,
        "<h2>{title}</h2>\n<p class=\"faint\">{note}</p>\n<div class=\"wide\" tabindex=\"0\"><table>"
    );
    *html += "<thead><tr>";
    head.iter().for_each(|h| _ = write!(html, "<th scope=\"col\">{h}</th>"));
    *html += "</tr></thead>\n";
    rows.iter().take(ROWS).for_each(|row| cells(html, row));
    *html += "</table></div>\n";
    if rows.len() > ROWS {
        _ = writeln!(
            html,
            "<p class=\"faint\">{} more: mungo trace stats --json has them.</p>",
            rows.len() - ROWS
        );
    }
}

fn quantiles(times: &Times) -> [String; 4] {
    [0.5, 0.9, 0.99, 1.0].map(|q| time((times.quantile_us(q) * 1e3) as u64))
}

/// A bar of the parts of a wait.
fn split_bar(split: &Split) -> String {
    let total = split.total().max(1) as f64;
    let (mut texts, mut parts) = (Vec::new(), String::new());
    for (Part { key, head, .. }, ns) in PARTS.iter().zip(split.parts()) {
        let share = 100.0 * ns as f64 / total;
        if ns > 0 {
            texts.push(format!("{share:.0} % {head}"));
        }
        _ = write!(parts, "<i class=\"{key}\" style=\"width:{share:.1}%\"></i>");
    }
    let text = escape(&texts.join(", "));
    format!("<span class=\"split\" role=\"img\" aria-label=\"{text}\" title=\"{text}\">{parts}</span>")
}

/// Scheduling latency by cause, and behind whom.
pub(super) fn latency(model: &Model, a: &Analysis) -> String {
    let mut html = "<div class=\"beside\"><div>".to_owned();
    let rows: Vec<Vec<String>> = a
        .latency
        .causes
        .iter()
        .chain([&a.latency.all])
        .map(|row| {
            let mut cells = vec![row.name.to_owned(), grouped(row.times.len())];
            cells.extend(quantiles(&row.times));
            cells.push(split_bar(&row.split));
            cells
        })
        .collect();
    let key =
        |part: &Part| format!(" <span class=\"key\"><i class=\"{}\"></i>{}</span>", part.key, escape(part.did));
    let keys: String = a.latency.all.split.present().into_iter().map(|part| key(&PARTS[part])).collect();
    let note = format!("From runnable to running. The bar says what the processor did meanwhile: it{keys}");
    let head = ["runnable because", "times", "p50", "p90", "p99", "max", "meanwhile"];
    table(&mut html, "Scheduling latency by cause", &note, &head, &rows);
    html += "</div><div>";
    let most = a.latency.behind.first().map_or(1, |b| b.ns).max(1);
    let rows: Vec<Vec<String>> = a
        .latency
        .behind
        .iter()
        .take(5)
        .map(|b| {
            let bar = format!(
                "<span class=\"bar\"><i style=\"width:{:.1}%\"></i></span>",
                100.0 * b.ns as f64 / most as f64
            );
            vec![breakable(&model.places[b.place as usize]), time(b.ns), bar]
        })
        .collect();
    let note = "Goroutines that ran while others waited for that processor.";
    table(&mut html, "Behind whom", note, &["made at", "waited behind it", ""], &rows);
    html += "</div></div>\n";
    html
}

/// Where goroutines waited, of a trace with stacks.
fn stacks(html: &mut String, model: &Model, a: &Analysis) {
    let rows: Vec<Vec<String>> = a
        .stacks
        .iter()
        .map(|row| {
            let [p50, _, p99, max] = quantiles(&row.times);
            let stack = escape(&model.stacks[row.stack as usize]).replace('\n', "<br>");
            let kind = escape(&model.kinds[row.kind as usize]);
            let first = escape(&model.functions(row.stack, 2));
            let what = format!("<details><summary>{kind} in {first}</summary>{stack}</details>");
            vec![what, grouped(row.times.len()), time(row.total_ns), p50, p99, max, grouped(row.open)]
        })
        .collect();
    let head = ["", "times", "in all", "p50", "p99", "max", "at the end"];
    let note = "By what was waited for and the stack; a click shows all of it, the innermost call first.";
    table(html, "Where goroutines waited", note, &head, &rows);
}

/// Tables below the time lines.
pub(super) fn rest(model: &Model, a: &Analysis) -> String {
    let mut html = String::new();
    for table in [places, preemptions, wakes, waits, stacks, graph, processors] {
        table(&mut html, model, a);
    }
    html
}

/// The name of a place in a table, if there is one.
fn place(model: &Model, place: u32) -> String {
    model.places.get(place as usize).map_or_else(|| "no goroutine".to_owned(), |name| breakable(name))
}

/// What the goroutines of each place did.
fn places(html: &mut String, model: &Model, a: &Analysis) {
    let rows: Vec<Vec<String>> = a
        .places
        .iter()
        .map(|row| {
            let [run_p50, _, run_p99, run_max] = quantiles(&row.run);
            let [wait_p50, _, wait_p99, wait_max] = quantiles(&row.wait);
            let mut cells =
                vec![place(model, row.place), grouped(row.goroutines), grouped(row.alive), time(row.run_ns)];
            cells.extend([run_p50, run_p99, run_max, wait_p50, wait_p99, wait_max, grouped(row.preempted)]);
            cells
        })
        .collect();
    let head =
        ["made at", "made", "alive", "ran", "run p50", "p99", "max", "wait p50", "p99", "max", "preempted"];
    table(html, "Goroutines by the place that makes them", "", &head, &rows);
}

/// Who made room for whom.
fn preemptions(html: &mut String, model: &Model, a: &Analysis) {
    let rows: Vec<Vec<String>> = a
        .preemptions
        .iter()
        .map(|row| vec![place(model, row.victim), place(model, row.by), grouped(row.count), time(row.ran_ns)])
        .collect();
    let head = ["stopped one of", "for one of", "times", "after"];
    table(html, "Who made room for whom", "", &head, &rows);
}

/// Who woke whom.
fn wakes(html: &mut String, model: &Model, a: &Analysis) {
    let rows: Vec<Vec<String>> = a
        .wakes
        .iter()
        .map(|row| {
            let [p50, _, p99, max] = quantiles(&row.wait);
            let cause = CAUSES[row.cause as usize].replace("woken by a goroutine", "woken");
            vec![
                place(model, row.waker),
                place(model, row.woken),
                cause,
                grouped(row.wait.len()),
                p50,
                p99,
                max,
            ]
        })
        .collect();
    let head = ["one of", "made runnable one of", "as", "times", "wait p50", "p99", "max"];
    table(html, "Wake-ups", "", &head, &rows);
}

/// What was waited for.
fn waits(html: &mut String, model: &Model, a: &Analysis) {
    let rows: Vec<Vec<String>> = a
        .waits
        .iter()
        .map(|row| {
            let [p50, _, p99, max] = quantiles(&row.times);
            let span = &model.spans[row.longest as usize];
            let to = link(&Moment {
                start: span.end,
                end: span.end + row.longest_ns,
                g: span.g,
                text: String::new(),
            });
            let longest = format!("<a class=\"moment\" href=\"{to}\">{}</a>", moment(span.end));
            let mut cells = vec![escape(&model.reasons[row.reason as usize]), grouped(row.times.len())];
            cells.extend([time(row.total_ns), p50, p99, max, longest, grouped(row.open)]);
            cells
        })
        .collect();
    let head = ["", "times", "in all", "p50", "p99", "max", "longest at", "at the end"];
    let note =
        "From the stop until it was runnable again. Channels and locks have the low digits of their addresses.";
    table(html, "What goroutines waited for", note, &head, &rows);
}

/// Who waits for whom at the end.
fn graph(html: &mut String, model: &Model, a: &Analysis) {
    let rows: Vec<Vec<String>> = a
        .graph
        .edges
        .iter()
        .map(|edge| {
            let span = &model.spans[edge.span as usize];
            let to = link(&Moment { start: span.end, end: model.end, g: edge.g, text: String::new() });
            let name = |g: u32| format!("{} ({})", escape(&model.name(g)), breakable(model.place(g)));
            let cycle = if edge.in_cycle { "a cycle" } else { "" };
            let since = format!("<a class=\"moment\" href=\"{to}\">{}</a>", moment(span.end));
            let what = escape(&model.reasons[span.reason as usize]);
            vec![name(edge.g), what, name(edge.holder), cycle.to_owned(), since]
        })
        .collect();
    let head = ["goroutine", "waits for", "of", "", "since"];
    let note = "Joins, and locks whose holder is a goroutine.";
    table(html, "Who waits for whom when the trace ends", note, &head, &rows);
}

/// What the processors did.
fn processors(html: &mut String, model: &Model, a: &Analysis) {
    let rows: Vec<Vec<String>> = a
        .procs
        .iter()
        .map(|row| {
            let share = |part: u64| format!("{:.1} %", 100.0 * part as f64 / model.end.max(1) as f64);
            let bar = format!(
                "<span class=\"bar\"><i style=\"width:{:.1}%\"></i></span>",
                100.0 * row.busy as f64 / model.end.max(1) as f64
            );
            vec![
                escape(&model.proc_name(row.proc)),
                bar,
                share(row.busy),
                share(row.idle),
                share(row.between),
                grouped(row.runs),
                grouped(row.stolen),
            ]
        })
        .collect();
    let head = ["", "", "busy", "asleep", "between", "runs", "stolen"];
    table(html, "Processors", "", &head, &rows);
}
