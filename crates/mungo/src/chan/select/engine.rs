//! How a select chooses, blocks, and leaves.
//!
//! 1. *Look*, without a lock, at the signs that channels publish, choose among the ready cases, and try that one.
//! 2. *Lock* all channels, in the order of their addresses, and look again. If a case is ready now, do it.
//! 3. *Enqueue* a node for each case on its channel, unlock, and park. From here on the operation's claim decides: the
//!    partner that takes it has chosen the case, the timer that takes it has chosen none.
//! 4. *Leave*: take the nodes that are still linked out of their queues.
//!
//! Why all locks at once: while the select looks for a partner, no other thread can find the select itself. If it were
//! in some queues already, two selects that meet would each have to win two claims, its own and the other's, and one
//! that wins its own and then loses the other's has hidden itself from partners that came by meanwhile.

use super::case::{Case, Kind, Taken};
use super::locks::{self, Locks};
use super::reserve::Reservation;
use crate::chan::channel::{CAN_RECV, CAN_SEND, Core, Locked, State, Step};
use crate::chan::queue::{Ending, Node, Operation, Outcome, Queue};
use crate::chan::timer;
use crate::chan::timer::Limit;
use crate::chan::waits;
use crate::reason::WaitReason;
use crate::sched::run::park::Entered;
use crate::sys::clock;
use std::cell::Cell;
use std::time::Instant;

/// Says what is wanted of the chosen case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// To take part in it: a value, or the right to send one.
    Take,
    /// To know that it is ready.
    Watch,
}

