//! The content of a dump, and how it is printed: equal goroutines as one group, the largest group first.

use crate::reason::WaitReason;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// Limits of a dump. What was left out is counted, and named in the text.
///
/// ```
/// let brief = mungo::debug::DumpOptions::new().stacks(false).goroutines(10).dump();
/// assert!(brief.goroutines().len() <= 10);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `dump`"]
pub struct DumpOptions {
    pub(crate) goroutines: usize,
    pub(crate) groups: usize,
    pub(crate) frames: usize,
    pub(crate) stacks: bool,
}

impl Default for DumpOptions {
    fn default() -> Self {
        DumpOptions { goroutines: 10_000, groups: 100, frames: 64, stacks: true }
    }
}

impl DumpOptions {
    /// Sets the usual limits: 10,000 goroutines, of which equal ones make a group; 100 groups are printed, and 64
    /// frames of a stack.
    ///
    /// ```
    /// assert!(mungo::debug::DumpOptions::new().dump().alive() < 10_000);
    /// ```
    pub fn new() -> DumpOptions {
        DumpOptions::default()
    }

    /// Sets how many goroutines are looked at, at most; the rest is counted.
    ///
    /// ```
    /// use mungo::debug::DumpOptions;
    ///
    /// let (tx, rx) = mungo::chan::bounded::<()>(0);
    /// let all: Vec<_> = (0..3).map(|_| mungo::go({ let rx = rx.clone(); move || rx.recv() })).collect();
    /// let dump = DumpOptions::new().goroutines(2).dump();
    /// assert!(dump.goroutines().len() <= 2 && dump.alive() >= 3);
    /// # drop(tx);
    /// # all.into_iter().for_each(|g| assert!(g.join().unwrap().is_err()));
    /// ```
    pub fn goroutines(mut self, most: usize) -> DumpOptions {
        self.goroutines = most;
        self
    }

    /// Sets how many groups of equal goroutines are printed, at most.
    ///
    /// ```
    /// use mungo::debug::DumpOptions;
    ///
    /// mungo::go(|| {
    ///     let text = DumpOptions::new().groups(0).dump().to_string();
    ///     assert!(!text.contains(file!()), "no group, so no place: {text}");
    /// })
    /// .join()
    /// .unwrap();
    /// ```
    pub fn groups(mut self, most: usize) -> DumpOptions {
        self.groups = most;
        self
    }

    /// Sets how many frames of a stack are kept, at most.
    ///
    /// ```
    /// let dump = mungo::go(|| mungo::debug::DumpOptions::new().frames(1).dump()).join().unwrap();
    /// assert!(dump.goroutines().iter().all(|g| g.stack.frames.len() <= 1));
    /// ```
    pub fn frames(mut self, most: usize) -> DumpOptions {
        self.frames = most;
        self
    }

    /// Sets whether stacks are taken at all.
    ///
    /// ```
    /// let dump = mungo::go(|| mungo::debug::DumpOptions::new().stacks(false).dump()).join().unwrap();
    /// assert!(dump.goroutines().iter().all(|g| g.stack.frames.is_empty()));
    /// ```
    pub fn stacks(mut self, yes: bool) -> DumpOptions {
        self.stacks = yes;
        self
    }

    /// Takes the dump. See [`dump`](crate::debug::dump).
    ///
    /// ```
    /// let mut options = mungo::debug::DumpOptions::new();
    /// options = options.stacks(false);
    /// let dump = mungo::go(move || options.dump()).join().unwrap();
    /// assert!(!dump.goroutines().is_empty());
    /// ```
    pub fn dump(&self) -> Dump {
        super::collect::dump(self)
    }
}

