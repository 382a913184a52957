//! There may be no more threads: by `max_threads`, or because the system says so. Nothing hangs. Each case is a process
//! of its own.

#[macro_use]
mod common;

use common::{child, wait_until};
use mungo::Runtime;
use std::io::{Read, Write};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

children!(
    condvar_100,
    condvar_101,
    condvar_1000,
    notifier_has_not_begun,
    all_have_begun,
    beside_one_that_computes,
    server_and_100_clients,
    server_and_101_clients,
    server_and_1000_clients,
    server_and_clients_beside_a_ticker,
    finite_sleeps,
    after_bound_ones,
    refused_while_they_block,
    refused_with_set_procs,
);

const CAP: usize = 100;

fn capped() -> Runtime {
    Runtime::builder().procs(2).max_threads(CAP).build().unwrap()
}

/// A gate of std's, which blocks the threads of those that wait.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        self.waiting.fetch_add(1, SeqCst);
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// `n` goroutines wait at a gate, which one that has begun opens when as many wait there as may.
fn condvar(n: usize) {
    let rt = capped();
    let gate = Arc::<Gate>::default();
    let opener = {
        let gate = gate.clone();
        rt.spawn(move || {
            wait_until("threads are taken", || gate.waiting.load(SeqCst) >= n.min(CAP));
            gate.open();
        })
    };
    let all: Vec<_> = (0..n)
        .map(|_| {
            let gate = gate.clone();
            rt.spawn(move || gate.pass())
        })
        .collect();
    opener.join().unwrap();
    all.into_iter().for_each(|h| h.join().unwrap());
    common::end(rt);
    println!("done");
}

fn condvar_100() {
    condvar(100);
}

fn condvar_101() {
    condvar(101);
}

fn condvar_1000() {
    condvar(1000);
}

/// Those that block wait for one that was spawned last.
fn notifier_has_not_begun() {
    let rt = capped();
    let gate = Arc::<Gate>::default();
    let pass = |gate: &Arc<Gate>| {
        let gate = gate.clone();
        rt.spawn(move || gate.pass())
    };
    let all: Vec<_> = (0..300).map(|_| pass(&gate)).collect();
    let opener = gate.clone();
    rt.spawn(move || opener.open()).join().unwrap();
    all.into_iter().for_each(|h| h.join().unwrap());
    assert!(rt.metrics().threads < 300, "{}", rt.metrics().threads);
    common::end(rt);
    println!("done");
}

/// All have begun before they block: each of them gets a thread, beyond the cap.
fn all_have_begun() {
    let rt = capped();
    let gate = Arc::<Gate>::default();
    let begun = Arc::<AtomicUsize>::default();
    let all: Vec<_> = (0..300)
        .map(|_| {
            let (gate, begun) = (gate.clone(), begun.clone());
            rt.spawn(move || {
                begun.fetch_add(1, SeqCst);
                wait_until("all have begun", || begun.load(SeqCst) == 300);
                gate.pass();
            })
        })
        .collect();
    wait_until("all wait at the gate", || gate.waiting.load(SeqCst) == 300);
    rt.spawn(move || gate.open());
    all.into_iter().for_each(|h| h.join().unwrap());
    common::end(rt);
    println!("done");
}

/// The only P is taken by one that computes, all threads by those that block, and the opener has begun.
fn beside_one_that_computes() {
    let rt = Runtime::builder().procs(1).max_threads(10).build().unwrap();
    let gate = Arc::<Gate>::default();
    let stop = Arc::<AtomicBool>::default();
    let (go_on, opener) = (stop.clone(), gate.clone());
    let opener = rt.spawn(move || {
        while !go_on.load(SeqCst) {
            mungo::sleep(Duration::from_millis(1));
        }
        opener.open();
    });
    let computes = {
        let gate = gate.clone();
        rt.spawn(move || {
            wait_until("threads are taken", || gate.waiting.load(SeqCst) >= 8);
            stop.store(true, SeqCst);
            while !*gate.open.lock().unwrap() {}
        })
    };
    let all: Vec<_> = (0..30)
        .map(|_| {
            let gate = gate.clone();
            rt.spawn(move || gate.pass())
        })
        .collect();
    opener.join().unwrap();
    computes.join().unwrap();
    all.into_iter().for_each(|h| h.join().unwrap());
    common::end(rt);
    println!("done");
}

