//! `mungo trace view`: one page that needs nothing else. What is known at once, verdicts and tables, is plain HTML; the
//! time lines are drawn by scripts from columns of numbers that follow it.

mod columns;
mod tables;

use super::analysis::analyse;
use super::model::{CAUSES, Model, Why};
use super::write_file;
use crate::error::Result;
use crate::report::svg::escape;
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;

const STYLE: [&str; 2] = [include_str!("../../report/style.css"), include_str!("style.css")];
const BODY: &str = include_str!("body.html");
const SCRIPTS: [&str; 6] = [
    include_str!("data.js"),
    include_str!("path.js"),
    include_str!("draw.js"),
    include_str!("lanes.js"),
    include_str!("goroutines.js"),
    include_str!("main.js"),
];

/// Log lines that are shown.
const LOGS: usize = 10_000;

/// `mungo trace view`.
pub(crate) fn run(model: &Model, trace: &Path, output: &Path) -> Result<()> {
    let bytes = write_file(output, "page", |out| write(model, trace, out))?;
    eprintln!("mungo: wrote {} ({:.1} MB); open it in a browser", output.display(), bytes as f64 / 1e6);
    Ok(())
}

fn write(model: &Model, trace: &Path, out: &mut dyn Write) -> io::Result<()> {
    let analysis = analyse(model);
    let name = trace.file_name().map_or_else(String::new, |name| escape(&name.to_string_lossy()));
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{name}: a trace of mungo's scheduler</title>\n\
         <style>\n{}{}</style>\n<main>\n<h1>{name} <small>a trace of mungo's scheduler</small></h1>\n\
         <p class=\"faint\">{}</p>\n",
        STYLE[0],
        STYLE[1],
        escape(&super::stats::summary(model))
    )?;
    out.write_all(tables::verdicts(&analysis).as_bytes())?;
    out.write_all(tables::latency(model, &analysis).as_bytes())?;
    out.write_all(BODY.as_bytes())?;
    out.write_all(tables::rest(model, &analysis).as_bytes())?;
    out.write_all(b"</main>\n")?;
    // `<` could end the script element.
    let facts = facts(model).to_string().replace('<', "\\u003c");
    write!(out, "<script type=\"application/json\" id=\"facts\">\n{facts}</script>\n")?;
    columns::write(model, out)?;
    out.write_all(b"<script>\n\"use strict\";\n(() => {\n")?;
    for script in SCRIPTS {
        out.write_all(script.as_bytes())?;
    }
    out.write_all(b"})();\n</script>\n</html>\n")
}

/// What the scripts need beside the columns.
fn facts(model: &Model) -> serde_json::Value {
    let procs =
        model.procs.iter().enumerate().map(
            |(i, proc)| json!({ "name": model.proc_name(i as u32), "runtime": proc.runtime, "p": proc.p }),
        );
    let named = model.goroutines.iter().enumerate().filter(|(_, g)| !g.name.is_empty());
    let logs = model.logs.iter().take(LOGS).map(|log| json!([log.at, i64::from(log.g as i32), log.text]));
    json!({
        "end": model.end,
        "spans": model.spans.len(),
        "goroutines": model.goroutines.len(),
        "procs": procs.collect::<Vec<_>>(),
        "places": model.places,
        "reasons": model.reasons,
        "stacks": model.stacks,
        "causes": CAUSES,
        "whys": Why::ALL.map(Why::text),
        "names": named.map(|(i, g)| json!([i, g.name])).collect::<Vec<_>>(),
        "regionNames": columns::region_names(model),
        "regions": model.regions.len(),
        "logs": logs.collect::<Vec<_>>(),
    })
}
