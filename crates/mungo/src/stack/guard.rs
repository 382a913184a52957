//! Guard pages: a page below each stack that faults when it is touched.
//!
//! `madvise(MADV_GUARD_INSTALL)` (Linux 6.13) marks a page without splitting the mapping, so a million
//! guarded stacks are one mapping. Older kernels get `mprotect`, which makes two more mappings per
//! stack and so ends at about 32,000 stacks (`vm.max_map_count`). So does memory that is locked (`mlockall`), which no
//! kernel marks.

use crate::sys::{is_readable, page_size};
use std::io;
use std::sync::OnceLock;

/// The advice that makes pages fault; not in libc yet.
const MADV_GUARD_INSTALL: libc::c_int = 102;
/// This process, for `process_madvise` (`PIDFD_SELF_THREAD_GROUP`, Linux 6.15).
const PIDFD_SELF: libc::c_int = -10001;
/// Number of pages marked at a time.
const BATCH: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A marked page table entry: cheap, made when a slot is first used.
    Marked,
    /// A protected mapping: made for the whole slab when it is mapped, because it can fail.
    Protected,
}

/// Returns what this kernel can do; tried once.
pub(crate) fn kind() -> Kind {
    static KIND: OnceLock<Kind> = OnceLock::new();
    *KIND.get_or_init(try_a_page)
}

/// Returns the kind for mappings that are made now: they are locked if the program has said `mlockall(MCL_FUTURE)`.
pub(crate) fn kind_now() -> Kind {
    match kind() {
        Kind::Marked => try_a_page(),
        Kind::Protected => Kind::Protected,
    }
}

fn try_a_page() -> Kind {
    match Mapping::new(page_size()) {
        // Emulators accept advice that they do not know, and do nothing.
        Ok(page) if install_marked(&[one(page.base)]).is_ok() && !is_readable(page.base.addr()) => Kind::Marked,
        _ => Kind::Protected,
    }
}

/// Makes pages fault: marked ones if they can be.
///
/// # Safety
/// They belong to the caller and hold nothing.
pub(crate) unsafe fn install_all(mut pages: impl Iterator<Item = *mut u8>) -> io::Result<()> {
    loop {
        let mut batch = [one(std::ptr::null_mut()); BATCH];
        let n = batch.iter_mut().zip(&mut pages).map(|(to, page)| *to = one(page)).count();
        if n == 0 {
            return Ok(());
        }
        if kind() == Kind::Protected || install_marked(&batch[..n]).is_err() {
            // An older kernel, or the memory was locked since it was mapped.
            // SAFETY: by the caller.
            unsafe { protect(&batch[..n])? };
        }
    }
}

/// Makes pages fault, as every kernel can.
///
/// # Safety
/// As [`install_all`].
unsafe fn protect(pages: &[libc::iovec]) -> io::Result<()> {
    // SAFETY: by the caller.
    pages
        .iter()
        .try_for_each(|page| check(unsafe { libc::mprotect(page.iov_base, page.iov_len, libc::PROT_NONE) }))
}

/// Makes all pages fault now, where that can fail.
///
/// # Safety
/// As [`install_all`].
pub(crate) unsafe fn protect_all(mut pages: impl Iterator<Item = *mut u8>) -> io::Result<()> {
    // SAFETY: by the caller.
    pages.try_for_each(|page| unsafe { protect(&[one(page)]) })
}

fn one(page: *mut u8) -> libc::iovec {
    libc::iovec { iov_base: page.cast(), iov_len: page_size() }
}

fn install_marked(pages: &[libc::iovec]) -> io::Result<()> {
    let (at, n, what) = (pages.as_ptr(), pages.len(), MADV_GUARD_INSTALL);
    // SAFETY: marks pages that the caller owns; what a kernel does not know it refuses.
    unsafe {
        let all = (n * page_size()) as libc::c_long;
        if n > 1 && libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, at, n, what, 0) == all {
            return Ok(());
        }
        // One, or an older kernel, or not all of them: to mark a page twice does no harm.
        pages.iter().try_for_each(|page| check(libc::madvise(page.iov_base, page.iov_len, what)))
    }
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
        // SAFETY: mapped by `new`, and not kept.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
