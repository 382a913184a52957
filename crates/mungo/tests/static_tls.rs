//! Libraries with static thread-locals (initial-exec) that are loaded before, between and after goroutines.
#![cfg(mungo_own_tls)]

#[macro_use]
mod common;

use common::{child, end, runtime};
use mungo::chan;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

children!(
    libraries_come_and_go,
    a_library_loads_another_one,
    all_load_at_once,
    failures_are_told,
    room_was_given_away
);

/// Where the test has put its libraries, for the child.
const FOLDER: &str = "MUNGO_TEST_FOLDER";

const LIBRARY: &str = r#"
#define OWN static __thread __attribute__((tls_model("initial-exec")))
OWN int counter = INIT;
OWN char room[100];
static int at_load;
__attribute__((constructor)) static void load(void) { at_load = counter + room[5]; counter = 1000; room[5] = 9; }
int loaded_with(void) { return at_load; }
int bump(void) { room[7]++; return ++counter; }
int other(void) { return room[5] * 100 + room[7]; }
"#;

const OUTER: &str = r#"
#include <dlfcn.h>
void *load_inner(void) { void *it = dlopen("libinner.so", RTLD_NOW); return it; }
"#;

/// Lets C code check where its functions return to.
#[cfg(target_arch = "aarch64")]
const CHECKED_RETURNS: &str = "-mbranch-protection=pac-ret";
#[cfg(target_arch = "x86_64")]
const CHECKED_RETURNS: &str = "-fcf-protection=full";

/// Its constructor loads another one.
const NESTED: &str = r#"
#include <dlfcn.h>
static void *inner;
__attribute__((constructor)) static void load(void) { inner = dlopen("libinner.so", RTLD_NOW); }
__attribute__((destructor)) static void unload(void) { if (inner) dlclose(inner); }
"#;

/// Runs the child with libraries in a folder, and room for them in goroutines, or says why not.
fn with_libraries(child: &str) {
    with_settings(child, "1", |ended| _ = ended.assert_success());
}

