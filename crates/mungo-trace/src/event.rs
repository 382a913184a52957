//! Events, as the reader gives them.

use crate::dictionary::{PlaceId, StringId};
use crate::stack::StackId;

/// One event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time in ns since the trace began.
    pub time_ns: u64,
    /// The runtime, numbered from 1 in the order of their appearance in the process; 0 for what a plain thread said.
    /// All from the 65,535th on have that number.
    pub runtime: u32,
    /// The M, that is the thread, as its runtime numbers it; [`OUTSIDE`](Event::OUTSIDE) for a thread that runs no
    /// goroutines: a plain thread, the monitor, its helper.
    pub m: u32,
    /// The P that the M owned, as its runtime numbers it.
    pub p: Option<u32>,
    /// What happened.
    pub kind: Kind,
    /// The stack, if the trace has stacks: of the goroutine that was made by another one, of the maker; of one that
    /// stopped, parked, preempted or blocked, its own.
    pub stack: Option<StackId>,
}

impl Event {
    /// `Event::m` of threads that run no goroutines.
    pub const OUTSIDE: u32 = u32::MAX;
}

/// What happened. Goroutines, `g`, have the numbers that `Goroutine::id` gives; they are unique in their runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A goroutine was made. Its [`Ready`](Kind::Ready) follows.
    Created {
        /// The new goroutine.
        g: u64,
        /// The goroutine that made it, if it is of the same runtime.
        parent: Option<u64>,
        /// The call of `go` in the source.
        place: PlaceId,
    },
    /// A goroutine was there when the trace began, or when the events of a recorder begin. One that was made at that
    /// moment may have a [`Created`](Kind::Created) too.
    Existed {
        /// The goroutine.
        g: u64,
        /// The call of `go` in the source.
        place: PlaceId,
    },
    /// A goroutine has a name.
    Named {
        /// The goroutine.
        g: u64,
        /// Its name.
        name: StringId,
    },
    /// A goroutine became runnable, and is put into a queue. It is noted before it is in the queue.
    Ready {
        /// The goroutine.
        g: u64,
        /// The goroutine that made it runnable, by what it did. Not for timers and the network, nor if it queued
        /// itself.
        waker: Option<u64>,
        /// Why it is runnable.
        cause: Cause,
        /// Where it is queued.
        queue: Queue,
        /// The number of goroutines that were before it in that queue, at most 65,535. In queues that threads share,
        /// and in those of policies, the number is as of a moment ago.
        position: u32,
    },
    /// A P begins to run a goroutine.
    Start {
        /// The goroutine.
        g: u64,
        /// Where it was found.
        queue: Queue,
        /// The time in ns since its last [`Ready`](Kind::Ready); 0 if the trace does not have that.
        waited_ns: u64,
    },
    /// A goroutine came off its P.
    Stop {
        /// The goroutine.
        g: u64,
        /// Why.
        why: Stop,
    },
    /// The M got the P of this event.
    ProcGained,
    /// The M lost the P of this event, or gave it away.
    ProcLost,
    /// The P of this event has nothing to do, and its M gave it up.
    ProcIdle,
    /// The monitor found that the goroutine blocks its thread, and took the P of this event from it.
    BlockedFound {
        /// The goroutine.
        g: u64,
    },
    /// A thread asked the kernel which descriptors are ready.
    Poll {
        /// Goroutines that became ready.
        ready: u32,
    },
    /// Timers were run.
    TimersRun {
        /// Their number.
        count: u32,
        /// The lateness in ns of the first of them.
        late_ns: u64,
    },
    /// Goroutines were stolen from another P's ring.
    Steal {
        /// The P that they were taken from.
        from: u32,
        /// Their number.
        taken: u32,
    },
    /// A thread for goroutines started: the M of this event.
    ThreadStarted,
    /// The goroutine that runs is about to park for a lock, which another one of its runtime has. A lock whose holder
    /// is a plain thread, or is not known, has no such event.
    HeldBy {
        /// The goroutine that is about to park, if it is known.
        g: Option<u64>,
        /// The one that has the lock.
        holder: u64,
    },
    /// The thread of the M of this event could run, and had no CPU: other threads of the machine had them all, or the
    /// limit of a cgroup was reached. Linux only, as the kernel counts it (`/proc/PID/task/TID/schedstat`).
    NoCpu {
        /// The time without one, in ns, in the stretch of time that ends with this event.
        waited_ns: u64,
        /// The length of that stretch in ms, at most 65,535.
        within_ms: u32,
    },
    /// Another policy decides.
    PolicyChanged {
        /// Its name.
        name: StringId,
    },
    /// This policy decided when the trace began, or when the events of a recorder end.
    PolicyInForce {
        /// Its name.
        name: StringId,
    },
    /// A task begins: work that may span goroutines.
    TaskBegin {
        /// The goroutine that began it, if it was one.
        g: Option<u64>,
        /// The task's number, unique in the process.
        id: u64,
        /// Its name.
        name: StringId,
    },
    /// A task ends.
    TaskEnd {
        /// The goroutine that ended it, if it was one.
        g: Option<u64>,
        /// The task's number.
        id: u64,
        /// Its name; empty if the trace does not have its begin.
        name: StringId,
    },
    /// A region begins: a part of what one goroutine does.
    RegionBegin {
        /// The goroutine, if it is one.
        g: Option<u64>,
        /// The region's number, unique in the process.
        id: u64,
        /// Its name.
        name: StringId,
    },
    /// A region ends.
    RegionEnd {
        /// The goroutine, if it is one.
        g: Option<u64>,
        /// The region's number.
        id: u64,
        /// Its name; empty if the trace does not have its begin.
        name: StringId,
    },
    /// The program said something.
    Log {
        /// The goroutine, if it was one.
        g: Option<u64>,
        /// The text.
        text: StringId,
    },
    /// Events of this M are missing here: they came faster than they could be written.
    Dropped {
        /// Their number.
        count: u64,
    },
}

