//! The page with plots: complete in itself, and drawn by a browser where there is one.

use super::{mungo, scratch, succeeds};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn page(name: &str) -> (PathBuf, String) {
    let path = scratch(name);
    let arguments =
        ["compare", "-w", "mixed-service", "-p", "default,default", "--duration", "60ms", "--repeat", "2"];
    succeeds(mungo(&arguments).arg("--html").arg(&path));
    let text = std::fs::read_to_string(&path).expect("a page");
    (path, text)
}

#[test]
fn the_page_needs_nothing_else() {
    let (_, text) = page("alone.html");
    for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
        assert!(!text.contains(outside), "the page asks for {outside}");
    }
    assert!(text.contains("prefers-color-scheme: dark"));
    assert!(
        text.matches("<svg").count() >= 5 && text.matches("<svg").count() == text.matches("</svg>").count()
    );
    assert!(!text.contains("NaN") && !text.contains("inf,"), "a point that is nowhere");
    let data =
        text.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("the data");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["workload"], "mixed-service");
}

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// Runs the browser; `None` if it does not come to an end, as broken installations do.
fn headless(browser: &Path, arguments: &[String]) -> Option<String> {
    let common = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000"];
    let profile = format!("--user-data-dir={}", scratch("browser-profile").display());
    let printed = scratch("browser-output");
    let mut command = Command::new(browser);
    command.args(common).arg(profile).args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(File::create(&printed).ok()?).spawn().ok()?;
    let start = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            _ = child.kill();
            _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::read_to_string(printed).ok()
}

#[test]
fn a_browser_draws_it() {
    let Some(browser) = browser() else {
        return eprintln!("skipped: no Chromium on PATH to draw the page with");
    };
    let (path, _) = page("drawn.html");
    let address = format!("file://{}", path.display());
    let Some(dom) = headless(&browser, &["--dump-dom".to_owned(), address.clone()]) else {
        return eprintln!("skipped: {} does not work here", browser.display());
    };
    assert!(dom.contains("<polyline") && dom.contains("All figures"), "{dom}");
    let picture = scratch("page.png");
    let arguments =
        [format!("--screenshot={}", picture.display()), "--window-size=1200,1600".to_owned(), address];
    if headless(&browser, &arguments).is_some() {
        let size = std::fs::metadata(&picture).expect("a picture").len();
        assert!(size > 20_000, "an empty page compresses to less than {size} bytes");
    }
}