fn with_settings(child: &str, late_static_tls: &str, check: impl FnOnce(child::Ended)) {
    let folder = std::env::temp_dir().join(format!("mungo-{child}-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).expect("a temporary folder");
    if build(&folder) {
        let mut command = child::command(child);
        command.env(FOLDER, &folder).env("MUNGO_LATE_STATIC_TLS", late_static_tls);
        check(child::finish(command));
    } else {
        eprintln!("skipped: no C compiler (cc)");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// `false`: there is no compiler.
fn build(folder: &Path) -> bool {
    let cc = |source: &str, to: &str, arguments: &[&str]| {
        let file = folder.join("source.c");
        std::fs::write(&file, source).expect("a writable folder");
        let mut cc = child::cc();
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join(to)).arg(&file).args(arguments);
        cc.status().is_ok_and(|status| status.success())
    };
    let one = |n: i32| cc(LIBRARY, &format!("lib{n}.so"), &[&format!("-DINIT={n}")]);
    [7, 21, 35, 50].into_iter().all(one)
        && cc(LIBRARY, "inner/libinner.so", &["-DINIT=77"])
        && cc(OUTER, "libouter.so", &["-Wl,-rpath,$ORIGIN/inner,--enable-new-dtags", "-ldl"])
        && cc(OUTER, "libsigned.so", &["-Wl,-rpath,$ORIGIN/inner,--enable-new-dtags", "-ldl", CHECKED_RETURNS])
        && cc(NESTED, "libnested.so", &["-Wl,-rpath,$ORIGIN/inner,--enable-new-dtags", "-ldl"])
}

fn path(name: &str) -> PathBuf {
    Path::new(&std::env::var(FOLDER).expect("set by the test")).join(name)
}

#[derive(Clone, Copy)]
struct Library {
    handle: usize,
    init: c_int,
}

impl Library {
    /// Its constructor found the initial values, wherever it ran.
    fn open(init: c_int) -> Library {
        Library::opened(dlopen(&path(&format!("lib{init}.so"))), init)
    }

    fn opened(handle: *mut c_void, init: c_int) -> Library {
        assert!(!handle.is_null());
        let library = Library { handle: handle as usize, init };
        assert_eq!(library.call(c"loaded_with"), init, "in the constructor");
        library
    }

    fn call(self, name: &CStr) -> c_int {
        // SAFETY: a function of the library, of this type.
        unsafe {
            let at = libc::dlsym(self.handle as *mut c_void, name.as_ptr());
            std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(at)()
        }
    }

    /// Counts up by three; `before`: how often it was called in this goroutine before.
    fn count(self, before: c_int) {
        for i in 1..=3 {
            assert_eq!(self.call(c"bump"), self.init + 3 * before + i);
            assert_eq!(self.call(c"other"), 3 * before + i, "zeroed at first");
        }
    }

    fn close(self) {
        // SAFETY: no function of it runs, nor will.
        assert_eq!(unsafe { libc::dlclose(self.handle as *mut c_void) }, 0);
    }
}

fn dlopen(path: &Path) -> *mut c_void {
    let name = CString::new(path.to_str().expect("a readable path")).expect("no NUL");
    // SAFETY: a library whose constructor touches its own memory only.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

/// Goroutines that do as they are told while libraries come and go.
struct Crew {
    orders: Vec<chan::Sender<(Library, c_int)>>,
    done: chan::Receiver<()>,
    handles: Vec<mungo::JoinHandle<()>>,
}

impl Crew {
    fn new(n: usize) -> Crew {
        let (says, done) = chan::unbounded();
        let (orders, handles) = (0..n)
            .map(|_| {
                let (tx, rx) = chan::unbounded::<(Library, c_int)>();
                let says = says.clone();
                let work = move || {
                    for (library, before) in rx.iter() {
                        library.count(before);
                        says.send(()).unwrap();
                    }
                };
                (tx, mungo::go(work))
            })
            .unzip();
        Crew { orders, done, handles }
    }

    /// Each of them uses the library, for the first time if `before` is 0.
    fn use_it(&self, library: Library, before: c_int) {
        self.orders.iter().for_each(|to| to.send((library, before)).unwrap());
        for _ in &self.orders {
            // A panic of one of them is an error here.
            self.done.recv_timeout(common::PATIENCE).expect("all of them found it right");
        }
    }

    fn end(self) {
        drop(self.orders);
        self.handles.into_iter().for_each(|h| h.join().unwrap());
    }
}

/// Used by goroutines that are new, one after the other on blocks that were used before.
fn fresh_in_new_ones(library: Library) {
    for _ in 0..200 {
        mungo::go(move || library.count(0)).join().unwrap();
    }
}

fn libraries_come_and_go() {
    let first = Library::open(7);
    let rt = runtime(2);
    rt.run(move || {
        let crew = Crew::new(20);
        // Before all goroutines.
        crew.use_it(first, 0);
        fresh_in_new_ones(first);
        // Between them, by one of them.
        let second = mungo::go(|| Library::open(21)).join().unwrap();
        crew.use_it(second, 0);
        second.count(0);
        crew.use_it(first, 1);
        fresh_in_new_ones(second);
        // By a thread.
        let third = std::thread::spawn(|| Library::open(35)).join().unwrap();
        crew.use_it(third, 0);
        fresh_in_new_ones(third);
        crew.use_it(second, 1);
        // Gone, and in its place another one, or the same once more.
        third.close();
        crew.use_it(second, 2);
        let fourth = Library::open(50);
        crew.use_it(fourth, 0);
        fresh_in_new_ones(fourth);
        fourth.close();
        fresh_in_new_ones(second);
        let again = Library::open(50);
        crew.use_it(again, 0);
        fresh_in_new_ones(again);
        crew.use_it(first, 2);
        crew.end();
        again.close();
    });
    end(rt);
    // After all of them.
    let late = Library::open(35);
    late.close();
    let rt = runtime(2);
    rt.run(move || fresh_in_new_ones(first));
    end(rt);
}

#[test]
fn static_thread_locals_are_initialised_in_every_goroutine() {
    with_libraries("libraries_come_and_go");
}

/// By its bare name, which is found by the search path of the library that asks.
fn a_library_loads_another_one() {
    fn load_inner(outer: *mut c_void) -> *mut c_void {
        assert!(!outer.is_null());
        // SAFETY: a function of the library, of this type.
        unsafe {
            let at = libc::dlsym(outer, c"load_inner".as_ptr());
            std::mem::transmute::<*mut c_void, extern "C" fn() -> *mut c_void>(at)()
        }
    }
    for outer in ["libouter.so", "libsigned.so"] {
        let before_any = load_inner(dlopen(&path(outer)));
        Library::opened(before_any, 77).close();
    }
    let rt = runtime(2);
    rt.run(|| {
        let crew = Crew::new(5);
        let load = |outer| mungo::go(move || load_inner(dlopen(&path(outer))) as usize).join().unwrap();
        let loaded = load("libouter.so");
        assert_eq!(load("libsigned.so"), loaded);
        let inner = Library::opened(loaded as *mut c_void, 77);
        crew.use_it(inner, 0);
        inner.count(0);
        crew.end();
    });
    end(rt);
}

#[test]
fn a_library_is_found_by_the_path_of_the_one_that_asks() {
    with_libraries("a_library_loads_another_one");
}

/// Nothing waits in a circle: the loader's lock is held while constructors load other libraries. The C library may run
/// out of room for static thread-locals here, because it gives back only the last ones.
fn all_load_at_once() {
    fn again_and_again(name: &str) {
        for _ in 0..20 {
            let handle = dlopen(&path(name));
            mungo::yield_now();
            if !handle.is_null() {
                // SAFETY: no function of it runs.
                assert_eq!(unsafe { libc::dlclose(handle) }, 0);
            }
        }
    }
    let rt = runtime(2);
    rt.run(|| {
        let names = ["lib7.so", "libnested.so", "lib21.so", "libnested.so"];
        let all: Vec<_> = names.into_iter().map(|name| mungo::go(move || again_and_again(name))).collect();
        let thread = std::thread::spawn(|| again_and_again("libnested.so"));
        all.into_iter().for_each(|h| h.join().unwrap());
        thread.join().unwrap();
    });
    end(rt);
}

#[test]
fn libraries_are_loaded_side_by_side() {
    with_libraries("all_load_at_once");
}

/// The message of the last failure of the caller.
fn message() -> String {
    // SAFETY: the message is a C string, or null.
    unsafe {
        let at: *const c_char = libc::dlerror();
        assert!(!at.is_null(), "no message");
        CStr::from_ptr(at).to_string_lossy().into_owned()
    }
}

/// A library that would have its thread-locals where goroutines have their stacks is refused, whoever loads it.
fn room_was_given_away() {
    let first = Library::open(7);
    let rt = runtime(2);
    rt.run(move || {
        let crew = Crew::new(20);
        crew.use_it(first, 0);
        let refused = || {
            assert!(dlopen(&path("lib21.so")).is_null());
            assert!(message().contains("static TLS"));
        };
        mungo::go(refused).join().unwrap();
        std::thread::spawn(refused).join().unwrap();
        // One without them is loaded as ever, and what goroutines had is theirs.
        assert!(!dlopen(&path("libouter.so")).is_null());
        crew.use_it(first, 1);
        fresh_in_new_ones(first);
        crew.end();
    });
    end(rt);
    let too_late = mungo::Runtime::builder().late_static_tls(true).build();
    assert_eq!(too_late.expect_err("it is gone").kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
#[cfg_attr(target_arch = "aarch64", ignore = "the room lies above, costs nothing and is always there")]
fn without_room_a_library_is_refused_and_the_reason_is_told() {
    with_settings("room_was_given_away", "0", |ended| {
        ended.assert_success();
        assert_eq!(ended.stderr.matches("MUNGO_LATE_STATIC_TLS=1").count(), 1, "{}", ended.stderr);
    });
}

fn failures_are_told() {
    let try_it = || {
        for name in ["/no/such/library.so", "no-such-library.so"] {
            assert!(dlopen(Path::new(name)).is_null());
            assert!(message().contains(name));
        }
    };
    try_it();
    mungo::go(try_it).join().unwrap();
}

#[test]
fn a_goroutine_learns_why_a_library_was_not_loaded() {
    child::run("failures_are_told").assert_success();
}
