//! The graph as text, and as a drawing for Graphviz.

use super::{GoroutineWait, Key, ObjectKind, Others, WaitGraph, WaitObject};
use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::time::Duration;

/// Most goroutines that are printed.
const LISTED: usize = 1000;
/// Most goroutines that are named as holders of one object.
const NAMED: usize = 10;

/// Prints cycles, and a line for each goroutine, those that are stuck first.
impl fmt::Display for WaitGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, |_| true)
    }
}

impl WaitGraph {
    /// Returns what a report adds to a list of goroutines: cycles, and waits of which it is known for whom. Empty if
    /// there are none.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        let tells = |wait: &GoroutineWait| {
            let object =
                |object: &WaitObject| !object.holders.is_empty() || object.others == Others::HolderEnded;
            wait.is_stuck && !self.cycles.is_empty() || wait.objects.iter().any(object)
        };
        if self.waits.iter().any(tells) {
            _ = self.print(&mut text, tells);
        }
        text
    }

    /// Returns the lines about goroutines that are stuck.
    pub(crate) fn stuck_text(&self) -> String {
        let mut text = String::new();
        _ = self.print(&mut text, |wait| wait.is_stuck);
        text
    }

    fn print(&self, f: &mut dyn Write, which: impl Fn(&GoroutineWait) -> bool) -> fmt::Result {
        let titles = self.titles();
        for cycle in &self.keyed_cycles {
            self.print_cycle(f, cycle, titles)?;
        }
        let mut waits: Vec<_> = self.waits.iter().filter(|wait| which(wait)).collect();
        waits.sort_by_key(|wait| !wait.is_stuck);
        for wait in waits.iter().take(LISTED) {
            writeln!(f, "  {} [{}] {}", Titled(wait, titles), wait.reason, Objects(wait, titles))?;
        }
        if waits.len() > LISTED {
            writeln!(f, "... and {} more", waits.len() - LISTED)?;
        }
        match self.omitted {
            0 => Ok(()),
            n => writeln!(f, "... {n} more goroutines were not looked at"),
        }
    }

    /// Prints `deadlock: goroutine 7 -> mutex 0x1 -> goroutine 9 -> mutex 0x2 -> goroutine 7`.
    fn print_cycle(&self, f: &mut dyn Write, cycle: &[Key], titles: Titles) -> fmt::Result {
        f.write_str("deadlock:")?;
        for (i, key) in cycle.iter().enumerate() {
            let next = cycle[(i + 1) % cycle.len()];
            write!(f, " {} ->", titles.of(*key))?;
            let object =
                self.find(*key).and_then(|wait| wait.objects.iter().find(|o| o.holders.contains(&next)));
            if let Some(object) = object.filter(|object| object.kind != ObjectKind::Goroutine) {
                write!(f, " {} ->", Named(object, titles))?;
            }
        }
        writeln!(f, " {}", titles.of(cycle[0]))
    }

    /// Returns how goroutines are named: with their runtime, if the graph has those of several.
    fn titles(&self) -> Titles {
        let held = |wait: &'_ GoroutineWait| -> Vec<Key> {
            wait.objects.iter().flat_map(|object| object.holders.iter().copied()).collect()
        };
        let mut keys = self.waits.iter().flat_map(|wait| held(wait).into_iter().chain([wait.key]));
        let first = keys.next().map(|key| key.runtime);
        Titles { has_runtimes: keys.any(|key| Some(key.runtime) != first) }
    }

    /// Returns the graph in the language of Graphviz: goroutines as boxes, what they wait for as ellipses, those that
    /// are stuck in red; 1000 goroutines at most, the stuck ones first. `dot -Tsvg` draws it.
    ///
    /// ```
    /// let sleeper = mungo::go(|| mungo::sleep(std::time::Duration::from_millis(20)));
    /// let dot = mungo::debug::wait_graph().to_dot();
    /// assert!(dot.starts_with("digraph waits {"));
    /// # sleeper.join().unwrap();
    /// ```
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph waits {\n  rankdir=LR;\n  node [fontname=\"monospace\"];\n");
        let mut objects = BTreeSet::new();
        let mut holders: BTreeSet<Key> = BTreeSet::new();
        let titles = self.titles();
        let mut waits: Vec<_> = self.waits.iter().collect();
        waits.sort_by_key(|wait| !wait.is_stuck);
        for wait in waits.into_iter().take(LISTED) {
            let node = titles.node(wait.key);
            let colour = if wait.is_stuck { ", color=red" } else { "" };
            let label = escape(&format!("{}\n{}\n{}", Titled(wait, titles), wait.reason, wait.spawned_at));
            _ = writeln!(dot, "  {node} [shape=box, label=\"{label}\"{colour}];");
            for object in &wait.objects {
                holders.extend(object.holders.iter().copied().filter(|holder| self.find(*holder).is_none()));
                let of_holders = object.holders.iter().take(NAMED).map(|holder| titles.node(*holder));
                if object.kind == ObjectKind::Goroutine {
                    of_holders.for_each(|holder| _ = writeln!(dot, "  {node} -> {holder};"));
                    continue;
                }
                let name = escape(&Named(object, titles).to_string());
                _ = writeln!(dot, "  {node} -> \"{name}\";");
                if objects.insert(name.clone()) {
                    of_holders.for_each(|holder| _ = writeln!(dot, "  \"{name}\" -> {holder};"));
                }
            }
        }
        for holder in holders {
            let (node, label) = (titles.node(holder), titles.of(holder));
            _ = writeln!(dot, "  {node} [shape=box, style=dashed, label=\"{label}\"];");
        }
        dot.push_str("}\n");
        dot
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// How goroutines are named.
#[derive(Clone, Copy)]
struct Titles {
    has_runtimes: bool,
}

impl Titles {
    /// Returns `goroutine 7`, or `goroutine 7 of runtime 2`.
    fn of(self, key: Key) -> String {
        format!("goroutine {}{}", key.id, self.runtime(key))
    }

    fn runtime(self, key: Key) -> String {
        match (self.has_runtimes, key.runtime) {
            (false, _) => String::new(),
            (true, 0) => " of another runtime".to_owned(),
            (true, runtime) => format!(" of runtime {runtime}"),
        }
    }

    /// Returns the name of a node in the drawing.
    fn node(self, key: Key) -> String {
        match self.has_runtimes {
            true => format!("r{}g{}", key.runtime, key.id),
            false => format!("g{}", key.id),
        }
    }
}

/// A goroutine by its number, and its name if there is one.
struct Titled<'a>(&'a GoroutineWait, Titles);