impl Kind {
    /// Returns the goroutine that the event is about, if it is about one.
    pub fn goroutine(&self) -> Option<u64> {
        match *self {
            Kind::Created { g, .. }
            | Kind::Existed { g, .. }
            | Kind::Named { g, .. }
            | Kind::Ready { g, .. }
            | Kind::Start { g, .. }
            | Kind::Stop { g, .. }
            | Kind::BlockedFound { g } => Some(g),
            Kind::HeldBy { g, .. }
            | Kind::TaskBegin { g, .. }
            | Kind::TaskEnd { g, .. }
            | Kind::RegionBegin { g, .. }
            | Kind::RegionEnd { g, .. }
            | Kind::Log { g, .. } => g,
            _ => None,
        }
    }
}

/// Why a goroutine came off its P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// It yielded.
    Yielded,
    /// It waits.
    Parked {
        /// The name of mungo's `WaitReason`, such as `chan receive`.
        reason: StringId,
        /// The number of what it waits for; 0 if it is not known, or several. Of a join the goroutine, of the network
        /// the descriptor; else, as for channels and locks, the bits 3 to 34 of an address.
        object: u64,
    },
    /// It made room for others.
    Preempted {
        /// The goroutine for which it was asked to make room, if it was for one.
        by: Option<u64>,
        /// How it was stopped.
        how: How,
    },
    /// It has ended.
    Ended,
    /// It blocked its thread, lost the P meanwhile, and has found no other one.
    Blocked,
}

/// How a goroutine was made to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum How {
    /// A signal made it call the scheduler.
    Injected,
    /// A signal stopped its thread; another one took the P.
    ByThread,
    /// It called the runtime, and was asked there.
    Asked,
    /// The monitor took the P from its thread, which had no CPU or was in libc. The goroutine goes on without a P until
    /// a signal reaches it or it calls the runtime.
    Taken,
}

/// Why a goroutine is runnable: the causes of `mungo::policy::Cause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// It is new.
    Spawned,
    /// Another goroutine woke it: by a channel, a lock, a join.
    Woken,
    /// Its time came: a sleep or a timer ended.
    Timer,
    /// Its descriptor became ready.
    Network,
    /// A plain thread woke it, or a goroutine of another runtime.
    Outside,
    /// It blocked its thread, and lost its processor meanwhile.
    Unblocked,
    /// It yielded.
    Yielded,
    /// Its slice was over, or a more urgent goroutine came.
    Preempted,
    /// It was queued already, and its rank or the policy changed.
    Moved,
}

/// Where goroutines wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Queue {
    /// Next in line on a P (Go's `runnext`): it inherits the time slice.
    Next,
    /// The ring of a P.
    Ring,
    /// The global queue of fresh goroutines.
    Global,
    /// The global queue of computing goroutines.
    Computing,
    /// It was taken from another P's ring.
    Stolen,
    /// A policy's own queue.
    Policy,
    /// A timer's: it ran on the P whose thread ran the timer.
    Timer,
    /// The netpoller's: it was ready when its thread looked.
    Network,
    /// It is bound to a thread, and waits for that.
    Bound,
    /// No queue: it went on at once, as nothing else was there or its wake-up came before it had parked.
    None,
    /// Its own thread, which slept with it or ran on without a P, and has one again. `Metrics` does not count that as a
    /// switch.
    Thread,
}
