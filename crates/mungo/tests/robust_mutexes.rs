//! Robust pthread mutexes of goroutines: they are locked, moved along, and passed on when their owner ends.
#![cfg(mungo_own_tls)]

mod tls_support;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use tls_support::*;

/// A mutex of the robust kind, never freed.
fn robust_mutex() -> &'static SharedMutex {
    // SAFETY: initialised before anybody uses it, and never moved.
    unsafe {
        let mutex = Box::leak(Box::new(SharedMutex(std::mem::zeroed())));
        let mut attr = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attr);
        libc::pthread_mutexattr_setrobust(&mut attr, libc::PTHREAD_MUTEX_ROBUST);
        assert_eq!(libc::pthread_mutex_init(mutex.0.get(), &attr), 0);
        mutex
    }
}

#[derive(Debug)]
struct SharedMutex(std::cell::UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: a pthread mutex is made to be shared.
unsafe impl Sync for SharedMutex {}

impl SharedMutex {
    fn lock(&self) -> c_int {
        // SAFETY: a valid mutex.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }

    fn unlock(&self) {
        // SAFETY: a valid mutex, locked by the caller.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }

    fn repair(&self) {
        // SAFETY: a valid mutex, locked by the caller after its owner died.
        assert_eq!(unsafe { libc::pthread_mutex_consistent(self.0.get()) }, 0);
    }
}

#[test]
fn robust_mutexes_are_locked_by_goroutines() {
    if emulator::is_emulated("qemu keeps no lists of robust mutexes") {
        return;
    }
    let (a, b) = (robust_mutex(), robust_mutex());
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let rt = runtime(4);
    let count = || {
        for _ in 0..100 {
            assert_eq!((a.lock(), b.lock()), (0, 0));
            let n = COUNT.load(SeqCst);
            mungo::yield_now();
            COUNT.store(n + 1, SeqCst);
            a.unlock();
            b.unlock();
        }
    };
    rt.run(|| {
        let all: Vec<_> = (0..4).map(|_| mungo::go(count)).collect();
        all.into_iter().for_each(|h| h.join().unwrap());
    });
    assert_eq!(COUNT.load(SeqCst), 400);
    finish(rt);
}

#[test]
fn a_robust_mutex_passes_on_when_its_goroutine_ends() {
    if emulator::is_emulated("qemu keeps no lists of robust mutexes") {
        return;
    }
    let (a, b) = (robust_mutex(), robust_mutex());
    let rt = runtime(2);
    rt.run(|| {
        for _ in 0..20 {
            let dead = mungo::go(|| {
                assert_eq!((a.lock(), b.lock()), (0, 0));
                migrate();
            });
            dead.join().unwrap();
            // Another goroutine, most probably on the same block, and a thread.
            let next = mungo::go(|| {
                assert_eq!(a.lock(), libc::EOWNERDEAD);
                a.repair();
                a.unlock();
            });
            next.join().unwrap();
            let thread = std::thread::spawn(|| {
                assert_eq!(b.lock(), libc::EOWNERDEAD);
                b.repair();
                b.unlock();
            });
            thread.join().unwrap();
        }
        // One that waits is woken.
        let (says, told) = mungo::chan::bounded::<()>(0);
        let dying = mungo::go(move || {
            assert_eq!(a.lock(), 0);
            says.send(()).unwrap();
            told_by_a_waiter(a);
        });
        told.recv().unwrap();
        let waiter = std::thread::spawn(|| a.lock());
        dying.join().unwrap();
        assert_eq!(waiter.join().unwrap(), libc::EOWNERDEAD);
    });
    finish(rt);
}

/// Returns when somebody waits for the mutex.
fn told_by_a_waiter(mutex: &SharedMutex) {
    const FUTEX_WAITERS: u32 = 0x8000_0000;
    // SAFETY: the first word of a mutex is its futex.
    let word = unsafe { AtomicU32::from_ptr(mutex.0.get().cast()) };
    while word.load(SeqCst) & FUTEX_WAITERS == 0 {
        mungo::yield_now();
    }
}
