//! The wait-for graph: deadlocks are explained, also of some goroutines while others run, and what still may go on is
//! not taken for one. Each case is a process of its own.

#[macro_use]
mod common;

use common::{child, runtime, wait_until};
use mungo::chan;
use mungo::debug::{ObjectKind, Others, WaitGraph, wait_graph};
use mungo::sync::{Barrier, Mutex, Once, RwLock, Semaphore, WaitGroup};
use mungo::{go, park, sleep};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

children!(
    main_waits_for_two_that_wait_for_each_other,
    main_waits_for_a_ring_of_channels,
    a_once_waits_for_itself,
    warned_with_a_cycle,
    beside_others_that_run,
    quit_with_a_cycle,
    the_same_numbers_in_two_runtimes,
    a_holder_has_ended,
    writers_and_scopes,
    many_objects,
    busy_locks,
    beyond_ten_thousand,
    drawn_beside_many,
);

fn named(name: &str, f: impl FnOnce() + Send + 'static) -> mungo::JoinHandle<()> {
    mungo::Builder::new().name(name.to_owned()).spawn(f).unwrap()
}

/// Starts two goroutines that hold one lock each and want the other's.
fn two_locks() -> Vec<mungo::JoinHandle<()>> {
    let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let both = Arc::new(Barrier::new(2));
    let philosopher = |name, first: Arc<Mutex<()>>, second: Arc<Mutex<()>>| {
        let both = both.clone();
        named(name, move || {
            let _first = first.lock();
            both.wait();
            let _second = second.lock();
        })
    };
    vec![philosopher("plato", a.clone(), b.clone()), philosopher("kant", b, a)]
}

fn id_of(graph: &WaitGraph, name: &str) -> u64 {
    graph.waits().iter().find(|wait| wait.name.as_deref() == Some(name)).expect(name).goroutine
}

/// The graph, when these goroutines wait.
fn graph_of(names: &[&str]) -> WaitGraph {
    let mut graph = wait_graph();
    wait_until("they wait", || {
        graph = wait_graph();
        names.iter().all(|name| graph.waits().iter().any(|wait| wait.name.as_deref() == Some(name)))
    });
    graph
}

fn main_waits_for_two_that_wait_for_each_other() {
    two_locks().into_iter().for_each(|philosopher| philosopher.join().unwrap());
}

#[test]
fn the_report_of_a_deadlock_draws_the_cycle() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    let ended = child::run("main_waits_for_two_that_wait_for_each_other");
    ended.assert_code(2).assert_says("fatal error: all goroutines are asleep - deadlock!");
    let line = ended.stderr.lines().find(|l| l.starts_with("deadlock: goroutine ")).expect("a cycle");
    assert_eq!(line.matches(" -> mutex 0x").count(), 2, "{line}");
    let ids: Vec<&str> = line.split("goroutine ").skip(1).map(|part| part.split(' ').next().unwrap()).collect();
    assert!(ids.len() == 3 && ids[0] == ids[2] && ids[0] != ids[1], "{line}");
    let waits = |name, holder| format!("'{name}' [mutex] waits for mutex 0x", name = name) + holder;
    ended.assert_says(&waits("plato", "")).assert_says(&waits("kant", ""));
    assert!(ended.stderr.contains(&format!(", locked by goroutine {}", ids[1])), "{ended:#?}");
}

#[test]
fn a_deadlock_is_drawn_to_a_file() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    let file = common::TempFile::new("deadlock.dot");
    let mut command = child::command("main_waits_for_two_that_wait_for_each_other");
    command.env("MUNGO_DEBUG", format!("deadlockdot={}", file.0.display()));
    let ended = child::finish(command);
    ended.assert_code(2).assert_says(&format!("for Graphviz is in {}: dot -Tsvg", file.0.display()));
    let dot = std::fs::read_to_string(&file.0).unwrap();
    assert!(dot.starts_with("digraph waits {") && dot.ends_with("}\n"), "{dot}");
    assert!(dot.contains("'plato'") && dot.contains("color=red") && dot.contains("-> \"mutex 0x"), "{dot}");
    let mut command = child::command("main_waits_for_two_that_wait_for_each_other");
    command.env("MUNGO_DEBUG", "deadlockdot=/nonexistent/folder/file");
    child::finish(command).assert_code(2).assert_says("deadlockdot=/nonexistent/folder/file: No such file");
}

