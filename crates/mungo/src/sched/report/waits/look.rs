//! Asks goroutines what they wait for.

use super::{GoroutineWait, Key, ObjectKind, Others, WaitObject, known};
use crate::reason::{Awaited, Several, WaitReason};
use crate::sched::engine::inherit::{Holder, Owner};
use crate::sched::report::collect::living;
use crate::sched::report::memory;
#[cfg(all(feature = "profile", mungo_native))]
use crate::sched::run::g::GPtr;
use crate::sched::run::g::{G, GRef};
use crate::sched::shared::Shared;
use crate::sys::clock;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Most objects of one wait that are looked at; a wait for more counts as one that others may end.
const CASES: usize = 64;

/// Time between two looks at a goroutine, in ms, after which it has waited all the time if it says the same: longer
/// than the coarse clock that its wait is dated by stands still.
const BETWEEN_LOOKS_MS: u64 = 25;

/// All goroutines that wait, at about the same moment.
pub(super) struct Seen {
    pub(super) found: Vec<Found>,
    pub(super) omitted: usize,
}

/// A goroutine that waits. Numbers of objects are masked: a search of memory must not find these.
pub(super) struct Found {
    pub(super) g: GRef,
    pub(super) key: Key,
    /// Whether something that is not listed in `objects` may end the wait.
    pub(super) is_open: bool,
    pub(super) objects: Vec<WaitObject>,
    has_limit: bool,
    reason: WaitReason,
    moment: Moment,
}

/// Tells one wait of a goroutine from another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    since_ns: u64,
    /// Masked.
    on: usize,
    /// The holder as it was noted in the lock; masked.
    noted: u64,
}

/// What is read of a goroutine while it is held.
pub(super) struct Read {
    pub(super) awaited: Awaited,
    moment: Moment,
    pub(super) holder: Holder,
    cases: Vec<usize>,
    too_many: bool,
}

impl Seen {
    /// Looks at the first `most` goroutines of `runtimes`, and, if there are more, at as many of these that are stuck
    /// by what is [`known`].
    pub(super) fn all(runtimes: &[Arc<Shared>], most: usize) -> Seen {
        let (mut alive, mut looked_at) = (0, 0);
        let mut gs: Vec<Vec<GRef>> = Vec::new();
        for shared in runtimes {
            gs.push(living(shared, most - looked_at, &mut alive));
            looked_at += gs.last().map_or(0, Vec::len);
        }
        if alive > looked_at {
            let first: HashSet<*mut G> = gs.iter().flatten().map(|g| g.ptr().as_ptr()).collect();
            for g in known::stuck(runtimes, most).into_iter().filter(|g| !first.contains(&g.ptr().as_ptr())) {
                let is_its = |shared: &Arc<Shared>| std::ptr::eq(g.shared.get(), Arc::as_ptr(shared));
                if let Some(at) = runtimes.iter().position(is_its) {
                    gs[at].push(g);
                    looked_at += 1;
                }
            }
        }
        let of = |all: &Vec<GRef>| all.iter().filter_map(|g| Found::of(g, all, runtimes)).collect::<Vec<_>>();
        let mut found: Vec<Found> = gs.iter().flat_map(of).collect();
        found.sort_by_key(|found| found.key);
        Seen { found, omitted: alive.saturating_sub(looked_at) }
    }

    /// Waits a little, and returns for each goroutine whether it has waited all the time.
    pub(super) fn still_wait(&self) -> Vec<bool> {
        std::thread::sleep(Duration::from_millis(BETWEEN_LOOKS_MS));
        let same = |found: &Found| read(&found.g).is_some_and(|read| read.moment == found.moment);
        self.found.iter().map(same).collect()
    }

    pub(super) fn into_waits(self, stuck: &[bool]) -> Vec<GoroutineWait> {
        let now = clock::now_ns();
        let wait = |(found, is_stuck): (Found, &bool)| GoroutineWait {
            key: found.key,
            runtime: found.key.runtime.into(),
            goroutine: found.key.id,
            name: found.g.name().map(str::to_owned),
            spawned_at: found.g.place(),
            reason: found.reason,
            waited: Duration::from_nanos(now.saturating_sub(found.moment.since_ns)),
            has_limit: found.has_limit,
            objects: found.objects.into_iter().map(|object| object.shown(now)).collect(),
            is_stuck: *is_stuck,
        };
        self.found.into_iter().zip(stuck).map(wait).collect()
    }
}

