//! Style that matters is a test: what a reader of the code may rely on, checked line by line.
//!
//! Each finding reads `file:line: what is wrong`. The rules are in [`check_file`] and
//! [`check_resume`]; the words they look for are put together from halves, so that this file
//! obeys its own rules.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose files are checked, from the root of the repository.
const FOLDERS: [&str; 2] = ["crates", "examples"];

/// The runtime's own code, for which the rules about orderings and switches hold.
const RUNTIME: &str = "crates/mungo/src/";

/// The file that may switch to a coroutine's stack: `.resume(argument)`. On x86-64 that is assembly.
const RESUMER: &str = "crates/mungo/src/stack/coro/portable.rs";

/// The files between the scheduler's loop and that switch, which may pass it on: `.resume()`.
const RESUME_CHAIN: [&str; 2] = ["crates/mungo/src/sched/g.rs", "crates/mungo/src/sched/worker.rs"];

const MAX_COLUMNS: usize = 120;
const MAX_LINES_SRC: usize = 600;
const MAX_LINES_TESTS: usize = 900;
const MAX_LINES_EXAMPLE: usize = 100;

/// How far above an ordering its explanation may start.
const ORDERING_NOTE_LINES: usize = 6;

/// Left-overs of unfinished work.
const LEFT_OVERS: [&str; 3] = [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!(")];

/// Where somebody's machine keeps things: nobody else's does.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

#[test]
#[cfg_attr(miri, ignore = "reads the repository")]
fn sources_are_tidy() {
    let root = repository();
    if !root.join("crates/mungo").is_dir() {
        eprintln!("skipped: the crate was unpacked without its repository");
        return;
    }
    let mut paths = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut paths);
    }
    paths.sort();
    let files: Vec<(String, String)> = paths.iter().map(|path| read(&root, path)).collect();

    // A walk that finds nothing would pass all rules.
    let own = "crates/mungo/tests/tidy.rs";
    assert!(files.iter().any(|(path, _)| path == own), "{own} not found below {}", root.display());

    let mut findings = Vec::new();
    for (path, text) in &files {
        check_file(path, text, &mut findings);
    }
    check_resume(&files, &mut findings);
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

fn repository() -> PathBuf {
    let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = krate.ancestors().nth(2);
    root.expect("the crate is two folders below the root").to_owned()
}

/// All files below `folder`, without hidden ones and build output. A missing folder is empty.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let entry = entry.expect("a readable folder");
        let name = entry.file_name();
        if name.to_string_lossy().starts_with('.') || name == "target" {
            continue;
        }
        let kind = entry.file_type().expect("a file type");
        if kind.is_dir() {
            collect(&entry.path(), paths);
        } else if kind.is_file() && is_checked(&entry.path()) {
            paths.push(entry.path());
        }
    }
}

fn is_checked(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "toml" | "md" | "sh"))
}

/// The path from the root, with `/` on every platform, and the text.
fn read(root: &Path, path: &Path) -> (String, String) {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let relative = path.strip_prefix(root).expect("below the root");
    let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
    (parts.join("/"), text)
}

/// Every rule that looks at one file. Only the rules on white space and machine paths hold for
/// files that are not Rust.
fn check_file(path: &str, text: &str, findings: &mut Vec<String>) {
    let is_rust = path.ends_with(".rs");
    let is_runtime = is_rust && path.starts_with(RUNTIME);
    let lines: Vec<&str> = text.split_terminator('\n').collect();
    let mut in_import = false;
    if is_rust {
        check_whole(path, &lines, findings);
    }
    for (index, line) in lines.iter().enumerate() {
        let mut find = |what: &str| findings.push(format!("{path}:{}: {what}", index + 1));
        if line.ends_with(char::is_whitespace) {
            find("trailing white space");
        }
        if let Some(found) = MACHINE_PATHS.iter().find(|folder| has_path(line, folder)) {
            find(&format!("a path of one machine: `{found}`"));
        }
        if !is_rust {
            continue;
        }
        if line.contains('\t') {
            find("a tab");
        }
        let columns = line.chars().count();
        if columns > MAX_COLUMNS {
            find(&format!("{columns} columns, {MAX_COLUMNS} are the limit"));
        }
        if let Some(found) = LEFT_OVERS.iter().find(|word| line.contains(*word)) {
            find(&format!("unfinished: `{found})`"));
        }
        let code = code(line);
        in_import |= starts_import(code);
        if is_runtime && !in_import && is_strong(code) && !is_explained(&lines[..=index]) {
            find("a strong ordering without an `ORDERING:` note on it or just above");
        }
        in_import &= !code.contains(';');
    }
}

