//! Small traces, written by hand, and what becomes of them.

use super::*;
use crate::trace::analysis::{analyse, chain};
use mungo_trace::How;

/// A trace of one runtime with events at given times, in µs.
#[derive(Default)]
struct Script {
    trace: Trace,
}

impl Script {
    fn at(mut self, us: u64, p: u32, kind: Kind) -> Script {
        self.trace.events.push(Event { time_ns: us * 1000, runtime: 1, m: p, p: Some(p), kind, stack: None });
        self
    }

    fn ready(self, us: u64, p: u32, g: u64, waker: Option<u64>, cause: Cause) -> Script {
        self.at(us, p, Kind::Ready { g, waker, cause, queue: Queue::Ring, position: 0 })
    }

    fn start(self, us: u64, p: u32, g: u64) -> Script {
        self.at(us, p, Kind::Start { g, queue: Queue::Ring, waited_ns: 0 })
    }

    fn stop(self, us: u64, p: u32, g: u64, why: Stop) -> Script {
        self.at(us, p, Kind::Stop { g, why })
    }

    fn park(mut self, us: u64, p: u32, g: u64, reason: &str) -> Script {
        let reason = self.trace.dictionary.intern(reason);
        self.stop(us, p, g, Stop::Parked { reason, object: 0 })
    }

    fn park_for(mut self, us: u64, p: u32, g: u64, reason: &str, object: u64) -> Script {
        let reason = self.trace.dictionary.intern(reason);
        self.stop(us, p, g, Stop::Parked { reason, object })
    }

    fn model(&self) -> Model {
        build(&self.trace)
    }
}

/// A goroutine from before the trace has a place, and was not made in it. A policy that came in a recorder's time did
/// not decide from the beginning.
#[test]
fn what_existed_before_is_known() {
    let mut script = Script::default();
    let [fifo, fair] = ["fifo", "fair"].map(|name| script.trace.dictionary.intern(name));
    let model = script
        .at(0, 0, Kind::Existed { g: 7, place: PlaceId(3) })
        .at(0, 0, Kind::PolicyInForce { name: fifo })
        .at(0, 0, Kind::PolicyInForce { name: fair })
        .start(5, 0, 7)
        .at(9, 0, Kind::PolicyChanged { name: fair })
        .model();
    let [g] = &model.goroutines[..] else { panic!("{:?}", model.goroutines) };
    assert_eq!((g.id, g.created, g.place), (7, UNKNOWN, 1));
    assert_eq!(model.policies, [(0, 1, "fifo".to_owned()), (9_000, 1, "fair".to_owned())]);
}

const PREEMPTED: Stop = Stop::Preempted { by: Some(2), how: How::Injected };

#[test]
fn a_run_has_its_wait_its_waker_and_its_reason() {
    let model = Script::default()
        .start(0, 0, 1)
        .ready(10, 0, 2, Some(1), Cause::Woken)
        .park(30, 0, 1, "chan receive")
        .start(31, 0, 2)
        .stop(40, 0, 2, Stop::Ended)
        .model();
    let [one, two] = &model.spans[..] else { panic!("{:?}", model.spans) };
    assert_eq!((one.start, one.end, one.why), (0, 30_000, Why::Parked));
    assert_eq!(model.reasons[one.reason as usize], "chan receive");
    assert_eq!((two.ready, two.start, two.end), (10_000, 31_000, 40_000));
    assert_eq!((two.waker, two.cause, two.why), (one.g, cause_number(Cause::Woken), Why::Ended));
    assert_eq!(model.goroutines[two.g as usize].ended, 40_000);
    let latency = analyse(&model).latency;
    let woken = &latency.causes[0];
    assert_eq!((woken.name, woken.times.len()), ("woken by a goroutine", 1));
    assert_eq!((woken.split.behind, woken.split.idle, woken.split.between), (20_000, 0, 1_000));
    assert_eq!(latency.behind[0].ns, 20_000);
}

#[test]
fn a_wait_is_split_into_others_sleep_and_the_rest() {
    let model = Script::default()
        .start(0, 0, 1)
        .park(10, 0, 1, "sleep")
        .at(10, 0, Kind::ProcIdle)
        .at(12, 1, Kind::ProcGained)
        .ready(20, 1, 2, None, Cause::Timer)
        .at(50, 0, Kind::ProcGained)
        .start(55, 0, 2)
        .park(60, 0, 2, "sleep")
        .model();
    let all = analyse(&model).latency.all.split;
    assert_eq!((all.behind, all.idle, all.between), (0, 30_000, 5_000));
}

