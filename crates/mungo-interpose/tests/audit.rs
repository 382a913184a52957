//! Every function of the C library that std calls and that can block is defined by this crate, or is left alone for a
//! reason that is written down here. A new version of std that calls another one fails this test.

use mungo_interpose as _;
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::process::Command;

/// Functions that take a thread and are the runtime's own (`stack/tls/symbols.rs`), for goroutines and for the numbers
/// that this crate gives those that are threads.
const OF_THE_RUNTIME: [&str; 2] = ["pthread_getaffinity_np", "pthread_getattr_np"];

/// The functions of this crate.
const DEFINED: [&str; 116] = [
    "__poll_chk",
    "__ppoll_chk",
    "__pread64_chk",
    "__pread_chk",
    "__read_chk",
    "__recv_chk",
    "__recvfrom_chk",
    "__sysv_signal",
    "accept",
    "accept4",
    "bsd_signal",
    "clock_nanosleep",
    "close",
    "connect",
    "dup2",
    "dup3",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "flock",
    "fsync",
    "getaddrinfo",
    "getnameinfo",
    "ioctl",
    "lockf",
    "lockf64",
    "mq_receive",
    "mq_send",
    "mq_timedreceive",
    "mq_timedsend",
    "msgrcv",
    "msgsnd",
    "nanosleep",
    "poll",
    "ppoll",
    "pread",
    "pread64",
    "preadv",
    "preadv2",
    "preadv64",
    "preadv64v2",
    "pselect",
    "pthread_cancel",
    "pthread_clockjoin_np",
    "pthread_create",
    "pthread_detach",
    "pthread_exit",
    "pthread_getcpuclockid",
    "pthread_getname_np",
    "pthread_getschedparam",
    "pthread_join",
    "pthread_kill",
    "pthread_self",
    "pthread_setaffinity_np",
    "pthread_setname_np",
    "pthread_setschedparam",
    "pthread_setschedprio",
    "pthread_sigmask",
    "pthread_sigqueue",
    "pthread_timedjoin_np",
    "pthread_tryjoin_np",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "pwritev64",
    "pwritev64v2",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sched_yield",
    "select",
    "semop",
    "semtimedop",
    "send",
    "sendfile",
    "sendfile64",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "sigaction",
    "sigblock",
    "sighold",
    "signal",
    "sigprocmask",
    "sigrelse",
    "sigset",
    "sigsetmask",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "splice",
    "ssignal",
    "syscall",
    "system",
    "sysv_signal",
    "tcdrain",
    "tee",
    "usleep",
    "vmsplice",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
    "write",
    "writev",
];

/// Functions that may block and are not defined here: the runtime gives the P of a thread that blocks away.
const LEFT: [(&str, &str); 38] = [
    ("pthread_mutex_lock", "waits in the C library, out of sight; std has its own lock on Linux"),
    ("open", "a file, but for a FIFO without its other end, or a device; a network file system may take long"),
    ("open64", "as open"),
    ("openat", "as open"),
    ("openat64", "as open"),
    ("creat64", "as open"),
    ("copy_file_range", "files; there is no descriptor to wait for"),
    ("msync", "a file's memory; std does not call it"),
    ("getrandom", "blocks only before the system has collected entropy, once after its start"),
    ("pause", "std stays in it for ever, in a thread that exits while another one does"),
    ("posix_spawn", "returns when the child has called exec: the kernel has no sign for that"),
    ("posix_spawnp", "as posix_spawn"),
    ("pidfd_spawnp", "as posix_spawn"),
    ("aio_suspend", "glibc's threads do the work; nothing that std or the tested crates call"),
    ("close_range", "closes many numbers at once, for exec: waits for them go on"),
    ("closefrom", "as close_range"),
    ("fallocate", "a file; there is no descriptor to wait for"),
    ("posix_fallocate", "as fallocate"),
    ("sync", "all files; programs that are servers do not call it"),
    ("syncfs", "as sync"),
    ("sync_file_range", "a file; there is no descriptor to wait for"),
    ("futex", "the C library has no function of that name; syscall is defined"),
    ("getmsg", "glibc has no STREAMS"),
    ("getpmsg", "as getmsg"),
    ("putmsg", "as getmsg"),
    ("putpmsg", "as getmsg"),
    ("io_getevents", "libaio's, which looks at memory that it shares with the kernel first"),
    ("openat2", "as open"),
    ("pidfd_spawn", "as posix_spawn"),
    ("pthread_cond_timedwait", "waits in the C library, out of sight, as pthread_mutex_lock"),
    ("pthread_cond_wait", "as pthread_cond_timedwait"),
    ("pthread_rwlock_rdlock", "as pthread_cond_timedwait"),
    ("pthread_rwlock_wrlock", "as pthread_cond_timedwait"),
    ("sem_timedwait", "as pthread_cond_timedwait"),
    ("sem_wait", "as pthread_cond_timedwait"),
    ("thrd_join", "C11's threads wait in the C library, out of sight"),
    ("thrd_sleep", "as thrd_join"),
    ("creat", "as open"),
];

