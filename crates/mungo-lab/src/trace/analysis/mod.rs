//! What follows from a trace: the figures that `stats`, `view` and the reports share.

mod kernel;
mod latency;
mod path;
mod places;
mod stuck;
mod verdicts;
mod waits;

pub(crate) use latency::{Latency, PARTS, Part, Split};
pub(crate) use path::chain;
pub(crate) use places::{PlaceRow, Preemption, ProcRow, RegionRow, Wake};
pub(crate) use stuck::Graph;
pub(crate) use verdicts::{Moment, Severity, Verdict, moment, time};
pub(crate) use waits::{StackWaits, Waits};

use super::model::Model;

/// All figures of a trace.
#[derive(Debug)]
pub(crate) struct Analysis {
    pub(crate) latency: Latency,
    pub(crate) places: Vec<PlaceRow>,
    pub(crate) procs: Vec<ProcRow>,
    pub(crate) preemptions: Vec<Preemption>,
    pub(crate) wakes: Vec<Wake>,
    pub(crate) waits: Vec<Waits>,
    pub(crate) stacks: Vec<StackWaits>,
    pub(crate) graph: Graph,
    pub(crate) regions: Vec<RegionRow>,
    pub(crate) verdicts: Vec<Verdict>,
}

/// Computes them.
pub(crate) fn analyse(model: &Model) -> Analysis {
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| (waits::waits(model), waits::by_stack(model)));
        let wakes = scope.spawn(|| places::wakes(model));
        let places =
            scope.spawn(|| (places::places(model), places::preemptions(model), places::regions(model)));
        let procs = places::procs(model);
        let latency = latency::latency(model);
        let graph = stuck::graph(model);
        let verdicts = verdicts::verdicts(model, &latency, &procs, &graph);
        let failed = "figures of a trace";
        let (places, preemptions, regions) = places.join().expect(failed);
        let (wakes, (waits, stacks)) = (wakes.join().expect(failed), waits.join().expect(failed));
        Analysis { latency, places, procs, preemptions, wakes, waits, stacks, graph, regions, verdicts }
    })
}