/// 3 could run later than 2 and ran before it. In a ring that is by chance, in the hands of a policy its choice.
#[test]
fn a_wait_behind_those_that_a_policy_chose_is_its_choice() {
    let split = |queue| {
        let script = Script::default()
            .start(0, 0, 1)
            .ready(10, 0, 2, Some(1), Cause::Woken)
            .ready(12, 0, 3, Some(1), Cause::Woken)
            .park(20, 0, 1, "sleep")
            .start(20, 0, 3)
            .park(35, 0, 3, "sleep")
            .at(35, 0, Kind::Start { g: 2, queue, waited_ns: 0 });
        analyse(&script.model()).latency.causes[0].split
    };
    let (ring, policy) = (split(Queue::Ring), split(Queue::Policy));
    assert_eq!((ring.behind, ring.policy), (10_000 + 8_000 + 15_000, 0));
    assert_eq!((policy.behind, policy.policy), (10_000 + 8_000, 15_000));
}

#[test]
fn a_processor_whose_thread_has_blocked_waits_for_another() {
    let model = Script::default()
        .start(0, 0, 1)
        .ready(5, 0, 2, Some(1), Cause::Woken)
        .at(10, 0, Kind::ProcLost)
        .at(40, 0, Kind::ProcGained)
        .start(42, 0, 2)
        .ready(50, 0, 3, Some(2), Cause::Woken)
        .at(60, 0, Kind::BlockedFound { g: 2 })
        .start(67, 0, 3)
        .park(70, 0, 3, "sleep")
        .at(90, 0, Kind::ProcIdle)
        .model();
    assert_eq!(model.procs[0].without_thread, [(10_000, 40_000), (60_000, 67_000)]);
    let split = analyse(&model).latency.all.split;
    assert_eq!((split.behind, split.thread, split.between), (15_000, 37_000, 2_000));
}

/// The kernel says how long, not when: the longest gaps between two goroutines of that thread get the time.
#[test]
fn a_gap_is_the_kernels_as_far_as_its_thread_had_no_cpu() {
    let script = |waited_us: u64| {
        let looked = Kind::NoCpu { waited_ns: waited_us * 1000, within_ms: 100 };
        Script::default()
            .start(0, 0, 1)
            .park(1_000, 0, 1, "sleep")
            .ready(1_000, 0, 2, None, Cause::Timer)
            .start(41_000, 0, 2)
            .park(42_000, 0, 2, "sleep")
            .ready(42_000, 0, 1, None, Cause::Timer)
            .start(47_000, 0, 1)
            .at(100_000, 0, looked)
            .at(200_000, 1, looked)
    };
    let parts = |waited_us| {
        let split = analyse(&script(waited_us).model()).latency.all.split;
        (split.kernel / 1000, split.between / 1000)
    };
    assert_eq!(parts(30_000), (30_000, 15_000));
    assert_eq!(parts(43_000), (43_000, 2_000));
    assert_eq!(parts(60_000), (45_000, 0), "not more than there is");
}

#[test]
fn preempted_goroutines_name_who_they_made_room_for() {
    let model = Script::default()
        .start(0, 0, 1)
        .ready(5, 0, 2, None, Cause::Timer)
        .stop(9, 0, 1, PREEMPTED)
        .ready(9, 0, 1, None, Cause::Preempted)
        .start(10, 0, 2)
        .park(11, 0, 2, "sleep")
        .start(12, 0, 1)
        .stop(20, 0, 1, Stop::Ended)
        .model();
    let preemptions = analyse(&model).preemptions;
    assert_eq!((preemptions.len(), preemptions[0].count, preemptions[0].ran_ns), (1, 1, 9_000));
    assert_eq!(model.spans[2].waited(), 3_000);
}

#[test]
fn a_goroutine_without_a_processor_goes_on_where_it_gets_one() {
    let model = Script::default()
        .start(0, 0, 1)
        .at(30, 0, Kind::BlockedFound { g: 1 })
        .start(31, 0, 2)
        .at(50, 1, Kind::Start { g: 1, queue: Queue::Thread, waited_ns: 0 })
        .stop(60, 1, 1, Stop::Ended)
        .model();
    assert_eq!(model.blocked.len(), 1);
    assert_eq!((model.spans[0].end, model.spans[0].why), (30_000, Why::Blocked));
    let last = &model.spans[2];
    assert_eq!((last.g, model.procs[last.p as usize].p, last.waited()), (model.spans[0].g, 1, 0));
    assert_eq!(model.spans[1].why, Why::Unfinished);
}

