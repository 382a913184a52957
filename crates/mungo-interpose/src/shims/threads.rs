//! Threads that are goroutines, if the program asks for it ([`threads`](crate::threads)).
//!
//! A goroutine gets its thread block when it first runs, and gives it back at its end; a `pthread_t` is there from
//! `pthread_create` until the thread was joined. So such a goroutine has a number of its own for a `pthread_t`: an odd
//! one, which no address of a block is, and never the same twice. `pthread_self` returns it, and every function that
//! takes a `pthread_t` is defined here or in `thread_calls.rs`.
//!
//! Threads with a stack, a scheduling class or CPUs that the program chose stay threads, and so do the runtime's.

use crate::shims::masks;
use crate::shims::next::next;
use crate::shims::raw::sys;
use crate::shims::thread_start::{Start, call};
use crate::shims::wait::block;
use mungo::interpose::{Next, Place, may_be_goroutine, place};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};

/// Whether threads shall be goroutines.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Says whether threads that are started from now on shall be goroutines.
pub(crate) fn want(goroutines: bool) {
    mungo::interpose::set_thread_names(find_block);
    WANTED.store(goroutines, Relaxed);
}

/// Does what `MUNGO_THREADS` says, before `main`.
pub(super) fn read_environment() {
    // SAFETY: before `main`, when no other thread changes the environment.
    let value = unsafe { libc::getenv(c"MUNGO_THREADS".as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: a text of the environment.
    match unsafe { CStr::from_ptr(value) }.to_bytes() {
        b"goroutines" => want(true),
        b"threads" | b"" => {}
        other => {
            let parts = [&b"mungo: MUNGO_THREADS is '"[..], other, b"': it must be goroutines or threads\n"]
                .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
            // Straight to the descriptor: std may not be ready yet, and no failure matters.
            // SAFETY: texts that outlive the call.
            unsafe { sys!(SYS_writev, libc::STDERR_FILENO, parts.as_ptr(), parts.len()) };
        }
    }
}

thread_local! {
    /// The caller's own number; 0: it is a plain thread, or a goroutine that was not started as a thread.
    static OWN: Cell<libc::pthread_t> = const { Cell::new(0) };
    /// What it passed to `pthread_exit`.
    static EXIT: Cell<*mut c_void> = const { Cell::new(std::ptr::null_mut()) };
}

/// A thread that was not joined or detached yet.
pub(super) struct Thread {
    pub(super) handle: mungo::JoinHandle<Value>,
    life: Arc<Life>,
}

/// What others may ask of a thread.
struct Life {
    /// Its thread block while it runs, else 0. Written by itself.
    block: AtomicUsize,
    /// Futex: 1 when its function has returned. Written by itself.
    ended: AtomicU32,
}

/// What a thread returns.
pub(super) struct Value(*mut c_void);

// SAFETY: the program's; C passes it between threads.
unsafe impl Send for Value {}

/// Number of tables, so that threads that start and end seldom meet.
const TABLES: usize = 16;

static ALL: [Mutex<BTreeMap<libc::pthread_t, Thread>>; TABLES] =
    [const { Mutex::new(BTreeMap::new()) }; TABLES];

/// Returns the table in which a thread is, if it is anywhere.
pub(super) fn table(thread: libc::pthread_t) -> MutexGuard<'static, BTreeMap<libc::pthread_t, Thread>> {
    ALL[thread as usize / 2 % TABLES].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns whether this is a goroutine's number, and not a thread's address.
pub(super) fn is_goroutine(thread: libc::pthread_t) -> bool {
    thread & 1 != 0
}

/// Returns whether this is the caller's.
pub(super) fn is_own(thread: libc::pthread_t) -> bool {
    OWN.get() == thread
}

/// Returns the thread block of a goroutine; 0: it has not begun, has ended, or is detached.
fn find_block(thread: libc::pthread_t) -> usize {
    match is_own(thread) {
        true => thread_block(),
        // ORDERING: Acquire: pairs with `Begin::run`, which wrote to the block before.
        false => table(thread).get(&thread).map_or(0, |found| found.life.block.load(Acquire)),
    }
}

/// The attributes of a thread that can be a goroutine.
struct Kind {
    stack_size: usize,
    is_detached: bool,
    /// The signals that it blocks: those of the attributes, or its creator's.
    mask: u64,
}

unsafe extern "C" {
    fn pthread_getattr_default_np(attributes: *mut libc::pthread_attr_t) -> c_int;
    fn pthread_attr_getdetachstate(attributes: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
}

impl Kind {
    /// Returns what the attributes ask for; `None`: something that only a thread has.
    ///
    /// # Safety
    /// `attributes` were initialised, or are null.
    unsafe fn of(attributes: *const libc::pthread_attr_t) -> Option<Kind> {
        if !attributes.is_null() {
            // SAFETY: by the caller.
            return unsafe { Kind::read(attributes) };
        }
        let mut usual = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: initialised first, destroyed last.
        unsafe {
            if pthread_getattr_default_np(usual.as_mut_ptr()) != 0 {
                return None;
            }
            let kind = Kind::read(usual.as_ptr());
            libc::pthread_attr_destroy(usual.as_mut_ptr());
            kind
        }
    }

    unsafe fn read(attributes: *const libc::pthread_attr_t) -> Option<Kind> {
        let (mut low, mut own_size, mut stack_size) = (std::ptr::null_mut(), 0, 0);
        let (mut detached, mut inherits, mut class) = (0, 0, 0);
        // SAFETY: plain numbers.
        let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: by the caller; there is room for each answer.
        let failed = unsafe {
            libc::pthread_attr_getstack(attributes, &mut low, &mut own_size)
                | libc::pthread_attr_getstacksize(attributes, &mut stack_size)
                | pthread_attr_getdetachstate(attributes, &mut detached)
                | libc::pthread_attr_getinheritsched(attributes, &mut inherits)
                | libc::pthread_attr_getschedpolicy(attributes, &mut class)
                | libc::pthread_attr_getaffinity_np(attributes, size_of_val(&cpus), &mut cpus)
        };
        // glibc computes the low end from a high end, which is 0 if none was set; and all CPUs are set if none were.
        let has_own_stack = (low as usize).wrapping_add(own_size) != 0;
        let has_class = inherits == libc::PTHREAD_EXPLICIT_SCHED && class != libc::SCHED_OTHER;
        // SAFETY: a set of ours.
        let has_cpus = unsafe { libc::CPU_COUNT(&cpus) } as usize != 8 * size_of_val(&cpus);
        let is_usual = failed == 0 && !has_own_stack && !has_class && !has_cpus;
        // SAFETY: by the caller.
        let mask = unsafe { mask_of(attributes) }.unwrap_or_else(masks::own);
        let is_detached = detached == libc::PTHREAD_CREATE_DETACHED;
        is_usual.then_some(Kind { stack_size, is_detached, mask })
    }
}

/// Returns the signal mask of attributes that have one.
///
/// # Safety
/// `attributes` were initialised.
unsafe fn mask_of(attributes: *const libc::pthread_attr_t) -> Option<u64> {
    type Function = unsafe extern "C" fn(*const libc::pthread_attr_t, *mut libc::sigset_t) -> c_int;
    static NEXT: Next = Next::new(c"pthread_attr_getsigmask_np"); // since glibc 2.32
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the C library's function has this type; there is room for the set, whose first 64 bits are the kernel's.
    unsafe {
        let found = NEXT.get() != 0
            && std::mem::transmute::<usize, Function>(NEXT.get())(attributes, set.as_mut_ptr()) == 0;
        found.then(|| set.as_ptr().cast::<u64>().read())
    }
}

/// A thread that is about to begin.
struct Begin {
    start: Start,
    argument: *mut c_void,
    own: libc::pthread_t,
    mask: u64,
    life: Arc<Life>,
}

// SAFETY: the program passes the argument to another thread.
unsafe impl Send for Begin {}

impl Begin {
    /// Runs the thread, on its goroutine.
    fn run(self) -> Value {
        OWN.set(self.own);
        masks::inherit(self.mask);
        self.life.block.store(thread_block(), Release); // ORDERING: with `find_block`
        // SAFETY: by the caller of `pthread_create`.
        let value = unsafe { call(self.start, self.argument) }.unwrap_or_else(|| EXIT.get());
        self.life.block.store(0, Relaxed);
        self.life.ended.store(1, Release); // ORDERING: with `wait_for_end`, which asks before it joins
        wake(&self.life.ended);
        // ORDERING: Release: with `exit_main`.
        if LIVE.fetch_sub(1, Release) == 1 {
            wake(&LIVE);
        }
        Value(value)
    }
}

/// Number of goroutines that were started as threads and have not ended. Futex of [`exit_main`].
static LIVE: AtomicU32 = AtomicU32::new(0);
/// Whether there ever was one.
static ANY: AtomicBool = AtomicBool::new(false);

/// Ends the process after the last thread that is a goroutine: the main thread has ended, but the runtime's threads
/// never do.
fn exit_main() -> ! {
    loop {
        // ORDERING: Acquire: pairs with `Begin::run`: what the threads did comes before the end of the process.
        match LIVE.load(Acquire) {
            // SAFETY: the main thread ends, as if it returned 0.
            0 => unsafe { libc::exit(0) },
            live => {
                let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                // SAFETY: a word of our own.
                unsafe { libc::syscall(libc::SYS_futex, &LIVE, op, live, 0_usize) };
            }
        }
    }
}

fn wake(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word of our own; this crate's `syscall`, which wakes goroutines and threads.
    unsafe { libc::syscall(libc::SYS_futex, word, op, i32::MAX) };
}

/// Starts a thread, or a goroutine in its place.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        if WANTED.load(Relaxed)
            && let Some(kind) = Kind::of(attributes)
            && may_be_goroutine()
        {
            return spawn(thread, &kind, start, argument);
        }
        next!(pthread_create(
            thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, start: Start, argument: *mut c_void
        ))
    }
}

/// # Safety
/// As `pthread_create`.
unsafe fn spawn(thread: *mut libc::pthread_t, kind: &Kind, start: Start, argument: *mut c_void) -> c_int {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let own = 2 * NEXT.fetch_add(1, Relaxed) + 1;
    let life = Arc::new(Life { block: AtomicUsize::new(0), ended: AtomicU32::new(0) });
    let begin = Begin { start, argument, own, mask: kind.mask, life: life.clone() };
    // SAFETY: by the caller. Before it begins: it may look there for itself.
    unsafe { thread.write(own) };
    LIVE.fetch_add(1, Relaxed);
    ANY.store(true, Relaxed);
    // Locked meanwhile: it, or another thread that reads its number, may join or detach it at once.
    let mut table = table(own);
    match mungo::Builder::new().stack_size(kind.stack_size).spawn(move || begin.run()) {
        Err(_) => {
            LIVE.fetch_sub(1, Relaxed);
            return libc::EAGAIN;
        }
        Ok(handle) if kind.is_detached => drop(handle),
        Ok(handle) => _ = table.insert(own, Thread { handle, life }),
    }
    0
}

/// Returns what the C library's `pthread_self` returns: an address in the thread block that the caller is on.
fn thread_block() -> usize {
    if cfg!(target_arch = "x86_64") {
        return mungo::interpose::thread_block();
    }
    static NEXT: Next = Next::new(c"pthread_self");
    // SAFETY: the C library's function has this type.
    unsafe { std::mem::transmute::<usize, unsafe extern "C" fn() -> libc::pthread_t>(NEXT.get())() as usize }
}

/// Returns the caller's `pthread_t`.
#[unsafe(no_mangle)]
extern "C" fn pthread_self() -> libc::pthread_t {
    match OWN.get() {
        0 => thread_block() as libc::pthread_t,
        own => own,
    }
}

/// Ends the calling thread. The main thread waits for those that are goroutines, and ends the process then.
///
/// # Safety
/// As the C library's: no frame of this thread is needed any more.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    static NEXT: Next = Next::new(c"pthread_exit");
    EXIT.set(value);
    // SAFETY: no memory involved.
    let is_main = unsafe { libc::gettid() == libc::getpid() };
    if is_main && ANY.load(Relaxed) && matches!(place(), Place::Thread) {
        exit_main();
    }
    // SAFETY: the C library's function has this type. On a goroutine it leads back to `thread_start::call`.
    unsafe { std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*mut c_void) -> !>(NEXT.get())(value) }
}

