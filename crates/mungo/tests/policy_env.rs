//! `MUNGO_SCHEDULER`, in processes of their own; and what a replaced policy says.

mod common;

use common::child;
use mungo::policy::{Next, Proc, Scheduler};
use mungo::{Runtime, go};
use std::io::ErrorKind;

children!(says_its_policy, says_its_error, knows_policies_of_the_program, panics_once);

fn says_its_policy() {
    println!("{}", mungo::get_scheduler().name());
    assert_eq!(go(|| go(|| 42).join().unwrap()).join().unwrap(), 42);
    // What the code says counts more.
    let rt = Runtime::builder().scheduler(mungo::policy::Lifo::new()).build().unwrap();
    assert_eq!(rt.policy_stats().policy, "lifo");
}

fn says_its_error() {
    let error = Runtime::builder().build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    println!("{error}");
}

struct Mine(u64);

impl Scheduler for Mine {
    fn name(&self) -> &str {
        "mine"
    }

    fn next_task(&self, proc: &mut Proc<'_>) -> Option<Next> {
        assert_eq!(self.0, 3, "the knob");
        self.get_from_local_queue(proc).or_else(|| self.get_from_global_queue(proc).map(Next::from))
    }
}

fn register() {
    mungo::policy::register("mine", |o| Ok(Mine(o.number("knob", 7, 1..=10)?).into())).unwrap();
}

fn knows_policies_of_the_program() {
    register();
    let rt = Runtime::builder().procs(1).build().unwrap();
    assert_eq!(rt.run(|| go(|| 42).join().unwrap()), 42);
    println!("{}", rt.policy_stats().policy);
}

/// With a wrong knob it panics on all Ps at the same time.
fn panics_once() {
    register();
    let rt = Runtime::builder().procs(4).build().unwrap();
    let all: Vec<_> = (0..100).map(|_| rt.spawn(|| 1)).collect();
    assert_eq!(all.into_iter().map(|h| h.join().unwrap()).sum::<u32>(), 100);
}

fn run(name: &str, scheduler: &str) -> child::Ended {
    let mut command = child::command(name);
    command.env("MUNGO_SCHEDULER", scheduler);
    child::finish(command)
}

#[test]
fn the_environment_chooses() {
    for (text, name) in [("fifo", "fifo"), ("priority:age=2ms,every=7", "priority"), (" ", "default")] {
        let ended = run("says_its_policy", text);
        assert_eq!(ended.assert_success().stdout.trim(), name, "{ended:?}");
    }
}

#[test]
fn a_bad_value_is_an_error_that_helps() {
    for (text, part) in [
        (
            "prioriti",
            "MUNGO_SCHEDULER is 'prioriti': no scheduling policy 'prioriti' (did you mean 'priority'?)",
        ),
        ("fair:slize=1ms", "no option 'slize' (did you mean 'slice'?)"),
        ("fair:slice=fast", "it must be a duration"),
    ] {
        let ended = run("says_its_error", text);
        assert!(ended.assert_success().stdout.contains(part), "{ended:?}");
    }
}

#[test]
fn policies_of_the_program_can_be_chosen() {
    let ended = run("knows_policies_of_the_program", "mine:knob=3");
    assert_eq!(ended.assert_success().stdout.trim(), "mine", "{ended:?}");
}

#[test]
fn a_replaced_policy_says_so_once() {
    let ended = run("panics_once", "mine");
    let message = "mungo: the scheduling policy 'mine' is replaced by the default one: it panicked: ";
    assert_eq!(ended.assert_success().stderr.matches(message).count(), 1, "{ended:?}");
}
