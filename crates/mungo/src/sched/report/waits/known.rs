//! A look at all goroutines, however many there are: which are stuck by what is known without a search of memory.
//!
//! The holder of a lock, a goroutine that is joined and the goroutines of a scope are known at once. A goroutine that
//! waits for anything else counts here as one that may go on. So this finds no ring of channels, but each deadlock of
//! locks, joins and scopes, with some words for each goroutine that waits for one of these. What it finds is then
//! looked at in full, like the first goroutines of a program.

use super::look::read;
use crate::reason::WaitReason;
use crate::sched::engine::inherit::Holder;
use crate::sched::run::g::{G, GRef};
use crate::sched::shared::Shared;
use std::collections::HashMap;
use std::sync::Arc;

/// A goroutine that waits for what is known, by the address of its G.
struct Wait {
    g: usize,
    /// The scope that it is of, or 0.
    inside: usize,
    on: On,
}

/// What ends such a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// This goroutine.
    Goroutine(usize),
    /// All goroutines of this scope.
    Scope(usize),
    /// Nothing: the holder of the lock has ended.
    Nothing,
}

/// Returns at most `most` goroutines that only locks, joins and scopes keep from going on, each with those that it
/// waits for.
pub(super) fn stuck(runtimes: &[Arc<Shared>], most: usize) -> Vec<GRef> {
    let mut waits = Vec::new();
    for shared in runtimes {
        shared.for_each_g(|g| waits.extend(Wait::of(g)));
    }
    let stuck = choose(&waits, most);
    // SAFETY: Gs are never freed. If it is another goroutine by now, a full look will tell.
    stuck.into_iter().filter_map(|at| GRef::try_new(unsafe { &*(waits[at].g as *const G) })).collect()
}

impl Wait {
    fn of(g: &G) -> Option<Wait> {
        let is_known = matches!(
            g.wait_reason(),
            WaitReason::Mutex
                | WaitReason::RwLockRead
                | WaitReason::RwLockWrite
                | WaitReason::Once
                | WaitReason::Join
                | WaitReason::Scope
        );
        if !is_known || !g.state.is_waiting() {
            return None; // most are not: they are not held for this
        }
        let read = read(g)?;
        if read.awaited.is_timed() {
            return None;
        }
        let (address, number) = (std::ptr::from_ref(g).addr(), read.awaited.object());
        let on = match (read.awaited.reason, read.holder) {
            (WaitReason::Join, _) => On::Goroutine(number),
            (WaitReason::Scope, _) => On::Scope(number),
            (_, Holder::Ended) => On::Nothing,
            (_, Holder::Unknown) => return None,
            (reason, Holder::G(holder)) => match holder.as_ptr().addr() {
                // The writer that waits for readers, which are not noted.
                holder if holder == address && reason != WaitReason::Mutex && reason != WaitReason::Once => {
                    return None;
                }
                holder => On::Goroutine(holder),
            },
        };
        Some(Wait { g: address, inside: g.scope.get().addr(), on })
    }
}

/// Returns the numbers of at most `most` waits that none of the others will end: each with the one that it waits for.
/// More than `most` only if the first cycle is longer.
fn choose(waits: &[Wait], most: usize) -> Vec<usize> {
    let next = next_in_stuck(waits);
    let (mut chosen, mut is_seen) = (Vec::new(), vec![false; waits.len()]);
    let mut is_chosen = is_seen.clone();
    for start in 0..waits.len() {
        if chosen.len() >= most {
            break;
        }
        // The way from one to the next, up to one that is known already, or that nothing will wake.
        let (mut path, mut at) = (Vec::new(), next[start].map(|_| start));
        while let Some(here) = at
            && !std::mem::replace(&mut is_seen[here], true)
        {
            path.push(here);
            at = next[here].filter(|next| *next != here);
        }
        let room = most - chosen.len();
        let mut from = path.len().saturating_sub(room);
        if let Some(at) = at.filter(|at| !is_chosen[*at]) {
            match path.iter().position(|of| *of == at) {
                // A part of a cycle is none.
                Some(cycle) if from > cycle => from = if chosen.is_empty() { cycle } else { path.len() },
                Some(_) => {}
                None => from = path.len(), // the end of the way was left out
            }
        }
        path[from..].iter().for_each(|of| is_chosen[*of] = true);
        chosen.extend_from_slice(&path[from..]);
    }
    chosen
}

