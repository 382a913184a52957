//! The C library takes a goroutine for a thread: its own thread-locals, processes, locales, libraries loaded later.
#![cfg(mungo_own_tls)]

mod tls_support;

own_thread_locals_only!();

use std::ffi::{CString, c_int, c_void};
use std::io::Read;
use std::net::ToSocketAddrs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use tls_support::*;

/// Runs `body` in `n` goroutines at the same time on four Ps, and again on the blocks of the first ones.
fn in_goroutines(n: u64, body: fn(u64)) {
    let rt = runtime(4);
    rt.run(|| {
        for _ in 0..2 {
            let all: Vec<_> = (0..n).map(|i| mungo::go(move || body(i))).collect();
            all.into_iter().for_each(|h| h.join().expect("no panic"));
        }
    });
    finish(rt);
}

#[test]
fn character_classes_numbers_and_dates() {
    in_goroutines(8, |_| {
        for _ in 0..3 {
            // SAFETY: plain functions of the C library with valid arguments.
            unsafe {
                assert_ne!(libc::isspace(c_int::from(b' ')), 0);
                assert_eq!(libc::isspace(c_int::from(b'x')), 0);
                assert_eq!(libc::toupper(c_int::from(b'x')), c_int::from(b'X'));
                assert_eq!(libc::strtod(c"1.5e3".as_ptr(), std::ptr::null_mut()), 1500.0);
                let mut date: libc::tm = std::mem::zeroed();
                assert!(!libc::localtime_r(&86_400_000, &mut date).is_null());
                assert_eq!(date.tm_year, 72, "1972");
            }
            migrate();
        }
        assert!(std::io::Error::from_raw_os_error(libc::ENOENT).to_string().contains("No such file"));
    });
}

#[test]
fn names_are_resolved() {
    in_goroutines(4, |_| {
        for _ in 0..3 {
            let mut found = ("localhost", 80).to_socket_addrs().expect("localhost has an address");
            assert!(found.any(|at| at.ip().is_loopback()));
            migrate();
        }
    });
}

#[test]
fn processes_are_started() {
    in_goroutines(4, |id| {
        let output = Command::new("echo").arg(id.to_string()).output().expect("echo");
        assert_eq!(output.stdout, format!("{id}\n").as_bytes());
        migrate();
        let mut child = Command::new("cat").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("cat");
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(text.is_empty() && child.wait().unwrap().success());
    });
}

/// With `pre_exec` std forks, and the child goes on in the goroutine's thread block for a while.
#[test]
#[cfg_attr(
    mungo_asan,
    ignore = "the sanitizer's allocator has a lock that it does not release in a forked child"
)]
fn a_forked_child_runs_until_it_execs() {
    thread_local! {
        static ID: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    in_goroutines(4, |id| {
        ID.set(id);
        migrate();
        let mut command = Command::new("sh");
        command.args(["-c", "exit $CODE"]).env("CODE", "3");
        // SAFETY: what it does is allowed after fork: it allocates, which glibc's malloc permits.
        unsafe {
            command.pre_exec(move || {
                let words: Vec<u64> = (0..1000).collect();
                let tid = libc::syscall(libc::SYS_gettid);
                let same = tid == libc::c_long::from(libc::getpid()) && words[999] == 999 && ID.get() == id;
                if same { Ok(()) } else { Err(std::io::ErrorKind::Other.into()) }
            });
        }
        assert_eq!(command.status().expect("sh").code(), Some(3));
        let missing = command.current_dir("/nonexistent-folder").status();
        assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(ID.get(), id);
    });
}

#[test]
fn signals_to_oneself_arrive_on_this_thread() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    static WHERE: AtomicI64 = AtomicI64::new(0);
    extern "C" fn note(_: c_int) {
        WHERE.store(os_thread(), SeqCst);
        SEEN.fetch_add(1, SeqCst);
    }
    // SAFETY: a handler that stores two numbers.
    unsafe { libc::signal(libc::SIGUSR2, note as *const () as libc::sighandler_t) };
    let rt = runtime(4);
    rt.run(|| {
        for i in 1..=10 {
            migrate();
            // SAFETY: the handler is there.
            unsafe {
                assert_eq!(libc::raise(libc::SIGUSR2), 0);
                assert_eq!((SEEN.load(SeqCst), WHERE.load(SeqCst)), (2 * i - 1, os_thread()));
                assert_eq!(libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2), 0);
                assert_eq!((SEEN.load(SeqCst), WHERE.load(SeqCst)), (2 * i, os_thread()));
            }
        }
    });
    finish(rt);
}

#[test]
fn a_recursive_mutex_knows_its_goroutine() {
    struct Recursive(std::cell::UnsafeCell<libc::pthread_mutex_t>);
    // SAFETY: a pthread mutex is made to be shared.
    unsafe impl Sync for Recursive {}
    // SAFETY: as above.
    unsafe impl Send for Recursive {}
    // SAFETY: initialised below before anybody uses it, never moved, never destroyed while locked.
    let mutex: &'static Recursive = unsafe {
        let mutex = Box::leak(Box::new(Recursive(std::mem::zeroed())));
        let mut attr = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attr);
        libc::pthread_mutexattr_settype(&mut attr, libc::PTHREAD_MUTEX_RECURSIVE);
        assert_eq!(libc::pthread_mutex_init(mutex.0.get(), &attr), 0);
        mutex
    };
    let rt = runtime(4);
    rt.run(|| {
        for _ in 0..10 {
            // SAFETY: a valid mutex; unlocked by its owner as often as locked.
            unsafe {
                assert_eq!(libc::pthread_mutex_lock(mutex.0.get()), 0);
                migrate();
                assert_eq!(libc::pthread_mutex_lock(mutex.0.get()), 0, "again by its owner");
                let other = mungo::go(|| libc::pthread_mutex_trylock(mutex.0.get()));
                assert_eq!(other.join().unwrap(), libc::EBUSY, "a goroutine is not its neighbour");
                assert_eq!(libc::pthread_mutex_unlock(mutex.0.get()), 0);
                assert_eq!(libc::pthread_mutex_unlock(mutex.0.get()), 0);
            }
        }
    });
    finish(rt);
}

