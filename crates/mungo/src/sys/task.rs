//! What the kernel says of the threads of this process.

use std::fs::File;
use std::io::Read;

/// A thread that sleeps in a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sleeping {
    /// The call, its arguments, and where it is: the same as long as the thread has not gone on.
    line: String,
    pub(crate) instruction: usize,
    pub(crate) stack_pointer: usize,
}

/// `None`: it does not sleep, or the kernel does not tell.
pub(crate) fn sleeping(tid: i32) -> Option<Sleeping> {
    parse(std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?)
}

fn parse(line: String) -> Option<Sleeping> {
    let number = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut words = line.split_whitespace().rev();
    let (instruction, stack_pointer) = (number(words.next()?)?, number(words.next()?)?);
    Some(Sleeping { line, instruction, stack_pointer })
}

/// Whether and how often a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// It sleeps or waits for a disk, rather than being runnable.
    pub(crate) asleep: bool,
    /// How often it went to sleep so far.
    pub(crate) sleeps: u64,
}

/// `None`: the thread is gone, or the kernel does not tell.
pub(crate) fn rest(tid: i32) -> Option<Rest> {
    let mut text = [0u8; 4096];
    let n = File::open(format!("/proc/self/task/{tid}/status")).and_then(|mut f| f.read(&mut text)).ok()?;
    parse_rest(&text[..n])
}

fn parse_rest(text: &[u8]) -> Option<Rest> {
    let value = |name: &[u8]| text.split(|&c| c == b'\n').find_map(|line| line.strip_prefix(name));
    let state = value(b"State:\t")?.first()?;
    let sleeps = std::str::from_utf8(value(b"voluntary_ctxt_switches:\t")?).ok()?.parse().ok()?;
    Some(Rest { asleep: matches!(state, b'S' | b'D'), sleeps })
}

/// All threads.
pub(crate) fn all() -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let found = parse("202 0x1 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe10 0x7f55\n".to_owned()).unwrap();
        assert_eq!((found.instruction, found.stack_pointer), (0x7f55, 0x7ffe10));
        assert_eq!(parse("running\n".to_owned()), None);
        assert_eq!(parse(String::new()), None);
    }

    #[test]
    fn rest_is_understood() {
        let text = b"Name:\tState:\nState:\tD (disk sleep)\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(parse_rest(text), Some(Rest { asleep: true, sleeps: 12 }));
        assert_eq!(parse_rest(b"State:\tR (running)\n"), None);
    }

    #[test]
    fn this_thread_does_not_sleep() {
        // SAFETY: no memory involved.
        let me = unsafe { libc::gettid() };
        assert!(!rest(me).unwrap().asleep);
        assert_eq!(rest(i32::MAX), None);
        assert!(all().contains(&me));
        assert_eq!(sleeping(i32::MAX), None);
    }
}