fn main_waits_for_a_ring_of_channels() {
    let ring: Vec<_> = (0..3).map(|_| chan::bounded::<u32>(0)).collect();
    let senders: Vec<_> = ring.iter().map(|(tx, _)| tx.clone()).collect();
    let all: Vec<_> = ring
        .into_iter()
        .enumerate()
        .map(|(i, (_, rx))| {
            let next = senders[(i + 1) % 3].clone();
            go(move || {
                let value = rx.recv().unwrap();
                next.send(value).unwrap();
            })
        })
        .collect();
    drop(senders);
    all.into_iter().for_each(|g| g.join().unwrap());
}

#[test]
#[cfg_attr(mungo_asan, ignore = "the sanitizer's shadow is more memory than is searched")]
fn channels_are_followed_to_the_goroutines_that_have_handles() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    let ended = child::run("main_waits_for_a_ring_of_channels");
    ended.assert_code(2).assert_says("\ndeadlock: goroutine ").assert_says(" -> channel 0x");
    ended.assert_says("[chan receive] waits for channel 0x").assert_says(", of which goroutine");
}

fn a_once_waits_for_itself() {
    static ONCE: Once = Once::new();
    go(|| ONCE.call_once(|| ONCE.call_once(|| ()))).join().unwrap();
}

#[test]
fn a_once_that_waits_for_itself_is_a_cycle_of_one() {
    if child::is_emulated("the emulator has a thread of its own") {
        return;
    }
    let ended = child::run("a_once_waits_for_itself");
    ended.assert_code(2).assert_says(" -> once 0x").assert_says(", run by goroutine ");
}

fn warned_with_a_cycle() {
    std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
    let philosophers = two_locks();
    std::thread::spawn(|| philosophers.into_iter().for_each(|philosopher| philosopher.join().unwrap()));
    // Standard error is a pipe to the parent, which waits for the words: this process ends after them.
    std::thread::sleep(Duration::from_secs(3));
}

#[test]
fn a_standstill_beside_other_threads_is_explained_too() {
    let mut command = child::command("warned_with_a_cycle");
    command.env("MUNGO_DEBUG", "deadlock=100");
    let ended = child::finish(command);
    ended
        .assert_success()
        .assert_says("mungo: warning: all goroutines are asleep")
        .assert_says("\ndeadlock: goroutine ");
}

fn beside_others_that_run() {
    runtime(2).run(|| {
        let ended = Arc::new(AtomicBool::new(false));
        let busy = {
            let ended = ended.clone();
            go(move || while !ended.load(Relaxed) {})
        };
        let philosophers = two_locks();
        let follower = named("follower", move || philosophers.into_iter().for_each(|p| p.join().unwrap()));
        let mut graph = graph_of(&["plato", "kant", "follower"]);
        wait_until("they are stuck", || {
            graph = wait_graph();
            graph.stuck().count() == 3
        });
        let (plato, kant) = (id_of(&graph, "plato"), id_of(&graph, "kant"));
        let mut cycle = graph.cycles()[0].clone();
        cycle.sort_unstable();
        assert_eq!((graph.cycles().len(), cycle), (1, vec![plato, kant]));
        let text = graph.to_string();
        assert!(text.contains(&format!("'follower' [join] waits for the end of goroutine {plato}")), "{text}");
        let dot = graph.to_dot();
        assert!(dot.contains(&format!("g{} -> g{plato};", id_of(&graph, "follower"))), "{dot}");
        assert!(dot.contains("color=red") && dot.contains(&format!(" -> g{kant};")), "{dot}");
        let dump = mungo::debug::dump().to_string();
        assert!(dump.contains("mungo: what waits for whom\ndeadlock: goroutine "), "{dump}");
        ended.store(true, Relaxed);
        busy.join().unwrap();
        drop(follower);
        std::process::exit(0); // what is stuck ends with the process
    });
}

#[test]
fn a_cycle_is_found_while_others_run() {
    child::run("beside_others_that_run").assert_success();
}

