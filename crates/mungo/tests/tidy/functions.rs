//! The length of functions.

/// The most lines of a function, from `fn` to its last brace.
const MAX_LINES_FUNCTION: usize = 70;

/// The crates whose functions are measured, tests included: not the lab, whose reports write one table after the other.
const CRATES: [&str; 3] = ["crates/mungo/", "crates/mungo-interpose/", "crates/mungo-trace/"];

/// Checks the functions of a file. One of assembly alone is exempt: it cannot be taken apart.
pub(crate) fn check(path: &str, text: &str, findings: &mut Vec<String>) {
    if !path.ends_with(".rs") || !CRATES.iter().any(|folder| path.starts_with(folder)) {
        return;
    }
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let start = line.trim_start();
        let is_naked = index > 0 && lines[index - 1].trim() == "#[unsafe(naked)]";
        let Some(name) = name_of(start).filter(|_| !is_naked) else { continue };
        let end = format!("{}}}", &line[..line.len() - start.len()]);
        // A declaration without a body ends with a `;` on its own line or a later one, before any brace.
        let Some(body) = lines[index..].iter().position(|line| line.ends_with(['{', ';', '}'])) else {
            continue;
        };
        if !lines[index + body].ends_with('{') {
            continue;
        }
        let Some(last) = lines[index..].iter().position(|line| *line == end) else { continue };
        let count = last + 1;
        if count > MAX_LINES_FUNCTION {
            findings.push(format!(
                "{path}:{}: `{name}` has {count} lines, {MAX_LINES_FUNCTION} are the limit",
                index + 1
            ));
        }
    }
}

/// Returns the name of the function that starts on this line.
fn name_of(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_word = |word: &str| {
        ["pub", "const", "async", "unsafe", "extern"].contains(&word)
            || word.starts_with("pub(")
            || word.starts_with('"')
            || word.ends_with(')')
    };
    before.split_whitespace().all(is_word).then(|| rest.split(['(', '<']).next().unwrap_or_default())
}

#[test]
fn functions_are_short() {
    let check = |head: &str, lines: usize| {
        let text = format!("{head} {{\n{}}}\n", "    x();\n".repeat(lines - 2));
        let mut findings = Vec::new();
        super::functions::check("crates/mungo/src/a.rs", &text, &mut findings);
        findings
    };
    let finding = |line| [format!("crates/mungo/src/a.rs:{line}: `a` has 71 lines, 70 are the limit")];
    for head in ["fn a()", "pub(in crate::b) unsafe extern \"C\" fn a<T>(\n    t: T,\n)"] {
        let more = head.matches('\n').count();
        assert_eq!(check(head, 70 - more), [""; 0]);
        assert_eq!(check(head, 71 - more), finding(1));
    }
    assert_eq!(check("#[unsafe(naked)]\nfn a()", 71), [""; 0]);
    assert_eq!(check("// fn a()", 71), [""; 0]);
    assert_eq!(check("#[inline]\nfn a()", 71), finding(2));
    let mut findings = Vec::new();
    let declared = format!("    fn a();\n{}", "x();\n".repeat(80));
    super::functions::check("crates/mungo/src/a.rs", &declared, &mut findings);
    assert_eq!(findings, [""; 0]);
}