/// Returns for each wait that will not end one that it waits for, which will not end either; itself, if there is none.
fn next_in_stuck(waits: &[Wait]) -> Vec<Option<usize>> {
    let by_g: HashMap<usize, usize> = waits.iter().enumerate().map(|(at, wait)| (wait.g, at)).collect();
    let scopes = waits.iter().enumerate().filter_map(|(at, wait)| match wait.on {
        On::Scope(scope) => Some((scope, at)),
        _ => None,
    });
    let by_scope: HashMap<usize, usize> = scopes.collect();
    // Who waits for whom, by the one that is waited for; and the number of those that may keep each from going on.
    let (mut edges, mut left) = (Vec::new(), vec![0usize; waits.len()]);
    for (at, wait) in waits.iter().enumerate() {
        match wait.on {
            On::Goroutine(g) => edges.extend(by_g.get(&g).map(|of| (*of, at))),
            On::Nothing => left[at] = 1,
            On::Scope(_) => {}
        }
        edges.extend(by_scope.get(&wait.inside).map(|waiter| (at, *waiter)));
    }
    edges.iter().for_each(|(_, waiter)| left[*waiter] += 1);
    edges.sort_unstable();
    let waiters = |of: usize| {
        let first = edges.partition_point(|edge| edge.0 < of);
        edges[first..].iter().take_while(move |edge| edge.0 == of).map(|edge| edge.1)
    };
    let mut goes_on: Vec<usize> = (0..waits.len()).filter(|at| left[*at] == 0).collect();
    while let Some(of) = goes_on.pop() {
        for waiter in waiters(of) {
            left[waiter] -= 1;
            if left[waiter] == 0 {
                goes_on.push(waiter);
            }
        }
    }
    let mut next = vec![None; waits.len()];
    for at in (0..waits.len()).filter(|at| left[*at] != 0 && waits[*at].on == On::Nothing) {
        next[at] = Some(at);
    }
    for (of, waiter) in edges.into_iter().filter(|(of, _)| left[*of] != 0) {
        next[waiter] = Some(of);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(g: usize, inside: usize, on: On) -> Wait {
        Wait { g, inside, on }
    }

    fn for_g(g: usize, of: usize) -> Wait {
        wait(g, 0, On::Goroutine(of))
    }

    /// Returns the goroutines that are chosen, by their number.
    fn chosen(waits: &[Wait], most: usize) -> Vec<usize> {
        let mut chosen: Vec<usize> = choose(waits, most).into_iter().map(|at| waits[at].g).collect();
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn cycles_and_those_that_wait_for_them_are_stuck() {
        // 1 -> 2 -> 3 -> 1, 4 -> 1; 5 -> 6 -> 99, which runs; 7 waits for itself; 9 -> 8, whose lock is lost.
        let pairs = [(4, 1), (1, 2), (2, 3), (3, 1), (5, 6), (6, 99), (7, 7), (9, 8)];
        let mut waits: Vec<Wait> = pairs.into_iter().map(|(g, of)| for_g(g, of)).collect();
        waits.push(wait(8, 0, On::Nothing));
        assert_eq!(chosen(&waits, 100), [1, 2, 3, 4, 7, 8, 9]);
    }

    #[test]
    fn a_scope_is_stuck_with_one_of_its_goroutines() {
        // 1 waits for the scope 50, of 2, which waits for 1, and of 3, which runs on. 4 waits for 51, of which is 5.
        let waits = [
            wait(1, 0, On::Scope(50)),
            wait(2, 50, On::Goroutine(1)),
            wait(4, 0, On::Scope(51)),
            wait(5, 51, On::Goroutine(99)),
        ];
        assert_eq!(chosen(&waits, 100), [1, 2]);
    }

    /// What is left out does not break the reason of what is chosen.
    #[test]
    fn a_limit_cuts_off_the_far_end() {
        let mut waits: Vec<Wait> = (2..100_000).rev().map(|g| for_g(g, g - 1)).collect();
        waits.push(for_g(1, 2));
        assert_eq!(chosen(&waits, 10), (1..=10).collect::<Vec<_>>());
        let ring: Vec<Wait> = (0..100).map(|g| for_g(g, (g + 1) % 100)).collect();
        assert_eq!(chosen(&ring, 10).len(), 100, "a part of a cycle is none");
        let mut both = vec![for_g(201, 202), for_g(202, 201)];
        both.extend(ring);
        assert_eq!(chosen(&both, 10), [201, 202]);
    }
}