fn quit_with_a_cycle() {
    runtime(2).run(|| {
        let philosophers = two_locks();
        drop(philosophers);
        let (tx, rx) = chan::bounded::<u32>(0);
        named("lonely", move || {
            std::hint::black_box(&tx);
            _ = rx.recv();
        });
        wait_until("they are stuck", || !wait_graph().cycles().is_empty());
        graph_of(&["lonely"]);
        // SAFETY: a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) };
        sleep(Duration::from_secs(3600)); // it does not get so old
    });
}

#[test]
fn sigquit_names_the_goroutines_that_are_stuck() {
    let ended = child::run("quit_with_a_cycle");
    ended.assert_signal(libc::SIGQUIT).assert_says("SIGQUIT: mungo: ");
    ended.assert_says("mungo: goroutines that nothing can wake any more\ndeadlock: goroutine ");
}

fn the_same_numbers_in_two_runtimes() {
    let (one, two) = (runtime(1), runtime(1));
    let (lock, other) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let (is_locked, may_go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let holder = {
        let (lock, other) = (lock.clone(), other.clone());
        let (is_locked, may_go_on) = (is_locked.clone(), may_go_on.clone());
        one.spawn(move || {
            let _lock = lock.lock();
            is_locked.store(true, Relaxed);
            while !may_go_on.load(Relaxed) {}
            drop(other.lock());
        })
    };
    wait_until("it is locked", || is_locked.load(Relaxed));
    let waiter = two.spawn(move || {
        let _other = other.lock();
        drop(lock.lock());
    });
    let number = holder.goroutine().id().as_u64();
    assert_eq!(waiter.goroutine().id().as_u64(), number, "each runtime counts for itself");
    let mut graph = wait_graph();
    wait_until("the other waits", || {
        graph = wait_graph();
        !graph.waits().is_empty()
    });
    // The holder computes, so nothing is stuck, and it is not the one that waits.
    assert_eq!((graph.waits().len(), graph.cycles().len(), graph.stuck().count()), (1, 0, 0), "{graph}");
    assert_eq!(graph.waits()[0].runtime, 2);
    let text = graph.to_string();
    assert!(text.contains(&format!("goroutine {number} of runtime 2 [mutex] waits for mutex 0x")), "{text}");
    assert!(text.contains(&format!(", locked by goroutine {number} of runtime 1\n")), "{text}");
    let dot = graph.to_dot();
    for node in [format!("  r1g{number} [shape=box, style=dashed"), format!("  r2g{number} [shape=box, label")]
    {
        assert!(dot.contains(&node), "{node}: {dot}");
    }
    may_go_on.store(true, Relaxed);
    wait_until("both wait for each other", || {
        graph = wait_graph();
        graph.stuck().count() == 2
    });
    assert_eq!(graph.cycles(), [[number, number]]);
    let line = graph.to_string().lines().next().expect("a cycle").to_owned();
    for runtime in [1, 2] {
        assert!(line.contains(&format!(" goroutine {number} of runtime {runtime} -> mutex 0x")), "{line}");
    }
    std::process::exit(0); // what is stuck ends with the process
}

#[test]
fn goroutines_of_two_runtimes_with_one_number_are_told_apart() {
    child::run("the_same_numbers_in_two_runtimes").assert_success();
}

fn a_holder_has_ended() {
    runtime(2).run(|| {
        static LOCK: Mutex<()> = mungo::sync::Mutex::new(());
        named("forgetful", || std::mem::forget(LOCK.lock())).join().unwrap();
        named("heir", || drop(LOCK.lock()));
        let mut graph = graph_of(&["heir"]);
        // Its G may be used for another goroutine by now.
        (0..100).for_each(|_| go(|| ()).join().unwrap());
        wait_until("it is stuck", || {
            graph = wait_graph();
            graph.stuck().any(|wait| wait.name.as_deref() == Some("heir"))
        });
        let wait = graph.stuck().next().unwrap();
        assert_eq!(wait.objects[0].others, Others::HolderEnded, "{graph}");
        assert!(graph.to_string().contains(", locked by a goroutine that has ended"), "{graph}");
        assert!(graph.cycles().is_empty(), "{graph}");
        std::process::exit(0);
    });
}

#[test]
fn a_lock_of_a_goroutine_that_has_ended_is_told_from_others() {
    child::run("a_holder_has_ended").assert_success();
}

fn writers_and_scopes() {
    runtime(2).run(|| {
        static LOCK: RwLock<()> = mungo::sync::RwLock::new(());
        let writer = named("writer", || {
            let _held = LOCK.write();
            park();
        });
        graph_of(&["writer"]);
        let reader = named("reader", || drop(LOCK.read()));
        let scope = named("scope", || mungo::scope(|s| _ = s.spawn(park)));
        let graph = graph_of(&["writer", "reader", "scope"]);
        let of = |name: &str| graph.waits().iter().find(|wait| wait.name.as_deref() == Some(name)).unwrap();
        let wait = of("reader");
        assert_eq!(
            (wait.objects[0].kind, wait.objects[0].others),
            (ObjectKind::RwLock, Others::None),
            "{graph}"
        );
        assert_eq!(wait.objects[0].held_by, [id_of(&graph, "writer")], "{graph}");
        assert_eq!((of("scope").objects[0].kind, of("scope").objects[0].held_by.len()), (ObjectKind::Scope, 1));
        assert_eq!(of("writer").objects[0].kind, ObjectKind::Unpark);
        assert_eq!(graph.stuck().count(), 0, "an unpark may come: {graph}");
        writer.goroutine().unpark();
        writer.join().unwrap();
        reader.join().unwrap();
        drop(scope);
        std::process::exit(0);
    });
}

#[test]
fn holders_of_rwlocks_and_goroutines_of_scopes_are_known() {
    child::run("writers_and_scopes").assert_success();
}

fn many_objects() {
    runtime(2).run(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let wg = WaitGroup::new();
        let token = wg.token();
        let (tx, rx) = chan::bounded::<u32>(0);
        let (other, other_rx) = chan::bounded::<u32>(0);
        let listener = mungo::net::TcpListener::bind("127.0.0.1:0").unwrap();
        type Wait = Box<dyn FnOnce() + Send>;
        let waits: Vec<(&str, Wait)> = vec![
            (
                "semaphore",
                Box::new({
                    let s = semaphore.clone();
                    move || drop(s.acquire())
                }),
            ),
            ("wait group", Box::new(move || wg.wait())),
            ("timer", Box::new(|| sleep(Duration::from_secs(3600)))),
            ("descriptor", Box::new(move || drop(listener.accept()))),
            ("unpark", Box::new(park)),
            ("never", Box::new(|| _ = chan::never::<()>().recv())),
            ("limited", Box::new(move || _ = other_rx.recv_timeout(Duration::from_secs(3600)))),
            (
                "select",
                Box::new(move || {
                    chan::select! {
                        recv(rx) -> _ => {},
                        recv(chan::never::<u32>()) -> _ => {},
                    }
                }),
            ),
        ];
        let names: Vec<&str> = waits.iter().map(|(name, _)| *name).collect();
        waits.into_iter().for_each(|(name, f)| drop(named(name, f)));
        let graph = graph_of(&names);
        let line = |name: &str| {
            let text = graph.to_string();
            text.lines()
                .find(|l| l.contains(&format!("'{name}'")))
                .unwrap_or_else(|| panic!("{text}"))
                .to_owned()
        };
        assert!(line("semaphore").contains("[semaphore] waits for semaphore 0x"), "{graph}");
        assert!(line("wait group").contains("waits for wait group 0x"), "{graph}");
        assert!(line("timer").contains("waits for its timer, due in 3"), "{graph}");
        assert!(line("descriptor").contains("[net accept] waits for descriptor "), "{graph}");
        assert!(line("unpark").contains("waits for a call of unpark"), "{graph}");
        assert!(line("never").contains("waits for what can never come"), "{graph}");
        assert!(line("limited").contains(", for a limited time"), "{graph}");
        assert!(line("select").contains("[select] waits for channel 0x"), "{graph}");
        let stuck: Vec<_> = graph.stuck().map(|wait| wait.name.clone().unwrap()).collect();
        assert_eq!(stuck, ["never"], "{graph}");
        drop((token, tx, other));
        std::process::exit(0);
    });
}

