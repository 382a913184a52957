//! The listeners of each signal, and the goroutine that passes them on.

use super::number::Signal;
use super::{Received, handler};
use crate::chan::{Receiver, Sender, TrySendError, bounded};
use crate::context::{CancelCause, Context, after_func};
use crate::net::Pollable;
use crate::sched::run::spawn::Spec;
use crate::sched::start::default_runtime;
use crate::sync::{Mutex, OnceLock};
use crate::sys::say::say;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Number of signals that a listener's channel holds.
const ROOM: usize = 64;

struct Listener {
    /// The bits of the signals that it wants.
    wants: u64,
    id: u64,
    to: To,
}

enum To {
    Channel(Sender<Signal>),
    Cancel(CancelCause),
}

struct Listeners {
    all: Vec<Listener>,
    next_id: u64,
}

static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners { all: Vec::new(), next_id: 0 });

/// Returns a channel of these signals. See the [module](super) for the rules.
///
/// To stop listening, drop the receiver and its clones. The first signal after that is noticed, and has its former
/// effect. With an empty list the channel is disconnected.
///
/// ```standalone_crate
/// use mungo::signal::{Signal, notify, raise};
///
/// let (all, hangups) = (notify(&[Signal::HANGUP, Signal::USER1]), notify(&[Signal::HANGUP]));
/// raise(Signal::HANGUP);
/// assert_eq!(all.recv(), Ok(Signal::HANGUP));
/// assert_eq!(hangups.recv(), Ok(Signal::HANGUP));
/// raise(Signal::USER1);
/// assert_eq!(all.recv(), Ok(Signal::USER1));
/// assert!(hangups.is_empty());
/// ```
///
/// # Panics
/// At the first call, if there is no descriptor left, or the default runtime cannot be started.
#[must_use = "nothing listens once the receiver is dropped"]
#[doc(alias("ctrl_c", "interrupt", "sigint", "sigterm"))]
pub fn notify(signals: &[Signal]) -> Receiver<Signal> {
    let (tx, rx) = bounded(ROOM);
    add(signals, To::Channel(tx));
    rx
}

/// Lets the first of these signals cancel `ctx`, until the context is done.
pub(super) fn add_context(signals: &[Signal], ctx: &Context, cancel: CancelCause) {
    let id = add(signals, To::Cancel(cancel));
    // If another one ends it; a signal ends its own listening.
    after_func(ctx, move || remove(&mut LISTENERS.lock(), |listener| listener.id == id));
}

fn add(signals: &[Signal], to: To) -> u64 {
    start().unwrap_or_else(|e| panic!("mungo: cannot listen for signals: {e}"));
    let wants = signals.iter().fold(0, |bits, signal| bits | signal.bit());
    let mut listeners = LISTENERS.lock();
    let id = listeners.next_id;
    listeners.next_id += 1;
    if wants != 0 {
        listeners.all.push(Listener { wants, id, to });
        signals.iter().for_each(|&signal| handler::listen(signal));
    }
    id
}

/// Takes out the listeners that match, and gives signals that are left without one their former effect.
fn remove(listeners: &mut Listeners, is_over: impl Fn(&Listener) -> bool) {
    let before = wanted(listeners);
    listeners.all.retain(|listener| !is_over(listener));
    for signal in each(before & !wanted(listeners)) {
        handler::stop_listening(signal);
    }
}

fn wanted(listeners: &Listeners) -> u64 {
    listeners.all.iter().fold(0, |bits, listener| bits | listener.wants)
}

/// Iterates over the signals of a set of bits.
fn each(bits: u64) -> impl Iterator<Item = Signal> {
    (1..=64).filter_map(Signal::from_raw).filter(move |signal| bits & signal.bit() != 0)
}

/// Starts the goroutine that passes signals on, at the first call.
fn start() -> io::Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock();
    if STARTED.get().is_some() {
        return Ok(());
    }
    let runtime = default_runtime()?; // first, so that its handler of SIGQUIT stands behind ours
    let bell = Pollable::new(handler::make_bell()?)?;
    let spec = Spec { name: Some("signals".into()), ..Spec::here() };
    // SAFETY: it borrows nothing.
    drop(unsafe { spec.spawn(Some(runtime), move || pass_on(bell)) }?);
    _ = STARTED.set(());
    Ok(())
}

fn pass_on(bell: Pollable<OwnedFd>) {
    loop {
        let rung = bell.read_with(|fd| {
            let mut count = 0u64;
            // SAFETY: eight bytes to write to.
            match unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) } {
                8 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        if let Err(e) = rung {
            return say!("mungo: signals are not passed on any more: {e}");
        }
        each(handler::take_pending()).for_each(deliver);
    }
}

/// Passes a signal on to all that listen for it and are still there. If none is, it has its former effect.
fn deliver(signal: Signal) {
    let mut cancels = Vec::new();
    let mut is_heard = false;
    let mut listeners = LISTENERS.lock();
    let mut over = Vec::new();
    for listener in listeners.all.iter().filter(|listener| listener.wants & signal.bit() != 0) {
        match &listener.to {
            To::Channel(tx) => match tx.try_send(signal) {
                Err(TrySendError::Disconnected(_)) => over.push(listener.id),
                _ => is_heard = true,
            },
            To::Cancel(cancel) => {
                cancels.push(cancel.clone());
                over.push(listener.id);
            }
        }
    }
    remove(&mut listeners, |listener| over.contains(&listener.id));
    drop(listeners);
    // Without the lock: what a context leaves behind is dropped here.
    for cancel in cancels {
        is_heard |= cancel.cancel_if_alive(Received(signal));
    }
    if !is_heard {
        handler::let_pass(signal);
    }
}