/// Says what a goroutine does.
///
/// ```
/// use mungo::WaitReason;
/// use mungo::debug::State;
///
/// let sleeper = mungo::go(|| mungo::park());
/// let state = || mungo::debug::dump().goroutines()[0].state;
/// while state() != State::Waiting(WaitReason::Park) {}
/// assert_eq!(state().to_string(), "park");
/// sleeper.goroutine().unpark();
/// sleeper.join().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It runs on a P.
    Running,
    /// It waits for a P.
    Runnable,
    /// It was interrupted in the middle of its code, and waits for a P.
    Preempted,
    /// It blocks its thread in the kernel, or has announced that it will ([`blocking`](crate::blocking)), and needs no
    /// P.
    Syscall,
    /// It waits for this.
    Waiting(WaitReason),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Running => "running",
            State::Runnable => "runnable",
            State::Preempted => "preempted",
            State::Syscall => "syscall",
            State::Waiting(reason) => reason.as_str(),
        })
    }
}

/// One goroutine of a [`Dump`].
///
/// ```
/// let named = mungo::Builder::new().name("asker".to_owned());
/// let handle = named.spawn(|| mungo::debug::dump().goroutines()[0].clone())?;
/// let asker: mungo::debug::GoroutineDump = handle.join().unwrap();
/// assert_eq!(asker.name.as_deref(), Some("asker"));
/// assert!(asker.waited.is_none(), "it did not wait");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GoroutineDump {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: Option<String>,
    /// What it does.
    pub state: State,
    /// Time for which it has been waiting, some milliseconds more or less; `None` unless it waits.
    pub waited: Option<Duration>,
    /// Its labels, by key: see [`label`](crate::debug::label).
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// The place where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// The calls that it is in. Equal stacks are shared.
    pub stack: Arc<Stack>,
}

impl fmt::Display for GoroutineDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_group(f, &[self])
    }
}

/// The stack of a goroutine, the innermost call first.
///
/// ```
/// let without = mungo::debug::DumpOptions::new().stacks(false);
/// let dump = mungo::go(move || without.dump()).join().unwrap();
/// assert!(dump.goroutines()[0].stack.frames.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stack {
    /// The calls; those of the runtime itself are left out at both ends.
    pub frames: Vec<Frame>,
    /// The reason why there is no stack, or why it is not complete.
    pub note: Option<&'static str>,
}

/// A call on a [`Stack`].
///
/// ```
/// let sleeper = mungo::go(|| mungo::park());
/// while mungo::debug::dump().goroutines()[0].waited.is_none() {}
/// for frame in &mungo::debug::dump().goroutines()[0].stack.frames {
///     assert!(!frame.function.is_empty()); // no frames where dumps have no stacks
/// }
/// sleeper.goroutine().unpark();
/// sleeper.join().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The function, or an address if its name is not known.
    pub function: String,
    /// Its source file, if the program has line tables.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "\n        at {file}:{line}"),
            (Some(file), None) => write!(f, "\n        at {file}"),
            _ => Ok(()),
        }
    }
}

/// All goroutines at a moment, by [`dump`](crate::debug::dump). Prints itself.
///
/// ```
/// let dump = mungo::go(mungo::debug::dump).join().unwrap();
/// assert_eq!(dump.goroutines().len(), dump.alive());
/// assert!(dump.to_string().contains("goroutine "));
/// ```
#[derive(Clone, Debug)]
pub struct Dump {
    pub(crate) goroutines: Vec<GoroutineDump>,
    pub(crate) alive: usize,
    pub(crate) runtimes: usize,
    /// What waits for whom, as far as it is known without a search.
    pub(crate) waits: String,
    pub(crate) options: DumpOptions,
    /// Calls that `mungo-interpose` left to the kernel, by function.
    pub(crate) left_to_kernel: Vec<(&'static str, u64)>,
}

impl Dump {
    /// Returns the goroutines, by their numbers; not more than [`DumpOptions::goroutines`].
    ///
    /// ```
    /// let dump = mungo::go(mungo::debug::dump).join().unwrap();
    /// let ids: Vec<_> = dump.goroutines().iter().map(|g| g.id).collect();
    /// assert!(ids.is_sorted());
    /// ```
    pub fn goroutines(&self) -> &[GoroutineDump] {
        &self.goroutines
    }

