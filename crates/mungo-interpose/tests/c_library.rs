//! A library in C that is loaded while the program runs: its blocking calls park goroutines.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{child, go_named, runtime, wait_until_parked};
use mungo_interpose::counts;
use std::ffi::{CString, c_int, c_void};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Compiled with `_FORTIFY_SOURCE`: sizes that the compiler cannot see make calls of `__read_chk` and its kin.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <poll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int byte_of(long n, const char *at) { return n == 1 ? at[0] : -1; }
int by_recv(int fd, int n) { char at[8]; return byte_of(recv(fd, at, n, 0), at); }
int by_recvfrom(int fd, int n) { char at[8]; return byte_of(recvfrom(fd, at, n, 0, 0, 0), at); }
int by_read(int fd, int n) { char at[8]; return byte_of(read(fd, at, n), at); }
int by_poll(int fd, int n) {
    struct pollfd all[2] = { { fd, POLLIN, 0 }, { -1, 0, 0 } };
    return poll(all, n, -1) == 1 && all[0].revents == POLLIN ? by_read(fd, n) : -1;
}
int by_ppoll(int fd, int n) {
    struct pollfd all[2] = { { fd, POLLIN, 0 }, { -1, 0, 0 } };
    struct timespec limit = { 3600, 0 };
    return ppoll(all, n, &limit, 0) == 1 ? by_read(fd, n) : -1;
}
int by_select(int fd, int n) {
    fd_set reads, others;
    struct timeval limit = { 3600, 0 };
    FD_ZERO(&reads); FD_ZERO(&others); FD_SET(fd, &reads); FD_SET(fd, &others);
    if (select(fd + 1, &reads, 0, &others, &limit) != 1) return -1;
    if (!FD_ISSET(fd, &reads) || FD_ISSET(fd, &others) || limit.tv_sec >= 3600) return -2;
    return by_read(fd, n);
}
int by_pselect(int fd, int n) {
    fd_set reads;
    FD_ZERO(&reads); FD_SET(fd, &reads);
    return pselect(fd + 1, &reads, 0, 0, 0, 0) == 1 && FD_ISSET(fd, &reads) ? by_read(fd, n) : -1;
}
int selected(int fd, int ms) {
    fd_set reads, writes;
    struct timeval limit = { 0, ms * 1000 };
    FD_ZERO(&reads); FD_ZERO(&writes); FD_SET(fd, &reads);
    if (ms == 0) FD_SET(fd, &writes);
    int ready = select(fd + 1, &reads, &writes, 0, &limit);
    return ready * 100 + FD_ISSET(fd, &reads) * 10 + FD_ISSET(fd, &writes);
}
int wrong_select(int fd) { fd_set set; FD_ZERO(&set); FD_SET(fd, &set); return select(-1, &set, 0, 0, 0); }
int by_wait4(int pid, int n) {
    int status;
    struct rusage used;
    return wait4(pid, &status, 0, &used) == pid ? WEXITSTATUS(status) + n : -1;
}
int by_files(int fd, int n) {
    char at[8], more[8];
    struct iovec parts[2] = { { at, n }, { more, n } };
    if (pwrite(fd, "a", n, 0) != n || pwritev(fd, parts, 0, 0) != 0) return -1;
    if (pread(fd, at, n, 0) != n || preadv(fd, parts, 2, 0) != n) return -2;
    return at[0];
}
int by_nanosleep(int ms) { struct timespec time = { 0, ms * 1000000 }; return nanosleep(&time, 0); }
"#;

/// The loaded library.
#[derive(Clone, Copy)]
struct Library(usize);

impl Library {
    /// Compiles and loads it; `None`: there is no C compiler.
    fn load(name: &str) -> Option<Library> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (source, to) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
        std::fs::write(&source, LIBRARY).unwrap();
        let options = ["-shared", "-fPIC", "-O2", "-D_FORTIFY_SOURCE=2", "-w", "-o"];
        let Ok(status) = child::cc().args(options).arg(&to).arg(&source).status() else {
            eprintln!("skipped: there is no C compiler (cc)");
            return None;
        };
        assert!(status.success());
        let path = CString::new(to.to_str().unwrap()).unwrap();
        // SAFETY: a library without constructors.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Some(Library(library as usize))
    }

    /// Calls a function of two numbers.
    fn call(self, name: &str, a: c_int, b: c_int) -> c_int {
        let name = CString::new(name).unwrap();
        // SAFETY: all functions of the library take two numbers, or ignore the second.
        unsafe {
            let at = libc::dlsym(self.0 as *mut c_void, name.as_ptr());
            assert!(!at.is_null(), "{name:?}");
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int, c_int) -> c_int>(at)(a, b)
        }
    }
}

#[test]
fn a_loaded_library_parks_goroutines() {
    let Some(library) = Library::load("parks") else { return };
    let runtime = runtime(1);
    runtime.run(|| {
        for name in ["by_recv", "by_recvfrom", "by_read", "by_poll", "by_ppoll", "by_select", "by_pselect"] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let waiter = go_named(name, move || library.call(name, near.as_raw_fd(), 1));
            wait_until_parked(name);
            far.write_all(&[7]).unwrap();
            assert_eq!(waiter.join().unwrap(), 7, "{name}");
        }
        let start = Instant::now();
        mungo::scope(|s| {
            for _ in 0..100 {
                s.spawn(|| assert_eq!(library.call("by_nanosleep", 5, 0), 0));
            }
        });
        assert!(start.elapsed() >= Duration::from_millis(5));
        let child = Command::new("sh").args(["-c", "read x; exit 3"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut child = std::mem::ManuallyDrop::new(child);
        let (stdin, pid) = (child.stdin.take(), child.id());
        let waiter = go_named("wait4", move || library.call("by_wait4", pid as c_int, 1));
        wait_until_parked("wait4");
        drop(stdin);
        assert_eq!(waiter.join().unwrap(), 4);
    });
    let parked = |name: &str| counts().find(|c| c.function == name).unwrap().parked;
    for name in ["recv", "recvfrom", "read", "poll", "ppoll", "clock_nanosleep", "waitpid"] {
        assert!(parked(name) != 0, "{name}");
    }
    assert!(parked("select") >= 2);
    assert!(runtime.metrics().threads < 20, "{}", runtime.metrics().threads);
}

#[test]
fn its_other_calls_are_as_on_threads() {
    let Some(library) = Library::load("others") else { return };
    let (near, _far) = UnixStream::pair().unwrap();
    let fd = near.as_raw_fd();
    // SAFETY: a new file without a name.
    let file = unsafe { libc::memfd_create(c"test".as_ptr(), 0) };
    let ask = || {
        assert_eq!(library.call("selected", fd, 0), 101, "writable, not readable");
        assert_eq!(library.call("selected", fd, 2), 0, "neither, and the sets are empty");
        assert_eq!(library.call("wrong_select", fd, 0), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(library.call("by_files", file, 1), c_int::from(b'a'));
    };
    ask();
    runtime(1).run(ask);
    // SAFETY: ours.
    unsafe { libc::close(file) };
}
