#[path = "../../mungo/src/sched/netpoll/readiness.rs"]
mod readiness;
#[path = "../../mungo/src/sched/run/waitq.rs"]
pub(crate) mod wait_queue;

pub(crate) mod run {
    pub(crate) use super::wait_queue as waitq;

    pub(crate) mod g {
        use crate::protocols::wake::Wake;

        /// Stands for a goroutine: there is none in a model, where all waiters are threads.
        #[derive(Clone, Copy)]
        pub(crate) enum GPtr {}

        impl GPtr {
            pub(crate) fn notify(&self) -> Wake {
                match *self {}
            }
        }
    }

    pub(crate) mod park {
        use super::g::GPtr;
        use crate::protocols::claim::Claim;
        use crate::reason::Awaited;
        use loom::sync::atomic::AtomicBool;
        use loom::sync::{Arc, Notify};
        use std::cell::Cell;
        use std::ptr::NonNull;
        use std::sync::atomic::Ordering::{Acquire, Release};
        use std::task::Waker;

        /// Stands for a goroutine in the runtime.
        pub(crate) struct Entered;

        impl Entered {
            pub(crate) fn with_running(&self, f: impl FnOnce(())) {
                f(());
            }

            pub(crate) fn wake_tasks(&self, tasks: Vec<Waker>) {
                tasks.into_iter().for_each(Waker::wake);
            }
        }

        /// Waits as the runtime's `Waiter` does; the models of that one are those of `wake`.
        pub(crate) enum Waiter {
            G(GPtr),
            Thread(Arc<(Notify, AtomicBool)>),
            Task(Cell<Option<Waker>>),
        }

        impl Waiter {
            pub(crate) fn current() -> Waiter {
                Waiter::Thread(Arc::new((Notify::new(), AtomicBool::new(false))))
            }

            pub(crate) fn urgency(&self) -> u8 {
                0
            }

            /// Waits without a deadline: in a model time does not pass; `claim` has the model of a deadline.
            pub(crate) fn wait_until(&self, _: Awaited, _: u64, _: &Claim) -> bool {
                let Waiter::Thread(shared) = self else { unreachable!("waiters are threads") };
                while !shared.1.load(Acquire) {
                    shared.0.wait(); // loom's may end for no reason
                }
                true
            }

            pub(crate) unsafe fn wake_by(_running: (), this: NonNull<Waiter>) {
                // SAFETY: by the caller.
                unsafe { Waiter::wake(this) };
            }

            pub(crate) unsafe fn wake(this: NonNull<Waiter>) {
                // SAFETY: alive until it is notified, by the caller.
                let Waiter::Thread(shared) = (unsafe { this.as_ref() }) else {
                    unreachable!("waiters are threads")
                };
                let shared = shared.clone();
                shared.1.store(true, Release);
                shared.0.notify();
            }
        }
    }

    pub(crate) mod lock {
        use loom::sync::{Mutex, MutexGuard};

        #[derive(Debug)]
        pub(crate) struct Lock<T>(Mutex<T>);

        impl<T> Lock<T> {
            pub(crate) fn new(value: T) -> Lock<T> {
                Lock(Mutex::new(value))
            }

            pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
                self.0.lock().unwrap()
            }
        }
    }
}
