//! How a select chooses, blocks, and leaves.
//!
//! 1. *Look*, without a lock, at the signs that channels publish, choose among the ready cases, and try that one.
//! 2. *Lock* all channels, in the order of their addresses, and look again. If a case is ready now, do it.
//! 3. *Enqueue* a node for each case on its channel, unlock, and park. From here on the operation's claim decides: the
//!    partner that takes it has chosen the case, the timer that takes it has chosen none.
//! 4. *Leave*: take the nodes that are still linked out of their queues.
//!
//! Why all locks at once: while the select looks for a partner, nobody can find the select itself. If it were in some
//! queues already, two selects that meet would each have to win two claims, its own and the other's, and whoever wins
//! its own and then loses the other's has hidden itself from those who came by meanwhile.

use super::case::{Case, Kind, Taken};
use crate::chan::core::{CAN_RECV, CAN_SEND, Core, Entered, Limit, Locked, Reservation, State, Step};
use crate::chan::queue::{Ending, Operation, Outcome, Queue, WakeList};
use crate::chan::timer;
use crate::sched::reason::WaitReason;
use crate::sys::clock;
use std::cell::Cell;
use std::time::Instant;

/// What is wanted of the chosen case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// To take part in it: a value, or the right to send one.
    Take,
    /// To know that it is ready.
    Watch,
}