/// What can block: the cancellation points of POSIX, and what Linux has beside them. Without the suffix 64.
const CAN_BLOCK: [&str; 100] = [
    "accept",
    "accept4",
    "aio_suspend",
    "clock_nanosleep",
    "close",
    "close_range",
    "closefrom",
    "connect",
    "copy_file_range",
    "creat",
    "dup2",
    "dup3",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fallocate",
    "fcntl",
    "fdatasync",
    "flock",
    "fsync",
    "futex",
    "getaddrinfo",
    "getmsg",
    "getnameinfo",
    "getpmsg",
    "getrandom",
    "io_getevents",
    "ioctl",
    "lockf",
    "mq_receive",
    "mq_send",
    "mq_timedreceive",
    "mq_timedsend",
    "msgrcv",
    "msgsnd",
    "msync",
    "nanosleep",
    "open",
    "openat",
    "openat2",
    "pause",
    "pidfd_spawn",
    "pidfd_spawnp",
    "poll",
    "posix_fallocate",
    "posix_spawn",
    "posix_spawnp",
    "ppoll",
    "pread",
    "preadv",
    "preadv2",
    "preadv64v2",
    "pselect",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_join",
    "pthread_mutex_lock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "putmsg",
    "putpmsg",
    "pwrite",
    "pwritev",
    "pwritev2",
    "pwritev64v2",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sched_yield",
    "select",
    "sem_timedwait",
    "sem_wait",
    "semop",
    "semtimedop",
    "send",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "splice",
    "sync",
    "sync_file_range",
    "syncfs",
    "syscall",
    "system",
    "tcdrain",
    "tee",
    "thrd_join",
    "thrd_sleep",
    "usleep",
    "vmsplice",
    "wait",
];

/// Also waits, with names of their own.
const WAITS: [&str; 6] = ["wait3", "wait4", "waitid", "waitpid", "write", "writev"];

fn can_block(name: &str) -> bool {
    // Also the names for programs with large files, and those of `_FORTIFY_SOURCE`.
    let plain = name.strip_prefix("__").and_then(|name| name.strip_suffix("_chk")).unwrap_or(name);
    let plain = plain.strip_suffix("64").unwrap_or(plain);
    CAN_BLOCK.contains(&plain) || WAITS.contains(&plain)
}

/// All that can block is defined here, or left for a reason, whoever calls it.
#[test]
fn nothing_that_blocks_is_forgotten() {
    let known = |name: &str| DEFINED.contains(&name) || LEFT.iter().any(|(left, _)| *left == name);
    let forgotten: Vec<_> = CAN_BLOCK.iter().chain(&WAITS).filter(|name| !known(name)).collect();
    assert!(forgotten.is_empty(), "{forgotten:?} can block: define them, or say why not");
}

/// Returns the files of the compiler's standard library.
fn libraries() -> Vec<PathBuf> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let print = ["--print", "target-libdir", "--target", &target];
    let Ok(output) = Command::new(rustc).args(print).output() else { return Vec::new() };
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    });
    found
}

/// Returns the names that the objects of an archive use and do not define.
fn wanted(archive: &[u8]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for member in ArchiveFile::parse(archive).expect("an archive").members() {
        let Ok(data) = member.expect("a member").data(archive) else { continue };
        let Ok(file) = object::File::parse(data) else { continue }; // the compiler's metadata
        names.extend(
            file.symbols().filter(|s| s.is_undefined()).filter_map(|s| Some(s.name().ok()?.to_owned())),
        );
    }
    names
}