/// The rules on a file's length and on its first line.
fn check_whole(path: &str, lines: &[&str], findings: &mut Vec<String>) {
    let is_in = |folder: &str| path.split('/').any(|part| part == folder);
    let is_example = is_in("examples");
    let limit = if is_example {
        MAX_LINES_EXAMPLE
    } else if is_in("tests") || is_in("benches") {
        MAX_LINES_TESTS
    } else {
        MAX_LINES_SRC
    };
    if lines.len() > limit {
        let count = lines.len();
        findings.push(format!("{path}:{count}: {count} lines, {limit} are the limit"));
    }
    if is_example && !lines.first().is_some_and(|line| line.starts_with("//!")) {
        findings.push(format!("{path}:1: an example's first line says what it shows, as a `//!` comment"));
    }
}

/// `folder` stands in `line` as the start of an absolute path, not in the middle of another one.
fn has_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}>)*".contains(c))
    })
}

/// The line without its comment. Good enough for rules that look for a call.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// An import starts here. It may name what it does not use yet, and go on until a `;`.
fn starts_import(code: &str) -> bool {
    let mut words = code.split_whitespace();
    let first = words.next();
    first == Some("use") || first.is_some_and(|word| word.starts_with("pub")) && words.next() == Some("use")
}

/// The strongest ordering or a fence is used here. A function that is itself a fence has its note
/// inside.
fn is_strong(code: &str) -> bool {
    code.contains("SeqCst") || code.contains("fence(") && !code.contains("fn ")
}

/// The last of `lines` has its note on it or just above.
fn is_explained(lines: &[&str]) -> bool {
    let mut near = lines.iter().rev().take(ORDERING_NOTE_LINES + 1);
    near.any(|line| line.contains("ORDERING:"))
}

/// Switching to a goroutine happens in one place, so that there is one place to look at.
fn check_resume(files: &[(String, String)], findings: &mut Vec<String>) {
    for (path, text) in files {
        if !path.starts_with(RUNTIME) || !path.ends_with(".rs") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let Some((_, argument)) = code(line).split_once(".resume(") else {
                continue;
            };
            let allowed =
                if argument.starts_with(')') { RESUME_CHAIN.contains(&path.as_str()) } else { path == RESUMER };
            if !allowed {
                findings.push(format!(
                    "{path}:{}: a goroutine is resumed elsewhere: see `RESUMER` in tidy.rs",
                    index + 1
                ));
            }
        }
    }
}

/// The rules themselves, on made-up files.
mod rules {
    use super::{
        LEFT_OVERS, MACHINE_PATHS, MAX_COLUMNS, MAX_LINES_EXAMPLE, MAX_LINES_SRC, MAX_LINES_TESTS,
        RESUME_CHAIN, RESUMER,
    };

    const SRC: &str = "crates/mungo/src/a.rs";
    const OTHER_SRC: &str = "crates/mungo-lab/src/a.rs";
    const TEST: &str = "crates/mungo/tests/a.rs";
    const EXAMPLE: &str = "examples/a.rs";

    fn check(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        super::check_file(path, text, &mut findings);
        findings
    }

    #[track_caller]
    fn assert_clean(path: &str, text: &str) {
        assert_eq!(check(path, text), [""; 0], "{text}");
    }

    /// One finding, at `line`, with `part` in it.
    #[track_caller]
    fn assert_finds(path: &str, text: &str, line: usize, part: &str) {
        let findings = check(path, text);
        let start = format!("{path}:{line}: ");
        assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        assert!(findings[0].starts_with(&start) && findings[0].contains(part), "{findings:?}");
    }

    #[test]
    fn white_space() {
        assert_clean(SRC, "fn a() {}\n\nfn b() {}\n");
        assert_finds(SRC, "fn a() {}\nfn b() {} \n", 2, "trailing white space");
        assert_finds(SRC, "fn a() {}\r\n", 1, "trailing white space");
        assert_finds(SRC, "//\tx", 1, "a tab");
        assert_finds("crates/mungo/Cargo.toml", "[lib] ", 1, "trailing white space");
        assert_clean("crates/mungo/src/sched/README.md", "```go\n\tx := 1\n```\n");
    }

    #[test]
    fn columns() {
        // Columns are characters, not bytes.
        assert_clean(SRC, &"é".repeat(MAX_COLUMNS));
        assert_finds(SRC, &"é".repeat(MAX_COLUMNS + 1), 1, "121 columns");
        assert_clean("crates/mungo/README.md", &"x".repeat(MAX_COLUMNS + 1));
    }

