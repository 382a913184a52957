//! Threads of std, and of C, that are goroutines. Each case is a process of its own: it is asked for once in a process.

#[macro_use]
#[path = "../../mungo/tests/common/mod.rs"]
mod common;

use common::{child, wait_until};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

children!(
    by_environment,
    many,
    values,
    locals,
    from_goroutines,
    in_c,
    ended_by_exit,
    chosen,
    forked,
    channels,
    odd_value
);

#[test]
fn an_environment_variable_makes_threads_goroutines() {
    let mut command = child::command("by_environment");
    command.env("MUNGO_THREADS", "goroutines");
    child::finish(command).assert_success();
    let mut command = child::command("by_environment");
    command.env("MUNGO_THREADS", "goroutines").env("MUNGO_DEBUG", "interpose=0");
    child::finish(command).assert_code(101);
    let mut command = child::command("odd_value");
    command.env("MUNGO_THREADS", "fibres");
    child::finish(command)
        .assert_success()
        .assert_says("MUNGO_THREADS is 'fibres': it must be goroutines or threads");
}

fn by_environment() {
    assert!(thread::spawn(mungo::is_goroutine).join().unwrap());
    assert!(!mungo::is_goroutine());
}

fn odd_value() {
    assert!(!thread::spawn(mungo::is_goroutine).join().unwrap());
}

#[test]
fn thousands_of_threads_need_few() {
    child::run("many").assert_success();
}

/// All are there at the same time, in a barrier of std's.
fn many() {
    const THREADS: usize = 5000;
    mungo_interpose::threads(true);
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let all: Vec<_> = (0..THREADS)
        .map(|i| {
            let barrier = barrier.clone();
            thread::spawn(move || {
                barrier.wait();
                i
            })
        })
        .collect();
    barrier.wait();
    let sum: usize = all.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(sum, THREADS * (THREADS - 1) / 2);
    let threads = common::threads();
    assert!(threads < 50, "{threads} threads");
}

#[test]
fn names_values_panics_and_scopes_are_as_on_threads() {
    child::run("values").assert_success();
}

