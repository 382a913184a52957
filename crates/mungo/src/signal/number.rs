//! Which signals there are to listen for.

use std::ffi::c_int;
use std::fmt;

/// A signal that can be listened for.
///
/// ```
/// use mungo::signal::Signal;
///
/// assert_eq!(Signal::INTERRUPT.to_string(), "SIGINT");
/// assert_eq!(Signal::from_raw(15), Some(Signal::TERMINATE));
/// assert_eq!(Signal::from_raw(9), None); // SIGKILL cannot be caught
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(u8);

/// The highest number of a signal.
pub(super) const LAST: usize = 64;

macro_rules! signals {
    ($($(#[doc = $doc:literal])+ $name:ident = $raw:ident;)*) => {
        impl Signal {
            $(
                $(#[doc = $doc])+
                pub const $name: Signal = Signal(libc::$raw as u8);
            )*
        }

        fn name(signal: Signal) -> Option<&'static str> {
            match signal {
                $(Signal::$name => Some(stringify!($raw)),)*
                _ => None,
            }
        }
    };
}

signals! {
    /// Ctrl-C on a terminal.
    INTERRUPT = SIGINT;
    /// What `kill` sends, and a container's or service's manager that wants the program to end.
    TERMINATE = SIGTERM;
    /// The terminal has gone. By convention services read their configuration again.
    HANGUP = SIGHUP;
    /// Ctrl-\ on a terminal: see [`debug`](crate::debug) for what it does while no listener exists.
    QUIT = SIGQUIT;
    /// For the program to define.
    USER1 = SIGUSR1;
    /// For the program to define.
    USER2 = SIGUSR2;
    /// The terminal has another size.
    WINDOW_CHANGE = SIGWINCH;
    /// A child process has ended or stopped.
    CHILD = SIGCHLD;
    /// The timer of `alarm` is over.
    ALARM = SIGALRM;
    /// Ctrl-Z on a terminal.
    STOP_FROM_TERMINAL = SIGTSTP;
    /// The process goes on after it was stopped.
    CONTINUE = SIGCONT;
    /// A write to a pipe or a socket without a reader. Rust programs ignore it, and get an error.
    PIPE = SIGPIPE;
}

impl Signal {
    /// Returns the signal with this number. `None`: there is none, it cannot be caught (`SIGKILL`, `SIGSTOP`), it is
    /// an error of the code that runs (`SIGSEGV` and its like), or it belongs to the runtime (`SIGURG`) or to the C
    /// library (32 and 33).
    ///
    /// ```
    /// use mungo::signal::Signal;
    ///
    /// assert_eq!(Signal::from_raw(2), Some(Signal::INTERRUPT));
    /// assert!([0, 9, 11, 33, 65, -1].iter().all(|&n| Signal::from_raw(n).is_none()));
    /// ```
    pub const fn from_raw(number: i32) -> Option<Signal> {
        match number {
            libc::SIGKILL | libc::SIGSTOP | libc::SIGURG => None,
            libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP => None,
            libc::SIGABRT | libc::SIGSYS | 32 | 33 => None,
            1..=64 => Some(Signal(number as u8)),
            _ => None,
        }
    }

    /// Returns the number.
    ///
    /// ```
    /// assert_eq!(mungo::signal::Signal::TERMINATE.as_raw(), 15);
    /// ```
    pub const fn as_raw(self) -> c_int {
        self.0 as c_int
    }

    /// Returns the bit that stands for it.
    pub(super) const fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(*self) {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}
