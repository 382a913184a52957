//! The twin of the tracer without stacks.

use crate::sched::report::dump::Stack;
use crate::sched::run::g::G;
use crate::sched::run::m::M;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const NOTE: &str = match cfg!(feature = "backtrace") {
    true => "no stack: this platform is not supported",
    false => "no stack: mungo was built without its feature `backtrace`",
};

#[inline]
pub(crate) fn on_signal(_: &M, _: &G, _: *mut std::ffi::c_void) {}

pub(crate) struct Capture;

impl Capture {
    pub(crate) fn nothing(&mut self, _: &'static str) {}

    pub(crate) fn parked(&mut self, _: &G) {}

    pub(crate) fn preempted(&mut self, m: &M, _: &G) -> bool {
        m.in_handler.load(Relaxed)
    }

    pub(crate) fn injected(&mut self, g: &G) -> bool {
        g.interruption().is_some()
    }

    pub(crate) fn blocked(&mut self, _: &M, _: &G) {}

    pub(crate) fn running(&mut self, _: &M, _: &G) {}
}

pub(crate) struct Tracer {
    pub(crate) capture: Capture,
    wanted: bool,
}

impl Tracer {
    pub(crate) fn new(wanted: bool, _: usize) -> Tracer {
        Tracer { capture: Capture, wanted }
    }

    pub(crate) fn trace(&mut self) -> usize {
        0
    }

    pub(crate) fn name_all(self) -> Vec<Arc<Stack>> {
        vec![Arc::new(Stack { frames: Vec::new(), note: self.wanted.then_some(NOTE) })]
    }
}
