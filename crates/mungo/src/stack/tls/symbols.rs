//! C functions that speak of the calling thread, and would give a goroutine a wrong answer.
//!
//! They bear the names of the C library's own. The linker takes the definition in a program before that of a shared
//! library, and exports it, so that calls of std and of C libraries arrive here as well. On a plain thread they are
//! the C library's. Not so if the runtime itself was loaded by `dlopen`, as a part of a plug-in: then the names are
//! taken, and goroutines get the answers of the C library.

use crate::sys::next::Next;
use crate::sys::page_size;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Finds the block behind a name that `mungo-interpose` gave a goroutine in the place of `pthread_self`: see
/// [`set_names`]. Of type `fn(pthread_t) -> usize`; null: there are no such names.
static NAMES: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Tells how odd numbers in the place of a `pthread_t` are understood, before the first is used: `find` returns the
/// thread block that it stands for, or 0.
pub(crate) fn set_names(find: fn(libc::pthread_t) -> usize) {
    NAMES.store(find as *mut (), Relaxed);
}

/// Returns the block of a thread or goroutine. Blocks are aligned; an odd number is a name. `None`: of none.
fn block_of(thread: libc::pthread_t) -> Option<libc::pthread_t> {
    let find = NAMES.load(Relaxed);
    if thread & 1 == 0 || find.is_null() {
        return Some(thread);
    }
    // SAFETY: stored by `set_names`.
    let find = unsafe { std::mem::transmute::<*mut (), fn(libc::pthread_t) -> usize>(find) };
    Some(find(thread) as libc::pthread_t).filter(|block| *block != 0)
}

/// Reports what is known about a thread or goroutine, of its stack above all: `stacker` and sanitizers ask. A
/// goroutine's has no CPUs: it may run on all. Takes no lock and no memory for a goroutine.
///
/// # Safety
/// As the C library's: `thread` is alive, `attr` can be written to.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(thread: libc::pthread_t, attr: *mut libc::pthread_attr_t) -> c_int {
    type Function = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;
    static NEXT: Next = Next::new(c"pthread_getattr_np");
    let Some(thread) = block_of(thread) else { return libc::ESRCH };
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        match super::stack_of(thread as usize) {
            Some(stack) => {
                libc::pthread_attr_init(attr);
                libc::pthread_attr_setdetachstate(attr, libc::PTHREAD_CREATE_DETACHED);
                libc::pthread_attr_setguardsize(attr, page_size());
                libc::pthread_attr_setstack(attr, stack.start as *mut c_void, stack.len())
            }
            None => match NEXT.get() {
                0 => libc::ENOSYS,
                at => std::mem::transmute::<usize, Function>(at)(thread, attr),
            },
        }
    }
}

/// Reports the CPUs that a thread may run on. For a goroutine these are the calling thread's at this moment: those of
/// the process, unless the program has changed them.
///
/// # Safety
/// As the C library's: `thread` is alive, `cpus` has room for `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getaffinity_np(
    thread: libc::pthread_t,
    size: libc::size_t,
    cpus: *mut libc::cpu_set_t,
) -> c_int {
    type Function = unsafe extern "C" fn(libc::pthread_t, libc::size_t, *mut libc::cpu_set_t) -> c_int;
    static NEXT: Next = Next::new(c"pthread_getaffinity_np");
    let Some(thread) = block_of(thread) else { return libc::ESRCH };
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        match super::stack_of(thread as usize) {
            Some(_) if libc::sched_getaffinity(0, size, cpus) == 0 => 0,
            Some(_) => *libc::__errno_location(),
            None => match NEXT.get() {
                0 => libc::ENOSYS,
                at => std::mem::transmute::<usize, Function>(at)(thread, size, cpus),
            },
        }
    }
}

/// Keeps the alternate stack for signals with the thread: a goroutine that leaves it would take its own along, and
/// free it at its end while the thread goes on. So a goroutine is told which one its thread has, of at least 256 KiB,
/// and what it sets is accepted and not used. EPERM: it wants a larger one.
///
/// # Safety
/// As the C library's: what is not null can be read, or written to.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: by the caller; the kernel looks at the addresses first.
    unsafe {
        let call = |new: *const libc::stack_t, old: *mut libc::stack_t| {
            libc::syscall(libc::SYS_sigaltstack, new, old) as c_int
        };
        if super::loader().is_none() || new.is_null() {
            return call(new, old);
        }
        let asked = new.read();
        let mut have: libc::stack_t = std::mem::zeroed();
        if call(std::ptr::null(), &mut have) != 0 {
            return -1;
        }
        let refused = match asked.ss_flags {
            _ if have.ss_flags & libc::SS_ONSTACK != 0 => libc::EPERM, // a handler is running there
            libc::SS_DISABLE => 0,
            flags if flags & !(libc::SS_ONSTACK | SS_AUTODISARM) != 0 => libc::EINVAL,
            _ if asked.ss_size < libc::MINSIGSTKSZ => libc::ENOMEM,
            _ if asked.ss_size > have.ss_size => libc::EPERM,
            _ => 0,
        };
        if refused != 0 {
            *libc::__errno_location() = refused;
            return -1;
        }
        if !old.is_null() {
            old.write(have);
        }
        0
    }
}

/// A flag of <linux/signal.h>: the kernel lets the stack go while a handler runs on it.
const SS_AUTODISARM: c_int = i32::MIN;
