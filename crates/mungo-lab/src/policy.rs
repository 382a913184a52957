//! Scheduling policies by name.

use crate::error::{Error, Result};
use mungo::policy::by_name;
use mungo::{Runtime, policy};

/// A line about each policy that comes with the runtime.
fn about(name: &str) -> &'static str {
    match name {
        "default" => "Go's: a queue a processor, stealing, the global queue each 61 ticks; best throughput",
        "fifo" => "first come, first served on each processor; none overtakes",
        "lifo" => "last come, first served; warm caches, unfair",
        "work_stealing" => "prefers stealing to the global queue; for fork and join",
        "priority" => "urgent goroutines displace others at once; ageing, so that none starves",
        "deadline" => "earliest deadline first; admits periodic work only as far as there is room",
        "fair" => "CPU time by weight, as Linux's EEVDF divides it",
        "numa" => "steals from near memory nodes first; the default where there is one node",
        "chaos" => "seeded random order, delays and steals, to shake out races in tests",
        _ => "",
    }
}

/// All of them, with a line each.
pub(crate) fn all() -> Vec<(String, &'static str)> {
    policy::names().into_iter().map(|name| (name.clone(), about(&name))).collect()
}

/// A policy as it was asked for: `name` or `name:key=value,...`.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    spec: String,
}

impl Policy {
    /// # Errors
    /// If there is none of that name, or it has no such option; names the closest one.
    pub(crate) fn parse(spec: &str) -> Result<Policy> {
        by_name(spec).map_err(|e| Error::Usage(e.to_string()))?;
        Ok(Policy { spec: spec.to_owned() })
    }

    pub(crate) fn spec(&self) -> &str {
        &self.spec
    }

    /// A fresh runtime under this policy, with `procs` processors or as many as the machine says.
    pub(crate) fn runtime(&self, procs: Option<usize>) -> Result<Runtime> {
        let failed = |e| Error::Failed(format!("cannot start a runtime under '{}': {e}", self.spec));
        let builder = Runtime::builder().scheduler(by_name(&self.spec).map_err(failed)?);
        let builder = match procs {
            Some(n) => builder.procs(n),
            None => builder,
        };
        builder.build().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_policy_is_described() {
        for (name, about) in super::all() {
            assert!(!about.is_empty(), "{name}");
        }
    }
}
