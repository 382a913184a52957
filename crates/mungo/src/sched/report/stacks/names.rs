//! From addresses to the names of functions.

use crate::sched::report::dump::Frame;
use std::ffi::c_void;
use std::ops::Range;

/// Returns the functions at an address that a call returns to: several if some were inlined.
pub(crate) fn name(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        // Without the hash at its end.
        let name = symbol.name().map(|name| format!("{name:#}"));
        let function = name.map_or_else(|| format!("{address:#x}"), without_arguments);
        let file = symbol.filename().map(|path| path.display().to_string());
        frames.push(Frame { function, file, line: symbol.lineno() });
    });
    if frames.is_empty() {
        frames.push(Frame { function: format!("{address:#x}"), file: None, line: None });
    }
    frames
}

/// Frees what was read of the program's line tables.
pub(crate) fn forget_symbols() {
    backtrace::clear_symbol_cache();
}

/// Shortens `recv<alloc::vec::Vec<u8>>` to `recv`: line tables have names like that, and they can be very long.
fn without_arguments(mut name: String) -> String {
    let mut depth = 0;
    let open = name.rfind(|c| {
        depth += i32::from(c == '>') - i32::from(c == '<');
        depth == 0
    });
    if name.ends_with('>') && !name.ends_with("->") && open.is_some_and(|at| at > 0) {
        name.truncate(open.unwrap_or(name.len()));
    }
    name
}

/// Returns which frames are the program's: without those that start a goroutine, and those that switch.
pub(crate) fn of_program(frames: &[Frame]) -> Range<usize> {
    let outer = match frames.iter().position(|f| is_ours(f, "sched/run/worker.rs")) {
        Some(entry) => frames[..entry].iter().rposition(|f| !starts_closure(f)).map_or(0, |at| at + 1),
        None => frames.len(),
    };
    let switches = |f: &Frame| {
        let file = f.file.as_deref().unwrap_or_default();
        file.contains("/corosensei-") || ["sched/", "stack/"].iter().any(|part| is_ours(f, part))
    };
    let inner = frames[..outer].iter().position(|f| !switches(f));
    inner.unwrap_or(0)..outer
}

/// Returns whose a function is, for a reader of a trace, which then does as [`of_program`].
#[cfg(mungo_stacks)]
pub(super) fn part_of(frame: &Frame) -> mungo_trace::Part {
    use mungo_trace::Part;
    let is_corosensei = || frame.file.as_deref().is_some_and(|file| file.contains("/corosensei-"));
    match () {
        () if is_ours(frame, "sched/run/worker.rs") => Part::Begin,
        () if is_corosensei() || ["sched/", "stack/"].iter().any(|part| is_ours(frame, part)) => {
            Part::Scheduler
        }
        () if starts_closure(frame) => Part::Closure,
        () => Part::Program,
    }
}

/// Returns whether it is a function in this part of the runtime's own sources. By the file, since names of inlined
/// functions are short in programs with line tables only.
fn is_ours(frame: &Frame, part: &str) -> bool {
    let root = file!().trim_end_matches("sched/report/stacks/names.rs");
    let file = frame.file.as_deref().unwrap_or_default();
    file.find(root).is_some_and(|at| file[at + root.len()..].starts_with(part))
}

/// Returns whether it is between a goroutine's entry and its closure.
fn starts_closure(frame: &Frame) -> bool {
    const LIBRARY: [&str; 4] = [
        "std/src/panic.rs",
        "std/src/panicking.rs",
        "core/src/panic/unwind_safe.rs",
        "core/src/ops/function.rs",
    ];
    let file = frame.file.as_deref().unwrap_or_default();
    frame.function == "__rust_try" || LIBRARY.iter().any(|name| file.ends_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_last_arguments_only() {
        let short = |name: &str| without_arguments(name.to_owned());
        assert_eq!(short("recv<alloc::vec::Vec<u8>>"), "recv");
        assert_eq!(short("chan::Chan<T>::recv"), "chan::Chan<T>::recv");
        assert_eq!(short("<core::A<F> as B<()>>::call"), "<core::A<F> as B<()>>::call");
        assert_eq!(short("<A as B>"), "<A as B>");
        assert_eq!(short(""), "");
    }
}
