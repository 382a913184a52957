//! Programs that lock their memory (`mlockall`), before or after the first goroutine.

#[macro_use]
mod common;

use common::{child, end, runtime, wait_until};
use mungo::{Builder, chan};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

children!(locked_before_the_start, locked_later, overflows_on_locked_memory);

const FUTURE: libc::c_int = libc::MCL_FUTURE;
const ALL: libc::c_int = libc::MCL_CURRENT | libc::MCL_FUTURE;

/// `false`, with a message, if this process may not.
fn lock(what: libc::c_int) -> bool {
    // SAFETY: a setting of the process.
    let locked = unsafe { libc::mlockall(what) } == 0;
    if !locked {
        println!("skipped: memory cannot be locked: {}", std::io::Error::last_os_error());
    }
    locked
}

/// The lowest address of the calling goroutine's stack.
fn stack_low() -> usize {
    // SAFETY: asks about the caller.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
        let (mut low, mut len) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attr, &mut low, &mut len);
        low as usize
    }
}

/// Asked of the kernel, which respects protected pages here.
fn readable(at: usize) -> bool {
    let mut byte = 0u8;
    let into = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let from = libc::iovec { iov_base: at as *mut _, iov_len: 1 };
    // SAFETY: writes to `byte` alone.
    unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) == 1 }
}

/// Many goroutines are alive at once, some of them on small stacks, each with a guard.
fn goroutines_have_guards(rt: &mungo::Runtime) {
    let n = 300;
    let (low, lows) = chan::unbounded();
    let (stop, wait) = chan::bounded::<()>(0);
    let there = Arc::new(AtomicUsize::new(0));
    let all: Vec<_> = (0..n)
        .map(|i| {
            let (low, wait, there) = (low.clone(), wait.clone(), there.clone());
            let f = move || {
                low.send(stack_low()).unwrap();
                there.fetch_add(1, SeqCst);
                wait.recv().unwrap_err();
            };
            match i % 6 {
                0 => rt.spawn(f),
                _ => Builder::new().stack_size(16 << 10).spawn_on(rt, f).unwrap(),
            }
        })
        .collect();
    wait_until("all are there", || there.load(SeqCst) == n);
    for low in lows.try_iter() {
        assert!(readable(low) && !readable(low - 1) && !readable(low - 4096));
    }
    drop(stop);
    all.into_iter().for_each(|h| h.join().unwrap());
}

fn locked_before_the_start() {
    if lock(FUTURE) {
        let rt = runtime(2);
        goroutines_have_guards(&rt);
        end(rt);
    }
}

#[test]
fn goroutines_run_if_memory_is_locked_before_the_start() {
    if child::is_emulated("process_vm_readv is not emulated") {
        return;
    }
    print!("{}", child::run("locked_before_the_start").assert_success().stdout);
}

fn locked_later() {
    let rt = runtime(2);
    goroutines_have_guards(&rt);
    if lock(ALL) {
        goroutines_have_guards(&rt);
        // New slabs, too.
        let all: Vec<_> = (0..50)
            .map(|_| {
                Builder::new().stack_size(100 << 10).spawn_on(&rt, || black_box([1u8; 50 << 10])[7]).unwrap()
            })
            .collect();
        all.into_iter().for_each(|h| assert_eq!(h.join().unwrap(), 1));
        goroutines_have_guards(&runtime(1));
    }
    end(rt);
}

#[test]
fn goroutines_run_if_memory_is_locked_later() {
    if child::is_emulated("process_vm_readv is not emulated") {
        return;
    }
    print!("{}", child::run("locked_later").assert_success().stdout);
}

#[allow(unconditional_recursion)]
fn endless(n: usize) -> usize {
    black_box(endless(black_box(n + 1)) + 1)
}

fn overflows_on_locked_memory() {
    mungo::go(|| ()).join().unwrap();
    if lock(ALL) {
        mungo::Builder::new().stack_size(20 << 10).spawn(|| endless(0)).unwrap().join().unwrap();
    }
}

#[test]
fn an_overflow_on_locked_memory_is_reported() {
    let ended = child::run("overflows_on_locked_memory");
    if ended.stdout.contains("skipped") {
        print!("{}", ended.stdout);
    } else {
        ended.assert_signal(libc::SIGABRT).assert_says("has overflowed its stack");
    }
}
