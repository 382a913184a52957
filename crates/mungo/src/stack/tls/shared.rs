//! The twin for platforms without own thread-locals: same methods, nothing to do.

use super::Refusal;

/// Never built here: [`discover`] always refuses.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) below: usize,
    pub(crate) above: usize,
    pub(crate) align: usize,
}

pub(super) fn discover(_late_static: bool) -> Result<Layout, Refusal> {
    Err(Refusal::Never("they need Linux on x86-64 or aarch64 with a dynamically linked glibc"))
}

/// Returns the bytes to add, 0: here the C library adds them to what a thread asks for.
pub(crate) fn static_size() -> usize {
    0
}

impl Layout {
    pub(super) fn has_late_static(&self) -> bool {
        unreachable!("no layout, no block")
    }
    pub(crate) unsafe fn cpu_of(&self, _tp: usize) -> Option<u32> {
        unreachable!("no layout, no block")
    }
    pub(crate) unsafe fn create(
        &self,
        _tp: *mut u8,
        _tid: u32,
        _stack: std::ops::Range<usize>,
    ) -> std::io::Result<()> {
        unreachable!("no layout, no block")
    }
    pub(crate) unsafe fn run_destructors(&self, _tp: *mut u8) {
        unreachable!("no layout, no block")
    }
    pub(crate) unsafe fn destroy(&self, _tp: *mut u8) -> bool {
        unreachable!("no layout, no block")
    }
    pub(crate) unsafe fn reset(&self, _tp: *mut u8) {
        unreachable!("no layout, no block")
    }
}

pub(crate) fn thread_pointer() -> usize {
    0
}

pub(crate) unsafe fn set_thread_pointer(_tp: usize) {}

pub(crate) fn prefetch(_tp: usize) {}

pub(crate) fn make_room(_n: usize, _known: &mut usize) {}

pub(crate) fn set_names(_find: fn(libc::pthread_t) -> usize) {}

pub(crate) unsafe fn set_loader(_tp: usize, _who: *const ()) {}

pub(crate) fn loader() -> Option<std::ptr::NonNull<()>> {
    None
}

pub(crate) unsafe fn word_at(_offset: usize) -> usize {
    unreachable!("no layout, no offset")
}

pub(crate) fn own_malloc_cache() -> usize {
    0
}

pub(crate) unsafe fn share_malloc_cache(_tp: usize, _cache: usize) {}

pub(crate) fn set_thread_name(_name: &str) {}
