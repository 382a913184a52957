//! The graph as text, and as a drawing for Graphviz.

use super::{GoroutineWait, ObjectKind, Others, WaitGraph, WaitObject};
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
                |object: &WaitObject| !object.held_by.is_empty() || object.others == Others::HolderEnded;
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
        for cycle in &self.cycles {
            self.print_cycle(f, cycle)?;
        }
        let mut waits: Vec<_> = self.waits.iter().filter(|wait| which(wait)).collect();
        waits.sort_by_key(|wait| !wait.is_stuck);
        for wait in waits.iter().take(LISTED) {
            writeln!(f, "  goroutine {} [{}] {}", Titled(wait), wait.reason, Objects(wait))?;
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
    fn print_cycle(&self, f: &mut dyn Write, cycle: &[u64]) -> fmt::Result {
        f.write_str("deadlock:")?;
        for (i, id) in cycle.iter().enumerate() {
            let next = cycle[(i + 1) % cycle.len()];
            write!(f, " goroutine {id} ->")?;
            let object =
                self.find(*id).and_then(|wait| wait.objects.iter().find(|o| o.held_by.contains(&next)));
            if let Some(object) = object.filter(|object| object.kind != ObjectKind::Goroutine) {
                write!(f, " {} ->", Named(object))?;
            }
        }
        writeln!(f, " goroutine {}", cycle[0])
    }

    /// Returns the graph in the language of Graphviz: goroutines as boxes, what they wait for as ellipses, those that
    /// are stuck in red. `dot -Tsvg` draws it.
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
        let mut holders: BTreeSet<u64> = BTreeSet::new();
        for wait in self.waits.iter().take(LISTED) {
            let id = wait.goroutine;
            let colour = if wait.is_stuck { ", color=red" } else { "" };
            let label = escape(&format!("goroutine {}\n{}\n{}", Titled(wait), wait.reason, wait.spawned_at));
            _ = writeln!(dot, "  g{id} [shape=box, label=\"{label}\"{colour}];");
            for object in &wait.objects {
                holders.extend(object.held_by.iter().copied().filter(|holder| self.find(*holder).is_none()));
                if object.kind == ObjectKind::Goroutine {
                    _ = writeln!(dot, "  g{id} -> g{};", object.number());
                    continue;
                }
                let node = escape(&Named(object).to_string());
                _ = writeln!(dot, "  g{id} -> \"{node}\";");
                if objects.insert(node.clone()) {
                    for holder in object.held_by.iter().take(NAMED) {
                        _ = writeln!(dot, "  \"{node}\" -> g{holder};");
                    }
                }
            }
        }
        for holder in holders {
            _ = writeln!(dot, "  g{holder} [shape=box, style=dashed, label=\"goroutine {holder}\"];");
        }
        dot.push_str("}\n");
        dot
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number, and a name if there is one.
struct Titled<'a>(&'a GoroutineWait);

impl fmt::Display for Titled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some(name) => write!(f, "{} '{name}'", self.0.goroutine),
            None => write!(f, "{}", self.0.goroutine),
        }
    }
}

/// The kind of an object, and which one it is.
struct Named<'a>(&'a WaitObject);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, number) = (self.0.kind, self.0.number());
        match kind {
            ObjectKind::Goroutine => write!(f, "the end of goroutine {number}"),
            ObjectKind::Descriptor => write!(f, "descriptor {number}"),
            ObjectKind::Timer => write!(f, "its timer, due in {:.2?}", Duration::from_nanos(number as u64)),
            ObjectKind::Unpark => f.write_str("a call of unpark"),
            ObjectKind::Future => f.write_str("a future"),
            ObjectKind::Nothing => f.write_str("what can never come"),
            _ => write!(f, "{kind} {number:#x}"),
        }
    }
}

/// What a goroutine waits for, and who has that.
struct Objects<'a>(&'a GoroutineWait);

impl fmt::Display for Objects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("waits for ")?;
        if self.0.objects.is_empty() {
            f.write_str("what can never come")?;
        }
        for (i, object) in self.0.objects.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", or " }, Named(object))?;
            held_by(f, object)?;
        }
        f.write_str(if self.0.has_limit && self.0.objects[..].iter().all(|o| o.kind != ObjectKind::Timer) {
            ", for a limited time"
        } else {
            ""
        })
    }
}

fn held_by(f: &mut fmt::Formatter<'_>, object: &WaitObject) -> fmt::Result {
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
    match object.held_by.as_slice() {
        [] if has_handle && object.others == Others::None => {
            return f.write_str(", of which nothing has a handle");
        }
        [] => return Ok(()),
        [one] => write!(f, "{verb} goroutine {one}")?,
        many => {
            let shown: Vec<_> = many.iter().take(NAMED).map(u64::to_string).collect();
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
