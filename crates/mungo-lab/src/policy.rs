//! Scheduling policies by name.

use crate::error::{Error, Result};
use crate::names;
use mungo::Runtime;

/// A policy that can be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

/// All of them.
pub(crate) fn all() -> Vec<Known> {
    vec![Known {
        name: "default",
        about: "Go's: local queues, a look at the global one each 61 ticks, stealing",
    }]
}

/// A policy as it was asked for: `name` or `name:key=value,...`.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    spec: String,
}

impl Policy {
    /// # Errors
    /// If there is none of that name.
    pub(crate) fn parse(spec: &str) -> Result<Policy> {
        let name = spec.split(':').next().unwrap_or_default();
        let known = all();
        match known.iter().any(|k| k.name == name) {
            true => Ok(Policy { spec: spec.to_owned() }),
            false => Err(names::unknown("policy", name, known.iter().map(|k| k.name))),
        }
    }

    pub(crate) fn spec(&self) -> &str {
        &self.spec
    }

    /// A fresh runtime under this policy, with `procs` processors or as many as the machine says.
    pub(crate) fn runtime(&self, procs: Option<usize>) -> Result<Runtime> {
        let builder = Runtime::builder();
        let builder = match procs {
            Some(n) => builder.procs(n),
            None => builder,
        };
        builder.build().map_err(|e| Error::Failed(format!("cannot start a runtime under '{}': {e}", self.spec)))
    }
}
