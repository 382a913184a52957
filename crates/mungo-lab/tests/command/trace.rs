//! `mungo trace`: what it says of traces, and of files that are none.

use super::page::{browser, console, headless};
use super::synthetic::Synthetic;
use super::{fails, mungo, scratch, succeeds, text};
use serde_json::Value;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A trace of about that many events, in a file of this test run.
pub(super) fn synthetic(name: &str, seed: u64, events: u64) -> PathBuf {
    let path = scratch(name);
    let file = BufWriter::with_capacity(1 << 20, File::create(&path).expect("a file"));
    Synthetic::write(file, seed, 2, events).expect("a trace");
    path
}

fn trace(verb: &str, path: &Path) -> std::process::Command {
    let mut command = mungo(&["trace", verb]);
    command.arg(path);
    command
}

fn stats(path: &Path) -> Value {
    serde_json::from_str(&succeeds(trace("stats", path).arg("--json"))).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn the_graph_of_waits_is_written_for_graphviz() {
    let (path, dot) = (synthetic("waits.trace", 3, 10_000), scratch("waits.dot"));
    let tables = succeeds(trace("stats", &path).arg("--dot").arg(&dot));
    assert!(tables.contains("Processors"), "{tables}");
    let drawn = fs::read_to_string(&dot).expect("a file");
    assert!(drawn.starts_with("digraph waits {") && drawn.ends_with("}\n"), "{drawn}");
    let complaint = fails(trace("stats", &path).arg("--dot").arg(&path), 2);
    assert!(complaint.contains("would be overwritten"), "{complaint}");
}

#[test]
fn figures_add_up() {
    let path = synthetic("figures.trace", 3, 100_000);
    let report = stats(&path);
    let length = number(&report["length_ns"]);
    let runs = number(&report["runs"]);
    let procs = report["processors"].as_array().expect("processors");
    assert_eq!(procs.len(), 2);
    for proc in procs {
        let sum: u64 = ["busy_ns", "asleep_ns", "between_ns"].iter().map(|key| number(&proc[key])).sum();
        assert_eq!(sum, length, "{proc}");
    }
    assert_eq!(procs.iter().map(|p| number(&p["runs"])).sum::<u64>(), runs);
    let busy: u64 = procs.iter().map(|p| number(&p["busy_ns"])).sum();
    let places = report["places"].as_array().expect("places");
    assert_eq!(places.iter().map(|p| number(&p["run_ns"])).sum::<u64>(), busy);
    assert_eq!(places.iter().map(|p| number(&p["goroutines"])).sum::<u64>(), number(&report["goroutines"]));
    let causes = report["latency"].as_array().expect("causes");
    let (all, each) = causes.split_last().expect("a row for all");
    assert_eq!(all["cause"], "all");
    let count = |row: &Value| number(&row["wait"]["count"]);
    assert_eq!(each.iter().map(count).sum::<u64>(), count(all));
    assert!(count(all) >= runs);
    for row in causes {
        let [p50, p90, p99, max] =
            ["p50_us", "p90_us", "p99_us", "max_us"].map(|key| row["wait"][key].as_f64());
        assert!(p50 <= p90 && p90 <= p99 && p99 <= max, "{row}");
    }
    assert_eq!(report["regions"][0]["name"], "request");
    assert_eq!(report["torn"], false);
}

/// What the generator puts in is what comes out.
#[test]
fn verdicts_name_what_is_wrong() {
    let report = stats(&synthetic("verdicts.trace", 7, 200_000));
    let verdicts = report["verdicts"].as_array().expect("verdicts");
    for (key, place) in [
        ("long-wait", ""),
        ("long-run", "src/server.rs:101"),
        ("blocked", "src/server.rs:12"),
        ("leak", "src/server.rs:77"),
        ("late-timer", ""),
    ] {
        let verdict =
            verdicts.iter().find(|v| v["key"] == key).unwrap_or_else(|| panic!("no {key}: {verdicts:?}"));
        assert!(number(&verdict["count"]) > 0 && verdict.to_string().contains(place), "{verdict}");
        for moment in verdict["moments"].as_array().expect("moments") {
            let [start, end] = ["start_ns", "end_ns"].map(|key| number(&moment[key]));
            assert!(start <= end && end <= number(&report["length_ns"]), "{verdict}");
        }
    }
    let severities: Vec<&str> = verdicts.iter().filter_map(|v| v["severity"].as_str()).collect();
    assert!(severities.is_sorted(), "the worst first: {severities:?}"); // bad, note, warning: no notes here
}

#[test]
fn tables_and_pictures_are_for_people() {
    let path = synthetic("people.trace", 5, 60_000);
    let text = succeeds(&mut trace("stats", &path));
    for part in
        ["Scheduling latency", "Behind whom", "Who made room", "Processors", "Wake-ups", "Regions", "P1"]
    {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
    let text = succeeds(&mut trace("replay", &path));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('P')).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows.iter().all(|row| row.chars().count() == 11 + 72), "{text}");
    assert!(text.contains("src/server.rs:101"), "the one that ran most has a letter\n{text}");
    let plain = succeeds(trace("replay", &path).env("LC_ALL", "C"));
    assert!(plain.is_ascii(), "{plain}");
    assert!(fails(trace("replay", &path).args(["--from", "59m"]), 2).contains("the trace ends at"));
}

