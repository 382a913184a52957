//! `MUNGO_DEBUG`: switches for those who look for a fault, as Go's `GODEBUG`.
//!
//! A list of `key=value` with commas between; read once, before the first goroutine. What is not understood is named
//! on stderr, once, and has no effect.
//!
//! | key        | value     | effect                                                                          |
//! |------------|-----------|---------------------------------------------------------------------------------|
//! | `asyncpreempt` | `0`, `1` | `0`: goroutines that do not call the runtime are not interrupted               |
//! | `owntls`   | `0`, `1`  | `0`: goroutines share the thread-locals of their thread, as on other platforms   |

use std::sync::OnceLock;

/// What `MUNGO_DEBUG` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebugEnv {
    pub(crate) own_tls: bool,
    pub(crate) async_preempt: bool,
}

impl Default for DebugEnv {
    fn default() -> Self {
        DebugEnv { own_tls: true, async_preempt: true }
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
    fn what_is_not_understood_is_named_and_has_no_effect() {
        let (env, complaints) = parse("owntls=yes,speed=11,owntls");
        assert_eq!(env, DebugEnv::default());
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("owntls=yes") && complaints[0].contains("0 or 1"));
        assert!(complaints[1].contains("'speed'"));
    }
}
