//! The page with plots: complete in itself, and drawn by a browser where there is one.

use super::{mungo, scratch, succeeds};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

fn headless(browser: &Path, arguments: &[String]) -> std::process::Output {
    let profile = scratch("browser-profile");
    let common = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000"];
    let mut command = Command::new(browser);
    command.args(common).arg(format!("--user-data-dir={}", profile.display())).args(arguments);
    command.stdin(Stdio::null()).output().expect("the browser starts")
}

#[test]
fn a_browser_draws_it() {
    let Some(browser) = browser() else {
        return eprintln!("skipped: no Chromium on PATH to draw the page with");
    };
    let (path, _) = page("drawn.html");
    let address = format!("file://{}", path.display());
    let dom = headless(&browser, &["--dump-dom".to_owned(), address.clone()]);
    let dom = super::text(&dom.stdout);
    assert!(dom.contains("<polyline") && dom.contains("All figures"), "{dom}");
    let picture = scratch("page.png");
    let arguments =
        [format!("--screenshot={}", picture.display()), "--window-size=1200,1600".to_owned(), address];
    headless(&browser, &arguments);
    let size = std::fs::metadata(&picture).expect("a picture").len();
    assert!(size > 20_000, "an empty page compresses to less than {size} bytes");
}
