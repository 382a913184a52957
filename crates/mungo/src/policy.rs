//! The scheduler's interface: which goroutine runs next is up to a policy, and policies can be replaced.
//!
//! A policy is a [`Scheduler`]. Each of its methods has a body, which does what the default policy does, but for [three
//! things](#what-the-bodies-leave-out): so the smallest policy is an empty `impl`, and a useful one changes one method.
//! It sees tasks and a [`Proc`], never the runtime itself, and is safe Rust.
//!
//! ```
//! use mungo::policy::{Next, Proc, Scheduler};
//!
//! /// The newest first.
//! struct Newest;
//!
//! impl Scheduler for Newest {
//!     fn get_from_local_queue(&self, proc: &mut Proc<'_>) -> Option<Next> {
//!         proc.local().pop_back().map(Next::from)
//!     }
//! }
//!
//! let runtime = mungo::Runtime::builder().scheduler(Newest).build()?;
//! assert_eq!(runtime.run(|| mungo::go(|| 42).join().unwrap()), 42);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Choosing one
//!
//! By code ([`RuntimeBuilder::scheduler`](crate::RuntimeBuilder::scheduler), [`set_scheduler`], also while goroutines
//! run), or by the environment: `MUNGO_SCHEDULER=priority:age=5ms`. The names are those of [`names`]; programs add
//! their own with [`register`].
//!
//! | name            | good at                                        | bad at                                   |
//! |-----------------|------------------------------------------------|------------------------------------------|
//! | `default`       | throughput, no call through this interface      | knows no priorities                      |
//! | `fifo`          | order: first come, first served on each P       | goroutines that talk to each other       |
//! | `lifo`          | warm caches, deep recursion                     | fairness                                 |
//! | `work_stealing` | fork and join                                   | what comes from outside                  |
//! | `priority`      | urgent work among much other                    | many Ps: one queue                       |
//! | `deadline`      | periodic work with budgets                      | overload without budgets; many Ps        |
//! | `fair`          | CPU time by weight                              | many Ps: one queue                       |
//! | `numa`          | machines with several memory nodes              | nothing on others: it is the default     |
//! | `chaos`         | shaking out races in tests                      | everything else                          |
//!
//! Their options, after a colon: `priority:age=5ms,every=61`.
//!
//! | policy | option | default | what it is |
//! |---|---|---|---|
//! | five of them | `every` | 31 to 127 | turns of a P, after which the queue that all share comes first |
//! | `default` | `measured` | 0 | 1: the bodies of this interface decide, counted and timed as the others are |
//! | `priority` | `age` | `10ms` | a task that has waited for this long rises by a level |
//! | `deadline` | `bound` | 95 | budgets are promised up to this many percent of each P |
//! | `deadline` | `background` | `1s` | a task without a deadline counts as due after this time |
//! | `fair` | `slice` | `3ms` | the longest turn of a task while others wait |
//! | `chaos` | `seed` | by the clock | the seed of its choices |
//! | `chaos` | `delay` | `20us` | the longest pause that it makes at a random moment; 0: none |
//!
//! # What the bodies leave out
//!
//! The default policy is built into the runtime, and does three things that the bodies of [`Scheduler`] do not:
//!
//! * Goroutines that were interrupted while they computed have a queue of their own, and are served after the others.
//!   By the bodies they go to the back of the global queue, like one that comes from outside.
//! * Each P has an account of the time that goroutines that were just spawned or woken may take from computing ones. By
//!   the bodies one that was spawned or woken displaces one that has run for 200 µs, however often that happens.
//! * A thief leaves short queues and the goroutine next in line alone for a while. By the bodies it takes half of the
//!   first queue that it finds, and looks four times at each P.
//!
//! # Rules for policies
//!
//! * A policy runs inside the runtime: it must not block, sleep, spawn, or use channels and locks of this crate.
//!   Atomics are fine, and a `std` mutex that is held for a moment.
//! * It is called from several threads at the same time.
//! * If tasks wait, [`next_task`](Scheduler::next_task) returns one of them: a policy may not let a P be idle.
//! * A task that it drops is queued again, and counted ([`Stats::dropped_tasks`]).
//! * If it panics, or leaves a goroutine waiting for longer than the
//!   [watchdog](crate::RuntimeBuilder::policy_watchdog) allows although others were served, the default policy
//!   replaces it, with a message on stderr. No goroutine is lost.

pub use crate::policies::*;
pub use crate::sched::engine::switch::{get_scheduler, set_scheduler, stats};