/// A server and its clients in one process, with std's sockets: each blocks its thread.
fn server_and_clients(rt: &Runtime, clients: usize) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let server = rt.spawn(move || {
        for _ in 0..clients {
            let (mut stream, _) = listener.accept().unwrap();
            mungo::go(move || {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                stream.write_all(&[byte[0] + 1]).unwrap();
            });
        }
    });
    let all: Vec<_> = (0..clients)
        .map(|i| {
            rt.spawn(move || {
                let mut stream = std::net::TcpStream::connect(to).unwrap();
                let mut byte = [(i % 200) as u8];
                stream.write_all(&byte).unwrap();
                stream.read_exact(&mut byte).unwrap();
                usize::from(byte[0]) - i % 200
            })
        })
        .collect();
    assert_eq!(all.into_iter().map(|h| h.join().unwrap()).sum::<usize>(), clients);
    server.join().unwrap();
}

fn capped_server_and_clients(clients: usize) {
    let rt = capped();
    server_and_clients(&rt, clients);
    common::end(rt);
    println!("done");
}

fn server_and_100_clients() {
    capped_server_and_clients(100);
}

fn server_and_101_clients() {
    capped_server_and_clients(101);
}

fn server_and_1000_clients() {
    capped_server_and_clients(1000);
}

/// A goroutine that wakes up often runs all the time. Those that have not begun are needed all the same.
fn server_and_clients_beside_a_ticker() {
    let rt = capped();
    let stop = Arc::<AtomicBool>::default();
    let seen = stop.clone();
    let ticker = rt.spawn(move || {
        while !seen.load(Relaxed) {
            mungo::sleep(Duration::from_millis(5));
        }
    });
    server_and_clients(&rt, 300);
    stop.store(true, Relaxed);
    ticker.join().unwrap();
    common::end(rt);
    println!("done");
}

/// As many sleep on their threads as may, again and again. One that has begun goes on meanwhile: it is switched to many
/// times before the first of them is done.
fn finite_sleeps() {
    let rt = capped();
    let naps = Arc::<AtomicUsize>::default();
    let stop = Arc::<AtomicBool>::default();
    let (counter, seen) = (naps.clone(), stop.clone());
    let sleeper = rt.spawn(move || {
        let mut took = Vec::new();
        while !seen.load(Relaxed) {
            let start = std::time::Instant::now();
            mungo::sleep(Duration::from_millis(1));
            took.push(start.elapsed());
            counter.fetch_add(1, SeqCst);
        }
        took
    });
    wait_until("it has begun", || naps.load(SeqCst) > 0);
    let started = Arc::<AtomicUsize>::default();
    let all: Vec<_> = (0..2 * CAP)
        .map(|_| {
            let (started, naps) = (started.clone(), naps.clone());
            rt.spawn(move || {
                started.fetch_add(1, SeqCst);
                let before = naps.load(SeqCst);
                std::thread::sleep(Duration::from_millis(500));
                naps.load(SeqCst) - before
            })
        })
        .collect();
    // It could be 500. Half of them see some at least, however busy the machine is.
    let mut naps: Vec<_> = all.into_iter().map(|h| h.join().unwrap()).collect();
    naps.sort_unstable();
    stop.store(true, Relaxed);
    let mut took = sleeper.join().unwrap();
    took.sort_unstable();
    let (median, last) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "naps of 1 ms: {} took {median:?}, the longest {last:?}; in 500 ms at least {}",
        took.len(),
        naps[0]
    );
    assert!(naps[CAP] >= 5, "naps of 1 ms in 500 ms: {naps:?}");
    // A busy machine makes some late, not half of them.
    assert!(median <= Duration::from_millis(10), "half of the naps of 1 ms took {median:?} and longer");
    common::end(rt);
    println!("done");
}

/// Bound goroutines waited often, and their threads do not count while they do. The cap is the same afterwards: beyond
/// it one goroutine begins each 100 ms.
fn after_bound_ones() {
    const FEW: usize = 10;
    let rt = Runtime::builder().procs(1).max_threads(FEW).build().unwrap();
    rt.run(|| {
        let _bound = mungo::lock_os_thread();
        (0..10 * FEW).for_each(|_| mungo::yield_now());
    });
    let (gate, start) = (Arc::<Gate>::default(), std::time::Instant::now());
    let all: Vec<_> = (0..5 * FEW)
        .map(|_| {
            let gate = gate.clone();
            rt.spawn(move || gate.pass())
        })
        .collect();
    // A second for those that should wait to begin all the same.
    let is_over = || start.elapsed() > Duration::from_secs(1);
    wait_until("the cap is exceeded or not", || is_over() || gate.waiting.load(SeqCst) == 5 * FEW);
    let waiting = gate.waiting.load(SeqCst);
    let most = 2 * FEW + start.elapsed().as_millis() as usize / 100;
    assert!(waiting <= most, "{waiting} have begun, {most} may");
    gate.open();
    all.into_iter().for_each(|h| h.join().unwrap());
    common::end(rt);
    println!("done");
}

