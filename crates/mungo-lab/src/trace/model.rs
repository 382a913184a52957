//! What a trace says, as tables: goroutines, processors, and each stretch of time that one spent on the other.

use mungo_trace::{Cause, How, Queue};

/// "None" in a table of numbers.
pub(crate) const NONE: u32 = u32::MAX;

/// "Not known" among times.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Why a stretch on a processor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Why {
    /// It did not: the trace ends before.
    Unfinished,
    Yielded,
    Parked,
    /// By a signal that made it call the scheduler.
    Injected,
    /// By a signal that stopped its thread.
    ByThread,
    /// When it called the runtime.
    Asked,
    /// By the monitor, which took the processor from its thread.
    Taken,
    Ended,
    /// It blocked its thread, and the processor went on without it.
    Blocked,
}

impl Why {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Why; 9] = [
        Why::Unfinished,
        Why::Yielded,
        Why::Parked,
        Why::Injected,
        Why::ByThread,
        Why::Asked,
        Why::Taken,
        Why::Ended,
        Why::Blocked,
    ];

    pub(crate) fn preempted(how: How) -> Why {
        match how {
            How::ByThread => Why::ByThread,
            How::Asked => Why::Asked,
            How::Taken => Why::Taken,
            _ => Why::Injected,
        }
    }

    pub(crate) fn is_preempted(self) -> bool {
        matches!(self, Why::Injected | Why::ByThread | Why::Asked | Why::Taken)
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Why::Unfinished => "the trace ends",
            Why::Yielded => "yielded",
            Why::Parked => "parked",
            Why::Injected => "preempted by a signal",
            Why::ByThread => "preempted by a signal, with its thread",
            Why::Asked => "preempted when it called the runtime",
            Why::Taken => "its processor was taken by the monitor",
            Why::Ended => "ended",
            Why::Blocked => "blocked its thread",
        }
    }
}

/// Names of [`Cause`]s, in the order of [`cause_number`].
pub(crate) const CAUSES: [&str; 10] = [
    "not known",
    "spawned",
    "woken by a goroutine",
    "timer",
    "network",
    "woken from outside",
    "back from a blocking call",
    "yielded",
    "preempted",
    "moved",
];

/// The number of "not known" in [`CAUSES`].
pub(crate) const CAUSE_UNKNOWN: u8 = 0;

pub(crate) fn cause_number(cause: Cause) -> u8 {
    match cause {
        Cause::Spawned => 1,
        Cause::Woken => 2,
        Cause::Timer => 3,
        Cause::Network => 4,
        Cause::Outside => 5,
        Cause::Unblocked => 6,
        Cause::Yielded => 7,
        Cause::Preempted => 8,
        Cause::Moved => 9,
        _ => CAUSE_UNKNOWN,
    }
}

/// Whether the queue is shared by all processors.
pub(crate) fn is_shared(queue: Queue) -> bool {
    matches!(queue, Queue::Global | Queue::Computing)
}

/// A goroutine on a processor, and how it came to that. All times are in ns since the trace began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// When it became runnable; equal to `start` if it did not wait, or if that is not known.
    pub(crate) ready: u64,
    /// Index of the goroutine.
    pub(crate) g: u32,
    /// Index of the processor.
    pub(crate) p: u32,
    /// The number of the M that ran it; [`NONE`]: none did.
    pub(crate) m: u32,
    /// Index of the processor whose queue it was put into; [`NONE`]: one that all share.
    pub(crate) home: u32,
    /// Index of the goroutine that woke it, or [`NONE`].
    pub(crate) waker: u32,
    /// Index of the goroutine that it had to make room for, or [`NONE`].
    pub(crate) by: u32,
    /// Of `Model::stacks`: where it stopped.
    pub(crate) stack: u32,
    /// Of `Model::reasons`, if it parked.
    pub(crate) reason: u16,
    /// Of [`CAUSES`].
    pub(crate) cause: u8,
    pub(crate) why: Why,
    /// It waited, and the trace ends before it ran: a span without length.
    pub(crate) never_ran: bool,
    /// It waited in the hands of a policy.
    pub(crate) in_policy: bool,
}

