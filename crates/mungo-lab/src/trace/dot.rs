//! Who waits for whom when a trace ends, in the language of Graphviz: `dot -Tsvg` draws it.

use super::analysis::{Graph, moment};
use super::model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Result, Write};

/// Writes the graph: a box for each goroutine, an arrow to the one that it waits for, cycles in red. Those that are
/// waited for, but do not wait, are dashed.
pub(super) fn write(model: &Model, graph: &Graph, to: &mut dyn Write) -> Result<()> {
    writeln!(to, "digraph waits {{\n  rankdir=LR;\n  node [shape=box, fontname=\"monospace\"];")?;
    let waiting: BTreeMap<u32, bool> = graph.edges.iter().map(|edge| (edge.g, edge.in_cycle)).collect();
    let all: BTreeSet<u32> = graph.edges.iter().flat_map(|edge| [edge.g, edge.holder]).collect();
    for g in all {
        let look = match waiting.get(&g) {
            Some(true) => ", color=red",
            Some(false) => "",
            None => ", style=dashed",
        };
        let label = escape(&format!("{}\n{}", model.name(g), model.place(g)));
        writeln!(to, "  g{g} [label=\"{label}\"{look}];")?;
    }
    for edge in &graph.edges {
        let span = &model.spans[edge.span as usize];
        let label = format!("{}\nsince {}", model.reasons[span.reason as usize], moment(span.end));
        let look = if edge.in_cycle { ", color=red" } else { "" };
        writeln!(to, "  g{} -> g{} [label=\"{}\"{look}];", edge.g, edge.holder, escape(&label))?;
    }
    writeln!(to, "}}")
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::analysis::analyse;
    use mungo_trace::{Event, Kind, Queue, Stop, Trace};

    /// 1 and 2 have a mutex each and want the other's; 3 waits for one that 4 has.
    #[test]
    fn a_cycle_and_a_holder_are_drawn() {
        let mut trace = Trace::default();
        let reason = trace.dictionary.intern("mutex");
        for (g, holder, object) in [(1, 2, 0x20), (2, 1, 0x21), (3, 4, 0x22), (4, 0, 0)] {
            let start = Kind::Start { g, queue: Queue::Ring, waited_ns: 0 };
            let held = (holder != 0).then_some(Kind::HeldBy { g: Some(g), holder });
            let park = Kind::Stop { g, why: Stop::Parked { reason, object } };
            let kinds = [Some(start), held, (holder != 0).then_some(park)];
            for (step, kind) in kinds.into_iter().enumerate() {
                let time_ns = (g * 10 + step as u64) * 1000;
                let event = |kind| Event { time_ns, runtime: 1, m: 0, p: Some(0), kind, stack: None };
                trace.events.extend(kind.map(event));
            }
        }
        let model = crate::trace::build(&trace);
        let mut dot = Vec::new();
        write(&model, &analyse(&model).graph, &mut dot).expect("memory");
        let dot = String::from_utf8(dot).expect("text");
        let node = |id| format!("g{}", model.find(id).expect("a goroutine"));
        let has = |start: &str, red: bool| {
            let mut lines = dot.lines().filter(|line| line.trim_start().starts_with(start));
            assert!(lines.any(|line| line.contains("color=red") == red), "{start} in {dot}");
        };
        for (from, of, red) in [(1, 2, true), (2, 1, true), (3, 4, false)] {
            has(&format!("{} -> {} [label=\"mutex ", node(from), node(of)), red);
            has(&format!("{} [label=", node(from)), red);
        }
        assert!(dot.contains("style=dashed") && dot.matches(" -> ").count() == 3, "{dot}");
        assert!(dot.starts_with("digraph waits {") && dot.ends_with("}\n"));
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