/// Waits for the end of a thread, and gets its value.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_join(thread: libc::pthread_t, value: *mut *mut c_void) -> c_int {
    if is_goroutine(thread) {
        // SAFETY: by the caller.
        return unsafe { join(thread, value) };
    }
    // SAFETY: by the caller; the C library's function has this type.
    announced(|| unsafe { next!(pthread_join(thread: libc::pthread_t, value: *mut *mut c_void)) })
}

/// Makes a call of the C library that waits for a thread.
pub(super) fn announced(call: impl FnOnce() -> c_int) -> c_int {
    match place() {
        Place::Goroutine(caller) => block(caller, call),
        _ => call(),
    }
}

/// Waits for the end of a goroutine that no other thread may join.
///
/// # Safety
/// `value` is null, or can be written to.
pub(super) unsafe fn join(thread: libc::pthread_t, value: *mut *mut c_void) -> c_int {
    if is_own(thread) {
        return libc::EDEADLK;
    }
    let Some(found) = table(thread).remove(&thread) else { return libc::ESRCH };
    let got = found.handle.join().map_or(std::ptr::null_mut(), |Value(got)| got);
    if !value.is_null() {
        // SAFETY: by the caller.
        unsafe { value.write(got) };
    }
    0
}

/// Waits until a goroutine's function has returned, as the futex operation `op` counts `time`; null: does not wait.
/// Returns 0, `EBUSY`, or why the wait ended.
///
/// # Safety
/// `time` is null, or can be read.
pub(super) unsafe fn wait_for_end(thread: libc::pthread_t, op: c_int, time: *const libc::timespec) -> c_int {
    let Some(life) = table(thread).get(&thread).map(|found| found.life.clone()) else { return libc::ESRCH };
    // ORDERING: Acquire: pairs with `Begin::run`.
    while life.ended.load(Acquire) == 0 {
        if time.is_null() {
            return libc::EBUSY;
        }
        // SAFETY: a word of our own, and by the caller; this crate's `syscall`, which parks goroutines.
        let ended = unsafe { libc::syscall(libc::SYS_futex, &life.ended, op, 0, time, 0_usize, u32::MAX) };
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => {}
            Some(error) if ended != 0 => return error,
            _ => {}
        }
    }
    0
}

/// Lets a thread end by itself.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_detach(thread: libc::pthread_t) -> c_int {
    if is_goroutine(thread) {
        let found = table(thread).remove(&thread);
        return if found.is_some() { 0 } else { libc::ESRCH };
    }
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { next!(pthread_detach(thread: libc::pthread_t)) }
}

/// Sends the calling thread a signal, whichever goroutine runs on it.
pub(super) fn raise(signal: c_int) -> c_int {
    // SAFETY: no memory involved.
    unsafe { -sys!(SYS_tgkill, libc::getpid(), libc::gettid(), signal) as c_int }
}