impl Found {
    fn of(g: &GRef, all: &[GRef], runtimes: &[Arc<Shared>]) -> Option<Found> {
        let read = read(g)?;
        let reason = read.awaited.reason;
        let kind = kind_of(reason, read.awaited.object());
        let object = |number, holders, others| WaitObject {
            kind,
            masked: memory::mask(number),
            holders,
            held_by: vec![],
            others,
        };
        let number = read.awaited.object();
        let objects = match kind {
            ObjectKind::Mutex | ObjectKind::RwLock | ObjectKind::Once => {
                let (holders, others) = match read.holder {
                    // The writer that waits for readers, which are not noted.
                    Holder::G(holder) if holder == g.ptr() && kind == ObjectKind::RwLock => {
                        (vec![], Others::Perhaps)
                    }
                    Holder::G(holder) => (vec![Key::of(&holder, runtimes)], Others::None),
                    Holder::Ended => (vec![], Others::HolderEnded),
                    Holder::Unknown => (vec![], Others::Perhaps),
                };
                vec![object(number, holders, others)]
            }
            ObjectKind::Goroutine => {
                // SAFETY: Gs are never freed; a handle keeps this one for as long as the join takes.
                let key = Key::of(unsafe { &*(number as *const G) }, runtimes);
                vec![object(key.id as usize, vec![key], Others::None)]
            }
            ObjectKind::Scope => {
                let inside = all.iter().filter(|g| g.scope.get().addr() == number && g.state.is_alive());
                vec![object(number, inside.map(|g| Key::of(g, runtimes)).collect(), Others::None)]
            }
            ObjectKind::Descriptor => vec![object((number >> 1).wrapping_sub(1), vec![], Others::Perhaps)],
            ObjectKind::Nothing => vec![],
            _ if reason == WaitReason::Select => {
                // The cases are masked already.
                let case = |n: &usize| WaitObject { masked: *n, ..object(0, vec![], Others::Perhaps) };
                read.cases.iter().map(case).collect()
            }
            _ => vec![object(number, vec![], Others::Perhaps)],
        };
        let (key, has_limit) = (Key::of(g, runtimes), read.awaited.is_timed());
        let is_open = has_limit || read.too_many;
        Some(Found { g: g.clone(), key, is_open, objects, has_limit, reason, moment: read.moment })
    }
}

/// Returns the goroutine that has the lock which `g` waits for, why it waits, and since when, in ns. `None`: it waits
/// for no lock, or its holder is not known.
#[cfg(all(feature = "profile", mungo_native))]
pub(crate) fn holder_of_lock(g: &GRef) -> Option<(GPtr, WaitReason, u64)> {
    if !matches!(g.wait_reason(), WaitReason::Mutex | WaitReason::RwLockRead | WaitReason::RwLockWrite) {
        return None; // a quick look first: most are none
    }
    let read = read(g)?;
    match read.holder {
        Holder::G(holder) if holder != g.ptr() => Some((holder, read.awaited.reason, read.moment.since_ns)),
        _ => None,
    }
}

/// Reads what a goroutine waits for; `None`: it does not wait.
pub(super) fn read(g: &G) -> Option<Read> {
    // Not while the goroutine is held.
    let mut cases = if g.wait_reason() == WaitReason::Select { Vec::with_capacity(CASES) } else { Vec::new() };
    let mut too_many = false;
    let mut read = g.hold(|| {
        let awaited = g.awaited();
        let number = awaited.object();
        let (mut holder, mut noted) = (Holder::Unknown, 0);
        match awaited.reason {
            WaitReason::Mutex | WaitReason::RwLockRead | WaitReason::RwLockWrite | WaitReason::Once => {
                // SAFETY: it borrows the lock while it waits, and it is held.
                (holder, noted) = unsafe { &*(number as *const Owner) }.holder();
            }
            WaitReason::Select => {
                let most = cases.capacity().min(CASES);
                let mut note = |address, _| match cases.len() < most {
                    true => cases.push(memory::mask(address)),
                    false => too_many = true,
                };
                // SAFETY: on its frame, which is there while it waits, and it is held.
                unsafe { (*(number as *const Several)).each(&mut note) };
            }
            _ => {}
        }
        let since_ns = g.since_ns.load(Relaxed);
        let moment = Moment { since_ns, on: memory::mask(awaited.on), noted: !noted };
        Read { awaited, moment, holder, cases: Vec::new(), too_many: false }
    })?;
    cases.shrink_to_fit();
    (read.cases, read.too_many) = (cases, too_many);
    Some(read)
}

fn kind_of(reason: WaitReason, number: usize) -> ObjectKind {
    match reason {
        WaitReason::Mutex => ObjectKind::Mutex,
        WaitReason::RwLockRead | WaitReason::RwLockWrite => ObjectKind::RwLock,
        WaitReason::Once => ObjectKind::Once,
        WaitReason::Join => ObjectKind::Goroutine,
        WaitReason::Scope => ObjectKind::Scope,
        WaitReason::ChanSend | WaitReason::ChanRecv if number == 0 => ObjectKind::Nothing,
        WaitReason::ChanSend | WaitReason::ChanRecv | WaitReason::Select => ObjectKind::Channel,
        WaitReason::WaitGroup => ObjectKind::WaitGroup,
        WaitReason::Condvar => ObjectKind::Condvar,
        WaitReason::Semaphore => ObjectKind::Semaphore,
        WaitReason::Barrier => ObjectKind::Barrier,
        WaitReason::Futex => ObjectKind::Futex,
        WaitReason::NetRead
        | WaitReason::NetWrite
        | WaitReason::NetAccept
        | WaitReason::NetConnect
        | WaitReason::Child => ObjectKind::Descriptor,
        WaitReason::Sleep => ObjectKind::Timer,
        WaitReason::BlockOn => ObjectKind::Future,
        WaitReason::Park | WaitReason::None => ObjectKind::Unpark,
    }
}

impl WaitObject {
    /// Returns it with the time until a timer is due, and the numbers of the holders.
    fn shown(mut self, now: u64) -> WaitObject {
        self.held_by = self.holders.iter().map(|key| key.id).collect();
        if self.kind == ObjectKind::Timer {
            self.masked = memory::mask(self.number().saturating_sub(now as usize));
        }
        self
    }
}
