//! What happens when a context is done, beside the end of its channel: waits that end, functions that start.

use super::Context;
use crate::sched::run::lock::Lock;
use crate::sched::run::spawn::Spec;
use crate::sched::run::task;
use crate::sys::say::say;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// A wait that a context may end.
pub(crate) trait OnDone: Sync {
    /// Called once, when the context is done, under a lock of the context: it wakes and does nothing else.
    fn context_is_done(&self);
}

/// A hook on the frame of a goroutine that waits.
pub(super) struct HookPtr(NonNull<dyn OnDone>);

// SAFETY: the hook is `Sync`, and lives until it was taken out: see `Context::while_hooked`.
unsafe impl Send for HookPtr {}

impl HookPtr {
    pub(super) fn new(hook: &dyn OnDone) -> HookPtr {
        // SAFETY: the same pointer, without its lifetime, which the lock of the state stands for.
        let hook = unsafe { std::mem::transmute::<NonNull<dyn OnDone + '_>, NonNull<dyn OnDone>>(hook.into()) };
        HookPtr(hook)
    }

    /// Returns the number under which a hook is found again.
    pub(super) fn key(hook: &dyn OnDone) -> usize {
        std::ptr::from_ref(hook).addr()
    }

    /// Calls the hook. The caller holds the lock of the state, which the hook's owner takes before its frame ends.
    pub(super) fn call(&self) {
        // SAFETY: as said.
        unsafe { self.0.as_ref() }.context_is_done();
    }
}

impl Context {
    /// Runs `wait`; if the context is done before it ends, `hook` is called, once.
    pub(crate) fn while_hooked<R>(&self, hook: &dyn OnDone, wait: impl FnOnce() -> R) -> R {
        /// Takes the hook out, after a panic too.
        struct Remove<'a>(&'a super::node::Source, &'a dyn OnDone);
        impl Drop for Remove<'_> {
            fn drop(&mut self) {
                self.0.remove_hook(self.1);
            }
        }
        let Some(source) = self.node.source().get() else { return wait() };
        let _remove = Remove(source, hook);
        source.add_hook(hook);
        wait()
    }
}

/// A function of the user, to be called in a goroutine of its own.
pub(crate) struct Function {
    body: Box<dyn FnOnce() + Send>,
    place: &'static Location<'static>,
}

impl Function {
    #[track_caller]
    pub(crate) fn new(body: impl FnOnce() + Send + 'static) -> Function {
        Function { body: Box::new(body), place: Location::caller() }
    }
}

/// Starts a goroutine that calls the function; from anywhere, an M's own stack included. If there is no memory for one,
/// the function is dropped, and a line on stderr says so.
pub(crate) fn start(function: Function) {
    /// Starts it where goroutines can be started: see `sched/run/task.rs`.
    struct Start(Lock<Option<Function>>);
    impl Wake for Start {
        fn wake(self: Arc<Start>) {
            let function = self.0.lock().take();
            let Some(Function { body, place }) = function else { return };
            let spec = Spec { place, ..Spec::here() };
            // SAFETY: it borrows nothing.
            if let Err(e) = unsafe { spec.spawn(None, body) } {
                say!("mungo: the function of an after_func at {place} is lost: {e}");
            }
        }
    }
    task::wake(Waker::from(Arc::new(Start(Lock::new(Some(function))))));
}
