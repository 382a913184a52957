//! Style that matters is a test: what a reader of the code may rely on, checked line by line.
//!
//! Each finding reads `file:line: what is wrong`. The rules are in [`check_file`] and the functions that
//! [`sources_are_tidy`] calls beside it, some of them in `tidy/`; the words they look for are put together from halves,
//! so that these files obey their own rules.

#[path = "tidy/comments.rs"]
mod comments;
#[path = "tidy/functions.rs"]
mod functions;

use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose files are checked, from the root of the repository.
const FOLDERS: [&str; 3] = ["crates", "docs", "examples"];

/// The runtime's own code, for which the rules about orderings and switches hold.
const RUNTIME: &str = "crates/mungo/src/";

/// The file that may switch to a coroutine's stack: `.resume(argument)`. On x86-64 that is assembly.
const RESUMER: &str = "crates/mungo/src/stack/coro/portable.rs";

/// The files between the scheduler's loop and that switch, which may pass it on: `.resume()`.
const RESUME_CHAIN: [&str; 2] = ["crates/mungo/src/sched/run/g.rs", "crates/mungo/src/sched/run/worker.rs"];

/// The door in: where a goroutine that became runnable is queued.
const QUEUES: &str = "crates/mungo/src/sched/pick/";

/// Puts a goroutine into a queue.
const PUSHES: [&str; 6] =
    ["push_global", "push_computing", "runq.push", "global.push", "global.append", "computing.push"];

/// The files that move goroutines from one queue to another, which are runnable already.
const MOVERS: [&str; 5] = [
    "crates/mungo/src/sched/threads/handoff.rs",
    "crates/mungo/src/sched/threads/cap.rs",
    "crates/mungo/src/sched/shared.rs",
    "crates/mungo/src/sched/sysmon/watch.rs",
    "crates/mungo/src/sched/engine/switch.rs",
];

/// The file with the numbers that decide scheduling, and the document that lists them.
const NUMBERS: &str = "crates/mungo/src/policies/order.rs";
const LIST_OF_NUMBERS: &str = "docs/numbers.md";

/// The scheduler's code, where a time that is a constant decides scheduling, and the folders where any number does.
const SCHEDULER: &str = "crates/mungo/src/sched/";
const DECIDING: [&str; 2] = ["crates/mungo/src/sched/pick/", "crates/mungo/src/sched/threads/"];

/// Constants there that are not in the file with the numbers: units, signals, sizes of memory, settings of a runtime,
/// reports and samples, how a wait is made, and what the kernel is asked for on behalf of the monitor's thread.
const NUMBERS_ELSEWHERE: &str = "\
    SIGSETXID LONG_NS PATIENCE_NS SOON_NS SECOND_NS STACK LISTED CHUNK DEFAULT_POLICY_WATCHDOG \
    DEFAULT_DEADLOCK_WARNING TWO_STEPS_NS TRUST_NS PERIOD_NS SLICE_NS";

/// The table of faults, which names a test for each row, and where these tests are.
const FAULTS: &str = "docs/faults.md";
const TESTS: &str = "crates/mungo/tests/";
const TESTS_OF_INTERPOSE: &str = "crates/mungo-interpose/tests/";

/// The document with the walks, and the words by which each is known, with the most files that it may pass.
const WALKS: &str = "crates/mungo/src/sched/README.md";
const LENGTHS: [(&str, usize); 2] = [("A goroutine that is spawned", 12), ("A `read` of a TCP stream", 7)];

/// The document whose table says which module may use which.
const LAYERS: &str = "ARCHITECTURE.md";

/// A model of a protocol: files without one need not know of loom.
const MODEL: &str = "#[cfg(all(test, loom))]";

const MAX_COLUMNS: usize = 120;
const MAX_LINES_SRC: usize = 600;
const MAX_LINES_TESTS: usize = 900;
const MAX_LINES_EXAMPLE: usize = 119;