impl Span {
    pub(crate) fn ran(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn waited(&self) -> u64 {
        self.start - self.ready
    }
}

/// A goroutine.
#[derive(Clone, Debug)]
pub(crate) struct Goroutine {
    pub(crate) id: u64,
    pub(crate) runtime: u32,
    /// Of `Model::places`.
    pub(crate) place: u32,
    /// Of `Model::goroutines`, or [`NONE`].
    pub(crate) parent: u32,
    /// Of `Model::stacks`: where it was made.
    pub(crate) made_in: u32,
    /// Empty if it has none.
    pub(crate) name: String,
    /// [`UNKNOWN`]: before the trace began.
    pub(crate) created: u64,
    /// [`UNKNOWN`]: not in this trace.
    pub(crate) ended: u64,
}

/// A processor.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    pub(crate) runtime: u32,
    pub(crate) p: u32,
    /// Spans on it, in the order of their start.
    pub(crate) spans: Vec<u32>,
    /// Since when and until when it had nothing to do, as it said itself.
    pub(crate) idle: Vec<(u64, u64)>,
    /// Since when and until when it had no thread: the one that had it blocked.
    pub(crate) without_thread: Vec<(u64, u64)>,
    pub(crate) stolen: u64,
}

/// What a goroutine waits for, beside its text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Awaited {
    /// The number of the goroutine whose end it waits for; 0: it is something else.
    pub(crate) joined: u64,
    /// A certain mutex.
    pub(crate) is_mutex: bool,
    /// Of `Model::kinds`: the same without the object.
    pub(crate) kind: u32,
}

/// The holder of the lock that a goroutine parked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The span before the wait.
    pub(crate) span: u32,
    /// Of `Model::goroutines`.
    pub(crate) holder: u32,
}

/// Time in which a thread could run and had no CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoCpu {
    /// When the kernel was asked.
    pub(crate) at: u64,
    /// The time since it was asked before, in ns.
    pub(crate) within: u64,
    /// The part of that without a CPU, in ns.
    pub(crate) waited: u64,
    pub(crate) runtime: u32,
    pub(crate) m: u32,
}

/// A region or a task.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) name: String,
    pub(crate) is_task: bool,
    /// Of `Model::goroutines`, or [`NONE`].
    pub(crate) g: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Begin and end are in the trace.
    pub(crate) is_whole: bool,
}

/// A line that the program logged.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) at: u64,
    pub(crate) g: u32,
    pub(crate) text: String,
}

/// A stretch of time in which a queue was long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Index of the processor, or [`NONE`]: the queue that all share.
    pub(crate) home: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) peak: u32,
}

/// A thread that blocked while it had a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    pub(crate) span: u32,
    /// When the monitor found it.
    pub(crate) at: u64,
}

/// Counters of what has no table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) dropped: u64,
    pub(crate) polls: u64,
    pub(crate) timers: u64,
    /// The lateness of the latest timer in ns, and when that was.
    pub(crate) latest_timer: (u64, u64),
    pub(crate) threads: u64,
    pub(crate) steals: u64,
}

/// Everything that the verbs need of a trace.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) goroutines: Vec<Goroutine>,
    pub(crate) procs: Vec<Proc>,
    /// In the order of their start.
    pub(crate) spans: Vec<Span>,
    /// Where the spans of each goroutine begin in `of_goroutine`, and one more.
    first_of: Vec<u32>,
    of_goroutine: Vec<u32>,
    /// Where goroutines are made. The first is "not known".
    pub(crate) places: Vec<String>,
    /// What goroutines wait for. The first is "nothing".
    pub(crate) reasons: Vec<String>,
    /// Kinds of what goroutines wait for. The first is "nothing".
    pub(crate) kinds: Vec<String>,
    /// Stacks: a line a call, the innermost first. The first is of events without one.
    pub(crate) stacks: Vec<String>,
    /// What goroutines wait for, as far as it is more than a text.
    pub(crate) awaited: Vec<Awaited>,
    pub(crate) held: Vec<Held>,
    pub(crate) no_cpu: Vec<NoCpu>,
    pub(crate) regions: Vec<Region>,
    pub(crate) logs: Vec<Log>,
    pub(crate) crowds: Vec<Crowd>,
    pub(crate) blocked: Vec<Blocked>,
    /// When which policy began to decide, of which runtime.
    pub(crate) policies: Vec<(u64, u32, String)>,
    pub(crate) counts: Counts,
    /// The length of the trace in ns.
    pub(crate) end: u64,
    /// The file ends early.
    pub(crate) is_torn: bool,
}