impl fmt::Display for Titled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some(name) => write!(f, "{} '{name}'", self.1.of(self.0.key)),
            None => f.write_str(&self.1.of(self.0.key)),
        }
    }
}

/// The kind of an object, and which one it is.
struct Named<'a>(&'a WaitObject, Titles);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, number) = (self.0.kind, self.0.number());
        match kind {
            ObjectKind::Goroutine => {
                let runtime = self.0.holders.first().map(|key| self.1.runtime(*key));
                write!(f, "the end of goroutine {number}{}", runtime.unwrap_or_default())
            }
            ObjectKind::Descriptor => write!(f, "descriptor {number}"),
            ObjectKind::Timer => write!(f, "its timer, due in {:.2?}", Duration::from_nanos(number as u64)),
            ObjectKind::Unpark => f.write_str("a call of unpark"),
            ObjectKind::Future => f.write_str("a future"),
            ObjectKind::Nothing => f.write_str("what can never come"),
            _ => write!(f, "{kind} {number:#x}"),
        }
    }
}

/// What a goroutine waits for, and which goroutine has that.
struct Objects<'a>(&'a GoroutineWait, Titles);

impl fmt::Display for Objects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("waits for ")?;
        if self.0.objects.is_empty() {
            f.write_str("what can never come")?;
        }
        for (i, object) in self.0.objects.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", or " }, Named(object, self.1))?;
            held_by(f, object, self.1)?;
        }
        f.write_str(if self.0.has_limit && self.0.objects[..].iter().all(|o| o.kind != ObjectKind::Timer) {
            ", for a limited time"
        } else {
            ""
        })
    }
}

fn held_by(f: &mut fmt::Formatter<'_>, object: &WaitObject, titles: Titles) -> fmt::Result {
    let verb = match object.kind {
        ObjectKind::Mutex | ObjectKind::RwLock => ", locked by",
        ObjectKind::Once => ", run by",
        ObjectKind::Scope => ", which",
        ObjectKind::Channel | ObjectKind::WaitGroup => ", of which",
        _ => return Ok(()),
    };
    if object.others == Others::HolderEnded {
        return write!(f, "{verb} a goroutine that has ended");
    }
    let has_handle = matches!(object.kind, ObjectKind::Channel | ObjectKind::WaitGroup);
    match object.holders.as_slice() {
        [] if has_handle && object.others == Others::None => {
            return f.write_str(", of which nothing has a handle");
        }
        [] => return Ok(()),
        [one] => write!(f, "{verb} {}", titles.of(*one))?,
        many => {
            let shown = |key: &Key| format!("{}{}", key.id, titles.runtime(*key));
            let shown: Vec<_> = many.iter().take(NAMED).map(shown).collect();
            write!(f, "{verb} goroutines {}", shown.join(", "))?;
            if many.len() > NAMED {
                write!(f, " and {} more", many.len() - NAMED)?;
            }
        }
    }
    match (object.kind, object.others) {
        (ObjectKind::Scope, _) => f.write_str(" have not left"),
        (_, Others::Perhaps) if has_handle => f.write_str(" have handles, and perhaps others"),
        _ if has_handle => f.write_str(" alone have handles"),
        _ => Ok(()),
    }
}
