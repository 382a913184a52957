//! Which goroutines nothing can wake any more, and the cycles among them.

use super::look::Found;
use super::{Key, ObjectKind, Others, WaitObject};
use std::collections::{HashMap, VecDeque};

/// Returns for each goroutine whether it is stuck: the largest set of those that `counts` accepts of which each waits
/// for nothing but what others of the set have. `is_dead`: all are.
pub(super) fn stuck(found: &[Found], counts: impl Fn(usize) -> bool, is_dead: bool) -> Vec<bool> {
    if is_dead {
        return vec![true; found.len()];
    }
    let mut stuck: Vec<bool> = found.iter().enumerate().map(|(at, one)| !one.is_open && counts(at)).collect();
    let index = index(found);
    let mut again = true;
    while std::mem::take(&mut again) {
        for (at, one) in found.iter().enumerate() {
            let is_stuck = |key: &Key| index.get(key).is_some_and(|at| stuck[*at]);
            if stuck[at] && one.objects.iter().any(|object| may_come(object, is_stuck)) {
                stuck[at] = false;
                again = true;
            }
        }
    }
    stuck
}

/// Returns whether the wait for one object may end, if those that are stuck stay so.
fn may_come(object: &WaitObject, is_stuck: impl Fn(&Key) -> bool) -> bool {
    match object.others {
        Others::Perhaps => true,
        Others::HolderEnded => false,
        // All of them have to end; if there are none, they have.
        Others::None if object.kind == ObjectKind::Scope => !object.holders.iter().any(is_stuck),
        Others::None => object.holders.iter().any(|key| !is_stuck(key)),
    }
}

fn index(found: &[Found]) -> HashMap<Key, usize> {
    found.iter().enumerate().map(|(at, one)| (one.key, at)).collect()
}

/// Returns cycles of goroutines that are stuck and wait for each other. No goroutine is in two of them.
pub(super) fn cycles(found: &[Found], stuck: &[bool]) -> Vec<Vec<Key>> {
    let index = index(found);
    let mut left = stuck.to_vec();
    let mut cycles = Vec::new();
    for start in 0..found.len() {
        if !left[start] {
            continue;
        }
        match cycle_through(found, &index, &left, start) {
            Some(cycle) => {
                cycle.iter().for_each(|at| left[*at] = false);
                cycles.push(cycle.into_iter().map(|at| found[at].key).collect());
            }
            None => left[start] = false, // no other cycle leads through it either
        }
    }
    cycles
}

/// Returns a shortest cycle through `start`, among those that are `left`.
fn cycle_through(
    found: &[Found],
    index: &HashMap<Key, usize>,
    left: &[bool],
    start: usize,
) -> Option<Vec<usize>> {
    let mut before = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        let next = found[at].objects.iter().flat_map(|object| &object.holders).filter_map(|key| index.get(key));
        for &next in next {
            if next == start {
                let mut cycle = vec![at];
                while let Some(at) = before.get(cycle.last()?) {
                    cycle.push(*at);
                }
                cycle.reverse();
                return Some(cycle);
            }
            if left[next] && !before.contains_key(&next) {
                before.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}