#[test]
fn what_std_blocks_in_is_known() {
    let libraries = libraries();
    if libraries.is_empty() {
        eprintln!("skipped: the standard library of the compiler was not found");
        return;
    }
    for library in libraries {
        let names = wanted(&std::fs::read(&library).expect("a library"));
        assert!(names.contains("recv") && names.contains("syscall"), "not std: {}", library.display());
        let unknown: Vec<_> = names
            .iter()
            .filter(|name| can_block(name))
            .filter(|name| !DEFINED.contains(&name.as_str()))
            .filter(|name| !LEFT.iter().any(|(left, _)| left == name))
            .collect();
        assert!(unknown.is_empty(), "std blocks in {unknown:?}: define them, or say why not");
    }
}

/// The same for programs with many crates: the tests `existing` and `servers`, if they were built beside this one.
#[test]
fn what_existing_crates_block_in_is_known() {
    for test in ["existing-", "servers-"] {
        what_a_program_blocks_in_is_known(test);
    }
}

fn what_a_program_blocks_in_is_known(prefix: &str) {
    let own = std::env::current_exe().expect("the test");
    let folder = own.parent().expect("a folder");
    let mut built: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_none())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .collect();
    built.sort_by_key(|path| path.metadata().and_then(|about| about.modified()).ok());
    let Some(program) = built.pop() else {
        eprintln!("skipped: the test {prefix} was not built");
        return;
    };
    let data = std::fs::read(&program).expect("a program");
    let file = object::File::parse(&*data).expect("an executable");
    let names: BTreeSet<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| Some(symbol.name().ok()?.to_owned()))
        .collect();
    assert!(names.contains("malloc"), "not its symbols: {}", program.display());
    let unknown: Vec<_> = names
        .iter()
        .filter(|name| can_block(name))
        .filter(|name| !LEFT.iter().any(|(left, _)| left == name))
        .collect();
    assert!(unknown.is_empty(), "crates block in {unknown:?}: define them, or say why not");
}

/// The names are this program's, for itself and for all libraries that it loads.
#[test]
fn the_linker_took_all_of_them() {
    let own = std::env::current_exe().expect("the test").canonicalize().expect("a file");
    for name in DEFINED.into_iter().chain(OF_THE_RUNTIME) {
        let c_name = CString::new(name).expect("a name");
        // SAFETY: a NUL-terminated name, and room for the answer.
        let file = unsafe {
            let at = libc::dlsym(libc::RTLD_DEFAULT, c_name.as_ptr());
            let mut about: libc::Dl_info = std::mem::zeroed();
            assert!(!at.is_null() && libc::dladdr(at, &mut about) != 0, "{name} is not exported");
            CStr::from_ptr(about.dli_fname).to_string_lossy().into_owned()
        };
        let file = PathBuf::from(file).canonicalize().expect("a file");
        assert_eq!(file, own, "{name}");
    }
}

/// A `pthread_t` may be a number of ours, which the C library would take for an address: no function of it that takes
/// one may be called with it.
#[test]
fn every_function_that_takes_a_thread_is_known() {
    /// Functions of <pthread.h> and <signal.h> whose first argument is a thread, and that others do not use.
    const HARMLESS: [(&str, &str); 1] = [("pthread_equal", "compares two numbers")];
    let folder = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["/usr/include", &format!("/usr/include/{folder}"), &format!("/usr/{folder}/include")];
    let header =
        |name| folders.iter().find_map(|folder| std::fs::read_to_string(format!("{folder}/{name}")).ok());
    let (Some(pthread), Some(signal)) = (header("pthread.h"), header("bits/sigthread.h")) else {
        eprintln!("skipped: there are no headers of the C library");
        return;
    };
    let text = [pthread, signal].concat();
    let declared: Vec<_> = text
        .split("extern ")
        .filter_map(|text| {
            let (name, arguments) = text.split_once('(')?;
            let name = name.split_whitespace().last()?.trim_start_matches('*');
            arguments.trim_start().starts_with("pthread_t ").then_some(name)
        })
        .collect();
    assert!(declared.contains(&"pthread_join") && declared.contains(&"pthread_kill"), "{declared:?}");
    for name in declared {
        let known = DEFINED.contains(&name)
            || OF_THE_RUNTIME.contains(&name)
            || HARMLESS.iter().any(|(harmless, _)| *harmless == name);
        assert!(known, "{name} takes a thread: define it, or say why not");
    }
}