/// Chooses one of `cases`. `None` as the limit: does not block. Returns its index; what it got is in the case.
pub(crate) fn run(cases: &[Case<'_>], goal: Goal, biased: bool, limit: Option<Limit>) -> Option<usize> {
    // First without locks: most selects end here.
    if let Some(chosen) = pick(cases, biased, Case::looks_ready) {
        if goal == Goal::Watch || attempt(&cases[chosen], chosen) {
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
    order_by_address(cases, biased);
    loop {
        let entered = Entered::now();
        let mut wakes = lock_all(cases, &entered);
        let op = Operation::current(&entered, false);
        let found = look_locked(cases, goal, biased, &op, &mut wakes);
        if let Found::Ready(chosen) = found {
            unlock_all(cases, &mut wakes);
            return Some(chosen);
        }
        let mut until_ns = u64::MAX;
        if let Found::Nothing = found {
            let Some(limit) = limit else {
                unlock_all(cases, &mut wakes);
                return None;
            };
            let deadline_ns = *deadline_ns.get_or_insert_with(|| limit.deadline_ns());
            if deadline_ns != u64::MAX && deadline_ns <= clock::now_ns() {
                unlock_all(cases, &mut wakes);
                return None;
            }
            until_ns = deadline_ns.min(first_due_ns(cases));
            enqueue_all(cases, goal, &op);
        }
        unlock_all(cases, &mut wakes);
        let outcome = op.wait(entered, WaitReason::Select, until_ns);
        leave(cases, goal);
        if let Some(chosen) = conclude(cases, goal, outcome) {
            return Some(chosen);
        }
    }
}

/// What the look under all locks found.
enum Found {
    Ready(usize),
    /// A sender that has to make its value first: the operation waits for it, with the case's index.
    Promised,
    Nothing,
}

fn look_locked(cases: &[Case<'_>], goal: Goal, biased: bool, op: &Operation, wakes: &mut WakeList) -> Found {
    if goal == Goal::Watch {
        cases.iter().filter_map(Case::core).for_each(|core| {
            with_locked(core, wakes, |locked| {
                locked.senders.drop_stale();
                locked.receivers.drop_stale();
            });
        });
    }
    // Each failure takes somebody out of a queue whose wait was over, so this ends.
    while let Some(chosen) = pick(cases, biased, Case::is_ready_locked) {
        let case = &cases[chosen];
        if goal == Goal::Watch {
            return Found::Ready(chosen);
        }
        let Some(core) = case.core() else {
            if take_due(case) {
                return Found::Ready(chosen);
            }
            continue;
        };
        let step = with_locked(core, wakes, |locked| try_locked(case, locked));
        match step {
            Step::Done | Step::Closed => return Found::Ready(chosen),
            Step::Blocked => {}
            Step::Promised(sender) => {
                case.node.arm(op, chosen, case.slot);
                // SAFETY: we won it and have not woken it.
                unsafe { sender.as_ref() }.set_partner(&case.node);
                wakes.push(sender);
                return Found::Promised;
            }
        }
    }
    Found::Nothing
}

/// Tries one case, under its own channel's lock only.
fn attempt(case: &Case<'_>, index: usize) -> bool {
    let Some(core) = case.core() else { return take_due(case) };
    let entered = Entered::now();
    let mut locked = core.lock(&entered);
    match try_locked(case, &mut locked) {
        Step::Done | Step::Closed => true,
        Step::Blocked => false,
        Step::Promised(sender) => {
            let outcome = core.wait_for_sender(entered, locked, case.slot, Some(sender), u64::MAX);
            // It counts as case 0 there.
            match outcome {
                Outcome::Ended(_, ending) => note(case, Outcome::Ended(index, ending)),
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
            // SAFETY: the slot is made for this port by whoever made the case; `locked` is its core's.
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

fn take_due(case: &Case<'_>) -> bool {
    let Kind::Recv(port) = &case.kind else { return false };
    // SAFETY: the slot is made for this port by whoever made the case.
    let taken = unsafe { port.take_due(case.slot) };
    if taken {
        case.taken.set(Taken::Value);
    }
    taken
}

/// After the wait: what the chosen case got. `None`: nothing yet, start again.
fn conclude(cases: &[Case<'_>], goal: Goal, outcome: Outcome) -> Option<usize> {
    match outcome {
        Outcome::TimedOut => None,
        Outcome::Ended(chosen, _) if goal == Goal::Watch => Some(chosen),
        Outcome::Ended(chosen, _) => note(&cases[chosen], outcome).then_some(chosen),
    }
}

/// Notes what a case got by being chosen by its partner. `false`: nothing, after all.
fn note(case: &Case<'_>, outcome: Outcome) -> bool {
    let Outcome::Ended(_, ending) = outcome else { return false };
    case.taken.set(match (&case.kind, ending) {
        (_, Ending::Retry) => return false,
        (Kind::Recv(_), Ending::Done) => Taken::Value,
        (Kind::Recv(_), Ending::Closed) => Taken::Closed,
        (Kind::Send(_), Ending::Closed) => Taken::Reserved(Reservation::Closed),
        // A receiver that wants the value from hand to hand left its address; the others left a place.
        (Kind::Send(_), Ending::Done) => {
            Taken::Reserved(case.node.partner().map_or(Reservation::Place, Reservation::Partner))
        }
    });
    true
}

// ---- choosing ----

/// One of those that are `ready`, each with the same chance; the first one if the choice is biased.
fn pick<'a>(cases: &[Case<'a>], biased: bool, ready: impl Fn(&Case<'a>) -> bool) -> Option<usize> {
    let mut chosen = None;
    let mut seen = 0;
    for (i, case) in cases.iter().enumerate() {
        if ready(case) {
            if biased {
                return Some(i);
            }
            seen += 1;
            // The k-th ready one replaces the choice with probability 1/k: uniform, in one pass.
            if seen == 1 || below(seen) == 0 {
                chosen = Some(i);
            }
        }
    }
    chosen
}

/// A random number below `n`.
fn below(n: u32) -> u32 {
    ((u64::from(random()) * u64::from(n)) >> 32) as u32
}

/// xorshift. Not inlined: a goroutine with shared thread-locals must not keep their address.
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

/// Whether there was a moment at which no case was ready, although they were looked at one after the other: a
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
    fn core(&self) -> Option<&Core> {
        match &self.kind {
            Kind::Send(core) => Some(core),
            Kind::Recv(port) => port.core(),
        }
    }

    fn sign(&self) -> u32 {
        match self.kind {
            Kind::Send(_) => CAN_SEND,
            Kind::Recv(_) => CAN_RECV,
        }
    }

    /// Where it waits.
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

    fn looks_ready(&self) -> bool {
        match self.core() {
            Some(core) => core.peek() & self.sign() != 0,
            None => self.due().is_some_and(|due| due <= Instant::now()),
        }
    }

    /// All locks are held.
    fn is_ready_locked(&self) -> bool {
        match self.core() {
            // The signs that were published may be old: those whose wait was over have been taken out since.
            Some(core) => {
                // SAFETY: held by this select, and no other proof is in use.
                let locked = unsafe { core.assume_locked() };
                let signs = locked.signs();
                let none = locked.leak();
                debug_assert!(none.is_empty());
                signs & self.sign() != 0
            }
            None => self.looks_ready(),
        }
    }
}

/// The earliest time at which one of the timers has a value.
fn first_due_ns(cases: &[Case<'_>]) -> u64 {
    cases.iter().filter_map(Case::due).min().map_or(u64::MAX, clock::at_ns)
}

// ---- many locks ----

/// Above this a plain sort is faster. TUNED: guess.
const FEW: usize = 32;

fn address(case: &Case<'_>) -> usize {
    case.core().map_or(0, |core| std::ptr::from_ref(core) as usize)
}

/// Notes in `Case::nth` which case comes n-th. Cases of one channel come in random order, because their partners
/// choose the first one; if the choice is biased, in the order of the list.
fn order_by_address(cases: &[Case<'_>], biased: bool) {
    if cases.len() > FEW {
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

fn nth<'c, 'a>(cases: &'c [Case<'a>], n: usize) -> &'c Case<'a> {
    &cases[cases[n].nth.get()]
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

/// Each channel once, in the order of addresses; timers, which have no lock, left out.
fn cores<'c>(cases: &'c [Case<'_>]) -> impl Iterator<Item = &'c Core> {
    let mut last = 0;
    (0..cases.len()).filter_map(move |n| {
        let case = nth(cases, n);
        let new = address(case) != last;
        last = address(case);
        if new { case.core() } else { None }
    })
}

fn lock_all(cases: &[Case<'_>], entered: &Entered) -> WakeList {
    for core in cores(cases) {
        let none = core.lock(entered).leak();
        debug_assert!(none.is_empty());
    }
    WakeList::new()
}

/// Lets everybody in again, and wakes whom we took out of queues, and those who watched.
fn unlock_all(cases: &[Case<'_>], wakes: &mut WakeList) {
    for core in cores(cases) {
        // SAFETY: held since `lock_all`, and no other proof is in use.
        drop(unsafe { core.assume_locked() });
    }
    wakes.wake_all();
}

/// All locks are held: uses one of them.
fn with_locked<R>(core: &Core, wakes: &mut WakeList, f: impl FnOnce(&mut Locked<'_>) -> R) -> R {
    // SAFETY: held by this select, and no other proof is in use.
    let mut locked = unsafe { core.assume_locked() };
    let result = f(&mut locked);
    wakes.append(locked.leak());
    result
}

// ---- queues ----

/// All locks are held: makes the operation known everywhere.
fn enqueue_all(cases: &[Case<'_>], goal: Goal, op: &Operation) {
    for n in 0..cases.len() {
        let case = nth(cases, n);
        let Some(core) = case.core() else { continue };
        let slot = match case.kind {
            Kind::Send(_) => std::ptr::null_mut(), // no value yet
            Kind::Recv(_) => case.slot,
        };
        case.node.arm(op, cases[n].nth.get(), slot);
        let mut none = WakeList::new();
        with_locked(core, &mut none, |locked| {
            // SAFETY: the node stays in the case until `leave`, before this select returns.
            unsafe { case.queue(goal, locked).push_back(&case.node) };
        });
    }
}

/// Takes the losers out of their queues. Afterwards nobody knows this select.
fn leave(cases: &[Case<'_>], goal: Goal) {
    for case in cases {
        let Some(core) = case.core() else { continue };
        if !case.node.is_linked() {
            continue;
        }
        let entered = Entered::now();
        let mut locked = core.lock(&entered);
        case.queue(goal, &mut locked).remove(&case.node);
    }
}

/// Blocks for ever, or until the limit: a select without cases.
pub(crate) fn idle(limit: Limit) {
    timer::sleep_until(limit.deadline_ns());
}