#[test]
fn each_kind_of_wait_is_named_and_only_what_can_never_come_is_stuck() {
    child::run("many_objects").assert_success();
}

/// Locks that pass from one to the next all the time, in an order without deadlocks.
fn busy_locks() {
    runtime(2).run(|| {
        static LOCKS: [Mutex<u64>; 3] = [const { mungo::sync::Mutex::new(0) }; 3];
        static ROUNDS: AtomicU64 = AtomicU64::new(0);
        let ended = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..16)
            .map(|i| {
                let ended = ended.clone();
                go(move || {
                    while !ended.load(Relaxed) {
                        let _first = LOCKS[i % 2].lock();
                        let _second = LOCKS[2].lock();
                        mungo::yield_now();
                        ROUNDS.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        let mut seen = 0;
        wait_until("enough looks", || {
            let graph = wait_graph();
            assert_eq!(graph.stuck().count(), 0, "{graph}");
            seen += usize::from(graph.waits().iter().any(|wait| wait.objects[0].kind == ObjectKind::Mutex));
            seen >= 20
        });
        assert!(ROUNDS.load(Relaxed) > 0);
        ended.store(true, Relaxed);
        busy.into_iter().for_each(|g| g.join().unwrap());
    });
}

#[test]
fn locks_that_are_passed_on_are_no_deadlock() {
    child::run("busy_locks").assert_success();
}

/// Two that wait for each other, one that joins one of them, and a scope with one that wants a lock of theirs, after
/// many thousands that wait for something else.
fn beyond_ten_thousand() {
    const MANY: usize = 15_000;
    let runtime = runtime(1);
    runtime.run(|| {
        let (tx, rx) = chan::bounded::<()>(0);
        let many: Vec<_> = (0..MANY)
            .map(|_| {
                let rx = rx.clone();
                go(move || _ = rx.recv())
            })
            .collect();
        let kept = Arc::new(Mutex::new(()));
        let (mut both, lock) = (two_locks(), kept.clone());
        let plato = both.remove(0);
        let mut joiners = vec![named("joiner", move || plato.join().unwrap())];
        joiners.push(named("owner", move || {
            let _held = lock.lock();
            let kant = both.remove(0);
            mungo::scope(|scope| _ = scope.spawn(move || kant.join().unwrap()));
        }));
        wait_until("it is locked", || kept.try_lock().is_none());
        joiners.push(named("last", move || drop(kept.lock())));
        // A dump makes the graph without a search of memory, which would take long here.
        let mut text = String::new();
        wait_until("they are stuck", || {
            text = mungo::debug::DumpOptions::new().stacks(false).dump().to_string();
            let waits = text.split_once("what waits for whom").map_or("", |(_, waits)| waits);
            let names = ["'plato'", "'kant'", "'joiner'", "'owner'", "'last'"];
            names.iter().all(|name| waits.contains(name)) && waits.contains("\ndeadlock: goroutine ")
        });
        assert!(text.contains(" more goroutines were not looked at"), "{text}");
        drop(tx);
        many.into_iter().for_each(|g| g.join().unwrap());
        std::process::exit(0); // those that are stuck stay so
    });
}

#[test]
fn a_cycle_of_locks_is_found_among_more_goroutines_than_are_looked_at() {
    child::run("beyond_ten_thousand").assert_success();
}

/// Two that wait for each other, after more goroutines than are drawn.
fn drawn_beside_many() {
    runtime(1).run(|| {
        let many: Vec<_> = (0..1500).map(|_| go(|| sleep(Duration::from_secs(3600)))).collect();
        let both = two_locks();
        let graph = graph_of(&["plato", "kant"]);
        assert!(graph.waits().len() > 1000);
        let dot = graph.to_dot();
        assert!(["plato", "kant"].iter().all(|name| dot.contains(name)), "{dot}");
        drop((many, both));
        std::process::exit(0); // those that are stuck stay so
    });
}

#[test]
fn a_drawing_has_those_that_are_stuck_before_all_others() {
    child::run("drawn_beside_many").assert_success();
}
