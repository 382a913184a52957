//! `MUNGO_DEBUG`: switches for the search for a fault, as Go's `GODEBUG`.
//!
//! The variable is a list of `key=value` with commas between; it is read once, before the first goroutine. A part that
//! is not understood is named on stderr, once, and has no effect. In a program with rights that its caller has not
//! (set-uid, set-gid, file capabilities) the variable is ignored.
//!
//! | key        | value     | effect                                                                          |
//! |------------|-----------|---------------------------------------------------------------------------------|
//! | `asyncpreempt` | `inject`, `thread`, `0` | how goroutines that do not call the runtime are interrupted: by an
//!   injected call where one is possible (also `1`; the default, unless the program brings `malloc`), by
//!   thread-switching, not at all |
//! | `schedtrace` | ms     | a line about the scheduler on stderr each time that this many ms have passed; `0`: none |
//! | `scheddetail` | `0`, `1` | `1`: with a line for each P, M and goroutine                                  |
//! | `deadlock` | ms        | the age in ms at which a deadlock beside other threads is warned of; `0`: never |
//! | `deadlockdot` | path   | a file for the graph of a deadlock, of which the report or the warning has the text, in
//!   the language of Graphviz; `%p` is the number of the process |
//! | `sigquit`  | `off`, `die`, `continue` | SIGQUIT: not touched; a dump on stderr, then death; a dump only  |
//! | `listen`   | path, or none | a Unix socket for `mungo top`, of mode 600; `%p` is the number of the process.
//!   Without a path: `$XDG_RUNTIME_DIR/mungo/%p.sock`, or `/tmp/mungo-UID/%p.sock` |
//! | `interpose` | `0`, `1` | `0`: functions of `mungo-interpose` leave waits to the kernel                     |
//! | `owntls`   | `0`, `1`  | `0`: goroutines share their thread's thread-locals: unsound for some safe code   |

use crate::sys::say::say;
use crate::sys::secure;
use crate::sys::spelling::closest;
use std::sync::OnceLock;

/// Every key, in the order of the documentation.
const KEYS: [&str; 9] = [
    "asyncpreempt",
    "schedtrace",
    "scheddetail",
    "deadlock",
    "deadlockdot",
    "sigquit",
    "listen",
    "interpose",
    "owntls",
];

/// The settings that `MUNGO_DEBUG` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebugEnv {
    pub(crate) own_tls: bool,
    /// Whether goroutines may wait in the functions of `mungo-interpose`.
    pub(crate) interpose: bool,
    /// `None`: see `preempt::usual_way`.
    pub(crate) async_preempt: Option<AsyncPreempt>,
    /// Milliseconds between two lines about the scheduler; 0: no lines.
    pub(crate) schedtrace_ms: u32,
    pub(crate) sched_detail: bool,
    pub(crate) on_quit: OnQuit,
    /// The path of the socket that says what the scheduler does; empty: the usual one; `None`: no socket.
    pub(crate) listen: Option<String>,
    /// The file that a deadlock is drawn to.
    pub(crate) deadlock_dot: Option<String>,
    /// Milliseconds until a deadlock beside other threads is warned of; `None`: what the builder says.
    pub(crate) deadlock_warning_ms: Option<u32>,
}

/// How goroutines that do not call the runtime are interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncPreempt {
    /// They are not interrupted.
    Off,
    /// The thread stays with the goroutine, and another one gets the P.
    Thread,
    /// An injected call suspends the goroutine where one is possible, else as `Thread`.
    Inject,
}

/// The effect of SIGQUIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnQuit {
    /// SIGQUIT does what it does without us.
    Nothing,
    /// A dump is printed, then SIGQUIT does what it does without us.
    Die,
    /// A dump is printed, and the process goes on.
    GoOn,
}

impl Default for DebugEnv {
    fn default() -> Self {
        DebugEnv {
            own_tls: true,
            interpose: true,
            async_preempt: None,
            schedtrace_ms: 0,
            sched_detail: false,
            on_quit: OnQuit::Die,
            listen: None,
            deadlock_dot: None,
            deadlock_warning_ms: None,
        }
    }
}

/// Returns the switches; reads the variable at the first call.
pub(crate) fn get() -> &'static DebugEnv {
    static ENV: OnceLock<DebugEnv> = OnceLock::new();
    ENV.get_or_init(|| {
        let Some(text) = secure::variable("MUNGO_DEBUG") else { return DebugEnv::default() };
        let (env, complaints) = parse(&text.to_string_lossy());
        for complaint in complaints {
            say!("mungo: MUNGO_DEBUG: {complaint}");
        }
        env
    })
}

fn parse(text: &str) -> (DebugEnv, Vec<String>) {
    let mut env = DebugEnv::default();
    let mut complaints = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (key, value) = item.split_once('=').map_or((item, ""), |(key, value)| (key.trim(), value.trim()));
        let understood = match key {
            "asyncpreempt" => async_preempt(value).map(|how| env.async_preempt = Some(how)),
            "interpose" => on_off(value).map(|on| env.interpose = on),
            "owntls" => on_off(value).map(|on| env.own_tls = on),
            "schedtrace" => milliseconds(value).map(|ms| env.schedtrace_ms = ms),
            "deadlock" => milliseconds(value).map(|ms| env.deadlock_warning_ms = Some(ms)),
            "listen" => {
                env.listen = Some(value.to_owned());
                Ok(())
            }
            "deadlockdot" if value.is_empty() => Err("the path of a file"),
            "deadlockdot" => {
                env.deadlock_dot = Some(value.to_owned());
                Ok(())
            }
            "scheddetail" => on_off(value).map(|on| env.sched_detail = on),
            "sigquit" => on_quit(value).map(|what| env.on_quit = what),
            _ => {
                complaints.push(unknown(key));
                continue;
            }
        };
        if let Err(wanted) = understood {
            complaints.push(format!("'{item}' has no effect: the value must be {wanted}"));
        }
    }
    (env, complaints)
}

