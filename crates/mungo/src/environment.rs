//! The environment variables behind the builder's settings.
//!
//! The table for users is at [`RuntimeBuilder`](crate::RuntimeBuilder). A value that makes no sense is an error of
//! `build`, named with its variable; an empty one counts as none. A name that begins with `MUNGO_` and is not known is
//! named on stderr, once, with the closest one.

use crate::sys::say::say;
use crate::sys::spelling::closest;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Once;
use std::time::Duration;

const PREFIX: &str = "MUNGO_";

/// Every variable that this crate reads, and that of `mungo-interpose`.
const KNOWN: [&str; 16] = [
    "MUNGO_PROCS",
    "MUNGO_STACK_SIZE",
    "MUNGO_MAX_THREADS",
    "MUNGO_TIME_SLICE",
    "MUNGO_TIMER_SLACK",
    "MUNGO_SCHEDULER",
    "MUNGO_POLICY_WATCHDOG",
    "MUNGO_DEADLOCK_WARNING",
    "MUNGO_LATE_STATIC_TLS",
    "MUNGO_BLOCK_RATE",
    "MUNGO_TRACE",
    "MUNGO_TRACE_LAST",
    "MUNGO_TRACE_STACKS",
    "MUNGO_DEBUG",
    "MUNGO_TEST_SEED",
    "MUNGO_THREADS",
];

/// Variables of this project's own tests and their scripts.
// WHY NOT their beginnings: a user's `MUNGO_TEST_SEEDS` begins as they do, and means `MUNGO_TEST_SEED`.
const OF_TESTS: [&str; 15] = [
    "MUNGO_ASAN_LIMIT",
    "MUNGO_STRESS_HZ",
    "MUNGO_STRESS_LIMIT",
    "MUNGO_STRESS_LOAD",
    "MUNGO_STRESS_SECONDS",
    "MUNGO_STRESS_SEED",
    "MUNGO_TEST_CC",
    "MUNGO_TEST_CHILD",
    "MUNGO_TEST_FAILS",
    "MUNGO_TEST_FOLDER",
    "MUNGO_TEST_GO",
    "MUNGO_TEST_HANDLES",
    "MUNGO_TEST_LIBRARY",
    "MUNGO_TEST_RUNNER",
    "MUNGO_TEST_SNAPSHOT",
];

/// Returns a variable's value without white space around it. `None`: it is not set, or empty.
fn text(name: &str) -> Option<String> {
    debug_assert!(KNOWN.contains(&name), "{name} is not in the list");
    let value = std::env::var_os(name)?;
    let text = value.to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn invalid(name: &str, text: &str, wanted: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is '{text}': it must be {wanted}"))
}

/// Returns a variable as a whole number.
pub(crate) fn number(name: &str, range: RangeInclusive<usize>) -> io::Result<Option<usize>> {
    let Some(text) = text(name) else { return Ok(None) };
    match text.parse() {
        Ok(n) if range.contains(&n) => Ok(Some(n)),
        _ => Err(invalid(name, &text, &format!("a number from {} to {}", range.start(), range.end()))),
    }
}

/// Returns a variable as a number of bytes.
pub(crate) fn bytes(name: &str) -> io::Result<Option<usize>> {
    let Some(text) = text(name) else { return Ok(None) };
    parse_bytes(&text).map(Some).ok_or_else(|| invalid(name, &text, "a number of bytes as 65536, 256K or 1M"))
}

/// Returns a variable as a duration; 0 needs no unit.
pub(crate) fn duration(name: &str) -> io::Result<Option<Duration>> {
    let Some(text) = text(name) else { return Ok(None) };
    parse_duration(&text).map(Some).ok_or_else(|| invalid(name, &text, "a duration as 500us, 10ms or 2s"))
}

fn parse_bytes(text: &str) -> Option<usize> {
    let units = [("K", 10), ("M", 20), ("G", 30)];
    let (digits, shift) = units
        .into_iter()
        .find_map(|(unit, shift)| {
            let digits = text.strip_suffix("iB").unwrap_or(text).strip_suffix(unit)?;
            Some((digits, shift))
        })
        .unwrap_or((text, 0));
    digits.trim().parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let units = [("ns", 1), ("us", 1000), ("µs", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    units.into_iter().find_map(|(unit, ns)| {
        let n: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(Duration::from_nanos(n.checked_mul(ns)?))
    })
}

/// Names variables that are not known, at the first call.
pub(crate) fn warn_of_unknown() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names.filter_map(|name| complaint(&name)).for_each(|complaint| say!("mungo: {complaint}"));
    });
}

/// Returns what is wrong with the name of a variable, if anything is.
fn complaint(name: &str) -> Option<String> {
    let is_fine = !name.starts_with(PREFIX) || KNOWN.contains(&name) || OF_TESTS.contains(&name);
    if is_fine {
        return None;
    }
    // Without the prefix, which is alike in all.
    let rest = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name);
    Some(match closest(&name[PREFIX.len()..], KNOWN.into_iter().map(rest)) {
        Some(near) => format!("the variable {name} has no effect: did you mean {PREFIX}{near}?"),
        None => format!("the variable {name} has no effect: there are {}", KNOWN.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        assert_eq!(parse_bytes("65536"), Some(65536));
        assert_eq!(parse_bytes("256K"), Some(256 << 10));
        assert_eq!(parse_bytes("2 MiB"), Some(2 << 20));
        assert_eq!(parse_bytes("1G"), Some(1 << 30));
        for nonsense in ["", "K", "-1", "1.5M", "10X", "99999999999999999999", "99999999999999G"] {
            assert_eq!(parse_bytes(nonsense), None, "{nonsense}");
        }
        assert_eq!(parse_duration("0"), Some(Duration::ZERO));
        assert_eq!(parse_duration("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(parse_duration("2 s"), Some(Duration::from_secs(2)));
        for nonsense in ["10", "ms", "-1s", "1.5s", "99999999999999999999ns"] {
            assert_eq!(parse_duration(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn unknown_names_come_with_the_closest() {
        for name in KNOWN.into_iter().chain(["PATH", "MUNGO_TEST_CHILD", "MUNGO_STRESS_SEED"]) {
            assert_eq!(complaint(name), None);
        }
        for (name, near) in [
            ("MUNGO_PROC", "MUNGO_PROCS"),
            ("MUNGO_STACKSIZE", "MUNGO_STACK_SIZE"),
            ("MUNGO_MAXTHREADS", "MUNGO_MAX_THREADS"),
            ("MUNGO_SHEDULER", "MUNGO_SCHEDULER"),
            ("MUNGO_TEST_SEEDS", "MUNGO_TEST_SEED"),
        ] {
            assert_eq!(
                complaint(name).unwrap(),
                format!("the variable {name} has no effect: did you mean {near}?")
            );
        }
        assert!(complaint("MUNGO_COLOUR_OF_THE_SKY").unwrap().contains("there are MUNGO_PROCS, "));
    }
}