/// How far above an ordering its explanation may start.
const ORDERING_NOTE_LINES: usize = 6;

/// Left-overs of unfinished work.
const LEFT_OVERS: [&str; 3] = [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!(")];

/// They panic without a reader, and wait for a lock that a goroutine may hold: the runtime has `say!` (`sys/say.rs`).
const PRINTS: [&str; 2] = [concat!("pri", "nt!("), concat!("print", "ln!(")];

/// The file that prints to see whether that is captured, on the thread of a test.
const PRINTER: &str = "crates/mungo/src/sys/capture.rs";

/// Where one machine keeps things: others do not.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Words that hide their subject, or their measure: a sentence names a goroutine, a thread, a number.
const VAGUE: [&str; 9] = [
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("who", "ever"),
    concat!("so ", "long "),
    concat!("so ", "many "),
    concat!("so ", "much "),
    concat!("so ", "often "),
];

/// The page for users, which is checked for words only.
const PAGE: &str = "README.md";

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
    paths.extend([LAYERS, PAGE].map(|name| root.join(name)));
    let files: Vec<(String, String)> = paths.iter().map(|path| read(&root, path)).collect();

    // A walk that finds nothing would pass all rules.
    let own = "crates/mungo/tests/tidy.rs";
    assert!(files.iter().any(|(path, _)| path == own), "{own} not found below {}", root.display());

    let mut findings = Vec::new();
    for (path, text) in &files {
        check_file(path, text, &mut findings);
        functions::check(path, text, &mut findings);
    }
    comments::check(&files, &mut findings);
    check_resume(&files, &mut findings);
    check_names(&files, &mut findings);
    check_walks(&files, &mut findings);
    check_numbers(&files, &mut findings);
    check_layers(&files, &mut findings);
    check_faults(&files, &mut findings);
    check_packages(&root, &files, &mut findings);
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

fn repository() -> PathBuf {
    let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = krate.ancestors().nth(2);
    root.expect("the crate is two folders below the root").to_owned()
}

/// A crate that is published has a page and its licences, and its neighbours by their versions.
fn check_packages(root: &Path, files: &[(String, String)], findings: &mut Vec<String>) {
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        if text.contains("publish = false") {
            continue;
        }
        let folder = root.join(path).parent().expect("a folder").to_owned();
        for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            if !folder.join(name).is_file() {
                findings.push(format!("{path}:1: the crate is published without a {name}"));
            }
        }
        if !text.contains("documentation = ") {
            findings.push(format!("{path}:1: the crate is published without the address of its documentation"));
        }
        for (number, line) in text.lines().enumerate() {
            if line.contains("path = \"../") && !line.contains("version = ") {
                findings.push(format!("{path}:{}: a neighbour without a version", number + 1));
            }
        }
    }
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
    let has_model = text.contains(MODEL);
    for (index, line) in lines.iter().enumerate() {
        let mut find = |what: &str| findings.push(format!("{path}:{}: {what}", index + 1));
        if is_runtime && !has_model && line.contains(concat!("lo", "om)")) && !line.contains("test") {
            find("a condition on loom outside of the protocols: see `mungo-models`");
        }
        if line.ends_with(char::is_whitespace) {
            find("trailing white space");
        }
        if let Some(found) = MACHINE_PATHS.iter().find(|folder| has_path(line, folder)) {
            find(&format!("a path of one machine: `{found}`"));
        }
        if is_prose(path)
            && let Some(word) = VAGUE.iter().find(|word| line.to_lowercase().contains(**word))
        {
            find(&format!("`{}` instead of a subject or a number", word.trim()));
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
        if is_runtime && path != PRINTER && PRINTS.iter().any(|word| code.contains(word)) {
            find("a message of the runtime that does not go by `say!`");
        }
        let may_push = path.starts_with(QUEUES) || MOVERS.contains(&path);
        if is_runtime && !may_push && PUSHES.iter().any(|word| code.contains(word)) {
            find("a goroutine is queued elsewhere than by `pick::enqueue`");
        }
        if let Some(name) = deciding_number(path, code)
            && !NUMBERS_ELSEWHERE.split(' ').any(|known| known == name)
        {
            find(&format!("`{name}` decides scheduling elsewhere than in {NUMBERS}"));
        }
        in_import |= starts_import(code);
        if is_runtime && !in_import && is_strong(code) && !is_explained(&lines[..=index]) {
            find("a strong ordering without an `ORDERING:` note on it or just above");
        }
        in_import &= !code.contains(';');
    }
}

/// Returns whether strangers read this: sources of all crates, and documents.
fn is_prose(path: &str) -> bool {
    path.starts_with("docs/") || path.ends_with(".md") || path.starts_with("crates/") && path.contains("/src/")
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

/// Returns the constant of this line if it is one that decides scheduling: a time, or in some folders any number.
fn deciding_number<'a>(path: &str, code: &'a str) -> Option<&'a str> {
    let (_, rest) = code.split_once("const ").filter(|(before, _)| {
        path.starts_with(SCHEDULER) && (before.trim().is_empty() || before.trim_start().starts_with("pub"))
    })?;
    let (name, value) = rest.split_once(':')?;
    let (kind, value) = value.split_once(" = ")?;
    let is_time = kind.trim() == "Duration" || name.ends_with("_NS");
    let decides = is_time || DECIDING.iter().any(|folder| path.starts_with(folder));
    let is_number =
        value.starts_with("Duration::") || value.starts_with(|c: char| c.is_ascii_digit() && c != '0');
    (decides && is_number).then_some(name)
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

/// Source files that a document names are where it says: beside it, or below the crate's `src`. A page of `docs/` may
/// leave the first folders out.
fn check_names(files: &[(String, String)], findings: &mut Vec<String>) {
    let is_there = |name: &str| files.iter().any(|(path, _)| path == name);
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
        let is_page = path.starts_with("docs/");
        if !is_page && !path.starts_with(RUNTIME) {
            continue;
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            for name in line.split(['`', ' ', '(', ')']).filter(|word| word.ends_with(".rs")) {
                let (above, folder) = match name.strip_prefix("../") {
                    Some(rest) => (rest, folder.rsplit_once('/').map_or("", |(above, _)| above)),
                    None => (name, folder),
                };
                let ends = |path: &str| format!("/{path}").ends_with(&format!("/{above}"));
                let is_there = is_there(&format!("{folder}/{above}"))
                    || is_there(&format!("{RUNTIME}{name}"))
                    || name.starts_with("examples/") && is_there(name)
                    || is_page && files.iter().any(|(path, _)| ends(path));
                if !is_there {
                    findings.push(format!("{path}:{}: there is no `{name}`", index + 1));
                }
            }
        }
    }
}

