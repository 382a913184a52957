#[path = "../../mungo/src/chan/queue/mod.rs"]
mod queue;

pub(crate) mod core {
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
}
