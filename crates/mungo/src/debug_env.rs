//! `MUNGO_DEBUG`: switches for those who look for a fault, as Go's `GODEBUG`.
//!
//! A list of `key=value` with commas between; read once, before the first goroutine. What is not understood is named
//! on stderr, once, and has no effect.
//!
//! | key        | value     | effect                                                                          |
//! |------------|-----------|---------------------------------------------------------------------------------|
//! | `asyncpreempt` | `0`, `1` | `0`: goroutines that do not call the runtime are not interrupted               |
//! | `schedtrace` | ms     | a line about the scheduler on stderr every so many milliseconds; `0`: none      |
//! | `scheddetail` | `0`, `1` | `1`: with a line for each P, M and goroutine                                  |
//! | `sigquit`  | `off`, `die`, `continue` | SIGQUIT: not touched; a dump on stderr, then death; a dump only  |
//! | `owntls`   | `0`, `1`  | `0`: goroutines share the thread-locals of their thread, as on other platforms   |

use std::sync::OnceLock;

/// What `MUNGO_DEBUG` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebugEnv {
    pub(crate) own_tls: bool,
    pub(crate) async_preempt: bool,
    /// 0: no lines.
    pub(crate) schedtrace_ms: u32,
    pub(crate) sched_detail: bool,
    pub(crate) on_quit: OnQuit,
}

/// What SIGQUIT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnQuit {
    /// What it does without us.
    Nothing,
    /// A dump, then the same.
    Die,
    /// A dump.
    GoOn,
}

impl Default for DebugEnv {
    fn default() -> Self {
        DebugEnv {
            own_tls: true,
            async_preempt: true,
            schedtrace_ms: 0,
            sched_detail: false,
            on_quit: OnQuit::Die,
        }
    }
}

/// The switches; reads the variable at the first call.
pub(crate) fn get() -> &'static DebugEnv {
    static ENV: OnceLock<DebugEnv> = OnceLock::new();
    ENV.get_or_init(|| {
        let Some(text) = std::env::var_os("MUNGO_DEBUG") else { return DebugEnv::default() };
        let (env, complaints) = parse(&text.to_string_lossy());
        for complaint in complaints {
            eprintln!("mungo: MUNGO_DEBUG: {complaint}");
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
            "asyncpreempt" => on_off(value).map(|on| env.async_preempt = on),
            "owntls" => on_off(value).map(|on| env.own_tls = on),
            "schedtrace" => milliseconds(value).map(|ms| env.schedtrace_ms = ms),
            "scheddetail" => on_off(value).map(|on| env.sched_detail = on),
            "sigquit" => on_quit(value).map(|what| env.on_quit = what),
            _ => {
                complaints.push(format!("'{key}' is not known and has no effect"));
                continue;
            }
        };
        if let Err(wanted) = understood {
            complaints.push(format!("'{item}' has no effect: the value must be {wanted}"));
        }
    }
    (env, complaints)
}

fn on_off(value: &str) -> Result<bool, &'static str> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("0 or 1"),
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
    fn traces_and_dumps() {
        let (env, complaints) = parse("schedtrace=250,scheddetail=1,sigquit=continue");
        assert_eq!((env.schedtrace_ms, env.sched_detail, env.on_quit), (250, true, OnQuit::GoOn));
        assert_eq!(complaints, Vec::<String>::new());
        let (env, complaints) = parse("schedtrace=-1,scheddetail=yes,sigquit=1,schedtrace=99999999999");
        assert_eq!(env, DebugEnv::default());
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("'schedtrace=-1'") && complaints[0].contains("milliseconds"));
        assert!(complaints[2].contains("off, die or continue"));
    }

    #[test]
    fn what_is_not_understood_is_named_and_has_no_effect() {
        let (env, complaints) = parse("owntls=yes,speed=11,owntls");
        assert_eq!(env, DebugEnv::default());
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("owntls=yes") && complaints[0].contains("0 or 1"));
        assert!(complaints[1].contains("'speed'"));
    }
}
