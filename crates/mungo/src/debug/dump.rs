//! What a dump says, and how it is printed: equal goroutines as one group, the largest group first.

use crate::sched::reason::WaitReason;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// How much a dump says. What was left out is counted, and named in the text.
///
/// ```
/// let brief = mungo::debug::DumpOptions::new().stacks(false).goroutines(10).dump();
/// assert!(brief.goroutines().len() <= 10);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `dump`"]
pub struct DumpOptions {
    pub(super) goroutines: usize,
    pub(super) groups: usize,
    pub(super) frames: usize,
    pub(super) stacks: bool,
}

impl Default for DumpOptions {
    fn default() -> Self {
        DumpOptions { goroutines: 10_000, groups: 100, frames: 64, stacks: true }
    }
}

impl DumpOptions {
    /// 10,000 goroutines, of which equal ones make a group; 100 groups are printed, and 64 frames of a stack.
    pub fn new() -> DumpOptions {
        DumpOptions::default()
    }

    /// At most so many goroutines are looked at; the rest is counted.
    pub fn goroutines(mut self, most: usize) -> DumpOptions {
        self.goroutines = most;
        self
    }

    /// At most so many groups of equal goroutines are printed.
    pub fn groups(mut self, most: usize) -> DumpOptions {
        self.groups = most;
        self
    }

    /// At most so many frames of a stack are kept.
    pub fn frames(mut self, most: usize) -> DumpOptions {
        self.frames = most;
        self
    }

    /// Whether stacks are taken at all.
    pub fn stacks(mut self, yes: bool) -> DumpOptions {
        self.stacks = yes;
        self
    }

    /// Takes the dump. See [`dump`](super::dump).
    pub fn dump(&self) -> Dump {
        super::collect::dump(self)
    }
}

/// What a goroutine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It runs on a P.
    Running,
    /// It waits for a P.
    Runnable,
    /// It was interrupted in the middle of its code, and waits for a P.
    Preempted,
    /// It blocks its thread in the kernel, and has or needs no P.
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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GoroutineDump {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: Option<String>,
    /// What it does.
    pub state: State,
    /// For how long it has been waiting, some milliseconds more or less; `None` unless it waits.
    pub waited: Option<Duration>,
    /// Where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// Where it is. Equal stacks are shared.
    pub stack: Arc<Stack>,
}

impl fmt::Display for GoroutineDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_group(f, &[self])
    }
}

/// The stack of a goroutine, the innermost call first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stack {
    /// The calls; those of the runtime itself are left out at both ends.
    pub frames: Vec<Frame>,
    /// Why there is no stack, or why it is not complete.
    pub note: Option<&'static str>,
}

/// A call on a [`Stack`].
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

/// All goroutines at a moment, by [`dump`](super::dump). Prints itself.
#[derive(Clone, Debug)]
pub struct Dump {
    pub(super) goroutines: Vec<GoroutineDump>,
    pub(super) alive: usize,
    pub(super) runtimes: usize,
    pub(super) options: DumpOptions,
}

impl Dump {
    /// The goroutines, by their numbers; not more than [`DumpOptions::goroutines`].
    pub fn goroutines(&self) -> &[GoroutineDump] {
        &self.goroutines
    }

    /// How many were alive, those that were left out included.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// Equal goroutines together, the largest group first.
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
        match self.alive.saturating_sub(self.goroutines.len()) {
            0 => Ok(()),
            n => writeln!(
                f,
                "\n... {n} more goroutines were not looked at (limit: {} goroutines)",
                self.options.goroutines
            ),
        }
    }
}

/// `goroutine 7 'name' [chan receive, 1.20s]:` or `3 goroutines [sleep, 0.10s to 2.00s]: 7, 8 'name', 9`
fn print_group(f: &mut fmt::Formatter<'_>, group: &[&GoroutineDump]) -> fmt::Result {
    /// So many numbers are listed.
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

/// A number, and a name if there is one.
struct Titled<'a>(&'a GoroutineDump);

impl fmt::Display for Titled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some(name) => write!(f, "{} '{name}'", self.0.id),
            None => write!(f, "{}", self.0.id),
        }
    }
}
