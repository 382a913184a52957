//! Policies by name: `name`, or `name:key=value,key=value`.

use super::{Chaos, Deadline, DefaultPolicy, Fair, Fifo, Lifo, Numa, Policy, PriorityLevels, WorkStealing};
use crate::lock::Lock;
use crate::sys::spelling::closest;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

type Make = Arc<dyn Fn(&mut Options) -> Result<Policy, String> + Send + Sync>;
type Built = (&'static str, fn(&mut Options) -> Result<Policy, String>);

const BUILT_IN: [Built; 9] = [
    ("default", DefaultPolicy::with_options),
    ("fifo", Fifo::with_options),
    ("lifo", Lifo::with_options),
    ("work_stealing", WorkStealing::with_options),
    ("priority", PriorityLevels::with_options),
    ("deadline", Deadline::with_options),
    ("fair", Fair::with_options),
    ("numa", Numa::with_options),
    ("chaos", Chaos::with_options),
];

static REGISTERED: Lock<Vec<(String, Make)>> = Lock::new(Vec::new());

/// The options behind a policy's name; an option that the policy does not ask for is an error.
///
/// ```
/// use mungo::policy::{self, Fifo};
///
/// policy::register("polite", |options| {
///     assert_eq!(options.text("to"), Some("all"));
///     assert_eq!(options.number("turns", 3, 1..=9)?, 5);
///     Ok(Fifo::new().into())
/// })?;
/// policy::by_name("polite:to=all,turns=5")?;
/// let error = policy::by_name("polite:to=all,turns=5,loud=1").unwrap_err();
/// assert!(error.to_string().contains("no option 'loud'"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Options {
    pairs: Vec<(String, String)>,
    asked: Vec<&'static str>,
}

impl Options {
    fn parse(text: &str) -> Result<Options, String> {
        let mut pairs = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let Some((key, value)) = item.split_once('=') else {
                return Err(format!("'{item}' is not of the form key=value"));
            };
            pairs.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(Options { pairs, asked: Vec::new() })
    }

    /// Returns the text of an option, if it was given. The last one counts.
    ///
    /// ```
    /// use mungo::policy::{self, Fifo};
    ///
    /// policy::register("greeter", |options| {
    ///     assert_eq!(options.text("greeting"), Some("hello"));
    ///     assert_eq!(options.text("farewell"), None);
    ///     Ok(Fifo::new().into())
    /// })?;
    /// policy::by_name("greeter:greeting=hello")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn text(&mut self, key: &'static str) -> Option<&str> {
        self.asked.push(key);
        self.pairs.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Returns an option as a whole number.
    ///
    /// ```
    /// use mungo::policy::{self, Fifo};
    ///
    /// policy::register("counting", |options| {
    ///     assert_eq!(options.number("from", 7, 1..=10)?, 7, "the default");
    ///     options.number("to", 9, 1..=10)?;
    ///     Ok(Fifo::new().into())
    /// })?;
    /// policy::by_name("counting:to=10")?;
    /// let error = policy::by_name("counting:to=11").unwrap_err();
    /// assert!(error.to_string().contains("a number from 1 to 10"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Says in words that it is none, or out of range.
    pub fn number(
        &mut self,
        key: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, String> {
        let Some(text) = self.text(key) else { return Ok(default) };
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
            format!("'{key}={text}': it must be a number from {} to {}", range.start(), range.end())
        })
    }

    /// Returns an option as a duration, as `5ms`, `100us` or `2s`.
    ///
    /// ```
    /// use mungo::policy::{self, Fifo};
    /// use std::time::Duration;
    ///
    /// policy::register("timed", |options| {
    ///     let slice = options.duration("slice", Duration::from_millis(10))?;
    ///     assert_eq!(slice, Duration::from_micros(500));
    ///     Ok(Fifo::new().into())
    /// })?;
    /// policy::by_name("timed:slice=500us")?;
    /// assert!(policy::by_name("timed:slice=500").is_err(), "it has no unit");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Says in words that it is none.
    pub fn duration(&mut self, key: &'static str, default: Duration) -> Result<Duration, String> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let units = [("ns", 1), ("us", 1000), ("µs", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        let parsed = units.into_iter().find_map(|(unit, ns)| {
            let n: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            Some(Duration::from_nanos(n.checked_mul(ns)?))
        });
        parsed
            .filter(|d| !d.is_zero())
            .ok_or_else(|| format!("'{key}={text}': it must be a duration as 5ms, 100us or 2s"))
    }

    fn unknown(&self) -> Option<String> {
        let (key, _) = self.pairs.iter().find(|(key, _)| !self.asked.contains(&key.as_str()))?;
        let hint = match closest(key, self.asked.iter().copied()) {
            Some(near) => format!(" (did you mean '{near}'?)"),
            None if self.asked.is_empty() => " (it has none)".to_owned(),
            None => format!(" (it has {})", self.asked.join(", ")),
        };
        Some(format!("no option '{key}'{hint}"))
    }
}

