//! A page that explains itself: setting, plots, tables. One file, no network, light and dark.

use super::json;
use super::svg::{self, escape};
use super::table::{self, interval};
use crate::compare::{Comparison, Row};
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = include_str!("style.css");

/// Returns the page, which lies in `folder`.
pub(super) fn render(c: &Comparison, folder: &Path) -> String {
    let rows = c.rows();
    let names: Vec<&str> = c.contenders.iter().map(|who| who.name.as_str()).collect();
    // Lines break between options.
    let command = escape(&c.command).replace(" -", "</span> <span>-");
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{0} under {1}</title>\n<style>\n{STYLE}</style>\n\
         <main>\n<h1>{0} <small>under {1}</small></h1>\n<p>{2}</p>\n\
         <p class=\"faint\">{3} procs · {4:?} × {5} interleaved rounds · seed {6} · mungo {7} · {8}</p>\n\
         <p><code><span>{9}</span></code></p>\n",
        c.workload,
        escape(&names.join(", ")),
        escape(c.about),
        c.procs,
        c.duration,
        c.rounds,
        c.seed,
        env!("CARGO_PKG_VERSION"),
        escape(&c.machine),
        command
    );
    for remark in table::remarks(c) {
        _ = writeln!(page, "<p class=\"remark\">{}</p>", escape(&remark));
    }
    dots(&mut page, c, &rows);
    curves(&mut page, c);
    figures(&mut page, c, &rows);
    repeats(&mut page, c);
    traces(&mut page, c, folder);
    // `<` could end the script element.
    let data = json::render(c).replace('<', "\\u003c");
    _ = write!(page, "<script type=\"application/json\" id=\"data\">\n{data}</script>\n</main>\n</html>\n");
    page
}

fn figure(page: &mut String, title: &str, caption: &str, svg: &str) {
    if !svg.is_empty() {
        let title = escape(title);
        _ = writeln!(page, "<figure><figcaption><b>{title}</b> {caption}</figcaption>{svg}</figure>");
    }
}

/// What was achieved, each repeat of it.
fn dots(page: &mut String, c: &Comparison, rows: &[Row]) {
    *page += "<div class=\"plots\">\n";
    for row in rows {
        let axis = match (row.key.as_str(), row.unit) {
            ("throughput", _) => "operations a second: more is better",
            (_, "Jain") => "Jain's index: 1 if all competitors got the same",
            (_, "%") => "% not done by their deadline: fewer are better",
            _ => continue,
        };
        let values: Vec<_> = c.contenders.iter().map(|who| (who.name.as_str(), who.values(&row.key))).collect();
        figure(page, &row.label, "", &svg::dots(axis, row, &values));
    }
    *page += "</div>\n";
    if c.rounds > 1 {
        *page += "<p class=\"faint\">A dot is a repeat, the line their mean, the bar its 95 % confidence \
                  interval.</p>\n";
    }
}

/// How long things took.
fn curves(page: &mut String, c: &Comparison) {
    let mut legend = "<p class=\"legend\">".to_owned();
    for (i, contender) in c.contenders.iter().enumerate() {
        _ = write!(legend, "<span><i class=\"{}\"></i>{}</span> ", svg::color(i), escape(&contender.name));
    }
    *page += "<div class=\"plots\">\n";
    let classes = c.contenders.iter().flat_map(|who| &who.repeats).next().map(|r| &r.outcome.classes);
    for (index, class) in classes.into_iter().flatten().enumerate() {
        for (what, latency) in [("wait", false), ("latency", true)] {
            let series: Vec<_> =
                c.contenders.iter().map(|who| (who.name.as_str(), who.times(index, latency))).collect();
            let title = format!("{} {what}", class.name);
            let explained = match latency {
                false => "from when it could have run until it ran",
                true => "until it was done",
            };
            figure(page, &title, &format!("{explained}{legend}"), &svg::curves(&title, &series));
        }
    }
    *page += "</div>\n<p class=\"faint\">All repeats together; lower is better.</p>\n";
}

fn figures(page: &mut String, c: &Comparison, rows: &[Row]) {
    let names: Vec<String> = c.contenders.iter().map(|who| escape(&who.name)).collect();
    *page += "<h2>All figures</h2>\n<div class=\"wide\"><table class=\"figures\">\n<thead><tr><th></th>";
    for name in &names {
        _ = write!(page, "<th>{name}</th>");
    }
    *page += "</tr></thead>\n";
    for row in rows {
        _ = write!(page, "<tr><th>{}</th>", escape(&row.label));
        for (who, (summary, name)) in row.summaries.iter().zip(&names).enumerate() {
            let text = summary.as_ref().map_or("–".to_owned(), |s| interval(s, row.unit));
            let (class, star) = if row.best == Some(who) { (" class=\"best\"", "★ ") } else { ("", "") };
            _ = write!(page, "<td{class} data-policy=\"{name}\">{star}{text}</td>");
        }
        *page += "</tr>\n";
    }
    let how = match rows.iter().any(|row| row.best.is_some()) {
        true => " (intervals, and a paired t-test at 99 %)",
        false => "",
    };
    _ = writeln!(page, "</table></div>\n<p class=\"faint\">{}{how}</p>", table::note(c, "★"));
}

/// Links to what went worst.
fn traces(page: &mut String, c: &Comparison, folder: &Path) {
    let links = c.contenders.iter().filter_map(|who| Some((&who.name, who.trace.as_ref()?.link_from(folder))));
    let items: Vec<String> = links
        .map(|(name, link)| format!("<li><a href=\"{}\">{}</a></li>", escape(&link), escape(name)))
        .collect();
    if !items.is_empty() {
        *page += "<h2>Traces of the worst second</h2>\n<p class=\"faint\">The round of each policy with the longest \
                  waits, run once more with the tracer on.</p>\n<ul>";
        *page += &items.concat();
        *page += "</ul>\n";
    }
}

fn repeats(page: &mut String, c: &Comparison) {
    *page += "<details><summary>The load of each repeat</summary>\n<div class=\"wide\"><table>\n<thead><tr>\
              <th>policy</th><th>round</th><th>seed</th><th>generated</th><th>completed</th><th>cut off</th></tr>\
              </thead>\n";
    let mut repeats: Vec<_> =
        c.contenders.iter().flat_map(|who| who.repeats.iter().map(move |r| (r, &who.name))).collect();
    repeats.sort_by_key(|(repeat, _)| repeat.round);
    for (repeat, name) in repeats {
        let (o, name) = (&repeat.outcome, escape(name));
        _ = writeln!(
            page,
            "<tr><th>{name}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            repeat.round, repeat.seed, o.generated, o.completed, o.cut_off
        );
    }
    *page += "</table></div></details>\n";
}
