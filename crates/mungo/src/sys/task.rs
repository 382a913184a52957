//! Reads what the kernel says of the threads of this process.

use super::thread::Text;
use std::fmt::Write;

/// A thread that sleeps in a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sleeping {
    /// The call, its arguments, and its place in the code: the same as long as the thread has not gone on.
    line: String,
    pub(crate) instruction: usize,
    pub(crate) stack_pointer: usize,
}

/// Returns the system call that a thread sleeps in. `None`: it does not sleep, or the kernel does not tell.
pub(crate) fn sleeping(tid: i32) -> Option<Sleeping> {
    parse(std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?)
}

fn parse(line: String) -> Option<Sleeping> {
    let number = |word: &str| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut words = line.split_whitespace().rev();
    let (instruction, stack_pointer) = (number(words.next()?)?, number(words.next()?)?);
    Some(Sleeping { line, instruction, stack_pointer })
}

/// Returns whether a thread sleeps in the kernel or waits for a disk, rather than being runnable. `None`: the kernel
/// does not tell, for want of a descriptor or of `/proc`. Allocates nothing.
pub(crate) fn is_asleep(tid: i32) -> Option<bool> {
    let mut path = Text::<64>::new();
    write!(path, "/proc/self/task/{tid}/stat\0").ok()?;
    let mut text = [0u8; 128];
    // WHY NOT `libc::close`: with `mungo-interpose` it may be a shim, which takes locks.
    // SAFETY: the path ends with a zero; the kernel writes into `text`.
    let n = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_bytes().as_ptr(), flags);
        if file < 0 {
            return None;
        }
        let n = libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, file);
        usize::try_from(n).ok()?
    };
    let text = &text[..n];
    let state = text.iter().rposition(|&c| c == b')').and_then(|at| text.get(at + 2));
    state.map(|state| matches!(state, b'S' | b'D'))
}

/// Returns the ids of all threads.
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
        assert_eq!(is_asleep(me), Some(false));
        assert_eq!(is_asleep(i32::MAX), None);
    }
}