fn values() {
    mungo_interpose::threads(true);
    let builder = thread::Builder::new().name("worker".into()).stack_size(3 << 20);
    let (tell, told) = mpsc::channel();
    let named = builder.spawn(move || {
        // The name is std's, and the goroutine's in dumps.
        assert_eq!(thread::current().name(), Some("worker"));
        assert_eq!(mungo::current().name(), Some("worker"));
        tell.send(thread::current().id()).unwrap();
        thread::park();
        deep(1 << 20)
    });
    let named = named.unwrap();
    assert_eq!(told.recv().unwrap(), named.thread().id());
    named.thread().unpark();
    assert!(named.join().unwrap() > 0);

    let payload = thread::spawn(|| std::panic::resume_unwind(Box::new(7))).join().unwrap_err();
    assert_eq!(payload.downcast_ref::<i32>(), Some(&7));

    let words = ["a", "bc", "def"];
    let total = Mutex::new(0);
    thread::scope(|s| {
        let lengths: Vec<_> = words.iter().map(|word| s.spawn(|| word.len())).collect();
        for word in &words {
            s.spawn(|| *total.lock().unwrap() += word.len());
        }
        assert_eq!(lengths.into_iter().map(|l| l.join().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    });
    assert_eq!(total.into_inner().unwrap(), 6);
    let (sender, receiver) = mpsc::channel();
    drop(thread::spawn(move || sender.send(mungo::is_goroutine()).unwrap()));
    assert!(receiver.recv().unwrap(), "detached");
    mungo_interpose::threads(false);
    assert!(!thread::spawn(mungo::is_goroutine).join().unwrap());
}

/// Uses at least so many bytes of stack.
fn deep(bytes: usize) -> usize {
    let here = std::hint::black_box([1_u8; 4096]);
    if bytes < here.len() { 1 } else { deep(bytes - here.len()) + usize::from(here[7]) }
}

#[test]
fn thread_locals_end_before_the_join() {
    child::run("locals").assert_success();
}

fn locals() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            thread::sleep(Duration::from_micros(100));
            self.0.fetch_add(1, SeqCst);
        }
    }
    thread_local! {
        static OWN: RefCell<Option<Counted>> = const { RefCell::new(None) };
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    mungo_interpose::threads(true);
    let ended = Arc::new(AtomicUsize::new(0));
    for round in 1..=3 {
        let all: Vec<_> = (0..100)
            .map(|i| {
                let ended = ended.clone();
                thread::spawn(move || {
                    assert_eq!(NUMBER.replace(i + 1), 0, "as new");
                    OWN.set(Some(Counted(ended)));
                    thread::yield_now();
                    assert_eq!(NUMBER.get(), i + 1);
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(ended.load(SeqCst), 100 * round);
    }
}

#[test]
fn goroutines_start_and_join_threads() {
    child::run("from_goroutines").assert_success();
}

fn from_goroutines() {
    mungo_interpose::threads(true);
    let runtime = common::runtime(2);
    runtime.run(|| {
        let outer: Vec<_> = (0..20)
            .map(|i| {
                mungo::go(move || {
                    let inner: Vec<_> = (0..20).map(|k| thread::spawn(move || i * k)).collect();
                    inner.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
                })
            })
            .collect();
        assert_eq!(outer.into_iter().map(|g| g.join().unwrap()).sum::<usize>(), 190 * 190);
        // A dump is taken by a thread of the runtime's own, which stays one.
        assert!(mungo::debug::dump().to_string().contains("goroutine"));
    });
    let threads = runtime.metrics().threads;
    assert!(threads < 50, "{threads} threads");
    common::end(runtime);
}

/// crossbeam's channels between threads that `std::thread::spawn` makes.
#[test]
fn channels_between_threads_of_std() {
    child::run("channels").assert_success();
}

fn channels() {
    const EACH: usize = 500;
    mungo_interpose::threads(true);
    for capacity in [0, 1, 64] {
        let (sender, receiver) = crossbeam_channel::bounded::<usize>(capacity);
        let producers: Vec<_> = (0..EACH)
            .map(|i| {
                let sender = sender.clone();
                thread::spawn(move || (0..10).for_each(|n| sender.send(10 * i + n).unwrap()))
            })
            .collect();
        drop(sender);
        let consumers: Vec<_> = (0..EACH)
            .map(|_| {
                let receiver = receiver.clone();
                thread::spawn(move || receiver.iter().sum::<usize>())
            })
            .collect();
        producers.into_iter().for_each(|thread| thread.join().unwrap());
        let sum: usize = consumers.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(sum, 10 * EACH * (10 * EACH - 1) / 2);
    }
    let (_never, nothing) = crossbeam_channel::bounded::<()>(0);
    let waits = thread::spawn(move || nothing.recv_timeout(Duration::from_millis(2)).unwrap_err().is_timeout());
    assert!(waits.join().unwrap());
    let threads = common::threads();
    assert!(threads < 50, "{threads} threads");
}

unsafe extern "C" {
    fn pthread_tryjoin_np(thread: libc::pthread_t, value: *mut *mut c_void) -> c_int;
    fn pthread_clockjoin_np(
        thread: libc::pthread_t,
        value: *mut *mut c_void,
        clock: libc::clockid_t,
        time: *const libc::timespec,
    ) -> c_int;
    fn pthread_setname_np(thread: libc::pthread_t, name: *const libc::c_char) -> c_int;
    fn pthread_getname_np(thread: libc::pthread_t, name: *mut libc::c_char, room: usize) -> c_int;
}

/// Starts a thread as C does.
fn create(
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: usize,
    attributes: *const libc::pthread_attr_t,
) -> libc::pthread_t {
    let mut thread = 0;
    // SAFETY: functions of this file.
    let error = unsafe { libc::pthread_create(&mut thread, attributes, start, argument as *mut c_void) };
    assert_eq!(error, 0);
    thread
}

#[test]
fn c_gets_threads_that_it_can_ask() {
    child::run("in_c").assert_success();
}

static GATE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn waits(argument: *mut c_void) -> *mut c_void {
    // SAFETY: asks and answers only.
    unsafe {
        let own = libc::pthread_self();
        assert_eq!(own, libc::pthread_self());
        assert_eq!(libc::pthread_join(own, null_mut()), libc::EDEADLK);
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(own, &mut attributes), 0);
        let (mut low, mut size) = (null_mut(), 0);
        assert_eq!(libc::pthread_attr_getstack(&attributes, &mut low, &mut size), 0);
        let here = (&raw const size).addr();
        assert!((low.addr()..low.addr() + size).contains(&here));
        GATE.store(own as usize, SeqCst);
    }
    wait_until("it may go on", || GATE.load(SeqCst) == 0);
    argument.wrapping_byte_add(1)
}

fn in_c() {
    mungo_interpose::threads(true);
    let thread = create(waits, 41, std::ptr::null());
    wait_until("it waits", || GATE.load(SeqCst) == thread as usize);
    let mut value = null_mut();
    let soon = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    // SAFETY: a thread that is not joined yet, and room for the answers.
    unsafe {
        assert_eq!(pthread_tryjoin_np(thread, &mut value), libc::EBUSY);
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
            assert_eq!(pthread_clockjoin_np(thread, &mut value, clock, &soon), libc::ETIMEDOUT);
        }
        assert_eq!(pthread_setname_np(thread, c"from outside".as_ptr()), 0);
        let mut name = [0; 16];
        assert_eq!(pthread_getname_np(thread, name.as_mut_ptr(), 16), 0);
        assert_eq!(std::ffi::CStr::from_ptr(name.as_ptr()), c"from outside");
        assert_eq!(pthread_getname_np(thread, name.as_mut_ptr(), 5), libc::ERANGE);
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(thread, &mut attributes), 0);
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getaffinity_np(thread, size_of_val(&cpus), &mut cpus), 0);
        assert!(libc::CPU_COUNT(&cpus) > 0);
        assert_eq!(libc::pthread_kill(thread, 0), 0);
        assert_eq!(libc::pthread_kill(thread, libc::SIGUSR1), libc::ENOTSUP);
        assert_eq!(libc::pthread_cancel(thread), libc::ENOTSUP);
        GATE.store(0, SeqCst);
        let late = libc::timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 };
        assert_eq!(pthread_clockjoin_np(thread, &mut value, libc::CLOCK_MONOTONIC, &late), 0);
        assert_eq!(value.addr(), 42);
        assert_eq!(libc::pthread_join(thread, &mut value), libc::ESRCH);
        assert_eq!(libc::pthread_kill(thread, 0), libc::ESRCH);
        assert_eq!(libc::pthread_getattr_np(thread, &mut attributes), libc::ESRCH);
        assert_eq!(libc::pthread_detach(thread), libc::ESRCH);
        // A plain thread is the C library's: the main one here.
        assert_eq!(pthread_getname_np(libc::pthread_self(), name.as_mut_ptr(), 16), 0);
        assert_eq!(libc::pthread_kill(libc::pthread_self(), 0), 0);
    }
}