#[test]
fn the_page_has_all_and_needs_nothing() {
    let path = synthetic("page.trace", 11, 60_000);
    let page = scratch("page.html");
    succeeds(trace("view", &path).arg("-o").arg(&page));
    let text = fs::read_to_string(&page).expect("a page");
    for outside in ["http://", "https://", "src=\"", "@import", "url(", "<link", "fetch(", "import("] {
        assert!(!text.contains(outside), "the page asks for {outside}");
    }
    let (first, data) =
        (text.find("class=\"verdicts\"").expect("verdicts"), text.find("id=\"column-").expect("data"));
    assert!(first < data, "verdicts come first");
    assert!(text.contains("data-key=\"long-wait\"") && text.contains("href=\"#t="));
    let facts = text.split("id=\"facts\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let facts: Value = serde_json::from_str(facts.expect("facts")).expect("JSON");
    let report = stats(&path);
    assert!(number(&facts["spans"]) >= number(&report["runs"]));
    assert_eq!(facts["goroutines"], report["goroutines"]);
    // Without -o it lies beside the trace, and a trace is never overwritten.
    succeeds(&mut trace("view", &path));
    assert!(path.with_added_extension("html").is_file());
    assert!(fails(trace("view", &path).arg("-o").arg(&path), 2).contains("would be overwritten"));
}

#[test]
fn the_same_trace_gives_the_same_page() {
    let path = synthetic("same.trace", 2, 20_000);
    let pages = ["same-1.html", "same-2.html"].map(|name| {
        let page = scratch(name);
        succeeds(trace("view", &path).arg("-o").arg(&page));
        fs::read(page).expect("a page")
    });
    assert!(pages[0] == pages[1]);
}

/// Looks at the page as a user does: links, keys, search. Each step waits until the one before shows.
const USE: &str = r#"<script>
const wrong = [], $ = id => document.getElementById(id), says = (id, text) => $(id).textContent.includes(text);
const key = key => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const colours = id => {
  const canvas = $(id), pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
};
let near;
const steps = [
  ["it is not ready", () => document.documentElement.dataset.ready, () => {}],
  ["no lanes", () => colours("lanes") > 8, () => {}],
  ["no goroutines", () => colours("goroutines") > 4, () => document.querySelector("a.moment").click()],
  ["a moment selects nothing", () => says("status", "selected: goroutine"), () => {}],
  ["no details", () => !$("details").hidden && says("details", "made at"), () => {
    near = $("status").textContent;
    key("w");
  }],
  ["w does not zoom", () => $("status").textContent !== near, () => {
    key("Escape");
    $("search").value = "request";
    $("search").dispatchEvent(new Event("input"));
  }],
  ["nothing found", () => says("found", "the slowest region request"), () => {
    $("found").querySelector("button").click();
  }],
  ["no critical path", () => says("details", "Critical path of request"), () => key("?")],
  ["no help", () => $("help").open, () => $("help").close()],
  ["the page is wider than the window", () => document.documentElement.scrollWidth <= innerWidth, () => {}],
];
let step = 0, tries = 0;
const timer = setInterval(() => {
  const [what, isDone, then] = steps[step];
  if (isDone()) then(); else if (++tries < 200) return; else wrong.push(what);
  tries = 0;
  if (++step < steps.length) return;
  clearInterval(timer);
  console.log("used: " + (wrong.join("; ") || "all is well"));
}, 20);
</script>"#;

#[test]
fn a_browser_shows_the_page() {
    let Some(browser) = browser() else {
        return eprintln!("skipped: no Chromium on PATH to look at the page with");
    };
    let (path, page) = (synthetic("used.trace", 7, 60_000), scratch("used.html"));
    succeeds(trace("view", &path).arg("-o").arg(&page));
    let text = fs::read_to_string(&page).expect("a page");
    // A browser that prints a page draws no frames.
    const FRAMES: &str =
        "<script>window.requestAnimationFrame = f => setTimeout(() => f(performance.now()), 1);</script>";
    fs::write(&page, format!("{}{USE}", text.replacen("<main>", &format!("{FRAMES}<main>"), 1)))
        .expect("a page");
    let Some(printed) = headless(&browser, &["--dump-dom", "--virtual-time-budget=120000"], &page) else {
        return eprintln!("skipped: {} does not work here", browser.display());
    };
    let said = console(&printed.remarks);
    if said.is_empty() && !printed.page.contains("data-ready") {
        return eprintln!("skipped: {} gave up before the page was read", browser.display());
    }
    assert!(matches!(said[..], [one] if one.contains("used: all is well")), "{said:#?}");
    assert!(printed.page.contains("data-ready"), "the page is not done");
}

/// Fields of a message: numbers, and the bytes of the nested ones.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut n = 0;
        for shift in (0..70).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            n |= u64::from(first & 127) << shift;
            if *first < 128 {
                return n;
            }
        }
        panic!("a number without an end")
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, nested) = match key & 7 {
            0 => (varint(&mut bytes), &[][..]),
            1 => (u64::from_le_bytes(bytes.split_off(..8).expect("eight").try_into().expect("eight")), &[][..]),
            2 => {
                let length = varint(&mut bytes) as usize;
                (0, bytes.split_off(..length).expect("as many bytes as it says"))
            }
            other => panic!("a field of kind {other}"),
        };
        all.push((key >> 3, number, nested));
    }
    all
}

