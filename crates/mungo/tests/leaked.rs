//! Leaks: goroutines that nobody can wake are found, and others are not taken for such. Each case is a process of its
//! own, so that nothing is left over from others.
#![cfg(not(mungo_asan))] // the sanitizer's shadow is more memory than is searched

#[macro_use]
mod common;

use common::{child, wait_until};
use mungo::chan::{self, Receiver, Sender};
use mungo::context::Context;
use mungo::debug::{DumpOptions, GoroutineDump, Leaked, leaked};
use mungo::go;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

children!(
    keeps_its_own_sender,
    rings,
    shared_workers,
    never_and_selects,
    held_elsewhere,
    deadlines,
    pitfalls,
    many
);

const SINCE: Duration = Duration::from_millis(20);

fn named(name: &str, f: impl FnOnce() + Send + 'static) {
    drop(mungo::Builder::new().name(name.to_owned()).spawn(f).unwrap());
}

/// Runs `f` in a goroutine that has ended when this returns, so that its stack holds nothing any more.
fn elsewhere(f: impl FnOnce() + Send + 'static) {
    go(f).join().unwrap();
}

fn find<'a>(leaks: &'a [Leaked], name: &str) -> Option<&'a Leaked> {
    leaks.iter().find(|l| l.goroutine.name.as_deref() == Some(name))
}

/// The goroutines that have waited for long enough.
fn waiting() -> Vec<GoroutineDump> {
    let dump = DumpOptions::new().stacks(false).dump();
    dump.goroutines().iter().filter(|g| g.waited.is_some_and(|waited| waited >= SINCE)).cloned().collect()
}

/// The status of a process that found too little.
const MISSED: i32 = 3;

/// Checks what is said of `names` when all of them have waited for long enough. One that is taken for leaked and is not
/// is an error. The other way round the rule allows it: old addresses, left in a dead part of a stack, count too. Then
/// this process ends with [`MISSED`].
#[track_caller]
fn expect(names: &[&str], unreachable: &[bool]) {
    wait_until("all have waited", || {
        let dump = waiting();
        names.iter().all(|name| dump.iter().any(|g| g.name.as_deref() == Some(name)))
    });
    let leaks = leaked(SINCE);
    for (name, expected) in names.iter().zip(unreachable) {
        let found = find(&leaks, name).expect("at least a suspect");
        assert!(*expected || !found.unreachable, "it can be reached: {found}");
        if *expected && !found.unreachable {
            eprintln!("missed: {found}");
            std::process::exit(MISSED);
        }
    }
}

/// One of five processes finds everything.
#[track_caller]
fn assert_found(child: &str) {
    for _ in 0..4 {
        let ended = child::run(child);
        if ended.status.code() != Some(MISSED) {
            ended.assert_success();
            return;
        }
    }
    child::run(child).assert_success();
}

/// The source of many leaks: the sender that would end the loop is the loop's own.
fn keeps_its_own_sender() {
    common::runtime(2).run(|| {
        elsewhere(|| {
            named("receives", || {
                let (tx, rx) = chan::bounded::<u32>(1);
                rx.iter().for_each(|value| tx.send(value).unwrap());
            });
            named("sends", || {
                let (tx, rx) = chan::bounded(1);
                (0..2).for_each(|i| tx.send(i).unwrap());
                black_box(rx);
            });
        });
        expect(&["receives", "sends"], &[true, true]);
        let leaks = leaked(SINCE);
        let (receives, sends) = (find(&leaks, "receives").unwrap(), find(&leaks, "sends").unwrap());
        let c = receives.channels[0];
        assert_eq!((c.sends, c.capacity, c.senders, c.receivers), (false, Some(1), 1, 1));
        assert!(sends.channels[0].sends && sends.goroutine.spawned_at.file().ends_with("leaked.rs"));
        let text = receives.to_string();
        assert!(
            text.starts_with("leaked: goroutine ") && text.contains("'receives' [chan receive, "),
            "{text}"
        );
        assert!(text.contains("capacity 1, 1 senders, 1 receivers") && text.contains("leaked.rs:"), "{text}");
        assert!(leaked(Duration::from_secs(3600)).is_empty(), "not for so long");
        std::process::exit(0);
    });
}