/// Makes a policy of the program known by a name, for [`by_name`] and `MUNGO_SCHEDULER`. A name that is taken is
/// replaced, unless it is one of the runtime's own.
///
/// ```
/// use mungo::policy::{self, Scheduler};
///
/// struct Mine(u64);
/// impl Scheduler for Mine {}
///
/// policy::register("mine", |options| Ok(Mine(options.number("knob", 7, 1..=10)?).into()))?;
/// policy::by_name("mine:knob=3")?;
/// let error = policy::by_name("mine:nob=3").unwrap_err();
/// assert!(error.to_string().contains("did you mean 'knob'?"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// `InvalidInput` if the name is one of the runtime's own, empty, or has a colon in it.
pub fn register<F>(name: &str, make: F) -> io::Result<()>
where
    F: Fn(&mut Options) -> Result<Policy, String> + Send + Sync + 'static,
{
    if name.is_empty() || name.contains(':') || BUILT_IN.iter().any(|(own, _)| *own == name) {
        let why = format!("a policy cannot be called '{name}': it must be a name without colon, and a new one");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let entry: (String, Make) = (name.to_owned(), Arc::new(make));
    let old = {
        let mut registered = REGISTERED.lock();
        let at = registered.iter().position(|(other, _)| other == name);
        let old = at.map(|at| registered.swap_remove(at));
        registered.push(entry);
        old
    };
    drop(old); // user code, without the lock
    Ok(())
}

/// Returns all names that [`by_name`] knows.
///
/// ```
/// assert!(mungo::policy::names().contains(&"fair".to_owned()));
/// ```
pub fn names() -> Vec<String> {
    let own = BUILT_IN.iter().map(|(name, _)| (*name).to_owned());
    let mut names: Vec<String> = own.collect();
    names.extend(REGISTERED.lock().iter().map(|(name, _)| name.clone()));
    names
}

/// Makes a policy by its name and options: `fifo`, `priority:age=5ms`.
///
/// ```
/// assert_eq!(mungo::policy::by_name("chaos:seed=7")?.name(), "chaos");
/// let error = mungo::policy::by_name("piority").unwrap_err();
/// assert!(error.to_string().contains("did you mean 'priority'?"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns `InvalidInput` for a name or an option that is not known, or a value that makes no sense; in words.
pub fn by_name(text: &str) -> io::Result<Policy> {
    find(text.trim()).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn find(text: &str) -> Result<Policy, String> {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let name = name.trim();
    let own = BUILT_IN.iter().find(|(own, _)| *own == name).map(|(_, make)| -> Make { Arc::new(*make) });
    let registered = || REGISTERED.lock().iter().find(|(n, _)| n == name).map(|(_, make)| make.clone());
    let Some(make) = own.or_else(registered) else {
        let names = names();
        let hint = match closest(name, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("there are {}", names.join(", ")),
        };
        return Err(format!("no scheduling policy '{name}' ({hint})"));
    };
    let at = |why: String| format!("scheduling policy '{name}': {why}");
    let mut options = Options::parse(options).map_err(at)?;
    let policy = make(&mut options).map_err(at)?;
    match options.unknown() {
        Some(why) => Err(at(why)),
        None => Ok(policy),
    }
}

/// Returns the policy that `MUNGO_SCHEDULER` names.
pub(crate) fn from_environment() -> io::Result<Option<Policy>> {
    let Some(value) = std::env::var_os("MUNGO_SCHEDULER") else { return Ok(None) };
    let text = value.to_string_lossy();
    if text.trim().is_empty() {
        return Ok(None);
    }
    match find(text.trim()) {
        Ok(policy) => Ok(Some(policy)),
        Err(why) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("MUNGO_SCHEDULER is '{text}': {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        by_name(text).unwrap_err().to_string()
    }

    #[test]
    fn all_names_make_a_policy_of_that_name() {
        for (name, _) in BUILT_IN {
            assert_eq!(by_name(name).unwrap().name(), name);
            assert_eq!(by_name(&format!(" {name} : ")).unwrap().name(), name);
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_is_near() {
        assert_eq!(error("fifi"), "no scheduling policy 'fifi' (did you mean 'fifo'?)");
        assert!(error("quantum").contains("there are default, fifo"), "{}", error("quantum"));
        assert_eq!(error("fifo:evry=3"), "scheduling policy 'fifo': no option 'evry' (did you mean 'every'?)");
        assert!(error("fifo:every=0").contains("from 1 to"), "{}", error("fifo:every=0"));
        assert!(error("priority:age=5").contains("a duration as 5ms"), "{}", error("priority:age=5"));
        assert!(error("fifo:every").contains("key=value"));
    }

    #[test]
    fn own_names_are_not_for_others() {
        let make = |_: &mut Options| Ok(Fifo::new().into());
        assert!(register("fifo", make).is_err());
        assert!(register("a:b", make).is_err());
        register("my_fifo", make).unwrap();
        register("my_fifo", make).unwrap();
        assert_eq!(names().iter().filter(|n| *n == "my_fifo").count(), 1);
        assert!(error("my_fifo:x=1").contains("it has none"));
    }

    #[test]
    fn durations() {
        let mut options = Options::parse("a=5ms,b=7us,c=1s,d=x,e=0s").unwrap();
        let mut get = |key| options.duration(key, Duration::ZERO);
        assert_eq!(get("a"), Ok(Duration::from_millis(5)));
        assert_eq!(get("b"), Ok(Duration::from_micros(7)));
        assert_eq!(get("c"), Ok(Duration::from_secs(1)));
        assert!(get("d").is_err() && get("e").is_err());
    }
}