/// Chooses one of `cases` and returns its index; what it got is in the case. `None` as the limit: does not block.
pub(super) fn run(cases: &[Case<'_>], goal: Goal, biased: bool, limit: Option<Limit>) -> Option<usize> {
    // First without locks: most selects end here.
    if let Some(chosen) = pick(cases, biased, Case::looks_ready) {
        if goal == Goal::Watch || attempt(&cases[chosen]) {
            return Some(chosen);
        }
    } else if limit.is_none() && nothing_was_ready(cases) {
        return None;
    }
    run_locked(cases, goal, biased, limit)
}

#[cold]
fn run_locked(cases: &[Case<'_>], goal: Goal, biased: bool, limit: Option<Limit>) -> Option<usize> {
    let mut deadline_ns = None;
    locks::order(cases, biased);
    loop {
        let entered = Entered::now();
        let op = Operation::current(&entered, false);
        let mut locks = Locks::lock(cases, &entered);
        let mut until_ns = u64::MAX;
        match look(&mut locks, goal, biased, &op) {
            Found::Ready(chosen) => return Some(chosen),
            Found::Promised => {}
            Found::Nothing => {
                let deadline_ns = *deadline_ns.get_or_insert_with(|| limit.map_or(0, Limit::deadline_ns));
                if deadline_ns != u64::MAX && deadline_ns <= clock::now_ns() {
                    return None;
                }
                until_ns = deadline_ns.min(first_due_ns(cases));
                enqueue_all(&mut locks, goal, &op);
            }
        }
        drop(locks);
        let several = waits::of_cases(&cases);
        let outcome = op.wait(entered, WaitReason::Select.on(std::ptr::from_ref(&several).addr()), until_ns);
        leave(cases, goal);
        match outcome {
            Outcome::TimedOut => {}
            Outcome::Ended(chosen, _) if goal == Goal::Watch => return Some(chosen),
            Outcome::Ended(chosen, ending) => {
                if note(&cases[chosen], ending) {
                    return Some(chosen);
                }
            }
        }
    }
}

/// Says what the look under all locks found.
enum Found {
    Ready(usize),
    /// A sender that has to make its value first: the operation waits for it.
    Promised,
    Nothing,
}

fn look(locks: &mut Locks<'_, '_>, goal: Goal, biased: bool, op: &Operation) -> Found {
    let cases = locks.cases();
    if goal == Goal::Watch {
        for core in cases.iter().filter_map(Case::core) {
            locks.with(core, |locked| {
                locked.senders.drop_stale();
                locked.receivers.drop_stale();
            });
        }
    }
    loop {
        // Not by the signs that were published: nodes whose wait was over have been taken out since.
        let chosen = pick(cases, biased, |case| match case.core() {
            Some(core) => locks.with(core, |locked| locked.signs()) & case.sign() != 0,
            None => case.looks_ready(),
        });
        let Some(chosen) = chosen else { return Found::Nothing };
        if goal == Goal::Watch {
            return Found::Ready(chosen);
        }
        // Each failure takes a node out of a queue whose wait was over, so this ends.
        let case = &cases[chosen];
        let step = match case.core() {
            Some(core) => locks.with(core, |locked| try_locked(case, locked)),
            None => take_due(case),
        };
        match step {
            Step::Done | Step::Closed => return Found::Ready(chosen),
            Step::Blocked => {}
            Step::Promised(sender) => {
                // SAFETY: this select won it and has not woken it.
                unsafe { sender.as_ref() }.set_partner(case.arm(op, chosen, case.slot));
                locks.wakes.push(sender);
                return Found::Promised;
            }
        }
    }
}

/// Tries one case, under its own channel's lock only. Returns whether it went on.
fn attempt(case: &Case<'_>) -> bool {
    let Some(core) = case.core() else { return take_due(case) == Step::Done };
    let entered = Entered::now();
    let mut locked = core.lock(&entered);
    match try_locked(case, &mut locked) {
        Step::Done | Step::Closed => true,
        Step::Blocked => false,
        Step::Promised(sender) => {
            locked.keep();
            // SAFETY: the lock is held, and its proof was just given up.
            match unsafe { core.wait::<false>(entered, case.slot, Some(sender), u64::MAX) } {
                Outcome::Ended(_, ending) => note(case, ending),
                Outcome::TimedOut => false,
            }
        }
    }
}

/// Does the case's operation if that is possible, and notes what it got.
fn try_locked(case: &Case<'_>, locked: &mut Locked<'_>) -> Step {
    match &case.kind {
        Kind::Send(_) => match locked.reserve() {
            None => Step::Blocked,
            Some(reservation) => {
                case.taken.set(Taken::Reserved(reservation));
                Step::Done
            }
        },
        Kind::Recv(port) => {
            // SAFETY: the slot was made for this port with the case; `locked` is its core's.
            let step = unsafe { port.take_locked(locked, case.slot) };
            match step {
                Step::Done => case.taken.set(Taken::Value),
                Step::Closed => case.taken.set(Taken::Closed),
                _ => {}
            }
            step
        }
    }
}

/// As [`try_locked`], for a timer.
fn take_due(case: &Case<'_>) -> Step {
    let Kind::Recv(port) = &case.kind else { return Step::Blocked };
    // SAFETY: the slot was made for this port with the case.
    if !unsafe { port.take_due(case.slot) } {
        return Step::Blocked;
    }
    case.taken.set(Taken::Value);
    Step::Done
}

/// Notes what a case got that its partner chose. Returns `false` if that is nothing, after all.
fn note(case: &Case<'_>, ending: Ending) -> bool {
    case.taken.set(match (&case.kind, ending) {
        (_, Ending::Retry) => return false,
        (Kind::Recv(_), Ending::Done) => Taken::Value,
        (Kind::Recv(_), Ending::Closed) => Taken::Closed,
        (Kind::Send(_), Ending::Closed) => Taken::Reserved(Reservation::Closed),
        // A receiver that wants the value from hand to hand left its address; any other one left a place.
        (Kind::Send(_), Ending::Done) => {
            let partner = case.node().and_then(Node::partner);
            Taken::Reserved(partner.map_or(Reservation::Place, Reservation::Partner))
        }
    });
    true
}

// ---- choosing ----

/// Returns one of the cases that are `ready`, each with the same chance; the first one if the choice is biased.
#[inline]
fn pick<'a>(cases: &[Case<'a>], biased: bool, mut ready: impl FnMut(&Case<'a>) -> bool) -> Option<usize> {
    if biased {
        return cases.iter().position(ready);
    }
    if cases.len() > u64::BITS as usize {
        return pick_of_many(cases, &mut ready);
    }
    let bits = cases.iter().enumerate().fold(0, |bits, (i, case)| bits | u64::from(ready(case)) << i);
    match bits.count_ones() {
        0 => None,
        1 => Some(bits.trailing_zeros() as usize),
        n => Some(nth_bit(bits, below(n))),
    }
}

/// Returns the number of the n-th bit that is set, counted from 0.
fn nth_bit(bits: u64, n: u32) -> usize {
    (0..n).fold(bits, |bits, _| bits & (bits - 1)).trailing_zeros() as usize
}

/// As [`pick`], for more cases than a word has bits.
#[cold]
fn pick_of_many<'a>(cases: &[Case<'a>], ready: &mut dyn FnMut(&Case<'a>) -> bool) -> Option<usize> {
    let mut chosen = None;
    let mut seen = 0;
    for (i, case) in cases.iter().enumerate() {
        if ready(case) {
            seen += 1;
            // The k-th ready one replaces the choice with probability 1/k: uniform, in one pass.
            if seen == 1 || below(seen) == 0 {
                chosen = Some(i);
            }
        }
    }
    chosen
}

/// Returns a random number below `n`.
pub(super) fn below(n: u32) -> u32 {
    ((u64::from(random()) * u64::from(n)) >> 32) as u32
}

/// Returns a random number (xorshift). Not inlined: a goroutine with shared thread-locals must not keep their address.
#[inline(never)]
fn random() -> u32 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = clock::now_ns() ^ (std::ptr::from_ref(state) as u64).rotate_left(32) | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x >> 32) as u32
    })
}