#[test]
fn what_waits_at_the_end_has_a_wait_and_no_run() {
    let model =
        Script::default().start(0, 0, 1).ready(10, 0, 2, Some(1), Cause::Spawned).start(6_000, 1, 3).model();
    let last = model.spans.last().expect("a span");
    assert!(last.never_ran && last.waited() == 5_990_000 && last.ran() == 0, "{last:?}");
    assert_eq!(analyse(&model).verdicts[0].key, "long-wait");
}

#[test]
fn events_that_make_no_sense_do_no_harm() {
    let model = Script::default()
        .stop(1, 0, 7, Stop::Ended)
        .start(2, 0, 8)
        .start(3, 0, 8)
        .start(4, 0, 9)
        .start(5, 1, 9)
        .ready(6, 1, 9, Some(9), Cause::Moved)
        .at(7, 5, Kind::Dropped { count: 3 })
        .at(0, 0, Kind::ProcIdle)
        .model();
    assert!(model.spans.iter().all(|s| s.ready <= s.start && s.start <= s.end), "{:?}", model.spans);
    assert_eq!(model.counts.dropped, 3);
    assert!(analyse(&model).verdicts.iter().any(|v| v.key == "dropped"));
    let empty = Script::default().model();
    assert!(empty.spans.is_empty() && analyse(&empty).verdicts.is_empty());
}

/// 1 asks 2, which asks 3; the answers come back.
fn chained() -> Script {
    let script = Script::default().start(0, 0, 1);
    let script = script.ready(10, 0, 2, Some(1), Cause::Woken).park(11, 0, 1, "chan receive").start(15, 0, 2);
    let script = script.ready(30, 0, 3, Some(2), Cause::Woken).park(31, 0, 2, "chan receive").start(40, 0, 3);
    let script = script.ready(70, 0, 2, Some(3), Cause::Woken).park(71, 0, 3, "sleep").start(72, 0, 2);
    script.ready(80, 0, 1, Some(2), Cause::Woken).park(81, 0, 2, "sleep").start(85, 0, 1).stop(
        100,
        0,
        1,
        Stop::Ended,
    )
}

#[test]
fn wakeups_are_followed_backward() {
    let model = chained().model();
    let ids = |spans: Vec<u32>| -> Vec<u64> {
        spans.into_iter().map(|s| model.goroutines[model.spans[s as usize].g as usize].id).collect()
    };
    assert_eq!(ids(chain(&model, 4, 10)), [1, 2, 3, 2, 1]);
    assert_eq!(ids(chain(&model, 4, 2)), [1, 2]);
}

#[test]
fn the_critical_path_of_a_region_goes_through_those_that_it_waits_for() {
    let mut script = chained();
    let name = script.trace.dictionary.intern("request");
    let event = |us: u64, kind| Event { time_ns: us * 1000, runtime: 1, m: 0, p: Some(0), kind, stack: None };
    script.trace.events.insert(1, event(0, Kind::RegionBegin { g: Some(1), id: 9, name }));
    script.trace.events.push(event(100, Kind::RegionEnd { g: Some(1), id: 9, name }));
    let model = script.model();
    let row = &analyse(&model).regions[0];
    assert_eq!((row.name.as_str(), row.times.len()), ("request", 1));
    // 2 and 3 run while 1 is parked; what 2 did before 1 parked is not on the path, and no wait is for nothing.
    assert_eq!(row.running, 11_000 + (31_000 - 15_000) + (70_000 - 40_000) + (80_000 - 72_000) + 15_000);
    assert_eq!(row.waiting, 4_000 + 9_000 + 2_000 + 5_000);
    assert_eq!(row.parked, 0);
}

#[test]
fn long_queues_are_found() {
    let script = (0..150).fold(Script::default().start(0, 0, 1000), |script, g| {
        script.ready(10 + g, 0, g + 1, Some(1000), Cause::Spawned)
    });
    let script = (0..150).fold(script.stop(500, 0, 1000, Stop::Ended), |script, g| {
        script.start(501 + 2 * g, 0, g + 1).stop(502 + 2 * g, 0, g + 1, Stop::Ended)
    });
    let model = script.model();
    assert_eq!((model.crowds.len(), model.crowds[0].peak), (1, 150));
    assert!(analyse(&model).verdicts.iter().any(|v| v.key == "queue"));
}