fn field<'a>(message: &[(u64, u64, &'a [u8])], number: u64) -> Option<(u64, &'a [u8])> {
    message.iter().find(|(n, ..)| *n == number).map(|(_, value, nested)| (*value, *nested))
}

#[test]
fn perfetto_gets_tracks_slices_flows_and_counters() {
    let (path, out) = (synthetic("perfetto.trace", 4, 20_000), scratch("out.pftrace"));
    succeeds(trace("perfetto", &path).arg("-o").arg(&out));
    let bytes = fs::read(&out).expect("a file");
    let (mut tracks, mut open, mut counters) = (Vec::new(), std::collections::HashMap::new(), 0);
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for (number, _, packet) in fields(&bytes) {
        assert_eq!(number, 1, "packets and nothing else");
        let packet = fields(packet);
        assert_eq!(field(&packet, 10).map(|f| f.0), Some(1), "all of one sequence");
        if let Some((_, track)) = field(&packet, 60) {
            tracks.push(field(&fields(track), 1).expect("a uuid").0);
        }
        let Some((_, event)) = field(&packet, 11) else { continue };
        let (event, at) = (fields(event), field(&packet, 8).expect("a time").0);
        let track = field(&event, 11).expect("a track").0;
        assert!(tracks.contains(&track), "an event on a track that was not described");
        match field(&event, 9).expect("a type").0 {
            1 => assert!(open.insert(track, at).is_none_or(|_| false), "two slices at once on a track"),
            2 => assert!(open.remove(&track).expect("a slice that is open") <= at),
            3 => {}
            4 => counters += 1,
            other => panic!("an event of type {other}"),
        }
        from.extend(field(&event, 47).map(|f| f.0));
        to.extend(field(&event, 48).map(|f| f.0));
    }
    assert!(open.is_empty() && counters > 0 && !to.is_empty());
    assert!(to.iter().all(|flow| from.contains(flow)), "an arrow from nowhere");
}

#[test]
fn chrome_gets_json() {
    let (path, out) = (synthetic("chrome.trace", 4, 20_000), scratch("out.json"));
    succeeds(trace("perfetto", &path).arg("--chrome").arg("-o").arg(&out));
    let json: Value = serde_json::from_slice(&fs::read(&out).expect("a file")).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    for kind in ["X", "M", "C", "s", "f", "b", "e"] {
        assert!(events.iter().any(|e| e["ph"] == kind), "no event of kind {kind}");
    }
    assert!(events.iter().filter(|e| e["ph"] == "X").all(|e| e["dur"].as_f64() >= Some(0.0)));
}

