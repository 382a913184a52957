//! The C library's own functions behind those of this crate.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A function of the C library, looked up when it is first needed.
pub(crate) struct Next {
    name: &'static CStr,
    /// Its address; 0: not asked yet, or there is none.
    at: AtomicUsize,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicUsize::new(0) }
    }

    /// Returns its address; 0: there is none.
    pub(crate) fn get(&self) -> usize {
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

/// Calls the C library's function of this name, with the type `fn(arguments) -> c_int`. `ENOSYS` if there is none.
macro_rules! next {
    ($name:ident($($value:ident: $type:ty),*)) => {{
        static NEXT: $crate::shims::next::Next = {
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zeros"),
                };
            $crate::shims::next::Next::new(NAME)
        };
        match NEXT.get() {
            0 => libc::ENOSYS,
            at => std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> std::ffi::c_int>(at)($($value),*),
        }
    }};
}
pub(crate) use next;
