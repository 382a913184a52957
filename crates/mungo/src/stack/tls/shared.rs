//! The twin for platforms without own thread-locals: same methods, nothing to do.

/// Never built here: [`layout`] always refuses.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) below: usize,
    pub(crate) above: usize,
    pub(crate) align: usize,
}

pub(crate) fn layout() -> Result<&'static Layout, &'static str> {
    Err("own thread-locals need x86-64 Linux with a dynamically linked glibc")
}

impl Layout {
    pub(crate) unsafe fn cpu_of(&self, _tp: usize) -> Option<u32> {
        unreachable!("no layout, no block")
    }
    pub(crate) unsafe fn create(&self, _tp: *mut u8, _tid: u32) -> std::io::Result<()> {
        unreachable!("no layout, no block")
    }
    pub(crate) unsafe fn run_destructors(&self, _tp: *mut u8) {
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

pub(crate) unsafe fn set_loader(_tp: usize, _who: *const ()) {}

pub(crate) fn loader() -> Option<std::ptr::NonNull<()>> {
    None
}

pub(crate) unsafe fn word_at(_offset: usize) -> usize {
    unreachable!("no layout, no offset")
}
