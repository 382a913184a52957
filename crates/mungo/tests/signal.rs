//! `mungo::signal`: listeners get signals, handlers of others are called too, and the former effect comes back.

#[macro_use]
mod common;

use common::{PATIENCE, child, wait_until};
use mungo::context::{Context, ContextError};
use mungo::signal::{Received, Signal, notify, raise};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

children!(
    second_interrupt_ends_the_process,
    dropped_receiver_gives_the_effect_back,
    cancelled_context_gives_the_effect_back,
    quit_is_heard_instead_of_a_dump,
    waiting_for_a_signal_is_no_deadlock,
    ignored_signal_stays_ignored_afterwards
);

/// Each test has signals of its own: they are the whole process's.
fn own(n: i32) -> Signal {
    Signal::from_raw(40 + n).unwrap()
}

#[test]
fn all_listeners_get_it() {
    let listeners: Vec<_> = (0..5).map(|_| notify(&[own(0)])).collect();
    for _ in 0..3 {
        raise(own(0));
        for listener in &listeners {
            assert_eq!(listener.recv_timeout(PATIENCE), Ok(own(0)));
        }
    }
    assert!(listeners.iter().all(|listener| listener.is_empty()));
}

#[test]
fn a_listener_gets_what_it_asked_for() {
    let (both, second) = (notify(&[own(1), own(2)]), notify(&[own(2)]));
    raise(own(1));
    assert_eq!(both.recv_timeout(PATIENCE), Ok(own(1)));
    raise(own(2));
    assert_eq!(both.recv_timeout(PATIENCE), Ok(own(2)));
    assert_eq!(second.recv_timeout(PATIENCE), Ok(own(2)));
    assert!(second.is_empty() && both.is_empty());
}

#[test]
fn many_signals_and_a_slow_listener() {
    let listener = notify(&[own(3)]);
    for _ in 0..10_000 {
        raise(own(3));
    }
    assert_eq!(listener.recv_timeout(PATIENCE), Ok(own(3)));
    assert!(listener.len() <= 64);
    std::mem::forget(listener); // more may be on their way, and would end the tests
}

#[test]
fn an_empty_list_is_disconnected() {
    assert!(notify(&[]).recv().is_err());
}

#[test]
fn a_context_is_cancelled_with_the_signal_as_its_cause() {
    let (ctx, _cancel) = Context::background().with_signals(&[own(4), own(5)]);
    let keeper = notify(&[own(5)]); // keeps the signal from ending the tests, should the context be slow
    let child = ctx.with_value(7u8);
    raise(own(5));
    assert!(child.sleep(PATIENCE).is_err());
    assert_eq!(child.err(), Some(ContextError::Canceled));
    assert_eq!(child.cause().unwrap().downcast_ref(), Some(&Received(own(5))));
    assert_eq!(keeper.recv_timeout(PATIENCE), Ok(own(5)));
}

static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SEEN.fetch_add(1, Relaxed);
}

#[test]
fn a_handler_that_was_there_is_called_too() {
    // SAFETY: a handler that touches one atomic.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(own(6).as_raw(), &action, std::ptr::null_mut()), 0);
    }
    let listener = notify(&[own(6)]);
    raise(own(6));
    assert_eq!(listener.recv_timeout(PATIENCE), Ok(own(6)));
    wait_until("the other handler ran", || SEEN.load(Relaxed) == 1);
    drop(listener);
    raise(own(6)); // the listener is gone, which is noticed now
    wait_until("the other handler ran again", || SEEN.load(Relaxed) == 2);
    raise(own(6));
    wait_until("and again", || SEEN.load(Relaxed) == 3);
}

#[test]
fn signals_while_all_processors_compute() {
    let rt = common::runtime(1);
    let (listener, stop) = (notify(&[own(7)]), std::sync::Arc::new(AtomicUsize::new(0)));
    let seen = stop.clone();
    let busy = rt.spawn(move || while seen.load(Relaxed) == 0 {});
    raise(own(7));
    assert_eq!(listener.recv_timeout(PATIENCE), Ok(own(7)));
    stop.store(1, Relaxed);
    busy.join().unwrap();
    common::end(rt);
}

fn second_interrupt_ends_the_process() {
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT]);
    raise(Signal::INTERRUPT);
    assert!(ctx.sleep(PATIENCE).is_err());
    println!("asked to stop");
    raise(Signal::INTERRUPT);
    mungo::sleep(PATIENCE); // hangs in its shutdown
}

fn dropped_receiver_gives_the_effect_back() {
    drop(notify(&[Signal::TERMINATE]));
    raise(Signal::TERMINATE);
    mungo::sleep(PATIENCE);
}

fn cancelled_context_gives_the_effect_back() {
    let (_ctx, cancel) = Context::background().with_signals(&[Signal::TERMINATE]);
    cancel.cancel();
    raise(Signal::TERMINATE);
    mungo::sleep(PATIENCE);
}

fn quit_is_heard_instead_of_a_dump() {
    let listener = notify(&[Signal::QUIT]);
    raise(Signal::QUIT);
    assert_eq!(listener.recv_timeout(PATIENCE), Ok(Signal::QUIT));
    println!("heard");
}

/// The whole program waits for its Ctrl-C, as servers do.
fn waiting_for_a_signal_is_no_deadlock() {
    let rt = mungo::Runtime::builder().deadlock_warning(Duration::from_millis(50)).build().unwrap();
    let listener = notify(&[Signal::USER1]);
    // Another process sends it, after longer than the detector's patience: a thread would count as one that may wake
    // us.
    let mut sender = std::process::Command::new("sh");
    let mut sender = sender.args(["-c", "sleep 0.3; kill -USR1 $PPID"]).spawn().expect("a shell");
    rt.run(move || assert_eq!(listener.recv(), Ok(Signal::USER1)));
    sender.wait().unwrap();
}

fn ignored_signal_stays_ignored_afterwards() {
    // SAFETY: no handler involved.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let listener = notify(&[Signal::HANGUP]);
    raise(Signal::HANGUP);
    assert_eq!(listener.recv_timeout(PATIENCE), Ok(Signal::HANGUP));
    drop(listener);
    for _ in 0..3 {
        raise(Signal::HANGUP);
        mungo::sleep(Duration::from_millis(5));
    }
    println!("alive");
}

#[test]
fn the_former_effect_comes_back() {
    let ended = child::run("second_interrupt_ends_the_process");
    assert_eq!(ended.stdout, "asked to stop\n", "{ended:?}");
    ended.assert_signal(libc::SIGINT);
    child::run("dropped_receiver_gives_the_effect_back").assert_signal(libc::SIGTERM);
    child::run("cancelled_context_gives_the_effect_back").assert_signal(libc::SIGTERM);
    let ended = child::run("ignored_signal_stays_ignored_afterwards");
    assert_eq!(ended.assert_success().stdout, "alive\n");
}

#[test]
fn who_listens_for_quit_gets_no_dump() {
    let ended = child::run("quit_is_heard_instead_of_a_dump");
    assert_eq!(ended.assert_success().assert_does_not_say("goroutine").stdout, "heard\n");
}

#[test]
fn a_program_may_wait_for_a_signal() {
    child::run("waiting_for_a_signal_is_no_deadlock").assert_success().assert_does_not_say("asleep");
}