#[test]
fn a_goroutine_that_keeps_the_other_side_is_found() {
    assert_found("keeps_its_own_sender");
}

/// Two that wait for each other, and one that waits for them.
fn rings() {
    common::runtime(2).run(|| {
        elsewhere(|| {
            let ((to_a, a), (to_b, b), (to_c, c)) =
                (chan::bounded::<u32>(0), chan::bounded::<u32>(0), chan::bounded::<u32>(0));
            named("a", move || forward(&a, &to_b));
            named("b", move || {
                forward(&b, &to_a);
                black_box(to_c);
            });
            named("c", move || _ = c.recv());
        });
        expect(&["a", "b", "c"], &[true, true, true]);
        std::process::exit(0);
    });
}

#[inline(never)]
fn forward(from: &Receiver<u32>, to: &Sender<u32>) {
    from.iter().for_each(|value| to.send(value).unwrap());
    black_box(());
}

#[test]
fn rings_and_those_who_hang_on_them_are_found() {
    assert_found("rings");
}

/// Workers of a pool that was forgotten, and of one that was not.
fn shared_workers() {
    common::runtime(2).run(|| {
        let (alive, jobs) = chan::unbounded::<u32>();
        for name in ["idle 1", "idle 2"] {
            let jobs = jobs.clone();
            named(name, move || jobs.iter().for_each(drop));
        }
        // Not on a stack that the others' parent has used: old addresses there would count as theirs.
        wait_until("the idle ones wait", || waiting().len() == 2);
        elsewhere(|| {
            let (tx, rx) = chan::unbounded::<u32>();
            for name in ["forgotten 1", "forgotten 2"] {
                let (tx, rx) = (tx.clone(), rx.clone());
                named(name, move || {
                    rx.iter().for_each(drop);
                    black_box(tx);
                });
            }
        });
        expect(&["idle 1", "forgotten 1", "idle 2", "forgotten 2"], &[false, true, false, true]);
        drop(alive);
        wait_until("the idle ones have ended", || mungo::num_goroutines() == 3);
        std::process::exit(0);
    });
}

#[test]
fn idle_workers_are_suspects_only() {
    assert_found("shared_workers");
}

static KEPT: OnceLock<Sender<u32>> = OnceLock::new();

fn never_and_selects() {
    common::runtime(2).run(|| {
        elsewhere(|| {
            named("never", || _ = chan::never::<u32>().recv());
            named("select", || {
                let ((tx, rx), (tx2, rx2)) = (chan::bounded::<u32>(0), chan::bounded::<u32>(0));
                chan::select! {
                    recv(rx) -> _ => {},
                    recv(rx2) -> _ => {},
                }
                black_box((tx, tx2));
            });
            named("select with hope", || {
                let ((tx, rx), (tx2, rx2)) = (chan::bounded::<u32>(0), chan::bounded::<u32>(0));
                KEPT.set(tx2).unwrap();
                chan::select! {
                    recv(rx) -> _ => {},
                    recv(rx2) -> _ => {},
                }
                black_box(tx);
            });
        });
        expect(&["never", "select", "select with hope"], &[true, true, false]);
        KEPT.get().unwrap().send(1).unwrap();
        wait_until("it has ended", || waiting().len() == 2);
        std::process::exit(0);
    });
}

#[test]
fn selects_are_leaked_if_all_their_channels_are() {
    assert_found("never_and_selects");
}

