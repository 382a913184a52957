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

/// The kernel's word: sleeping or waiting for a disk, rather than runnable.
pub(crate) fn is_asleep(tid: i32) -> bool {
    let mut text = [0u8; 128];
    let path = format!("/proc/self/task/{tid}/stat");
    let n = File::open(path).and_then(|mut f| f.read(&mut text)).unwrap_or(0);
    let text = &text[..n];
    let state = text.iter().rposition(|&c| c == b')').and_then(|at| text.get(at + 2));
    matches!(state, Some(b'S' | b'D'))
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
    fn this_thread_does_not_sleep() {
        // SAFETY: no memory involved.
        let me = unsafe { libc::gettid() };
        assert!(all().contains(&me));
        assert_eq!(sleeping(i32::MAX), None);
    }
}
