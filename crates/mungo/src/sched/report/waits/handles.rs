//! Searches memory for the handles of channels and wait groups that goroutines wait for.

use super::look::Seen;
use super::{Key, ObjectKind, Others};
use crate::sched::report::memory::{Memory, Sought};
use crate::sched::run::g::{GRef, pool};
use crate::sched::shared::Shared;
use std::collections::HashMap;
use std::sync::Arc;

/// Notes for each channel and wait group which goroutines have a handle on their stacks, and whether there is one in
/// other memory. Where memory cannot be searched, others may always have one.
pub(super) fn search(seen: &mut Seen, runtimes: &[Arc<Shared>], below: usize) {
    let is_sought = |kind| matches!(kind, ObjectKind::Channel | ObjectKind::WaitGroup);
    let objects = || seen.found.iter().flat_map(|found| &found.objects).filter(|object| is_sought(object.kind));
    let all: Vec<usize> = objects().map(|object| object.masked).collect();
    if all.is_empty() {
        return;
    }
    let Some(mut memory) = Memory::open(below) else { return };
    let mut elsewhere = Sought::new(all);
    let mut of_goroutines: HashMap<usize, Vec<Key>> = HashMap::new();
    // A handle that a thread moves meanwhile is not seen, so look twice.
    for _ in 0..2 {
        memory.search_all_but_goroutines(&mut elsewhere);
        memory.search_unstarted(&mut elsewhere);
        for g in pool::chunks().into_iter().flatten().filter_map(GRef::try_new) {
            if !g.state.is_alive() || !g.started() {
                continue;
            }
            let mut here = elsewhere.anew();
            memory.search_stack_of(&g, &mut here);
            for number in here.found() {
                of_goroutines.entry(number).or_default().push(Key::of(&g, runtimes));
            }
        }
    }
    for found in &mut seen.found {
        for object in found.objects.iter_mut().filter(|object| is_sought(object.kind)) {
            object.holders = of_goroutines.get(&object.masked).cloned().unwrap_or_default();
            object.holders.sort_unstable();
            object.holders.dedup();
            object.others = if elsewhere.is_found(object.masked) { Others::Perhaps } else { Others::None };
        }
    }
}