/// The locale is a pointer in libc's own thread-locals, which stay with the block. One that was left set would
/// point to freed memory in the next goroutine.
#[test]
fn a_locale_ends_with_its_goroutine() {
    const GLOBAL: libc::locale_t = -1isize as libc::locale_t;
    let rt = runtime(1);
    rt.run(|| {
        for _ in 0..100 {
            let made = mungo::go(|| {
                // SAFETY: a new locale for this goroutine.
                unsafe {
                    assert_eq!(libc::uselocale(std::ptr::null_mut()), GLOBAL, "fresh");
                    let locale = libc::newlocale(libc::LC_ALL_MASK, c"C".as_ptr(), std::ptr::null_mut());
                    libc::uselocale(locale);
                    mungo::yield_now();
                    assert_eq!(libc::uselocale(std::ptr::null_mut()), locale);
                    locale as usize
                }
            });
            let locale = made.join().unwrap();
            // SAFETY: nobody uses it any more.
            unsafe { libc::freelocale(locale as libc::locale_t) };
            // SAFETY: asks only.
            let next =
                mungo::go(|| unsafe { (libc::uselocale(std::ptr::null_mut()) as usize, libc::isspace(32)) });
            let (locale, space) = next.join().unwrap();
            assert!(locale == GLOBAL as usize && space != 0);
        }
    });
    finish(rt);
}

// ---- libraries loaded while goroutines run ----

const LIBRARY: &str = "
static __thread int counter = 7;
static __thread char room[3000];
int bump(void) { room[counter % 3000]++; return ++counter; }
int spread(void) { int n = 0; for (int i = 0; i < 3000; i++) n += room[i]; return n; }
";

/// Compiles the library; `None` without a C compiler.
fn build_library(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("counter.c"), folder.join("libcounter.so"));
    std::fs::write(&source, LIBRARY).expect("a writable folder");
    // GNU's traditional dialect: thread-locals by `__tls_get_addr`, made on demand.
    let cc =
        tls_support::emulator::cc().args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
    cc.ok()?.success().then_some(library)
}

#[derive(Clone, Copy)]
struct Library {
    handle: usize,
    bump: extern "C" fn() -> c_int,
    spread: extern "C" fn() -> c_int,
}

impl Library {
    fn open(path: &Path) -> Library {
        let name = CString::new(path.to_str().expect("a readable path")).expect("no NUL");
        // SAFETY: a library without constructors; the functions have these types.
        unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null());
            let function = |name: &std::ffi::CStr| -> extern "C" fn() -> c_int {
                let at = libc::dlsym(handle, name.as_ptr());
                assert!(!at.is_null());
                std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(at)
            };
            Library { handle: handle as usize, bump: function(c"bump"), spread: function(c"spread") }
        }
    }

    /// # Safety
    /// Nobody is in it, or will be.
    unsafe fn close(self) {
        // SAFETY: by the caller.
        assert_eq!(unsafe { libc::dlclose(self.handle as *mut c_void) }, 0);
    }

    /// Counts up; fresh in a goroutine that has not called this before.
    fn count(self, from: c_int, n: c_int) {
        assert_eq!((self.spread)(), from - 7);
        for i in 1..=n {
            assert_eq!((self.bump)(), from + i);
        }
    }
}

#[test]
fn a_library_loaded_by_a_goroutine_has_thread_locals_per_goroutine() {
    let name = "a_library_loaded_by_a_goroutine_has_thread_locals_per_goroutine";
    if in_child(name, &[]).is_some() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("mungo-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    match build_library(&folder) {
        Some(path) => use_library(&path),
        None => eprintln!("skipped: no C compiler (cc)"),
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

fn use_library(path: &Path) {
    let rt = runtime(4);
    let path = path.to_owned();
    rt.run(|| {
        // Blocks that were made before it was loaded.
        spawn_cycles(1000, |_| ());
        for _ in 0..3 {
            let path = path.clone();
            let opened = mungo::go(move || {
                let library = Library::open(&path);
                library.count(7, 5);
                migrate();
                library.count(12, 5);
                library
            });
            let library = opened.join().unwrap();
            let alive: Vec<_> = (0..20)
                .map(|_| {
                    mungo::go(move || {
                        for i in 0..10 {
                            library.count(7 + 3 * i, 3);
                            if i % 5 == 0 { migrate() } else { mungo::yield_now() }
                        }
                    })
                })
                .collect();
            alive.into_iter().for_each(|h| h.join().unwrap());
            // One after the other on the same blocks: fresh each time, and nothing is left behind.
            let cycle = |n: usize| {
                for _ in 0..n {
                    mungo::go(move || library.count(7, 2)).join().unwrap();
                }
            };
            cycle(5000);
            let before = rss_kib();
            cycle(50_000);
            let after = rss_kib();
            assert!(after < before + 4096, "grew from {before} to {after} KiB");
            // SAFETY: all of its users have been joined. The next round loads it anew, perhaps elsewhere.
            unsafe { library.close() };
            mungo::go(|| ()).join().unwrap();
        }
    });
    finish(rt);
}