#[test]
fn waits_are_told_apart_by_what_is_waited_for() {
    let model = Script::default()
        .start(0, 0, 1)
        .park_for(10, 0, 1, "chan receive", 0x20)
        .start(10, 0, 2)
        .park_for(20, 0, 2, "net read", 7)
        .start(20, 0, 3)
        .ready(30, 0, 1, Some(3), Cause::Woken)
        .park_for(40, 0, 3, "join", 1)
        .start(40, 0, 1)
        .park_for(50, 0, 1, "chan receive", 0x21)
        .at(100, 0, Kind::ProcIdle)
        .model();
    let waits = analyse(&model).waits;
    let of = |what: &str| {
        let row = waits.iter().find(|row| model.reasons[row.reason as usize] == what);
        row.map(|row| (row.times.len(), row.total_ns, row.open))
    };
    assert_eq!(of("chan receive 0x100"), Some((1, 20_000, 0)));
    assert_eq!(of("chan receive 0x108"), Some((1, 50_000, 1)));
    assert_eq!(of("net read, descriptor 7"), Some((1, 80_000, 1)));
    assert_eq!(of("join of goroutine 1"), Some((1, 60_000, 1)));
    assert_eq!(model.reasons[waits[0].reason as usize], "net read, descriptor 7", "the longest first");
}

/// Two stacks of the same functions are one, and one without names is named as such.
#[test]
fn waits_are_told_apart_by_where_goroutines_stopped() {
    use mungo_trace::{Frame, Part, Stack, StackEnd, StackId};
    let mut script = Script::default();
    let dictionary = &mut script.trace.dictionary;
    for (id, addresses, end) in [
        (1, &[10, 20][..], StackEnd::Whole),
        (2, &[11, 20], StackEnd::Whole),
        (3, &[20], StackEnd::Cut),
        (4, &[99], StackEnd::Whole),
    ] {
        dictionary.set_stack(StackId(id), Stack { addresses: addresses.into(), end });
    }
    for (address, name, line) in [(10, "inner", 3), (11, "inner", 3), (20, "outer", 0)] {
        let [function, file] =
            [name, if line == 0 { "" } else { "src/a.rs" }].map(|text| dictionary.intern(text));
        dictionary.set_functions(address, vec![Frame { function, file, line, part: Part::Program }]);
    }
    let mut at = 0;
    for (stack, reason) in [(1, "mutex"), (2, "mutex"), (3, "mutex"), (4, "sleep"), (5, "sleep"), (0, "sleep")]
    {
        script = script.start(at, 0, 1).park(at + 10, 0, 1, reason);
        script.trace.events.last_mut().unwrap().stack = Some(StackId(stack)).filter(|_| stack != 0);
        script = script.ready(at + 30, 0, 1, None, Cause::Timer);
        at += 30;
    }
    let model = script.start(at, 0, 1).model();
    let stacks = analyse(&model).stacks;
    let of = |kind: &str, stack: &str| {
        let is = |row: &&crate::trace::analysis::StackWaits| {
            model.kinds[row.kind as usize] == kind && model.stacks[row.stack as usize] == stack
        };
        stacks.iter().find(is).map(|row| (row.times.len(), row.total_ns, row.open))
    };
    assert_eq!(of("mutex", "inner at src/a.rs:3\nouter"), Some((2, 40_000, 0)));
    assert_eq!(of("mutex", "outer\n(the stack goes on)"), Some((1, 20_000, 0)));
    assert_eq!(of("sleep", "(functions without names)"), Some((1, 20_000, 0)));
    assert_eq!(of("sleep", "(a stack that is not known)"), Some((1, 20_000, 0)));
    assert_eq!((stacks.len(), model.stacks.len()), (4, 5), "an event without a stack is in no row");
    assert_eq!(model.functions(stacks[0].stack, 1), "inner, ...");
}

