//! Alternate stacks for signals: they are the thread's, whatever a goroutine does about them; faults that are ours and
//! faults that are not.

#[macro_use]
mod common;

use common::{child, end, hasty_runtime, runtime};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

children!(goroutines_bring_their_own, bus_error_at_a_guard, bus_error_in_a_file);

const OWN: usize = 64 << 10;

/// An alternate stack as a virtual machine makes one: freed by a thread-local's destructor, and nothing is put back.
struct Own(*mut c_void);

impl Own {
    fn install() -> Own {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which is to be the stack.
        unsafe {
            let at = libc::mmap(null_mut(), OWN, prot, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            set(at, OWN, 0).expect("accepted");
            Own(at)
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: mapped above.
        unsafe { libc::munmap(self.0, OWN) };
    }
}

/// # Safety
/// The memory outlives its use as a stack.
unsafe fn set(ss_sp: *mut c_void, ss_size: usize, ss_flags: c_int) -> Result<libc::stack_t, i32> {
    let new = libc::stack_t { ss_sp, ss_flags, ss_size };
    // SAFETY: by the caller.
    unsafe {
        let mut old = std::mem::zeroed();
        match libc::sigaltstack(&new, &mut old) {
            0 => Ok(old),
            _ => Err(*libc::__errno_location()),
        }
    }
}

fn get() -> libc::stack_t {
    // SAFETY: asks only.
    unsafe {
        let mut now = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(null(), &mut now), 0);
        now
    }
}

static RAN_AT: AtomicUsize = AtomicUsize::new(0);
static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// On the alternate stack.
extern "C" fn note(_: c_int) {
    let marker = 0u8;
    RAN_AT.store(&raw const marker as usize, SeqCst);
    HANDLED.fetch_add(1, SeqCst);
}

fn handle_usr1() {
    // SAFETY: a handler that stores two numbers.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    }
}

/// The handler runs on the alternate stack of the thread that this is on, which is there.
fn a_signal_is_handled() {
    let before = HANDLED.load(SeqCst);
    // SAFETY: the handler is there.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    assert!(HANDLED.load(SeqCst) > before);
}

fn goroutines_bring_their_own() {
    thread_local! {
        static STACK: RefCell<Option<Own>> = const { RefCell::new(None) };
    }
    handle_usr1();
    let rt = hasty_runtime(2);
    for _ in 0..50 {
        let all: Vec<_> = (0..20)
            .map(|i| {
                rt.spawn(move || {
                    STACK.set(Some(Own::install()));
                    if i % 3 == 0 {
                        mungo::yield_now(); // perhaps it ends on another thread
                    }
                    a_signal_is_handled();
                })
            })
            .collect();
        all.into_iter().for_each(|h| h.join().unwrap());
        let after: Vec<_> = (0..4).map(|_| rt.spawn(a_signal_is_handled)).collect();
        after.into_iter().for_each(|h| h.join().unwrap());
    }
    end(rt);
}

#[test]
fn an_alternate_stack_does_not_die_with_the_goroutine_that_set_it() {
    child::run("goroutines_bring_their_own").assert_success();
}

#[test]
fn a_goroutine_finds_an_alternate_stack_that_is_large_enough_for_virtual_machines() {
    let rt = runtime(1);
    rt.run(|| {
        let have = get();
        assert!(have.ss_flags == 0 && have.ss_size >= 256 << 10, "{} bytes", have.ss_size);
    });
    end(rt);
}

#[test]
fn what_a_goroutine_sets_is_checked_and_leaves_the_threads_in_place() {
    let rt = runtime(1);
    rt.run(|| {
        let have = get();
        let mut room = vec![0u8; 1 << 20];
        let at = room.as_mut_ptr().cast();
        // SAFETY: none of them is used.
        unsafe {
            let old = set(at, 128 << 10, 0).expect("accepted");
            assert_eq!((old.ss_sp, old.ss_size), (have.ss_sp, have.ss_size));
            set(null_mut(), 0, libc::SS_DISABLE).expect("accepted");
            assert_eq!(set(at, 100, 0).err(), Some(libc::ENOMEM));
            assert_eq!(set(at, 128 << 10, 64).err(), Some(libc::EINVAL));
            assert_eq!(set(at, 1 << 20, 0).err(), Some(libc::EPERM));
        }
        let now = get();
        assert_eq!((now.ss_sp, now.ss_size, now.ss_flags), (have.ss_sp, have.ss_size, 0));
    });
    end(rt);
}

#[test]
fn a_plain_thread_has_its_own() {
    handle_usr1();
    mungo::go(|| ()).join().unwrap();
    let plain = std::thread::spawn(|| {
        let own = Own::install();
        assert_eq!((get().ss_sp, get().ss_size), (own.0, OWN));
        // SAFETY: the handler is there.
        unsafe { libc::raise(libc::SIGUSR1) };
        let at = RAN_AT.load(SeqCst);
        // SAFETY: no stack at all is used any more.
        unsafe { set(null_mut(), 0, libc::SS_DISABLE).expect("off") };
        (own.0 as usize..own.0 as usize + OWN).contains(&at)
    });
    assert!(plain.join().unwrap());
}

/// As a kernel that reports a guard page so would do it.
fn bus_error_at_a_guard() {
    let h = mungo::go(|| {
        // SAFETY: asks for the stack; then a signal to this very thread, with an address as if from the kernel.
        unsafe {
            let mut attr: libc::pthread_attr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
            let (mut low, mut len) = (null_mut(), 0);
            libc::pthread_attr_getstack(&attr, &mut low, &mut len);
            let mut info = [0usize; 16];
            info[0] = libc::SIGBUS as usize;
            info[1] = libc::SI_QUEUE as u32 as usize;
            info[2] = low as usize - 8;
            let (pid, tid) = (libc::getpid(), libc::gettid());
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGBUS, info.as_ptr());
        }
    });
    _ = h.join();
}

#[test]
fn a_bus_error_at_a_guard_page_is_an_overflow_too() {
    child::run("bus_error_at_a_guard").assert_signal(libc::SIGABRT).assert_says("has overflowed its stack");
}

fn bus_error_in_a_file() {
    let h = mungo::go(|| {
        // SAFETY: a mapping beyond the end of a file: what is read there is a fault.
        unsafe {
            let file = libc::memfd_create(c"empty".as_ptr(), 0);
            let at = libc::mmap(null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file, 0);
            assert_ne!(at, libc::MAP_FAILED);
            println!("{}", at.cast::<u8>().read_volatile());
        }
    });
    _ = h.join();
}

#[test]
fn another_bus_error_is_nobody_elses() {
    if child::is_emulated("the emulator tells its own address of a bus error") {
        return;
    }
    let ended = child::run("bus_error_in_a_file");
    ended.assert_signal(libc::SIGBUS).assert_does_not_say("mungo");
}
