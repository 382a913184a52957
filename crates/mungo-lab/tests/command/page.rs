//! The page with plots: complete in itself, and drawn by a browser where there is one.

use super::{mungo, scratch, succeeds};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One of them has a long name.
const POLICIES: [&str; 3] = ["default", "fifo", "priority:age=5ms,every=7"];

fn page(name: &str) -> (PathBuf, String) {
    let path = scratch(name);
    let arguments = ["compare", "-w", "mixed-service", "--duration", "60ms", "--repeat", "2"];
    succeeds(mungo(&arguments).args(["-p", &POLICIES.join(",")]).arg("--html").arg(&path));
    let text = std::fs::read_to_string(&path).expect("a page");
    (path, text)
}

/// What is inside of the page for programs.
fn data(page: &str) -> Value {
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(data.expect("the data")).expect("JSON")
}

#[test]
fn the_page_needs_nothing_else() {
    let (_, text) = page("alone.html");
    for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
        assert!(!text.contains(outside), "the page asks for {outside}");
    }
    assert!(text.contains("color-scheme: light dark"));
    assert!(
        text.matches("<svg").count() >= 5 && text.matches("<svg").count() == text.matches("</svg>").count()
    );
    assert!(!text.contains("NaN") && !text.contains("inf,"), "a point that is nowhere");
    let data = data(&text);
    assert_eq!(data["workload"], "mixed-service");
    let command = data["command"].as_str().expect("a command");
    for part in ["mungo compare", "mixed-service", &POLICIES.join(","), "--seed 1", "--duration 60ms"] {
        assert!(command.contains(part), "{command}");
    }
}

pub(super) fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// What a browser printed: the page, and what it has to say about it.
pub(super) struct Printed {
    pub(super) page: String,
    pub(super) remarks: String,
}

/// Runs the browser without any network; `None` if it fails or does not come to an end, as broken
/// installations do.
pub(super) fn headless(browser: &Path, arguments: &[&str], page: &Path) -> Option<Printed> {
    const QUIET: [&str; 11] = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--hide-scrollbars",
        "--window-size=1400,2000",
        "--enable-logging=stderr",
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let [profile, stdout, stderr] = ["profile", "stdout", "stderr"].map(|name| folder.path().join(name));
    let mut command = Command::new(browser);
    command.args(QUIET).arg(format!("--user-data-dir={}", profile.display())).args(arguments);
    command.arg(format!("file://{}", page.display())).stdin(Stdio::null());
    command.stdout(File::create(&stdout).ok()?).stderr(File::create(&stderr).ok()?);
    let mut child = command.spawn().ok()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().ok()? {
            break status;
        }
        if start.elapsed() > Duration::from_secs(60) {
            _ = child.kill();
            _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if !status.success() {
        return None;
    }
    let read = |path| Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned());
    Some(Printed { page: read(stdout)?, remarks: read(stderr)? })
}

/// What scripts and style sheets complain about, and what they log.
pub(super) fn console(remarks: &str) -> Vec<&str> {
    remarks.lines().filter(|line| line.contains("CONSOLE")).collect()
}

/// Says what a reader could not read: text that is cut off, or that lies on other text.
const MEASURE: &str = r#"<script>
const wrong = [];
if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is wider than the window");
for (const svg of document.querySelectorAll("svg")) {
  const outer = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map(t => ({ text: t.textContent, at: t.getBoundingClientRect() }));
  texts.forEach(({ text, at }, i) => {
    const inside = at.left > outer.left - 1 && at.right < outer.right + 1 && at.bottom < outer.bottom + 1;
    if (!inside) wrong.push(`${svg.ariaLabel}: '${text}' is cut off`);
    for (const other of texts.slice(i + 1)) {
      const beside = at.right <= other.at.left || other.at.right <= at.left;
      const above = at.bottom <= other.at.top || other.at.bottom <= at.top;
      if (!beside && !above) wrong.push(`${svg.ariaLabel}: '${text}' lies on '${other.text}'`);
    }
  });
}
console.log(`measured at ${innerWidth}: ${wrong.join("; ") || "all is readable"}`);
</script>"#;

/// How many plots there must be: one a percentile curve, one a merit that is not zero everywhere.
fn plots(data: &Value) -> (usize, usize) {
    let policies = data["policies"].as_array().expect("policies");
    let merit =
        |key: &str, summary: &Value| key == "throughput" || summary["unit"] == "Jain" || summary["unit"] == "%";
    let summaries = policies.iter().flat_map(|policy| policy["summary"].as_object().expect("figures"));
    let seen = summaries.filter(|(key, summary)| merit(key, summary) && summary["max"].as_f64() > Some(0.0));
    let dots: BTreeSet<_> = seen.map(|(key, _)| key).collect();
    let keys = policies[0]["summary"].as_object().expect("figures").keys();
    (dots.len(), keys.filter(|key| key.ends_with(".p50")).count())
}

/// Every policy is in every plot and in the table.
fn check(page: &str, data: &Value) {
    let count = |part: &str| page.matches(part).count();
    let (dots, curves) = plots(data);
    assert_eq!((count("<svg"), curves), (dots + curves, 4));
    assert_eq!((count("<polyline"), count("class=\"ci ")), (curves * POLICIES.len(), dots * POLICIES.len()));
    for name in POLICIES {
        let curve = [format!("<title>{name}</title></polyline>"), format!("</i>{name}</span>")];
        assert_eq!(curve.map(|part| count(&part)), [curves; 2], "{name} in each curve and its legend");
        assert_eq!(count(&format!("\">{name}</text>")), dots, "{name} in each other plot");
        assert!(count(&format!("<th>{name}</th>")) > 0, "{name} in the table");
    }
}

#[test]
fn a_browser_draws_it() {
    let Some(browser) = browser() else {
        return eprintln!("skipped: no Chromium on PATH to draw the page with");
    };
    let (path, text) = page("drawn.html");
    let [measured, small, blank] = ["measured.html", "small.html", "blank.html"].map(scratch);
    std::fs::write(&measured, format!("{text}{MEASURE}")).expect("a page");
    // As on a telephone: no window is as narrow.
    std::fs::write(&small, "<iframe src=\"measured.html\" width=\"400\" height=\"2000\"></iframe>")
        .expect("a page");
    std::fs::write(&blank, "").expect("a page");
    let dump = "--dump-dom".to_owned();
    let png = |page: &Path| page.with_extension("png");
    let draw = |page: &Path| format!("--screenshot={}", png(page).display());
    let runs = [(&measured, dump.clone()), (&small, dump), (&path, draw(&path)), (&blank, draw(&blank))];
    let printed: Option<Vec<Printed>> =
        runs.iter().map(|(page, argument)| headless(&browser, &[argument.as_str()], page)).collect();
    let Some([wide, narrow, drawn, empty]) = printed.as_deref() else {
        return eprintln!("skipped: {} does not work here", browser.display());
    };
    check(&wide.page, &data(&text));
    for (printed, width) in [(wide, 1400), (narrow, 400)] {
        let fine = format!("measured at {width}: all is readable");
        assert!(matches!(console(&printed.remarks)[..], [one] if one.contains(&fine)), "{}", printed.remarks);
    }
    for printed in [drawn, empty] {
        assert!(console(&printed.remarks).is_empty(), "{}", printed.remarks);
    }
    let [drawn, empty] = [&path, &blank].map(|page| std::fs::metadata(png(page)).expect("a picture").len());
    assert!(drawn > 5 * empty, "a picture of {drawn} bytes, where an empty one has {empty}");
}
