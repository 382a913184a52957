//! The program and its libraries, as the loader lists them.

use std::ffi::{c_int, c_void};

/// Shows each loaded module, and the headers of its segments. It stays loaded meanwhile.
pub(crate) fn each<F: FnMut(&libc::dl_phdr_info, &[libc::Elf64_Phdr])>(mut f: F) {
    unsafe extern "C" fn visit<F: FnMut(&libc::dl_phdr_info, &[libc::Elf64_Phdr])>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid info with its own table; `data` is the closure below.
        unsafe {
            let headers = std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum as usize);
            (*data.cast::<F>())(&*info, headers);
        }
        0
    }
    // SAFETY: `visit` matches the callback's contract, and the closure outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit::<F>), (&raw mut f).cast()) };
}