/// 1 and 2 have a mutex each and want the other's; 3 waits for the end of 1. 4 has handed the mutex of 5 to 6.
#[test]
fn a_cycle_of_locks_is_found() {
    let held = |holder| move |g| Kind::HeldBy { g: Some(g), holder };
    let model = Script::default()
        .start(0, 0, 1)
        .at(9, 0, held(2)(1))
        .park_for(10, 0, 1, "mutex", 0x20)
        .start(10, 0, 2)
        .at(19, 0, held(1)(2))
        .park_for(20, 0, 2, "mutex", 0x21)
        .start(20, 0, 3)
        .park_for(30, 0, 3, "join", 1)
        .start(30, 0, 6)
        .at(31, 0, held(4)(6))
        .park_for(32, 0, 6, "mutex", 0x22)
        .start(40, 0, 5)
        .at(41, 0, held(4)(5))
        .park_for(42, 0, 5, "mutex", 0x22)
        .start(50, 0, 4)
        .ready(51, 0, 6, Some(4), Cause::Woken)
        .stop(52, 0, 4, Stop::Ended)
        .start(53, 0, 6)
        .park(54, 0, 6, "sleep")
        .at(100, 0, Kind::ProcIdle)
        .model();
    let analysis = analyse(&model);
    let id = |g: u32| model.goroutines[g as usize].id;
    let edges: Vec<_> = analysis.graph.edges.iter().map(|e| (id(e.g), id(e.holder), e.in_cycle)).collect();
    assert_eq!(edges, [(1, 2, true), (2, 1, true), (3, 1, false), (5, 6, false)]);
    assert_eq!(analysis.graph.cycles.len(), 1);
    let verdict = &analysis.verdicts[0];
    assert_eq!((verdict.key, verdict.moments.len()), ("deadlock", 2));
    assert!(verdict.moments[0].text.ends_with("waits for mutex 0x100 (goroutine 2 has it)"), "{verdict:?}");
}

#[test]
fn without_all_events_no_holder_is_named() {
    let model = Script::default()
        .start(0, 0, 1)
        .at(9, 0, Kind::HeldBy { g: Some(1), holder: 2 })
        .park_for(10, 0, 1, "mutex", 0x20)
        .at(11, 0, Kind::Dropped { count: 1 })
        .model();
    assert!(model.held.len() == 1 && analyse(&model).graph.edges.is_empty());
}

/// The writer counts what is missing, and events tell of it: perhaps of a part.
#[test]
fn what_the_writer_alone_knows_to_be_missing_is_missing() {
    let script = |dropped, told| {
        let mut script = Script::default()
            .start(0, 0, 1)
            .at(9, 0, Kind::HeldBy { g: Some(1), holder: 2 })
            .park_for(10, 0, 1, "mutex", 0x20)
            .at(11, 0, Kind::Dropped { count: told });
        script.trace.dropped = dropped;
        script.model()
    };
    for (dropped, told) in [(5, 0), (5, 3), (3, 5)] {
        let model = script(dropped, told);
        let analysis = analyse(&model);
        assert!(model.held.len() == 1 && analysis.graph.edges.is_empty());
        assert!(analysis.verdicts.iter().any(|v| v.key == "dropped" && v.title == "5 events are missing"));
    }
    assert_eq!(analyse(&script(0, 0)).graph.edges.len(), 1);
}

/// 1 had the mutex that 2 parked for, and gave it back. Then a thread that is no goroutine has it, or a goroutine of
/// another runtime: 3 parks for it and names no holder.
#[test]
fn a_holder_from_before_is_none_where_a_later_wait_names_none() {
    let held = |g, holder| Kind::HeldBy { g: Some(g), holder };
    let script = Script::default()
        .start(0, 0, 2)
        .at(9, 0, held(2, 1))
        .park_for(10, 0, 2, "mutex", 0x20)
        .start(11, 0, 1)
        .ready(12, 0, 2, Some(1), Cause::Woken)
        .park_for(13, 0, 1, "join", 3)
        .start(14, 0, 2)
        .stop(15, 0, 2, Stop::Ended);
    let edges = |script: Script| {
        let model = script.at(100, 0, Kind::ProcIdle).model();
        let analysis = analyse(&model);
        let id = |g: u32| model.goroutines[g as usize].id;
        (
            analysis.graph.edges.iter().map(|e| (id(e.g), id(e.holder))).collect::<Vec<_>>(),
            analysis.graph.cycles,
        )
    };
    let (all, cycles) = edges(script.start(20, 0, 3).park_for(30, 0, 3, "mutex", 0x20));
    assert_eq!((all, cycles.len()), (vec![(1, 3)], 0), "neither 1 nor 2 has it");
    // Of another kind of lock, whose wake-ups say nothing: it was 1.
    let script = Script::default()
        .start(0, 0, 2)
        .at(9, 0, held(2, 1))
        .park_for(10, 0, 2, "rwlock write", 0x20)
        .start(11, 0, 1)
        .park_for(13, 0, 1, "join", 3);
    let (all, cycles) = edges(script.start(20, 0, 3).park_for(30, 0, 3, "rwlock write", 0x20));
    assert_eq!((all, cycles.len()), (vec![(1, 3)], 0), "1 had it, when 2 parked");
}

