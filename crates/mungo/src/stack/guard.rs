//! Guard pages: a page below each stack that faults when it is touched.
//!
//! `madvise(MADV_GUARD_INSTALL)` (Linux 6.13) marks a page without splitting the mapping, so a million
//! guarded stacks are one mapping. Older kernels get `mprotect`, which makes two more mappings per
//! stack and so ends at about 32,000 stacks (`vm.max_map_count`).

use crate::sys::page_size;
use std::io;
use std::sync::OnceLock;

/// Not in libc yet.
const MADV_GUARD_INSTALL: libc::c_int = 102;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A marked page table entry: cheap, made when a slot is first used.
    Marked,
    /// A protected mapping: made for the whole slab when it is mapped, because it can fail.
    Protected,
}

/// What this kernel can do; tried once.
pub(crate) fn kind() -> Kind {
    static KIND: OnceLock<Kind> = OnceLock::new();
    *KIND.get_or_init(|| match Mapping::new(page_size()) {
        Ok(page) if install_marked(page.base).is_ok() => Kind::Marked,
        _ => Kind::Protected,
    })
}

/// Makes the page at `at` fault.
///
/// # Safety
/// The page belongs to the caller and holds nothing.
pub(crate) unsafe fn install(at: *mut u8) -> io::Result<()> {
    match kind() {
        Kind::Marked => install_marked(at),
        // SAFETY: by the caller.
        Kind::Protected => check(unsafe { libc::mprotect(at.cast(), page_size(), libc::PROT_NONE) }),
    }
}

fn install_marked(at: *mut u8) -> io::Result<()> {
    // SAFETY: marks a page that the caller owns; an unknown advice is refused with EINVAL.
    check(unsafe { libc::madvise(at.cast(), page_size(), MADV_GUARD_INSTALL) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An anonymous private mapping without swap reservation; unmapped when dropped unless [`keep`](Self::keep)ed.
pub(crate) struct Mapping {
    pub(crate) base: *mut u8,
    len: usize,
}

impl Mapping {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping, wherever the kernel likes.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), len })
    }

    /// Leaves the mapping in place for the rest of the process.
    pub(crate) fn keep(self) -> *mut u8 {
        std::mem::ManuallyDrop::new(self).base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody kept it.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
