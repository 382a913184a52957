//! Robust mutexes that a goroutine holds.
//!
//! The C library keeps a list of them in the thread block. The kernel walks it at a thread's end, marks the mutexes
//! and wakes a waiter each. It knows the worker's list only: mungo walks a goroutine's.

use std::ops::Range;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};

/// `struct robust_list_head` of <linux/futex.h>.
#[repr(C)]
pub(super) struct Head {
    /// The first entry: each is the address of the next one, the last that of the head. Bit 0: inherits priorities.
    list: usize,
    /// Distance from an entry to its futex, in bytes.
    futex_offset: usize,
    pending: usize,
}

/// Number of entries beyond which none is looked at, nor by the kernel.
const MOST: usize = 2048;
const TID: u32 = 0x3fff_ffff;
const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;

/// Returns the offset of the head in the calling thread's `struct pthread`, whose fields lie at `fields`, and its
/// second word. It holds no robust mutex.
pub(super) fn find(pthread: usize, fields: Range<usize>) -> Option<(usize, usize)> {
    let (mut head, mut len) = (0usize, 0usize);
    // SAFETY: asks the kernel; the head is the calling thread's own, and was checked to lie in its block.
    unsafe {
        if libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) != 0
            || len != size_of::<Head>()
        {
            return None;
        }
        let offset = head.checked_sub(pthread)?;
        if !fields.contains(&offset) || offset + len > fields.end || offset % 8 != 0 {
            return None;
        }
        let Head { list, futex_offset, .. } = (head as *const Head).read();
        // The word before it is the list's other end.
        (list == head && (head as *const usize).sub(1).read() == head).then_some((offset, futex_offset))
    }
}

/// Makes an empty list.
///
/// # Safety
/// `head` lies where [`find`] says in a block of the caller's.
pub(super) unsafe fn init(head: *mut Head, futex_offset: usize) {
    // SAFETY: by the caller.
    unsafe {
        head.write(Head { list: head as usize, futex_offset, pending: 0 });
        head.cast::<usize>().sub(1).write(head as usize);
    }
}

/// Tells the next owners of what the goroutine with this thread id holds that it has ended.
///
/// # Safety
/// `head` was made by [`init`], and its block is loaded.
#[inline]
pub(super) unsafe fn release_all(head: *mut Head, tid: u32) {
    // SAFETY: by the caller.
    unsafe {
        if (*head).list != head as usize {
            release_slow(head, tid);
        }
    }
}

#[cold]
unsafe fn release_slow(head: *mut Head, tid: u32) {
    // SAFETY: the C library's list of mutexes that are locked, so they are there.
    unsafe {
        let Head { mut list, futex_offset, .. } = head.read();
        for _ in 0..MOST {
            let entry = list & !1;
            if entry == head as usize {
                break;
            }
            list = (entry as *const usize).read();
            let futex = AtomicU32::from_ptr(entry.wrapping_add(futex_offset) as *mut u32);
            let of_dead = |word: u32| (word & TID == tid).then_some(word & WAITERS | OWNER_DIED);
            // ORDERING: Release what the goroutine wrote to the next owner, whose lock acquires.
            if let Ok(word) = futex.fetch_update(Release, Relaxed, of_dead)
                && word & WAITERS != 0
            {
                libc::syscall(libc::SYS_futex, futex.as_ptr(), libc::FUTEX_WAKE, 1);
            }
        }
        init(head, futex_offset);
    }
}
