//! The names of functions, each address looked up once.

use crate::sched::report::dump::Frame;
use crate::sched::report::stacks;
use crate::sys::modules;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

struct Known {
    /// The state of the loader for which they hold.
    generation: u64,
    by_address: HashMap<usize, Arc<[Frame]>>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Looks up names, on a plain thread.
pub(super) struct Names(MutexGuard<'static, Option<Known>>);

impl Names {
    pub(super) fn open() -> Names {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = modules::generation();
        if known.as_ref().is_none_or(|known| known.generation != generation) {
            *known = Some(Known { generation, by_address: HashMap::new() });
        }
        Names(known)
    }

    /// Returns the functions at an address that a call returns to, the innermost first: several if some were inlined.
    pub(super) fn of(&mut self, address: usize) -> Arc<[Frame]> {
        let known = self.0.as_mut().map(|known| &mut known.by_address);
        match known {
            Some(known) => known.entry(address).or_insert_with(|| stacks::name(address).into()).clone(),
            None => stacks::name(address).into(),
        }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        stacks::forget_symbols();
    }
}