/// Returns the complaint about a key that does not exist, with the closest one.
fn unknown(key: &str) -> String {
    match closest(key, KEYS.into_iter()) {
        Some(near) => format!("'{key}' is not known and has no effect: did you mean '{near}'?"),
        None => format!("'{key}' is not known and has no effect: there are {}", KEYS.join(", ")),
    }
}

fn on_off(value: &str) -> Result<bool, &'static str> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("0 or 1"),
    }
}

fn async_preempt(value: &str) -> Result<AsyncPreempt, &'static str> {
    match value {
        "0" => Ok(AsyncPreempt::Off),
        "thread" => Ok(AsyncPreempt::Thread),
        "inject" | "1" => Ok(AsyncPreempt::Inject),
        _ => Err("inject, thread or 0"),
    }
}

fn milliseconds(value: &str) -> Result<u32, &'static str> {
    value.parse().map_err(|_| "a number of milliseconds, or 0 for none")
}

fn on_quit(value: &str) -> Result<OnQuit, &'static str> {
    match value {
        "off" => Ok(OnQuit::Nothing),
        "die" => Ok(OnQuit::Die),
        "continue" => Ok(OnQuit::GoOn),
        _ => Err("off, die or continue"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values() {
        assert_eq!(parse(""), (DebugEnv::default(), vec![]));
        assert_eq!(parse("owntls=1"), (DebugEnv::default(), vec![]));
        assert!(!parse("owntls=0").0.own_tls);
        assert!(!parse(" owntls = 0 ,, ").0.own_tls);
        assert!(parse("owntls=0,owntls=1").0.own_tls, "the last one counts");
    }

    #[test]
    fn ways_to_interrupt() {
        let how = |text: &str| parse(text).0.async_preempt;
        assert_eq!(how(""), None);
        assert_eq!(how("asyncpreempt=inject"), Some(AsyncPreempt::Inject));
        assert_eq!(how("asyncpreempt=1"), Some(AsyncPreempt::Inject));
        assert_eq!(how("asyncpreempt=thread"), Some(AsyncPreempt::Thread));
        assert_eq!(how("asyncpreempt=0"), Some(AsyncPreempt::Off));
        let last = how("asyncpreempt=0,asyncpreempt=thread");
        assert_eq!(last, Some(AsyncPreempt::Thread), "the last one counts");
        for nonsense in ["asyncpreempt=nonsense", "asyncpreempt=", "asyncpreempt", "asyncpreempt=2"] {
            let (env, complaints) = parse(nonsense);
            assert_eq!(env, DebugEnv::default(), "{nonsense}");
            assert_eq!(complaints.len(), 1, "{complaints:?}");
            assert!(complaints[0].contains("asyncpreempt"), "{complaints:?}");
        }
        assert!(parse("asyncpreempt=nonsense").1[0].contains("inject, thread or 0"));
    }

    #[test]
    fn traces_and_dumps() {
        let (env, complaints) = parse("schedtrace=250,scheddetail=1,sigquit=continue");
        assert_eq!((env.schedtrace_ms, env.sched_detail, env.on_quit), (250, true, OnQuit::GoOn));
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(parse("deadlock=0").0.deadlock_warning_ms, Some(0));
        assert_eq!(parse("deadlock=10s").0.deadlock_warning_ms, None);
        let (env, complaints) = parse("schedtrace=-1,scheddetail=yes,sigquit=1,schedtrace=99999999999");
        assert_eq!(env, DebugEnv::default());
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("'schedtrace=-1'") && complaints[0].contains("milliseconds"));
        assert!(complaints[2].contains("off, die or continue"));
    }

    #[test]
    fn sockets() {
        assert_eq!(parse("").0.listen, None);
        assert_eq!(parse("deadlockdot=/tmp/%p.dot").0.deadlock_dot.as_deref(), Some("/tmp/%p.dot"));
        assert_eq!((parse("deadlockdot").0, parse("deadlockdot=").1.len()), (DebugEnv::default(), 1));
        assert_eq!(parse("listen").0.listen.as_deref(), Some(""));
        assert_eq!(parse("owntls=1, listen = /tmp/a=b%p ").0.listen.as_deref(), Some("/tmp/a=b%p"));
    }

    #[test]
    fn what_is_not_understood_is_named_and_has_no_effect() {
        let (env, complaints) = parse("owntls=yes,speed=11,owntls");
        assert_eq!(env, DebugEnv::default());
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("owntls=yes") && complaints[0].contains("0 or 1"));
        assert!(complaints[1].contains("'speed'"));
    }

    #[test]
    fn a_key_that_is_spelled_wrongly_comes_with_the_closest_one() {
        for (key, near) in
            [("shedtrace", "schedtrace"), ("asynpreempt", "asyncpreempt"), ("sigquite", "sigquit")]
        {
            let complaint = format!("'{key}' is not known and has no effect: did you mean '{near}'?");
            assert_eq!(parse(&format!("{key}=1")).1, [complaint]);
        }
        assert!(parse("colour=1").1[0].ends_with(
            "there are asyncpreempt, schedtrace, scheddetail, deadlock, deadlockdot, \
            sigquit, listen, interpose, owntls"
        ));
    }

    #[test]
    fn all_keys_are_known() {
        for key in KEYS {
            let complaints = parse(&format!("{key}=nonsense")).1;
            assert!(complaints.iter().all(|complaint| !complaint.contains("not known")), "{complaints:?}");
        }
    }
}
