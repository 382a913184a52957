//! A block's vector of TLS modules (glibc's `dtv`): where the thread-locals of each module are in this block.
//!
//! It is an array of pairs of words: how many modules it has room for, the loader's count of changes, then for each
//! module the address of its thread-locals and what to pass to `free` for it. glibc enlarges it with `realloc` when a
//! thread first uses a module that it has no room for. Goroutines' vectors are made here, with room for the modules
//! that there are. TUNED: `_dl_allocate_tls` takes the loader's lock, walks its list of modules, writes to all of the
//! static area, and leaves room for 14 modules more, 224 bytes in each goroutine.

use super::{Word, arch};
use std::ffi::c_void;
use std::hint::black_box;

/// An entry whose memory is made at the first use (`TLS_DTV_UNALLOCATED`).
const UNALLOCATED: Word = Word::MAX;

type Pair = [Word; 2];

/// Returns the vector of the block `tp`: the address of the second pair, as glibc has it.
///
/// # Safety
/// The block has one.
pub(super) unsafe fn of(tp: *const u8) -> *mut Pair {
    // SAFETY: by the caller.
    unsafe { tp.add(arch::DTV).cast::<*mut Pair>().read() }
}

/// Returns the loader's count of changes when the vector of the block `tp` was last brought up to date.
///
/// # Safety
/// As [`of`].
pub(super) unsafe fn generation(tp: *const u8) -> Word {
    // SAFETY: by the caller.
    unsafe { of(tp).read()[0] }
}

/// Returns the number of modules that the vector of the block `tp` has room for.
///
/// # Safety
/// As [`of`].
unsafe fn room(tp: *const u8) -> usize {
    // SAFETY: by the caller.
    unsafe { of(tp).sub(1).read()[0] }
}

/// Returns where the module with this number has its thread-locals in the block `tp`; `None`: nowhere yet.
///
/// # Safety
/// As [`of`].
pub(super) unsafe fn address(tp: *const u8, number: usize) -> Option<usize> {
    // SAFETY: by the caller; within its room.
    unsafe {
        let known = number > 0 && number <= room(tp);
        known.then(|| of(tp).add(number).read()[0]).filter(|at| *at != UNALLOCATED && *at != 0)
    }
}

/// Gives back the thread-locals that were made on demand, those of libraries loaded by `dlopen`; they are made anew
/// at the next use.
///
/// # Safety
/// As [`of`]; nothing refers to them.
#[cold]
pub(super) unsafe fn free_dynamic(tp: *const u8) {
    // SAFETY: by the caller. What lies in the block itself has null to free.
    unsafe {
        for i in 1..=room(tp) {
            let entry = of(tp).add(i);
            let [_, to_free] = entry.read();
            if to_free != 0 {
                entry.write([UNALLOCATED, 0]);
                libc::free(to_free as *mut c_void);
            }
        }
    }
}

/// What the vector of a new block is made from.
#[derive(Debug, Default)]
pub(super) struct Template {
    generation: Word,
    /// The offset of each module's thread-locals from the thread pointer; `None`: they are made at the first use.
    offsets: Vec<Option<isize>>,
}

impl Template {
    /// Makes one from the block `tp`, which glibc made for no thread.
    ///
    /// # Safety
    /// As [`of`].
    pub(super) unsafe fn new(tp: *const u8) -> Template {
        // SAFETY: by the caller. The pairs behind the last module are zero.
        unsafe {
            let modules = (1..=room(tp)).rev().find(|i| of(tp).add(*i).read() != [0, 0]).unwrap_or(0);
            let offset = |i| address(tp, i).map(|at| at.wrapping_sub(tp as usize) as isize);
            Template { generation: generation(tp), offsets: (1..=modules).map(offset).collect() }
        }
    }

    pub(super) fn generation(&self) -> Word {
        self.generation
    }

    /// Returns the bytes of a vector.
    fn size(&self) -> usize {
        (self.offsets.len() + 2) * size_of::<Pair>()
    }

    /// See [`make_room`](super::make_room).
    pub(super) fn make_room(&self, n: usize) {
        /// Bytes above which glibc gives memory back at once, or maps it apart.
        const MOST: usize = 120 << 10;
        // SAFETY: any size will do. The compiler must not leave it out.
        unsafe { libc::free(black_box(libc::malloc((n * self.size()).min(MOST)))) };
    }

    /// Gives the new block `tp` its vector. Returns `false` if there is no memory.
    ///
    /// # Safety
    /// The block is the caller's, and has no vector.
    pub(super) unsafe fn make(&self, tp: *mut u8) -> bool {
        let modules = self.offsets.len();
        // SAFETY: by the caller; as many pairs as are written. From the allocator that the loader uses as well.
        unsafe {
            let vector = libc::malloc(self.size()).cast::<Pair>();
            if vector.is_null() {
                return false;
            }
            vector.write([modules, 0]);
            vector.add(1).write([self.generation, 0]);
            for (i, offset) in self.offsets.iter().enumerate() {
                let at = offset.map_or(UNALLOCATED, |offset| (tp as usize).wrapping_add_signed(offset));
                vector.add(2 + i).write([at, 0]);
            }
            tp.add(arch::DTV).cast::<*mut Pair>().write(vector.add(1));
        }
        true
    }
}