/// The other side is on the heap, on a sleeping goroutine's stack, with a plain thread, in a message, in a closure that
/// has not run: somebody may use it.
fn held_elsewhere() {
    let runtime = common::runtime(1);
    let (tx, rx) = chan::bounded::<u32>(0);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3600));
        drop(tx);
    });
    runtime.run(|| {
        named("thread", move || _ = rx.recv());
        let (tx, rx) = chan::bounded::<u32>(0);
        let boxed = Box::new(vec![tx]);
        named("heap", move || _ = rx.recv());
        let (tx, rx) = chan::bounded::<u32>(0);
        named("sleeper's", move || _ = rx.recv());
        go(move || {
            mungo::sleep(Duration::from_secs(3600));
            drop(tx);
        });
        let (tx, rx) = chan::bounded::<u32>(0);
        let (mail, mailbox) = chan::bounded::<Sender<u32>>(1);
        mail.send(tx).unwrap();
        named("message", move || _ = rx.recv());
        let (tx, rx) = chan::bounded::<u32>(0);
        named("closure", move || _ = rx.recv());
        let chan = |g: &GoroutineDump| g.state.to_string() == "chan receive";
        wait_until("they wait", || waiting().iter().filter(|g| chan(g)).count() == 5);
        // With one P this one does not start before we let go of it; `leaked` lets go.
        let names = ["thread", "heap", "sleeper's", "message", "closure"];
        let closure = tx.clone();
        go(move || {
            mungo::sleep(Duration::from_secs(3600));
            drop(closure);
        });
        drop(tx);
        expect(&names, &[false; 5]);
        black_box((boxed, mailbox));
        std::process::exit(0);
    });
}

#[test]
fn what_somebody_holds_is_not_leaked() {
    assert_found("held_elsewhere");
}

/// A goroutine that will wake up by the clock is not stuck.
fn deadlines() {
    common::runtime(2).run(|| {
        elsewhere(|| {
            named("timeout", || {
                let (tx, rx) = chan::bounded::<u32>(0);
                _ = rx.recv_timeout(Duration::from_secs(3600));
                black_box(tx);
            });
            named("tick", || _ = chan::tick(Duration::from_secs(3600)).recv());
            named("select", || {
                let (tx, rx) = chan::bounded::<u32>(0);
                chan::select! {
                    recv(rx) -> _ => {},
                    recv(chan::after(Duration::from_secs(3600))) -> _ => {},
                }
                black_box(tx);
            });
            named("leak", || _ = chan::never::<u32>().recv());
        });
        expect(&["leak"], &[true]);
        assert_eq!(leaked(SINCE).len(), 1);
        std::process::exit(0);
    });
}

#[test]
fn waits_with_a_deadline_are_no_leaks() {
    assert_found("deadlines");
}

/// The best-known pitfall: a goroutine needs a way to exit. With a context it has one; until that is cancelled it is a
/// suspect.
fn pitfalls() {
    common::runtime(2).run(|| {
        let (ctx, cancel) = Context::background().with_cancel();
        let (_jobs, rx) = chan::bounded::<u32>(0);
        // As above: it waits before the other one's parent starts.
        named("good", move || {
            loop {
                chan::select! {
                    recv(ctx.done()) -> _ => return,
                    recv(rx) -> _ => {},
                }
            }
        });
        wait_until("it waits", || waiting().len() == 1);
        elsewhere(|| {
            named("bad", || {
                let (tx, rx) = chan::bounded::<u32>(0);
                rx.iter().for_each(drop);
                black_box(tx);
            });
        });
        expect(&["good", "bad"], &[false, true]);
        cancel.cancel();
        wait_until("the good one has ended", || mungo::num_goroutines() == 2);
        assert_eq!(leaked(SINCE).len(), 1);
        std::process::exit(0);
    });
}

#[test]
fn a_way_to_exit_makes_the_difference() {
    assert_found("pitfalls");
}

fn many() {
    common::runtime(2).run(|| {
        elsewhere(|| {
            for _ in 0..2_000 {
                go(|| {
                    let (tx, rx) = chan::bounded::<u32>(0);
                    _ = rx.recv();
                    black_box(tx);
                });
            }
        });
        wait_until("all wait", || waiting().len() == 2_000);
        let leaks = leaked(SINCE);
        assert_eq!(leaks.len(), 2_000);
        // The address of one or the other may be left somewhere.
        let found = leaks.iter().filter(|l| l.unreachable).count();
        assert!(found >= 1_900, "{found}");
        std::process::exit(0);
    });
}

#[test]
fn thousands_of_leaks_are_found() {
    assert_found("many");
}