    /// Returns how many were alive, those that were left out included.
    ///
    /// ```
    /// let brief = mungo::debug::DumpOptions::new().goroutines(0);
    /// let dump = mungo::go(move || brief.dump()).join().unwrap();
    /// assert!(dump.goroutines().is_empty() && dump.alive() >= 1);
    /// ```
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// Returns equal goroutines together, the largest group first.
    fn groups(&self) -> Vec<Vec<&GoroutineDump>> {
        let mut groups: Vec<Vec<&GoroutineDump>> = Vec::new();
        let mut index = HashMap::new();
        for g in &self.goroutines {
            let place = (g.spawned_at.file(), g.spawned_at.line(), g.spawned_at.column());
            let at = *index.entry((g.state, place, Arc::as_ptr(&g.stack))).or_insert(groups.len());
            if at == groups.len() {
                groups.push(Vec::new());
            }
            groups[at].push(g);
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        groups
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups();
        let runtimes = match self.runtimes {
            1 => String::new(),
            n => format!(" of {n} runtimes"),
        };
        let plural = if self.alive == 1 { "" } else { "s" };
        writeln!(f, "mungo: {} goroutine{plural}{runtimes}", self.alive)?;
        for group in groups.iter().take(self.options.groups) {
            writeln!(f)?;
            print_group(f, group)?;
        }
        let omitted: usize = groups.iter().skip(self.options.groups).map(Vec::len).sum();
        let printed = groups.len().min(self.options.groups);
        if omitted > 0 {
            let left = groups.len() - printed;
            writeln!(
                f,
                "\n... {omitted} more goroutines in {left} groups are not printed (limit: {printed} groups)"
            )?;
        }
        let unseen = self.alive.saturating_sub(self.goroutines.len());
        if unseen > 0 {
            let limit = self.options.goroutines;
            writeln!(f, "\n... {unseen} more goroutines were not looked at (limit: {limit} goroutines)")?;
        }
        if !self.waits.is_empty() {
            write!(f, "\nmungo: what waits for whom\n{}", self.waits)?;
        }
        if !self.left_to_kernel.is_empty() {
            let calls: Vec<_> = self.left_to_kernel.iter().map(|(name, n)| format!("{name} {n}")).collect();
            writeln!(
                f,
                "\nmungo-interpose: calls so far that may have blocked a thread: {}",
                calls.join(", ")
            )?;
        }
        Ok(())
    }
}

/// Prints `goroutine 7 'name' [chan receive, 1.20s]:` or `3 goroutines [sleep, 0.10s to 2.00s]: 7, 8 'name', 9`
fn print_group(f: &mut fmt::Formatter<'_>, group: &[&GoroutineDump]) -> fmt::Result {
    /// Most numbers that are listed.
    const LISTED: usize = 10;
    let first = group[0];
    let waited = || group.iter().filter_map(|g| g.waited);
    let times = match (waited().min(), waited().max()) {
        (Some(least), Some(most)) if most - least > Duration::from_millis(100) => {
            format!(", {:.2}s to {:.2}s", least.as_secs_f64(), most.as_secs_f64())
        }
        (Some(least), _) => format!(", {:.2}s", least.as_secs_f64()),
        _ => String::new(),
    };
    if group.len() == 1 {
        writeln!(f, "goroutine {} [{}{times}]:", Titled(first), first.state)?;
    } else {
        write!(f, "{} goroutines [{}{times}]:", group.len(), first.state)?;
        for (i, g) in group.iter().take(LISTED).enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, Titled(g))?;
        }
        match group.len().saturating_sub(LISTED) {
            0 => writeln!(f)?,
            n => writeln!(f, ", and {n} more")?,
        }
    }
    for frame in &first.stack.frames {
        writeln!(f, "    {frame}")?;
    }
    if let Some(note) = first.stack.note {
        writeln!(f, "    ({note})")?;
    }
    writeln!(f, "spawned at {}", first.spawned_at)
}

/// A number, with its name and labels if there are some: `7 'name' {key: value}`.
struct Titled<'a>(&'a GoroutineDump);

impl fmt::Display for Titled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.id)?;
        if let Some(name) = &self.0.name {
            write!(f, " '{name}'")?;
        }
        if self.0.labels.is_empty() {
            return Ok(());
        }
        let pairs: Vec<String> = self.0.labels.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        write!(f, " {{{}}}", pairs.join(", "))
    }
}