/// A walk is a line that ends with `N files.` and the table below it. Each function that the table names is in the file
/// named before it, and there are `N` files.
fn check_walks(files: &[(String, String)], findings: &mut Vec<String>) {
    let text = files.iter().find(|(path, _)| path == WALKS).map_or("", |(_, text)| text.as_str());
    let source = |name: &str| {
        let places = [format!("{RUNTIME}{name}"), format!("{RUNTIME}sched/{name}")];
        files.iter().find(|(path, _)| places.contains(path)).map_or("", |(_, text)| text.as_str())
    };
    let mut walks = 0;
    for (index, line) in text.lines().enumerate() {
        let Some((start, most)) = LENGTHS.iter().find(|(start, _)| line.starts_with(start)) else { continue };
        let mut find = |line: usize, what: String| findings.push(format!("{WALKS}:{line}: {what}"));
        walks += 1;
        let mut passed = Vec::new();
        let table = text.lines().enumerate().skip(index + 2).take_while(|(_, row)| row.starts_with('|'));
        for (row, cells) in table {
            let mut file = "";
            let way = cells.splitn(3, '|').nth(2).unwrap_or_default();
            for word in way.split('`').skip(1).step_by(2) {
                if word.ends_with(".rs") {
                    file = word;
                    passed.push(file);
                } else if !["(", "<"].iter().any(|end| source(file).contains(&format!("fn {word}{end}"))) {
                    find(row + 1, format!("`{file}` has no function `{word}`"));
                }
            }
        }
        passed.sort_unstable();
        passed.dedup();
        if !line.ends_with(&format!(": {} files.", passed.len())) || passed.len() > *most {
            find(index + 1, format!("{} files, {most} are the limit: {start}", passed.len()));
        }
    }
    if walks != LENGTHS.len() && !text.is_empty() {
        findings.push(format!("{WALKS}:1: {walks} walks, not {}", LENGTHS.len()));
    }
}