#[test]
fn a_thread_may_end_by_pthread_exit() {
    child::run("ended_by_exit").assert_success();
}

extern "C-unwind" fn exits(argument: *mut c_void) -> *mut c_void {
    // SAFETY: no frame below needs to be left in order.
    unsafe { libc::pthread_exit(argument.wrapping_byte_add(1)) }
}

fn ended_by_exit() {
    mungo_interpose::threads(true);
    // SAFETY: called as one that does not unwind; `pthread_exit` leaves it in C's way.
    let exits = unsafe {
        std::mem::transmute::<
            extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            extern "C" fn(*mut c_void) -> *mut c_void,
        >(exits)
    };
    for n in 0..100 {
        let thread = create(exits, n, std::ptr::null());
        let mut value = null_mut();
        // SAFETY: not joined yet.
        assert_eq!(unsafe { libc::pthread_join(thread, &mut value) }, 0);
        assert_eq!(value.addr(), n + 1);
    }
}

#[test]
fn what_only_threads_have_stays_a_thread() {
    child::run("chosen").assert_success();
}

extern "C" fn is_goroutine(_: *mut c_void) -> *mut c_void {
    usize::from(mungo::is_goroutine()) as *mut c_void
}

fn chosen() {
    mungo_interpose::threads(true);
    let joined = |thread| {
        let mut value = null_mut();
        // SAFETY: not joined yet.
        assert_eq!(unsafe { libc::pthread_join(thread, &mut value) }, 0);
        value.addr() == 1
    };
    // SAFETY: attributes that are initialised first; a stack that outlives its thread.
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert!(joined(create(is_goroutine, 0, &attributes)));
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus);
        assert_eq!(libc::pthread_attr_setaffinity_np(&mut attributes, size_of_val(&cpus), &cpus), 0);
        assert!(!joined(create(is_goroutine, 0, &attributes)), "CPUs");
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        let mut stack = vec![0_u128; 64 << 10];
        let size = size_of_val(&stack[..]);
        assert_eq!(libc::pthread_attr_setstack(&mut attributes, stack.as_mut_ptr().cast(), size), 0);
        assert!(!joined(create(is_goroutine, 0, &attributes)), "a stack");
    }
    // A goroutine joins a plain thread.
    assert!(
        !mungo::go(move || {
            // SAFETY: as above.
            let mut attributes = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            unsafe {
                libc::pthread_attr_init(&mut attributes);
                let mut cpus: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus);
                libc::pthread_attr_setaffinity_np(&mut attributes, size_of_val(&cpus), &cpus);
            }
            joined(create(is_goroutine, 0, &attributes))
        })
        .join()
        .unwrap()
    );
}

#[test]
fn a_forked_child_has_threads() {
    if child::is_emulated("qemu 7.2 ends by an assertion of its own when a forked child starts a thread") {
        return;
    }
    child::run("forked").assert_success();
}

fn forked() {
    mungo_interpose::threads(true);
    assert!(thread::spawn(mungo::is_goroutine).join().unwrap());
    // SAFETY: the child does what a child may.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let thread = create(is_goroutine, 0, std::ptr::null());
        let mut value = null_mut();
        // SAFETY: not joined yet; then the child ends.
        unsafe {
            libc::pthread_join(thread, &mut value);
            libc::_exit(value.addr() as i32);
        }
    }
    let mut status = -1;
    // SAFETY: room for the status.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "no goroutine in the child");
}