/// A verb, whose output goes to `out` if it needs one.
fn verb_of(verb: &str, path: &Path, out: &Path) -> std::process::Command {
    let mut command = trace(if verb == "chrome" { "perfetto" } else { verb }, path);
    if matches!(verb, "perfetto" | "chrome") {
        command.arg("-o").arg(out).args((verb == "chrome").then_some("--chrome"));
    }
    command
}

/// A trace of some records, a tick each, in a time of so many ns.
fn records(name: &str, length_ns: u64, records: &[(u8, u8, u64)], g_name: &str) -> PathBuf {
    use mungo_trace::format::{Block, EVENTS, Header, Record, Sync, kind, put_reasons};
    let header = Header { version: 2, pid: 1, wall_ns: 0, ticks_per_second: 1_000_000_000 };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(Sync { ticks: 0, time_ns: 0, dropped: 0, flags: 0 }.to_bytes());
    put_reasons(&mut bytes, [(1, "chan receive"), (2, "\x1b]0;reason\x07")].into_iter());
    let mut payload = Vec::new();
    let mut put = |record: Record| {
        payload.extend(record.head.to_le_bytes());
        payload.extend(record.body.to_le_bytes());
    };
    for (at, &(kind, argument, body)) in records.iter().enumerate() {
        put(Record::new(at as u32 + 1, kind, argument, 0, body));
    }
    put(Record::new(1, kind::NAMED, g_name.len().div_ceil(16) as u8, 0, 1));
    let mut text = g_name.as_bytes().to_vec();
    text.resize(text.len().next_multiple_of(16), 0);
    payload.extend(text);
    let len = payload.len() as u32;
    bytes.extend(Block { kind: EVENTS, len, runtime: 3, m: 0, running: 0, base: 0 }.to_bytes());
    bytes.extend(payload);
    let ticks = records.len() as u64 + 1;
    bytes.extend(Sync { ticks, time_ns: length_ns, dropped: 0, flags: 1 }.to_bytes());
    let path = scratch(name);
    fs::write(&path, bytes).expect("a file");
    path
}

/// Two goroutines that wait and run by turns.
fn turns() -> Vec<(u8, u8, u64)> {
    use mungo_trace::format::{body, kind, stop};
    let turn = |n: u64| {
        let (g, other) = (1 + n % 2, 2 - n % 2);
        let parked = (kind::STOP, stop::PARKED, body(7, 1 + (n % 2) as u16));
        [(kind::READY, 1, g), (kind::READY, 1, other), (kind::START, 0, g), parked]
    };
    let begin = [(kind::PROC_GAINED, 0, 0), (kind::CREATED, 0, body(2, 1)), (kind::CREATED, 0, body(1, 1))];
    begin.into_iter().chain((0..40).flat_map(turn)).collect()
}

/// A file may come from anywhere, and a terminal obeys control characters.
#[test]
fn what_a_file_says_does_not_reach_the_terminal_as_a_command() {
    let path =
        records("escapes.trace", 1_000_000_000, &turns(), "\x1b[2J\x1b]0;owned\x07\u{9b}31m\u{202e}name");
    for verb in ["stats", "replay"] {
        let said = succeeds(&mut trace(verb, &path));
        assert!(said.contains("name"), "{verb}: {said}");
        let bad = said.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
        assert_eq!(bad, None, "{verb}: {said:?}");
    }
}

/// Times that no clock has.
#[test]
fn enormous_times_do_no_harm() {
    for length in [u64::MAX, u64::MAX / 3] {
        let path = records("enormous.trace", length, &turns(), "g");
        for verb in ["stats", "view", "replay", "perfetto", "chrome"] {
            succeeds(&mut verb_of(verb, &path, &scratch("enormous.out")));
        }
    }
}

#[test]
fn a_name_cannot_end_the_pages_script() {
    let name = "</script><script>alert(1)</script><!--";
    let path = records("script.trace", 1_000_000_000, &turns(), name);
    succeeds(&mut trace("view", &path));
    let page = fs::read_to_string(path.with_added_extension("html")).expect("a page");
    assert!(page.contains("alert(1)"), "the name is there");
    assert!(!page.contains("</script><script>alert") && !page.contains("<script>alert"), "as a text");
}