    #[test]
    fn lengths() {
        for (path, limit) in [
            (SRC, MAX_LINES_SRC),
            (OTHER_SRC, MAX_LINES_SRC),
            (TEST, MAX_LINES_TESTS),
            ("crates/mungo/benches/a.rs", MAX_LINES_TESTS),
            (EXAMPLE, MAX_LINES_EXAMPLE),
            ("crates/mungo/examples/a.rs", MAX_LINES_EXAMPLE),
        ] {
            assert_clean(path, &"//! x\n".repeat(limit));
            assert_finds(path, &"//! x\n".repeat(limit + 1), limit + 1, "are the limit");
        }
    }

    #[test]
    fn left_overs() {
        for word in LEFT_OVERS {
            assert_finds(TEST, &format!("fn a() {{\n    {word})\n}}"), 2, "unfinished");
        }
    }

    #[test]
    fn machine_paths() {
        for folder in MACHINE_PATHS {
            assert_finds(SRC, &format!("// see {folder}x"), 1, "a path of one machine");
            assert_finds("crates/a/Cargo.toml", &format!("path = \"{folder}x\""), 1, folder);
            assert_clean(SRC, &format!("// see crates{folder}x"));
            assert_clean(SRC, &format!("// see ~{folder}x"));
        }
    }

    #[test]
    fn examples_say_what_they_show() {
        assert_clean(EXAMPLE, "//! Shows it.\nfn main() {}\n");
        assert_finds(EXAMPLE, "fn main() {}\n", 1, "first line");
        assert_finds(EXAMPLE, "", 1, "first line");
    }

    #[test]
    fn strong_orderings_are_explained() {
        let explained = "// ORDERING: pairs with the load in b.\n";
        for call in ["a.load(Ordering::SeqCst);", "a.load(SeqCst);", "fence(AcqRel);"] {
            assert_finds(SRC, call, 1, "ORDERING:");
            assert_clean(SRC, &format!("{explained}{call}"));
            assert_clean(SRC, &format!("{call} {explained}"));
            assert_clean(SRC, &format!("{explained}{}{call}", "x();\n".repeat(5)));
            assert_finds(SRC, &format!("{explained}{}{call}", "x();\n".repeat(6)), 8, "ORDERING:");
            // The rule is the runtime's own.
            assert_clean(OTHER_SRC, call);
            assert_clean(TEST, call);
        }
        assert_clean(SRC, "a.load(Ordering::Acquire);");
        assert_clean(SRC, "use std::sync::atomic::Ordering::SeqCst;");
        let import = "pub(crate) use std::sync::{\n    Arc,\n    atomic::Ordering::SeqCst,\n};\n";
        assert_clean(SRC, import);
        assert_finds(SRC, &format!("{import}a.load(SeqCst);"), 5, "ORDERING:");
        assert_clean(SRC, "a.load(Acquire); // WHY NOT: SeqCst, or a fence(): nobody looks");
        assert_clean(SRC, "pub(crate) fn heavy_fence() {");
        assert_finds(SRC, "heavy_fence();", 1, "ORDERING:");
    }

    #[test]
    fn one_file_resumes() {
        let check = |paths: &[&str], line: &str| {
            let files: Vec<_> = paths.iter().map(|path| (path.to_string(), line.to_owned())).collect();
            let mut findings = Vec::new();
            super::check_resume(&files, &mut findings);
            findings
        };
        let finding = |path| format!("{path}:1: a goroutine is resumed elsewhere: see `RESUMER` in tidy.rs");
        let [g, worker] = RESUME_CHAIN;
        let call = "let why = self.coroutine.resume(());";
        assert_eq!(check(&[RESUMER], call), [""; 0]);
        assert_eq!(check(&[RESUMER, worker], call), [finding(worker)]);
        assert_eq!(check(&[g, SRC], call), [finding(g), finding(SRC)]);
        let passed_on = "unsafe { self.coroutine().resume() }";
        assert_eq!(check(&[g, worker], passed_on), [""; 0]);
        assert_eq!(check(&[RESUMER, SRC], passed_on), [finding(RESUMER), finding(SRC)]);
        assert_eq!(check(&[TEST, OTHER_SRC], call), [""; 0]);
        assert_eq!(check(&[SRC], "// .resume(()) is not ours"), [""; 0]);
        assert_eq!(check(&[SRC], "std::panic::resume_unwind(why);"), [""; 0]);
    }
}
