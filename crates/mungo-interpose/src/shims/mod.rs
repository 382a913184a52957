//! The functions, by subject. Each has the C library's name and meaning.
//!
//! Rules for a shim:
//! 1. It asks for its place first. On a plain thread and in a forked child it is the C library's function (`plain.rs`),
//!    inside the runtime the system call.
//! 2. System calls are made inline (`raw.rs`). No `dlsym`, which allocates, but before `main`, and for functions that
//!    are no system call (`next.rs`): threads, `getaddrinfo`, `sigwait`.
//! 3. What the kernel does not wait for costs no more than the system call and some ns. Only when a goroutine would
//!    have to wait are memory and locks needed.
//! 4. It fails as the kernel fails: a wrong argument goes to the kernel, which says what is wrong.
//! 5. A goroutine that cannot wait here, in a signal handler or for a file, blocks its thread, announced.

pub(crate) mod descriptors;
mod files;
mod fortified;
pub(crate) mod futex;
mod handlers;
#[cfg(target_arch = "aarch64")]
mod lent;
mod masks;
pub(crate) mod next;
mod plain;
mod poll;
mod process;
pub(crate) mod raw;
mod read_write;
mod select;
mod sockets;
mod thread_calls;
mod thread_start;
mod threads;
mod time;
mod wait;

pub(crate) use threads::want as want_threads;

/// Whether the functions are part of this build.
pub(crate) const ARE_BUILT: bool = true;

/// Called by the C library before `main`, and before constructors of the program.
#[used]
// SAFETY: the C library calls these functions, of this type; the linker sorts those with a number to the front.
#[unsafe(link_section = ".init_array.00101")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    descriptors::note_process();
    handlers::look();
    plain::look_up();
    mungo::interpose::link(&crate::counters::LINKED);
    #[cfg(target_arch = "aarch64")]
    mungo::interpose::link_waits(&lent::WAITS);
    threads::read_environment();
    // SAFETY: the function stays.
    unsafe { libc::pthread_atfork(None, None, Some(mungo::interpose::note_fork)) };
}