/// The list of numbers has each constant, with its value as it stands in the code, and no other one.
fn check_numbers(files: &[(String, String)], findings: &mut Vec<String>) {
    let entries = |path: &str, entry: fn(&str) -> Option<(&str, &str)>| {
        let text = files.iter().find(|(p, _)| p == path).map_or("", |(_, text)| text.as_str());
        let lines = text.lines().enumerate();
        lines.filter_map(|(index, line)| Some((index + 1, entry(line)?))).collect::<Vec<_>>()
    };
    let numbers = entries(NUMBERS, |line| {
        let (name, rest) = line.strip_prefix("pub(crate) const ")?.split_once(':')?;
        Some((name, rest.split_once(" = ")?.1.trim_end_matches(';')))
    });
    let listed = entries(LIST_OF_NUMBERS, |line| {
        let mut cells = line.split('|').skip(1).map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`'));
        Some((cells.next()??, cells.next()??))
    });
    for (line, (name, value)) in &numbers {
        if !listed.iter().any(|(_, row)| row == &(*name, *value)) {
            findings.push(format!("{NUMBERS}:{line}: `{name}` = `{value}` is not in {LIST_OF_NUMBERS}"));
        }
    }
    for (line, (name, _)) in &listed {
        if !numbers.iter().any(|(_, (known, _))| known == name) {
            findings.push(format!("{LIST_OF_NUMBERS}:{line}: there is no `{name}` in {NUMBERS}"));
        }
    }
}

/// The layer of each module: a line of the table has a number, and the names of the modules there.
fn layers(text: &str) -> Vec<(&str, u32)> {
    let table =
        text.split_once("\nlayer ").map_or("", |(_, rest)| rest.split("```").next().unwrap_or_default());
    let rows = table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let layer = words.next()?.parse().ok()?;
        Some(words.map(move |module| (module, layer)))
    });
    rows.flatten().collect()
}

/// A module uses modules of lower layers only, and names them: not what the root makes public of them.
fn check_layers(files: &[(String, String)], findings: &mut Vec<String>) {
    let sources = || files.iter().filter(|(path, _)| path.starts_with(RUNTIME) && path.ends_with(".rs"));
    let module_of = |path: &str| path[RUNTIME.len()..].split(['/', '.']).next().unwrap_or_default().to_owned();
    let table = files.iter().find(|(path, _)| path == LAYERS).map_or("", |(_, text)| text.as_str());
    let table = layers(table);
    let layer_of = |module: &str| table.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer);
    for (module, _) in &table {
        if !sources().any(|(path, _)| module_of(path) == *module) {
            findings.push(format!("{LAYERS}:1: there is no module `{module}`"));
        }
    }
    let macros: Vec<&str> = sources()
        .flat_map(|(_, text)| text.split("macro_rules! ").skip(1))
        .filter_map(|rest| rest.split([' ', '{']).next())
        .collect();
    for (path, text) in sources() {
        let module = module_of(path);
        if module == "lib" || path.ends_with("/tests.rs") || path.ends_with("/models.rs") {
            continue;
        }
        let Some(layer) = layer_of(&module) else {
            findings.push(format!("{path}:1: the module `{module}` is in no layer of {LAYERS}"));
            continue;
        };
        for (line, used) in used_modules(&without_tests(text)) {
            if used == module || macros.contains(&used.as_str()) {
                continue;
            }
            match layer_of(&used) {
                Some(lower) if lower < layer => {}
                Some(_) => {
                    findings.push(format!("{path}:{line}: `{module}` uses `{used}`, which is not below it"))
                }
                None => {
                    findings.push(format!("{path}:{line}: `crate::{used}` is no module: name the one it is in"))
                }
            }
        }
    }
}