/// What may have been outside of its goroutines is not held against a thread.
#[test]
fn threads_that_mostly_had_no_cpu_while_they_ran_goroutines_are_named() {
    let verdict = |waited_ms: u64| {
        let model = Script::default()
            .start(10_000, 0, 1)
            .at(100_000, 0, Kind::NoCpu { waited_ns: waited_ms * 1_000_000, within_ms: 100 })
            .park(110_000, 0, 1, "sleep")
            .model();
        analyse(&model).verdicts.into_iter().find(|v| v.key == "on-cpu")
    };
    // It ran for 90 ms of 100. The trace begins with the first event.
    assert!(verdict(40).is_none(), "30 ms at the least were not of these");
    let found = verdict(80).expect("a verdict");
    assert!(found.title.starts_with("1 times") && found.title.ends_with("once 11 %"), "{}", found.title);
    let text = "thread M0 ran goroutines for 90 ms, of that 80 ms without a CPU";
    assert_eq!((found.moments[0].text.as_str(), found.moments[0].end), (text, 90_000_000));
}

/// Work that waits in one runtime is none that another one could share.
#[test]
fn an_imbalance_is_that_of_one_runtime() {
    let uneven = || {
        let script = Script::default().start(0, 0, 1).start(0, 1, 2).park(10, 1, 2, "sleep");
        script.at(11, 1, Kind::ProcIdle).park(1_000, 0, 1, "sleep")
    };
    let has_verdict = |script: Script| analyse(&script.model()).verdicts.iter().any(|v| v.key == "imbalance");
    let with_waits = |runtime| {
        let other = Script::default().start(0, 7, 8).ready(1, 7, 9, Some(8), Cause::Woken).start(900, 7, 9);
        let mut events = other.trace.events;
        events.iter_mut().for_each(|event| event.runtime = runtime);
        let mut script = uneven();
        script.trace.events.extend(events);
        script.trace.events.sort_by_key(|event| event.time_ns);
        script
    };
    assert!(!has_verdict(uneven()), "no goroutine waits");
    assert!(!has_verdict(with_waits(2)));
    assert!(has_verdict(with_waits(1)));
}

/// A leak that is older than the trace grows in it.
#[test]
fn goroutines_from_before_the_trace_leak_with_those_made_in_it() {
    let trace = |made: &[u64]| {
        let script = Script::default().start(0, 0, 99);
        let existed = |script: Script, g| script.at(0, 0, Kind::Existed { g, place: PlaceId(3) });
        let script = (1..=20).fold(script, existed);
        let script = made.iter().fold(script, |script, &us| {
            let g = 1_000_000 + us;
            let script = script.at(us, 0, Kind::Created { g, parent: None, place: PlaceId(3) });
            script.start(us + 1, 1, g).park(us + 2, 1, g, "chan receive")
        });
        let model = script.at(10_000_000, 0, Kind::ProcIdle).model();
        let leak = analyse(&model).verdicts.into_iter().find(|v| v.key == "leak");
        leak.map(|leak| (leak.count, leak.moments[0].text.clone()))
    };
    assert_eq!(trace(&[]), None, "a pool that waits for work is none");
    let (count, first) = trace(&[1_000_000, 8_000_000]).expect("a verdict");
    assert_eq!(count, 22);
    assert_eq!(first, "goroutine 1 existed before the trace, and does not run in it");
}

#[test]
fn a_thread_without_a_cpu_is_named() {
    let no_cpu = |waited_ns| Kind::NoCpu { waited_ns, within_ms: 100 };
    let model = Script::default()
        .start(0, 0, 1)
        .at(100_000, 0, no_cpu(900_000))
        .at(200_000, 3, no_cpu(12_000_000))
        .at(300_000, 3, no_cpu(2_000_000))
        .model();
    let verdicts = analyse(&model).verdicts;
    let verdict = verdicts.iter().find(|v| v.key == "no-cpu").expect("a verdict");
    let worst = &verdict.moments[0];
    assert_eq!((verdict.count, worst.start, worst.end), (2, 100_000_000, 200_000_000));
    assert_eq!(worst.text, "thread M3 could run and had no CPU for 12 ms of 100 ms");
}
