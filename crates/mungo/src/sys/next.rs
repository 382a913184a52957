//! The C library's own functions behind those that this process defines under the same names.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A function of the C library, looked up when it is first needed.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    /// Its address; 0: not asked yet, or there is none.
    at: AtomicUsize,
}

impl Next {
    /// Makes one by its name.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicUsize::new(0) }
    }

    /// Returns its address, if it was asked for before.
    #[inline]
    pub fn known(&self) -> Option<usize> {
        Some(self.at.load(Relaxed)).filter(|at| *at != 0)
    }

    /// Returns its address; 0: there is none.
    pub fn get(&self) -> usize {
        match self.at.load(Relaxed) {
            0 => {
                // SAFETY: a NUL-terminated name.
                let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
                self.at.store(found, Relaxed);
                found
            }
            at => at,
        }
    }
}