/// A user of its own, which the limit applies to and whose processes are this one alone; or the present one.
fn limit_processes(n: u64) {
    const NOBODY_ELSE: u32 = 54_322;
    // SAFETY: settings of this process, which has one thread.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgid(NOBODY_ELSE), 0);
            assert_eq!(libc::setuid(NOBODY_ELSE), 0);
        }
        let limit = libc::rlimit { rlim_cur: n, rlim_max: n };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &limit), 0);
    }
}

fn limited() -> Option<Runtime> {
    limit_processes(10);
    match Runtime::builder().procs(1).build() {
        Ok(rt) => Some(rt),
        Err(e) => {
            println!("skipped: this user has many processes, and the refusal is clear: {e}");
            None
        }
    }
}

/// More block than there may be threads; they come and go, and one that has begun has its turns.
fn refused_while_they_block() {
    let Some(rt) = limited() else { return };
    let naps = rt.spawn(|| (0..50).for_each(|_| mungo::sleep(Duration::from_millis(1))));
    let (tx, rx) = std::sync::mpsc::channel();
    let gate = Arc::<Gate>::default();
    let all: Vec<_> = (0..60u64)
        .map(|i| {
            let (tx, gate) = (tx.clone(), gate.clone());
            rt.spawn(move || {
                gate.pass();
                std::thread::sleep(Duration::from_millis(2 + i % 5));
                tx.send(i).unwrap();
            })
        })
        .collect();
    drop(tx);
    let sum = rt.spawn(move || rx.iter().sum::<u64>());
    wait_until("the limit is reached", || rt.metrics().failed_thread_starts > 0);
    gate.open();
    naps.join().unwrap();
    all.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(sum.join().unwrap(), 59 * 30);
    assert!(common::threads() <= 10);
    common::end(rt);
    println!("done");
}

fn refused_with_set_procs() {
    let Some(rt) = limited() else { return };
    let stop = Arc::<AtomicBool>::default();
    let all: Vec<_> = (0..20u64)
        .map(|i| {
            let stop = stop.clone();
            rt.spawn(move || {
                while !stop.load(Relaxed) {
                    match i % 2 {
                        0 => std::thread::sleep(Duration::from_micros(300)),
                        _ => mungo::sleep(Duration::from_micros(300)),
                    }
                }
                i
            })
        })
        .collect();
    for i in 0..200 {
        rt.set_procs(1 + i % 5).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    stop.store(true, Relaxed);
    assert_eq!(all.into_iter().map(|h| h.join().unwrap()).sum::<u64>(), 19 * 10);
    common::end(rt);
    println!("done");
}

#[track_caller]
fn done(name: &str) -> child::Ended {
    let ended = child::run(name);
    ended.assert_done_or_skipped();
    ended
}

#[test]
fn as_many_as_the_cap_wait_for_one_that_has_begun() {
    done("condvar_100");
    done("condvar_101");
}

#[test]
fn more_than_the_cap_wait_their_turn() {
    done("condvar_1000");
}

#[test]
fn one_that_has_not_begun_does_when_nothing_moves_and_it_is_said_once() {
    let ended = done("notifier_has_not_begun");
    assert_eq!(ended.stderr.matches("max_threads is 100").count(), 1, "{ended:#?}");
    ended.assert_says("goroutines block their threads, most of them");
    ended.assert_says("tests/faults_threads.rs:");
}

#[test]
fn those_that_have_begun_find_threads_beyond_the_cap() {
    done("all_have_begun");
}

#[test]
fn one_that_computes_makes_room_at_the_cap() {
    done("beside_one_that_computes");
}

#[test]
fn a_server_and_its_clients_share_the_threads() {
    done("server_and_100_clients");
    done("server_and_101_clients");
    done("server_and_1000_clients");
}

#[test]
fn a_goroutine_that_wakes_up_often_does_not_hide_that_others_cannot_begin() {
    done("server_and_clients_beside_a_ticker");
}

#[test]
fn the_cap_is_the_same_after_bound_goroutines_waited() {
    done("after_bound_ones");
}

#[test]
fn a_sleeper_has_its_turns_while_all_threads_are_taken() {
    done("finite_sleeps");
}

#[test]
fn where_the_system_refuses_threads_those_that_there_are_do_the_work() {
    if child::is_emulated("limits of threads are those of the emulator") {
        return;
    }
    done("refused_while_they_block");
}

#[test]
fn processors_come_and_go_where_the_system_refuses_threads() {
    done("refused_with_set_procs");
}
