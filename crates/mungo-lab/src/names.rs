//! Names that users type: found, or answered with the closest one.

use crate::error::{Error, Result};

/// Below this similarity a suggestion would be a guess. TUNED: `fofi` finds `fifo`, `nope` finds no `fanout`.
const SIMILAR: f64 = 0.65;

/// The one of `all` that is most like `name`, if any is.
pub(crate) fn closest<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let likeness = |other: &str| strsim::jaro_winkler(&name, other).max(part_of(&name, other));
    let scored = all.into_iter().map(|other| (likeness(other), other));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= SIMILAR).then_some(best.1)
}

/// `storm` means `spawn-storm`.
fn part_of(name: &str, other: &str) -> f64 {
    if name.len() >= 3 && other.contains(name) { 0.9 } else { 0.0 }
}

/// The error for a name that does not exist: the closest one, or all there are.
pub(crate) fn unknown<'a>(kind: &str, name: &str, all: impl IntoIterator<Item = &'a str>) -> Error {
    let all: Vec<&str> = all.into_iter().collect();
    Error::Usage(match closest(name, all.iter().copied()) {
        Some(other) => format!("there is no {kind} '{name}'; did you mean '{other}'?"),
        None => format!("there is no {kind} '{name}'; there are: {}", all.join(", ")),
    })
}

/// `750ms`, `2s`, `1.5 s`, `1m`, or a bare number of seconds.
pub(crate) fn duration(text: &str) -> std::result::Result<std::time::Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(format!("'{unit}' is not a unit of time; use us, ms, s or m, as in 750ms")),
    };
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is not a time; write 750ms, 2s or 1m"))?;
    let seconds = number * scale;
    match std::time::Duration::try_from_secs_f64(seconds) {
        Ok(d) if d >= std::time::Duration::from_millis(1) && seconds <= 3600.0 => Ok(d),
        _ => Err("must be between 1ms and 60m".to_owned()),
    }
}

/// Splits `a,b:x=1,y=2,c` into the policies `a`, `b:x=1,y=2` and `c`: a piece with a `=` and no `:` goes on with the
/// settings of the one before it.
pub(crate) fn policy_list(text: &str) -> Result<Vec<String>> {
    let mut list: Vec<String> = Vec::new();
    for piece in text.split(',').map(str::trim) {
        let goes_on = piece.contains('=') && !piece.contains(':');
        match (piece, list.last_mut()) {
            ("", _) => return Err(Error::Usage(format!("an empty name in the list of policies '{text}'"))),
            (_, Some(last)) if goes_on => *last = format!("{last},{piece}"),
            _ => list.push(piece.to_owned()),
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_closest_name() {
        let names = ["fifo", "lifo", "priority", "spawn-storm", "fanout"];
        assert_eq!(closest("fofi", names), Some("fifo"));
        assert_eq!(closest("priorty", names), Some("priority"));
        assert_eq!(closest("storm", names), Some("spawn-storm"));
        assert_eq!(closest("xyz", names), None);
        assert_eq!(closest("nope", names), None);
        assert!(unknown("policy", "qqq", names).to_string().contains("fifo, lifo"));
    }

    #[test]
    fn times() {
        assert_eq!(duration("750ms"), Ok(Duration::from_millis(750)));
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        for bad in ["", "0", "-1s", "1h", "fast", "1e9s", "0.1us", "9999m"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_of_policies() {
        assert_eq!(policy_list("a, b").unwrap(), ["a", "b"]);
        assert_eq!(policy_list("a,b:x=1,y=2,c").unwrap(), ["a", "b:x=1,y=2", "c"]);
        assert!(policy_list("a,,b").is_err());
    }
}
