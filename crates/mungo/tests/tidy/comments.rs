//! Names in the runtime's comments: what they lead to is there.
//!
//! Two kinds are looked at, in back-quotes: a source file (`` `engine/hooks.rs` ``), of which the first folders may be
//! left out, and an item of a module (`` `timers::announce` ``), which stands in a file of that name or below a folder
//! of that name.

use super::RUNTIME;

/// First names of paths that lead out of the runtime, or to a type of the language.
const OUTSIDE: [&str; 17] = [
    "std",
    "core",
    "alloc",
    "libc",
    "mungo",
    "super",
    "self",
    "tokio",
    "hyper",
    "hyper_util",
    "lock_api",
    "usize",
    "isize",
    "u64",
    "u32",
    "i64",
    "u8",
];

/// Words before the name of an item where it is made.
const MAKES: [&str; 10] =
    ["fn ", "struct ", "enum ", "const ", "static ", "trait ", "type ", "mod ", "macro_rules! ", "union "];

/// Checks the comments of all files of the runtime.
pub(crate) fn check(files: &[(String, String)], findings: &mut Vec<String>) {
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with(RUNTIME) && path.ends_with(".rs")) {
        for (index, line) in text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            for word in comment.split('`').skip(1).step_by(2) {
                if !is_there(word, files) {
                    findings.push(format!("{path}:{}: there is no `{word}`", index + 1));
                }
            }
        }
    }
}

/// Returns `false` if `word` is the name of a file or an item of the runtime, and leads nowhere.
fn is_there(word: &str, files: &[(String, String)]) -> bool {
    let is_name = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    if word.ends_with(".rs") && is_name(word, "_-./") {
        return files.iter().any(|(path, _)| format!("/{path}").ends_with(&format!("/{word}")));
    }
    let Some((way, item)) = word.trim_end_matches("()").trim_start_matches("crate::").rsplit_once("::") else {
        return true;
    };
    let is_module = |name: &str| is_name(name, "_") && name.starts_with(|c: char| c.is_ascii_lowercase());
    let first = way.split("::").next().unwrap_or_default();
    if OUTSIDE.contains(&first) || !is_name(item, "_") || !way.split("::").all(is_module) {
        return true;
    }
    let module = way.rsplit("::").next().unwrap_or_default();
    files.iter().filter(|(path, _)| path.starts_with(RUNTIME)).any(|(path, text)| {
        let is_file = path.ends_with(&format!("/{module}.rs"));
        (is_file || path.contains(&format!("/{module}/"))) && makes(text, item)
            || path.ends_with(&format!("/{module}/{item}.rs"))
    })
}

/// Returns whether an item of this name is made in `text`, or made public there under that name.
fn makes(text: &str, item: &str) -> bool {
    text.match_indices(item).any(|(at, _)| {
        let ends = !text[at + item.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        ends && (line.starts_with("pub use ") || MAKES.iter().any(|word| line.ends_with(word)))
    })
}

#[test]
fn names_lead_to_what_is_there() {
    let check = |comment: &str| {
        let files = [("a.rs", comment), ("b/mod.rs", "fn go() {}"), ("b/c.rs", "struct S<T>;")];
        let files = files.map(|(path, text)| (format!("{RUNTIME}{path}"), text.to_owned()));
        let mut findings = Vec::new();
        super::comments::check(&files, &mut findings);
        findings
    };
    for fine in
        ["`b/c.rs`", "`c.rs`", "`b::go`", "`crate::b::c::S`", "`b::c`", "`u64::MAX`", "`S::new`", "`b::{a}`"]
    {
        assert_eq!(check(&format!("x(); // See {fine}.")), [""; 0]);
    }
    for gone in ["d.rs", "c/b.rs", "b::g", "c::go", "e::go", "b::d"] {
        assert_eq!(check(&format!("\n/// `{gone}`")), [format!("{RUNTIME}a.rs:2: there is no `{gone}`")]);
    }
    assert_eq!(check("let a = \"`d.rs`\";"), [""; 0], "no comment");
}