/// The text with comments and the code of tests blanked out, line by line.
fn without_tests(text: &str) -> String {
    let mut until: Option<String> = None; // the line that ends the test's item
    let mut attribute = false;
    let lines = text.lines().map(|line| {
        if until.is_some() {
            until = until.take_if(|end| line != end.as_str());
            return "";
        }
        let start = line.trim_start();
        if attribute && !start.starts_with("#[") {
            attribute = false;
            if line.ends_with('{') {
                until = Some(format!("{}}}", &line[..line.len() - start.len()]));
            }
            return "";
        }
        attribute |= start.starts_with(concat!("#[cfg(te", "st)]")) || start.starts_with("#[cfg(all(test");
        if attribute { "" } else { code(line) }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The first names of all paths from the root of the crate, each with its line.
fn used_modules(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    for (at, _) in text.match_indices("crate::") {
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + "crate::".len()..];
        if !rest.starts_with('{') {
            found.push((line, name(rest)));
            continue;
        }
        let mut depth = 0;
        let mut is_start = false;
        for (i, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if is_start && !c.is_whitespace() {
                found.push((line, name(&rest[i..])));
                is_start = false;
            }
            is_start |= depth == 1 && (c == '{' || c == ',');
        }
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

/// Each row of the table of faults ends with the tests that show it (`` `file`: `test`, `test`; `file`: all of it ``),
/// or with the source file that has unit tests of it. Files and tests are there.
fn check_faults(files: &[(String, String)], findings: &mut Vec<String>) {
    let file = |path: &str| files.iter().find(|(p, _)| p == path).map(|(_, text)| text.as_str());
    let is_head = |line: &str| line.starts_with("| fault ") || line.starts_with("|---");
    for (index, line) in file(FAULTS).unwrap_or("").lines().enumerate() {
        let Some(cell) =
            line.strip_prefix('|').and_then(|row| row.trim_end().trim_end_matches('|').rsplit('|').next())
        else {
            continue;
        };
        let mut find = |what: String| findings.push(format!("{FAULTS}:{}: {what}", index + 1));
        for part in cell.split(';').filter(|_| !is_head(line)) {
            let (test_file, tests) = part.split_once(':').unwrap_or(("", part));
            let names = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
            match names(test_file).first() {
                // A source file, which `check_names` looks for.
                None if names(tests).iter().any(|name| name.ends_with(".rs")) => {}
                None => find(format!("no test in `{}`", part.trim())),
                Some(name) => {
                    match [TESTS, TESTS_OF_INTERPOSE].iter().find_map(|at| file(&format!("{at}{name}.rs"))) {
                        None => find(format!("there is no `{TESTS}{name}.rs`")),
                        Some(text) => names(tests)
                            .iter()
                            .filter(|test| !text.contains(&format!("fn {test}(")))
                            .for_each(|test| find(format!("`{name}` has no test `{test}`"))),
                    }
                }
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
    fn one_door_in() {
        for call in ["shared.push_global_one(g);", "p.runq.push_next(g);", "synced.global.push(g);"] {
            assert_finds(SRC, call, 1, "queued elsewhere");
            assert_clean(&format!("{}a.rs", super::QUEUES), call);
            assert_clean(super::MOVERS[0], call);
            assert_clean(TEST, call);
        }
    }

    #[test]
    fn names_in_documents() {
        let files = |text: &str| {
            [
                ("crates/mungo/src/a/README.md", text),
                ("crates/mungo/src/a/b.rs", ""),
                ("crates/mungo/src/c.rs", ""),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
        };
        let mut findings = Vec::new();
        super::check_names(&files("`b.rs`, `a/b.rs`, `../c.rs` and c.rs (`c.rs`)"), &mut findings);
        assert_eq!(findings, [""; 0]);
        super::check_names(&files("x\n`d.rs`"), &mut findings);
        assert_eq!(findings, ["crates/mungo/src/a/README.md:2: there is no `d.rs`"]);
        let [_, b, c] = files("");
        findings.clear();
        super::check_names(&[("docs/e.md".into(), "`b.rs`, `a/b.rs`, `f.rs`".into()), b, c], &mut findings);
        assert_eq!(findings, ["docs/e.md:1: there is no `f.rs`"]);
    }

    #[test]
    fn walks_are_short_and_name_what_is_there() {
        let check = |way: &str, n: usize| {
            let walk = |start: &str| format!("{start}: {n} files.\n\n| step | the way |\n| `x` | {way} |\n\n");
            let text: String = super::LENGTHS.iter().map(|(start, _)| walk(start)).collect();
            let files = [
                (super::WALKS.to_owned(), text),
                (format!("{}a.rs", super::RUNTIME), "fn go() {}\nfn wait<T>() {}".to_owned()),
                (format!("{}sched/b.rs", super::RUNTIME), "fn went() {}".to_owned()),
            ];
            let mut findings = Vec::new();
            super::check_walks(&files, &mut findings);
            findings
        };
        assert_eq!(check("`a.rs` `go` → `wait` → `b.rs` `went` → `a.rs` `go`", 2), [""; 0]);
        assert!(check("`a.rs` `go` → `b.rs` `wen`", 2)[0].ends_with(":4: `b.rs` has no function `wen`"));
        assert!(check("`a.rs` `go` → `b.rs` `went`", 3)[0].contains(":1: 2 files, 12 are the limit"));
        let long: String = (0..8).map(|i| format!("`{i}.rs` ")).collect();
        assert!(check(&long, 8)[0].contains("8 files, 7 are the limit"));
    }

    #[test]
    fn faults_have_tests() {
        let check = |row: &str| {
            let text = format!("| fault | outcome | test |\n|---|---|---|\n| a | `b` | {row} |");
            let test = format!("{}a.rs", super::TESTS);
            let files = [(super::FAULTS, &*text), (&*test, "#[test]\nfn works() {}\nfn works_too() {}")];
            let mut findings = Vec::new();
            super::check_faults(&files.map(|(path, text)| (path.into(), text.into())), &mut findings);
            findings
        };
        for row in ["`a`: `works`, `works_too`", "`a`: all of the file; unit tests of `b/c.rs`"] {
            assert_eq!(check(row), [""; 0]);
        }
        assert_eq!(check("`a`: `works`, `work`"), ["docs/faults.md:3: `a` has no test `work`"]);
        assert_eq!(check("`b`: `works`"), ["docs/faults.md:3: there is no `crates/mungo/tests/b.rs`"]);
        assert_eq!(check("none"), ["docs/faults.md:3: no test in `none`"]);
    }

    #[test]
    fn sentences_have_subjects() {
        for word in super::VAGUE {
            assert_finds(SRC, &format!("// If {word} waits."), 1, "instead of a subject");
            assert_finds("docs/a.md", &format!("If {word} waits."), 1, "instead of a subject");
            assert_clean(TEST, &format!("// If {word} waits."));
        }
        assert_clean(SRC, "// If a goroutine waits, however long.");
    }

    #[test]
    fn numbers_stand_in_one_file() {
        let (pick, run) = (format!("{}a.rs", super::DECIDING[0]), format!("{}run/a.rs", super::SCHEDULER));
        for (path, line) in
            [(&pick, "const MANY: usize = 4;"), (&run, "    pub(crate) const WAIT_NS: u64 = 1_000;")]
        {
            assert_finds(path, line, 1, "decides scheduling elsewhere");
            assert_clean(SRC, line);
        }
        assert_clean(&run, "const MANY: usize = 4;");
        assert_clean(&pick, "const STACK: usize = 4;");
        assert_clean(&pick, "const fn new() -> X {");
    }

    #[test]
    fn numbers_are_listed() {
        let check = |code: &str, list: &str| {
            let files = [(super::NUMBERS, code), (super::LIST_OF_NUMBERS, list)];
            let mut findings = Vec::new();
            super::check_numbers(&files.map(|(path, text)| (path.into(), text.into())), &mut findings);
            findings
        };
        let code = "/// Doc.\npub(crate) const A_NS: u64 = 1_000;\n";
        let missing = &*format!("{}:2: `A_NS` = `1_000` is not in docs/numbers.md", super::NUMBERS);
        assert_eq!(check(code, "| name | value |\n|---|---|\n| `A_NS` | `1_000` | ns |"), [""; 0]);
        assert_eq!(check(code, "| name | value |"), [missing]);
        assert_eq!(check(code, "| `A_NS` | `2_000` | ns |"), [missing]);
        let unknown = &*format!("docs/numbers.md:1: there is no `B` in {}", super::NUMBERS);
        assert_eq!(check(code, "| `B` | `1_000` |"), [missing, unknown]);
    }

    #[test]
    fn modules_use_lower_layers() {
        let check = |path: &str, code: &str| {
            let table = "x\n\n```text\nlayer  modules\n 1  b c\n 0  a\n```\n 2  d\n";
            let files = [("a.rs", ""), ("b/mod.rs", ""), ("c.rs", "macro_rules! m {"), (path, code)];
            let mut files: Vec<_> = files
                .iter()
                .map(|(path, text)| (format!("{}{path}", super::RUNTIME), text.to_string()))
                .collect();
            files.push((super::LAYERS.into(), table.into()));
            let mut findings = Vec::new();
            super::check_layers(&files, &mut findings);
            findings
        };
        let path = |rest: &str| format!("{}{rest}", super::RUNTIME);
        for fine in [
            "use crate::a::X;",
            "use crate::{a, b::{c::D, e}};",
            "crate::m!(1);",
            "// crate::c",
            "#[cfg(test)]\nmod tests {\n    use crate::c;\n}",
            "#[cfg(test)]\nuse crate::c;",
        ] {
            assert_eq!(check("b/x.rs", fine), [""; 0], "{fine}");
        }
        let upward = format!("{}: `b` uses `c`, which is not below it", path("b/x.rs:2"));
        for wrong in [
            "\nuse crate::c::X;",
            "\nuse crate::{a, c};",
            "#[cfg(test)]\nuse crate::c;\nlet x = crate::c::y();",
        ] {
            let line = upward.replace(":2", &format!(":{}", wrong.matches('\n').count() + 1));
            assert_eq!(check("b/x.rs", wrong), [line.as_str()]);
        }
        assert_eq!(
            check("a/x.rs", "crate::go();"),
            [format!("{}: `crate::go` is no module: name the one it is in", path("a/x.rs:1"))]
        );
        assert_eq!(
            check("d.rs", ""),
            [format!("{}: the module `d` is in no layer of {}", path("d.rs:1"), super::LAYERS)]
        );
    }

    #[test]
    fn loom_is_for_protocols() {
        let gate = concat!("#[cfg(not(lo", "om))]\nmod a;\n");
        assert_finds(SRC, gate, 1, "outside of the protocols");
        assert_clean(SRC, &format!("{gate}{}\nmod models;\n", super::MODEL));
        assert_clean(TEST, gate);
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
        assert_clean(SRC, "a.load(Acquire); // WHY NOT: SeqCst, or a fence(): no thread looks");
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