impl Model {
    pub(crate) fn place(&self, g: u32) -> &str {
        match g {
            NONE => "?",
            g => &self.places[self.goroutines[g as usize].place as usize],
        }
    }

    /// How to speak of a goroutine: by its name if it has one.
    pub(crate) fn name(&self, g: u32) -> String {
        match self.goroutines.get(g as usize) {
            None => "no goroutine".to_owned(),
            Some(g) if g.name.is_empty() => format!("goroutine {}{}", g.id, self.of_runtime(g.runtime)),
            Some(g) => format!("goroutine {} ({}){}", g.id, g.name, self.of_runtime(g.runtime)),
        }
    }

    /// How to speak of a processor.
    pub(crate) fn proc_name(&self, p: u32) -> String {
        match self.procs.get(p as usize) {
            None => "no processor".to_owned(),
            Some(proc) => format!("P{}{}", proc.p, self.of_runtime(proc.runtime)),
        }
    }

    /// How to speak of the thread of an M.
    pub(crate) fn thread_name(&self, runtime: u32, m: u32) -> String {
        format!("thread M{m}{}", self.of_runtime(runtime))
    }

    /// How to speak of a queue: a processor's, or with [`NONE`] the one that all share.
    pub(crate) fn queue_name(&self, home: u32) -> String {
        match home {
            NONE => "the shared queue".to_owned(),
            p => format!("the queue of {}", self.proc_name(p)),
        }
    }

    /// Nothing if there is one runtime only.
    fn of_runtime(&self, runtime: u32) -> String {
        let mut runtimes = self.procs.iter().map(|p| p.runtime);
        let first = runtimes.next();
        match runtimes.all(|other| Some(other) == first) {
            true => String::new(),
            false => format!(" of runtime {runtime}"),
        }
    }

    /// Index of the goroutine with this number, of the first runtime that has one.
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        self.goroutines.iter().position(|g| g.id == id).map(|g| g as u32)
    }

    /// When a goroutine ran first.
    pub(crate) fn first_run(&self, g: u32) -> Option<u64> {
        self.spans_of(g).first().map(|&s| self.spans[s as usize].start)
    }

    /// Spans of a goroutine, in the order of their start.
    pub(crate) fn spans_of(&self, g: u32) -> &[u32] {
        let bound = |g: u32| self.first_of.get(g as usize).map_or(0, |&at| at as usize);
        self.of_goroutine.get(bound(g)..bound(g + 1)).unwrap_or_default()
    }

    /// The last span of a goroutine that began at `at` or before: what it did then, or did last.
    pub(crate) fn span_at(&self, g: u32, at: u64) -> Option<u32> {
        let spans = self.spans_of(g);
        let later = spans.partition_point(|&s| self.spans[s as usize].start <= at);
        spans[..later].last().copied()
    }

    /// Fills in which spans are whose: `spans` is complete.
    pub(super) fn index(&mut self) {
        let mut first_of = vec![0u32; self.goroutines.len() + 2];
        self.spans.iter().for_each(|s| first_of[s.g as usize + 2] += 1);
        for i in 2..first_of.len() {
            first_of[i] += first_of[i - 1];
        }
        self.of_goroutine = vec![0; self.spans.len()];
        for (i, span) in self.spans.iter().enumerate() {
            let next = &mut first_of[span.g as usize + 1];
            self.of_goroutine[*next as usize] = i as u32;
            *next += 1;
        }
        first_of.pop();
        self.first_of = first_of;
    }

    /// Returns the functions of a stack, the innermost first, without their places; at most so many.
    pub(crate) fn functions(&self, stack: u32, most: usize) -> String {
        let all: Vec<&str> = self.stacks[stack as usize].lines().map(function).collect();
        let rest = if all.len() > most { ", ..." } else { "" };
        all[..all.len().min(most)].join(", ") + rest
    }

    /// Time in which a processor ran goroutines, in ns.
    pub(crate) fn busy(&self, p: usize) -> u64 {
        self.procs[p].spans.iter().map(|&s| self.spans[s as usize].ran()).sum()
    }
}

/// Returns the function of a line of a stack.
fn function(line: &str) -> &str {
    line.split_once(" at ").map_or(line, |(function, _)| function)
}
