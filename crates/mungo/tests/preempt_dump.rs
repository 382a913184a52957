//! Dumps show where injected calls have suspended goroutines: in Rust, in C, and in code without a frame pointer. Each
//! case is a process of its own.
#![cfg(all(mungo_native, feature = "backtrace", not(miri)))]

#[macro_use]
mod common;

use common::{child, hasty_runtime};
use mungo::debug::{self, GoroutineDump, State};
use std::arch::naked_asm;
use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

children!(in_rust, in_c, without_frame_pointer, while_locked_to_a_thread, under_dumps);

/// Runs `spin` in a goroutine among others that compute, until some dumps have found it interrupted in `functions`, of
/// which each calls the one before it.
fn check(functions: &[&str], is_locked: bool, spin: impl FnOnce() + Send + 'static) {
    let runtime = hasty_runtime(1);
    for name in ["other", "another"] {
        let spin = || while black_box(true) {};
        mungo::Builder::new().name(name.to_owned()).spawn_on(&runtime, spin).unwrap();
    }
    let task = move || {
        let _guard = is_locked.then(mungo::lock_os_thread);
        spin();
    };
    mungo::Builder::new().name("case".to_owned()).spawn_on(&runtime, task).unwrap();
    let (start, mut found, mut last) = (Instant::now(), 0, None);
    let wanted = if child::is_slow() { 1 } else { 10 }; // under an emulator a dump takes seconds
    while found < wanted {
        assert!(start.elapsed() < common::PATIENCE, "found {found} times; {last:#?}");
        let dump = debug::dump();
        let case = dump.goroutines().iter().find(|g| g.name.as_deref() == Some("case"));
        let Some(case) = case.filter(|g| g.state == State::Preempted) else { continue };
        if case.stack.frames.is_empty() {
            continue; // it went on meanwhile
        }
        if is_stack_of(case, functions) {
            found += 1;
        } else {
            last = Some(case.clone());
            // Not there yet, or not there any more: it may have been interrupted in `lock_os_thread`.
            assert!(found == 0, "{case:#?}");
        }
    }
    assert!(runtime.metrics().interruptions.injected > 0);
    std::process::exit(0);
}

fn is_stack_of(g: &GoroutineDump, functions: &[&str]) -> bool {
    let mut frames = g.stack.frames.iter();
    functions.iter().all(|function| frames.any(|frame| frame.function.contains(function)))
}

#[inline(never)]
fn spins_in_rust() {
    while black_box(true) {}
    black_box(());
}

#[inline(never)]
fn calls_it(f: impl FnOnce()) {
    f();
    black_box(());
}

fn in_rust() {
    check(&["spins_in_rust", "calls_it"], false, || calls_it(spins_in_rust));
}

#[test]
fn a_loop_in_rust() {
    child::run("in_rust").assert_success();
}

fn while_locked_to_a_thread() {
    check(&["spins_in_rust", "calls_it"], true, || calls_it(spins_in_rust));
}

#[test]
fn one_that_keeps_its_thread() {
    if child::is_emulated("a dump takes seconds, and the goroutine goes on meanwhile") {
        return;
    }
    child::run("while_locked_to_a_thread").assert_success();
}

/// Computes with X29 as any other register, deeper and less deep: its callers are found by its unwind table alone.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn spins_without_frame_pointer() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, xzr",
        "2: add x29, x29, #1",
        "sub sp, sp, #48",
        ".cfi_adjust_cfa_offset 48",
        "add x30, x29, x29, lsl #2",
        "add sp, sp, #48",
        ".cfi_adjust_cfa_offset -48",
        "b 2b",
        ".cfi_endproc",
    )
}

/// Computes with RBP as any other register, deeper and less deep: its callers are found by its unwind table alone.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn spins_without_frame_pointer() {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -24",
        "xor ebp, ebp",
        "2: inc rbp",
        "sub rsp, 40",
        ".cfi_adjust_cfa_offset 40",
        "lea rbx, [rbp + 4 * rbp]",
        "add rsp, 40",
        ".cfi_adjust_cfa_offset -40",
        "jmp 2b",
        ".cfi_endproc",
    )
}

fn without_frame_pointer() {
    check(&["spins_without_frame_pointer", "calls_it"], false, || calls_it(|| spins_without_frame_pointer()));
}

#[test]
fn code_without_a_frame_pointer() {
    child::run("without_frame_pointer").assert_success();
}

const C: &str = "
volatile unsigned long turns;
__attribute__((noinline)) void spins_in_c(volatile int *stop) { while (!*stop) turns++; }
__attribute__((noinline)) void calls_c(volatile int *stop) { spins_in_c(stop); turns = 0; }
";
const LIBRARY: &str = "MUNGO_TEST_LIBRARY";

/// Compiles the C code. `None`: there is no compiler.
fn library() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("preempt_dump_{}", std::process::id());
    let [source, library] = ["c", "so"].map(|ext| folder.join(&name).with_extension(ext));
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&source, C).unwrap();
    let mut cc = child::cc();
    cc.args(["-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-shared", "-fPIC", "-o"]);
    let status = cc.arg(&library).arg(&source).status();
    _ = std::fs::remove_file(source);
    match status {
        Ok(status) => {
            assert!(status.success(), "cc: {status}");
            Some(library)
        }
        Err(_) => None,
    }
}

/// A function of a library.
fn function(library: &str, name: &CStr) -> extern "C" fn(*const AtomicU32) {
    let library = CString::new(library).unwrap();
    // SAFETY: a library without constructors, and a function of this type.
    unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let function = libc::dlsym(library, name.as_ptr());
        assert!(!function.is_null());
        std::mem::transmute(function)
    }
}

fn in_c() {
    let calls_c = function(&std::env::var(LIBRARY).unwrap(), c"calls_c");
    check(&["spins_in_c", "calls_c", "calls_it"], false, move || calls_it(|| calls_c(&AtomicU32::new(0))));
}

#[test]
fn a_loop_in_c() {
    let Some(library) = library() else {
        eprintln!("skipped: no C compiler");
        return;
    };
    let mut command = child::command("in_c");
    command.env(LIBRARY, &library);
    let ended = child::finish(command);
    _ = std::fs::remove_file(library);
    ended.assert_success();
}

/// Dumps and searches for leaks, from threads and goroutines, while others are interrupted all the time.
fn under_dumps() {
    let runtime = hasty_runtime(2);
    let stop = Arc::new(AtomicBool::new(false));
    let goroutines: Vec<_> = (0..12_u64)
        .map(|n| {
            let stop = stop.clone();
            runtime.spawn(move || {
                let mut rounds = 0;
                while !stop.load(Relaxed) {
                    let sum: u64 = (0..30_000_u64).map(|i| black_box(i ^ n)).sum();
                    assert_eq!(sum, (0..30_000_u64).map(|i| i ^ n).sum());
                    rounds += 1;
                    if rounds % 7 == n % 7 {
                        mungo::go(move || black_box(n)).join().unwrap();
                    }
                }
            })
        })
        .collect();
    for n in 0..10 {
        if n % 2 == 0 {
            assert!(debug::dump().goroutines().len() >= 12);
        } else {
            runtime.run(|| assert!(debug::dump().goroutines().len() >= 12));
        }
        assert!(debug::leaked(Duration::ZERO).is_empty());
    }
    stop.store(true, Relaxed);
    goroutines.into_iter().for_each(|g| g.join().unwrap());
    assert!(runtime.metrics().interruptions.injected > 0);
    common::end(runtime);
}

#[test]
fn dumps_race_with_injected_calls() {
    child::run("under_dumps").assert_success();
}
