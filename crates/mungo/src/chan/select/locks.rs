//! Many channels' locks at once, in the order of their addresses, so that two selects never wait for each other.

use super::case::Case;
use super::engine::below;
use crate::chan::channel::{Core, Locked};
use crate::chan::queue::WakeList;
use crate::sched::run::park::Entered;
use std::mem::ManuallyDrop;

/// Number of cases above which a plain sort is faster. TUNED: guess.
const INSERTION_SORTED: usize = 32;

/// The locks of all channels of a select, each held once.
pub(super) struct Locks<'c, 'a> {
    cases: &'c [Case<'a>],
    entered: &'c Entered,
    /// Waiters that were taken out of queues; woken after the unlock.
    pub(super) wakes: WakeList,
}

impl<'c, 'a> Locks<'c, 'a> {
    /// Locks all channels of the cases, which were [ordered](order).
    pub(super) fn lock(cases: &'c [Case<'a>], entered: &'c Entered) -> Locks<'c, 'a> {
        for core in cores(cases) {
            core.lock(entered).keep();
        }
        Locks { cases, entered, wakes: WakeList::new() }
    }

    /// Calls `f` with one of the locks.
    pub(super) fn with<R>(&mut self, core: &Core, f: impl FnOnce(&mut Locked<'_>) -> R) -> R {
        // SAFETY: held since `lock`, and `&mut self` says that no other proof is in use. Not dropped, should `f` panic:
        // the lock is given up with all others.
        let mut locked = ManuallyDrop::new(unsafe { core.assume_locked(self.entered) });
        let result = f(&mut locked);
        self.wakes.append(ManuallyDrop::into_inner(locked).leak());
        result
    }

    pub(super) fn cases(&self) -> &'c [Case<'a>] {
        self.cases
    }

    /// Iterates over the cases in the order in which they get in line, with their indices.
    pub(super) fn in_line(&self) -> impl Iterator<Item = (usize, &'c Case<'a>)> + use<'c, 'a> {
        let cases = self.cases;
        cases.iter().map(move |case| case.nth.get()).map(move |i| (i, &cases[i]))
    }
}

impl Drop for Locks<'_, '_> {
    /// Unlocks all channels, and wakes the waiters that were taken out of queues, and the watchers.
    fn drop(&mut self) {
        for core in cores(self.cases) {
            // SAFETY: held since `lock`, and no other proof is in use.
            drop(unsafe { core.assume_locked(self.entered) });
        }
        std::mem::replace(&mut self.wakes, WakeList::new()).wake_all(self.entered.again());
    }
}

fn address(case: &Case<'_>) -> usize {
    case.core().map_or(0, |core| std::ptr::from_ref(core) as usize)
}

/// Returns the n-th case by address, if they were [ordered](order).
fn nth<'c, 'a>(cases: &'c [Case<'a>], n: usize) -> &'c Case<'a> {
    &cases[cases[n].nth.get()]
}

/// Iterates over the channels, each once, in the order of addresses; timers, which have no lock, left out.
fn cores<'c>(cases: &'c [Case<'_>]) -> impl Iterator<Item = &'c Core> {
    let mut last = 0;
    (0..cases.len()).filter_map(move |n| {
        let case = nth(cases, n);
        let new = address(case) != last;
        last = address(case);
        if new { case.core() } else { None }
    })
}

/// Notes in `Case::nth` which case comes n-th. Cases of one channel come in random order, because their partners
/// choose the first one; if the choice is biased, in the order of the list.
pub(super) fn order(cases: &[Case<'_>], biased: bool) {
    if cases.len() > INSERTION_SORTED {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        order.sort_by_key(|&i| address(&cases[i]));
        order.iter().zip(cases).for_each(|(&i, case)| case.nth.set(i));
    } else {
        insertion_sort(cases);
    }
    if biased {
        return;
    }
    let mut run = 0;
    for i in 1..cases.len() {
        if address(nth(cases, i)) != address(nth(cases, run)) {
            run = i;
        } else {
            let other = run + below((i - run + 1) as u32) as usize;
            cases[i].nth.swap(&cases[other].nth);
        }
    }
}

fn insertion_sort(cases: &[Case<'_>]) {
    for i in 0..cases.len() {
        let new = address(&cases[i]);
        let mut at = i;
        while at > 0 && address(nth(cases, at - 1)) > new {
            cases[at].nth.set(cases[at - 1].nth.get());
            at -= 1;
        }
        cases[at].nth.set(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chan::{Sender, after, bounded};
    use std::time::Duration;

    #[test]
    fn few_and_many_cases_come_in_the_same_order() {
        let channels: Vec<_> = (0..50).map(|_| bounded::<u8>(1)).collect();
        let timer = after(Duration::from_secs(1));
        for n in [1, 2, 31, 32, 33, 50] {
            let mut cases: Vec<_> = channels[..n].iter().map(|(tx, _)| Case::send(tx)).collect();
            cases.push(Case::recv(&timer, std::ptr::null_mut()));
            cases.extend(channels[..n / 2].iter().map(|(tx, _)| Case::send(tx)));
            order(&cases, true);
            let sorted: Vec<_> =
                (0..cases.len()).map(|i| (address(nth(&cases, i)), cases[i].nth.get())).collect();
            assert!(sorted.is_sorted(), "by address, then by index");
            assert_eq!(cores(&cases).count(), n);
        }
    }

    #[test]
    fn cases_of_one_channel_come_in_every_order() {
        let (tx, _rx): (Sender<u8>, _) = bounded(1);
        let cases = [Case::send(&tx), Case::send(&tx), Case::send(&tx)];
        let mut firsts = [0; 3];
        for _ in 0..3000 {
            order(&cases, false);
            firsts[cases[0].nth.get()] += 1;
        }
        assert!(firsts.iter().all(|&n| n > 800), "{firsts:?}");
    }
}