/// Returns whether there was a moment at which no case was ready, although they were looked at one after the other: a
/// second look must find the same number of changes everywhere.
fn nothing_was_ready(cases: &[Case<'_>]) -> bool {
    if let [_] = cases {
        return true;
    }
    let looks: [u32; 8] = std::array::from_fn(|i| cases.get(i).and_then(Case::core).map_or(0, Core::peek));
    let unready = |case: &Case<'_>, signs: u32| signs & case.sign() == 0;
    cases.len() <= looks.len()
        && cases.iter().zip(looks).all(|(case, signs)| unready(case, signs))
        && cases.iter().zip(looks).all(|(case, signs)| case.core().is_none_or(|core| core.peek() == signs))
}

impl Case<'_> {
    #[inline]
    fn sign(&self) -> u32 {
        match self.kind {
            Kind::Send(_) => CAN_SEND,
            Kind::Recv(_) => CAN_RECV,
        }
    }

    /// Returns the queue that the case waits in.
    fn queue<'s>(&self, goal: Goal, state: &'s mut State) -> &'s mut Queue {
        match (&self.kind, goal) {
            (Kind::Send(_), Goal::Take) => &mut state.senders,
            (Kind::Recv(_), Goal::Take) => &mut state.receivers,
            (Kind::Send(_), Goal::Watch) => &mut state.send_watchers,
            (Kind::Recv(_), Goal::Watch) => &mut state.recv_watchers,
        }
    }

    fn due(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Send(_) => None,
            Kind::Recv(port) => port.due(),
        }
    }

    #[inline]
    fn looks_ready(&self) -> bool {
        match self.core() {
            Some(core) => core.peek() & self.sign() != 0,
            None => self.due().is_some_and(|due| due <= Instant::now()),
        }
    }
}

/// Returns the earliest time, in ns, at which one of the timers has a value.
fn first_due_ns(cases: &[Case<'_>]) -> u64 {
    cases.iter().filter_map(Case::due).min().map_or(u64::MAX, clock::at_ns)
}

// ---- queues ----

/// Puts the operation into the queues of all its cases.
fn enqueue_all(locks: &mut Locks<'_, '_>, goal: Goal, op: &Operation) {
    for (i, case) in locks.in_line() {
        let Some(core) = case.core() else { continue };
        let slot = match case.kind {
            Kind::Send(_) => std::ptr::null_mut(), // no value yet
            Kind::Recv(_) => case.slot,
        };
        let node = case.arm(op, i, slot);
        // SAFETY: the node stays in the case until `leave`, before this select returns.
        locks.with(core, |locked| unsafe { case.queue(goal, locked).push_back(node) });
    }
}

/// Takes the losers out of their queues. Afterwards no other thread knows this select.
fn leave(cases: &[Case<'_>], goal: Goal) {
    for case in cases {
        if let (Some(core), Some(node)) = (case.core(), case.node())
            && node.is_linked()
        {
            let entered = Entered::now();
            let mut locked = core.lock(&entered);
            case.queue(goal, &mut locked).remove(node);
        }
    }
}

/// Blocks for ever, or until the limit: a select without cases.
pub(super) fn idle(limit: Limit) {
    timer::sleep_until(limit.deadline_ns());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chan::{Receiver, bounded};

    /// Every fifth of the cases is ready: each of these is chosen, about as often as the others, and no other one.
    #[test]
    fn ready_cases_have_the_same_chance() {
        for n in [1, 5, 6, 63, 64, 65, 200] {
            let receivers: Vec<Receiver<u8>> = (0..n).map(|_| bounded(1).1).collect();
            let cases: Vec<_> = receivers.iter().map(|rx| Case::recv(rx, std::ptr::null_mut())).collect();
            let is_ready = |at: usize| at.is_multiple_of(5);
            let at = |case: &Case<'_>| {
                (std::ptr::from_ref(case).addr() - cases.as_ptr().addr()) / size_of::<Case<'_>>()
            };
            let expected = 1000;
            let ready = (0..n).filter(|&i| is_ready(i)).count();
            let mut times = vec![0; n];
            for _ in 0..ready * expected {
                times[pick(&cases, false, |case| is_ready(at(case))).expect("one is ready")] += 1;
            }
            for (i, &times) in times.iter().enumerate() {
                let bounds = if is_ready(i) { expected / 2..=expected * 2 } else { 0..=0 };
                assert!(bounds.contains(&times), "case {i} of {n}: {times}");
            }
            assert_eq!(pick(&cases, true, |case| is_ready(at(case))), Some(0));
            assert_eq!(pick(&cases, false, |_| false), None);
        }
    }

    #[test]
    fn bits_are_counted_from_the_lowest() {
        let bits = 1 << 63 | 0b1010;
        assert_eq!([0, 1, 2].map(|n| nth_bit(bits, n)), [1, 3, 63]);
    }
}
