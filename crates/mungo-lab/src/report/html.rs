//! A page that explains itself: setting, table, plots. One file, no network, light and dark.

use super::json;
use super::svg::{self, escape};
use super::table::interval;
use crate::compare::{Comparison, Row};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

pub(super) fn render(c: &Comparison) -> String {
    let rows = c.rows();
    let title = format!("mungo compare: {}", c.workload);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n<style>\n{STYLE}</style>\n\
         <main>\n<h1>{0}</h1>\n<p>{1}</p>\n",
        escape(&title),
        escape(c.about)
    );
    _ = writeln!(
        page,
        "<p class=\"faint\">{} procs · {:?} × {} interleaved rounds · seed {} · mungo {} · {}</p>",
        c.procs,
        c.duration,
        c.rounds,
        c.seed,
        env!("CARGO_PKG_VERSION"),
        escape(&c.machine)
    );
    if c.interrupted {
        page += "<p><strong>Interrupted:</strong> only whole repeats are in this report.</p>\n";
    }
    if let Some(disturbance) = &c.disturbance {
        _ = writeln!(page, "<p class=\"faint\">{}</p>", escape(disturbance));
    }
    legend(&mut page, c);
    plots(&mut page, c, &rows);
    table(&mut page, c, &rows);
    counts(&mut page, c);
    // `<` could end the script element.
    let data = json::render(c).replace('<', "\\u003c");
    _ = write!(page, "<script type=\"application/json\" id=\"data\">\n{data}</script>\n</main>\n</html>\n");
    page
}

fn legend(page: &mut String, c: &Comparison) {
    *page += "<p class=\"legend\">";
    for (i, contender) in c.contenders.iter().enumerate() {
        _ = write!(page, "<span><i class=\"b{}\"></i>{}</span> ", i % 8, escape(&contender.name));
    }
    *page += "</p>\n";
}

fn figure(page: &mut String, caption: &str, svg: &str) {
    if !svg.is_empty() {
        _ = writeln!(page, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(caption));
    }
}

fn plots(page: &mut String, c: &Comparison, rows: &[Row]) {
    *page += "<div class=\"plots\">\n";
    let dots = |row: &Row| {
        let values: Vec<(&str, Vec<f64>)> =
            c.contenders.iter().map(|who| (who.name.as_str(), who.values(&row.key))).collect();
        svg::dots(&row.label, row.unit, &values)
    };
    for row in rows.iter().filter(|row| row.key == "throughput") {
        figure(
            page,
            "Throughput. A dot is a repeat, the bar the 95 % confidence interval of the mean.",
            &dots(row),
        );
    }
    let classes = c.contenders.iter().flat_map(|who| &who.repeats).next().map(|r| &r.outcome.classes);
    for (index, class) in classes.into_iter().flatten().enumerate() {
        for (what, latency) in [("wait", false), ("latency", true)] {
            let series: Vec<_> =
                c.contenders.iter().map(|who| (who.name.as_str(), who.times(index, latency))).collect();
            let label = format!("{} {what}", class.name);
            let explained = match latency {
                false => "from the moment when it could have run until it ran",
                true => "until it was done",
            };
            let caption = format!("{label}: {explained}. All repeats together; further down is better.");
            figure(page, &caption, &svg::curves(&label, &series));
        }
    }
    for row in rows {
        let caption = match row.unit {
            "Jain" => "Fairness: 1 if all competitors got the same, 1/n if one of n got everything.",
            "%" => "Operations that were not done by their deadline.",
            _ => continue,
        };
        figure(page, &format!("{}. {caption}", row.label), &dots(row));
    }
    *page += "</div>\n";
}

fn table(page: &mut String, c: &Comparison, rows: &[Row]) {
    *page += "<h2>All figures</h2>\n<div class=\"wide\"><table>\n<tr><th></th>";
    for contender in &c.contenders {
        _ = write!(page, "<th>{}</th>", escape(&contender.name));
    }
    *page += "</tr>\n";
    for row in rows {
        _ = write!(page, "<tr><th>{}</th>", escape(&row.label));
        for (who, summary) in row.summaries.iter().enumerate() {
            let best = if row.best == Some(who) { " class=\"best\"" } else { "" };
            let text = summary.as_ref().map_or("–".to_owned(), |s| interval(s, row.unit));
            _ = write!(page, "<td{best}>{text}</td>");
        }
        *page += "</tr>\n";
    }
    *page += "</table></div>\n<p class=\"faint\">Mean ± 95 % confidence interval. A figure in green with a star is \
              better than all others by more than the noise: the intervals, and a paired t-test at 99 %.</p>\n";
}

fn counts(page: &mut String, c: &Comparison) {
    *page += "<h2>The load</h2>\n<div class=\"wide\"><table>\n<tr><th>round</th><th>policy</th><th>seed</th>\
              <th>generated</th><th>completed</th><th>cut off</th></tr>\n";
    let mut repeats: Vec<_> =
        c.contenders.iter().flat_map(|who| who.repeats.iter().map(move |r| (r, &who.name))).collect();
    repeats.sort_by_key(|(repeat, _)| repeat.round);
    for (repeat, name) in repeats {
        let (o, name) = (&repeat.outcome, escape(name));
        _ = writeln!(
            page,
            "<tr><td>{}</td><td>{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            repeat.round, repeat.seed, o.generated, o.completed, o.cut_off
        );
    }
    *page += "</table></div>\n";
}
