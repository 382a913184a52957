//! The end of a runtime: the thread that closes it and the M of the last goroutine do not miss each other.
//!
//! A P counts its ended goroutines with plain stores, and no thread looks at the end of each. An M looks when it has
//! nothing left to run, which the M of the last goroutine comes to. Both sides look under the scheduler's lock:
//!
//! ```text
//!   closer                            M of the last goroutine
//!                                     count it as ended        (no lock, no fence)
//!   lock                              ... nothing to run: lock
//!   closing = true                    closing, and none lives? stop
//!   none lives? stop                  unlock, sleep
//!   unlock
//! ```
//!
//! The side that has the lock second sees what the other one wrote. A thread of the runtime that has to start a
//! goroutine although none lives (for a waker that is not ours, see `task.rs`) counts it under the lock too: it is
//! refused, or the runtime does not stop before it has ended.
//!
//! Rejected: a look at `closing` after each count. It needs a full fence for each goroutine, or a `membarrier`.

use crate::sys::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The progress of the end of a runtime. Written under `Shared::synced`.
pub(crate) struct Closing {
    /// No handle is left: stop when no goroutine lives.
    closing: AtomicBool,
    /// The workers leave. Also read without the lock, by workers that will soon look again.
    stopping: AtomicBool,
}

impl Closing {
    pub(crate) fn new() -> Closing {
        Closing { closing: AtomicBool::new(false), stopping: AtomicBool::new(false) }
    }

    /// Notes, under the lock, that no handle is left. [`stop_if_done`](Self::stop_if_done) comes next.
    pub(crate) fn close(&self) {
        self.closing.store(true, Relaxed);
    }

    /// Returns, under the lock, whether the runtime has come to its end, and the caller has to stop the workers.
    pub(crate) fn stop_if_done(&self, live: impl FnOnce() -> u64) -> bool {
        self.closing.load(Relaxed) && live() == 0 && !self.stopping.swap(true, Relaxed)
    }

    /// Counts a goroutine by `count`, under the lock, or returns `false` if the workers leave.
    pub(crate) fn admit(&self, count: impl FnOnce()) -> bool {
        let stays = !self.is_stopping();
        if stays {
            count();
        }
        stays
    }

    /// Returns whether the workers leave.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::atomic::AtomicU64;
    use loom::sync::{Arc, Mutex};
    use std::sync::atomic::Ordering::{Acquire, Release};

    /// A runtime with two Ps.
    struct Model {
        lock: Mutex<()>,
        closing: Closing,
        spawned: AtomicU64,
        finished: [AtomicU64; 2],
    }

    impl Model {
        /// Makes one goroutine on each of the first `n` Ps.
        fn with(n: u64) -> Arc<Model> {
            Arc::new(Model {
                lock: Mutex::new(()),
                closing: Closing::new(),
                spawned: AtomicU64::new(n),
                finished: [AtomicU64::new(0), AtomicU64::new(0)],
            })
        }

        /// Does as `Shared::live`.
        fn live(&self) -> u64 {
            let finished: u64 = self.finished.iter().map(|n| n.load(Acquire)).sum();
            self.spawned.load(Acquire) - finished
        }

        /// Ends the goroutine of a P, as in `worker::bury`.
        fn finish(&self, p: usize) {
            let so_far = self.finished[p].load(Relaxed);
            self.finished[p].store(so_far + 1, Release);
        }

        /// Looks as the P's M does that finds nothing else to run. Returns whether it stops the workers.
        fn go_idle(&self) -> bool {
            let _guard = self.lock.lock().unwrap();
            self.closing.stop_if_done(|| self.live())
        }

        fn close(&self) -> bool {
            let _guard = self.lock.lock().unwrap();
            self.closing.close();
            self.closing.stop_if_done(|| self.live())
        }
    }

    /// The last two goroutines end while the runtime is closed: exactly one of the three stops the workers.
    #[test]
    fn loom_the_end_is_seen_once() {
        loom::model(|| {
            let model = Model::with(2);
            let workers = [0, 1].map(|p| {
                let model = model.clone();
                loom::thread::spawn(move || {
                    model.finish(p);
                    model.go_idle()
                })
            });
            let closer = model.close();
            let stops = workers.into_iter().map(|w| w.join().unwrap()).chain([closer]).filter(|stops| *stops);
            assert_eq!(stops.count(), 1);
        });
    }

    /// The lock is needed: without it, a look after the count can miss the close, and the close the count.
    #[test]
    #[should_panic(expected = "no thread stops the workers")]
    fn loom_the_end_is_missed_by_a_look_without_the_lock() {
        loom::model(|| {
            let model = Model::with(1);
            let worker = {
                let model = model.clone();
                loom::thread::spawn(move || {
                    model.finish(0);
                    model.closing.stop_if_done(|| model.live())
                })
            };
            let closer = model.close();
            assert!(worker.join().unwrap() || closer, "no thread stops the workers");
        });
    }

    /// A goroutine is started by a thread of the runtime just as the last one ends: it is refused, or it runs before
    /// the workers leave.
    #[test]
    fn loom_a_late_goroutine_is_refused_or_runs() {
        loom::model(|| {
            let model = Model::with(1);
            model.closing.close();
            let late = {
                let model = model.clone();
                loom::thread::spawn(move || {
                    let _guard = model.lock.lock().unwrap();
                    model.closing.admit(|| _ = model.spawned.fetch_add(1, Release))
                })
            };
            model.finish(0);
            let stops = model.go_idle();
            let admitted = late.join().unwrap();
            assert!(admitted ^ stops, "a goroutine that never runs, or a runtime that never ends");
        });
    }
}