#[test]
fn chrome_keeps_regions_with_their_runtime() {
    use mungo_trace::format::kind;
    let mut turns = turns();
    turns.insert(6, (kind::REGION_END, 0, 1)); // while a goroutine runs
    let path = records("regions.trace", 1_000_000, &turns, "g");
    let out = scratch("regions.json");
    succeeds(&mut verb_of("chrome", &path, &out));
    let json: Value = serde_json::from_slice(&fs::read(&out).expect("a file")).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let pid = |kind: &str| events.iter().find(|e| e["ph"] == kind).map(|e| e["pid"].clone()).expect(kind);
    assert_eq!(pid("b"), pid("X"), "the processors of the same runtime");
}

#[test]
fn bad_files_are_explained() {
    let file = |name: &str, bytes: &[u8]| {
        let path = scratch(name);
        fs::write(&path, bytes).expect("a file");
        path
    };
    let whole = fs::read(synthetic("whole.trace", 1, 20_000)).expect("a trace");
    let mut newer = whole.clone();
    newer[8..12].copy_from_slice(&99u32.to_le_bytes());
    let header = &whole[..mungo_trace::format::FILE_HEADER];
    let cases = [
        (file("empty.trace", b""), "is empty"),
        (file("foreign.trace", b"\x7fELF and a program that is no trace at all"), "is not a trace of mungo's"),
        (file("short.trace", b"MUN"), "is not a trace of mungo's"),
        (file("newer.trace", &newer), "recorded by a newer mungo (version 99"),
        (file("header.trace", header), "there are no events in"),
        (scratch(""), "is a folder"),
        (scratch("missing.trace"), "cannot read the trace"),
    ];
    let out = scratch("bad.pftrace");
    for verb in ["stats", "view", "replay", "perfetto", "chrome"] {
        for (path, complaint) in &cases {
            let said = fails(&mut verb_of(verb, path, &out), 1);
            assert!(!out.exists(), "{verb} of {}", path.display());
            assert!(said.contains(complaint), "{verb} {}: {said}", path.display());
            assert!(!path.with_added_extension("html").exists(), "a page of {}", path.display());
        }
    }
    // What is cut off is read up to there, and says so.
    for length in [whole.len() / 2, whole.len() - 7, whole.len() / 3 + 5] {
        let report = stats(&file("cut.trace", &whole[..length]));
        assert_eq!(report["torn"], true);
        assert!(report["verdicts"].as_array().expect("verdicts").iter().any(|v| v["key"] == "torn"));
    }
}

/// Noise in a trace is passed over or told apart; nothing crashes.
#[test]
fn noise_does_no_harm() {
    let whole = fs::read(synthetic("quiet.trace", 1, 6_000)).expect("a trace");
    for seed in 0..12u64 {
        let mut bytes = whole.clone();
        for i in 0..40 {
            let n = (seed * 40 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let at = 32 + (n >> 20) as usize % (bytes.len() - 32);
            bytes[at] ^= n as u8;
        }
        let path = scratch("noisy.trace");
        fs::write(&path, bytes).expect("a file");
        for verb in ["stats", "view", "replay", "perfetto", "chrome"] {
            let output = verb_of(verb, &path, &scratch("noisy.out")).output().expect("it starts");
            assert!(
                matches!(output.status.code(), Some(0 | 1)),
                "seed {seed}, {verb}: {}",
                text(&output.stderr)
            );
        }
    }
}

/// For the note on speed: `cargo test --release -p mungo-lab --test command -- --ignored hundred --nocapture`.
#[test]
#[ignore = "writes 100 MB and measures"]
fn a_hundred_megabytes() {
    let path = synthetic("hundred.trace", 1, 6_300_000);
    let size = fs::metadata(&path).expect("a file").len();
    for arguments in [&["trace", "stats"][..], &["trace", "view", "-o", "hundred.html"]] {
        let start = Instant::now();
        let output =
            mungo(arguments).arg(&path).current_dir(env!("CARGO_TARGET_TMPDIR")).output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        eprintln!("{} of {} MB: {:.2?}", arguments[1], size / 1_000_000, start.elapsed());
    }
}
