//! The program and its libraries, as the loader lists them.

use std::ffi::{c_int, c_void};

/// Passes each loaded module, and the headers of its segments, to `f`. It stays loaded meanwhile.
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

/// Returns a number that changes whenever an object is loaded or unloaded.
#[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
pub(crate) fn generation() -> u64 {
    let mut generation = 0;
    each(|info, _| generation = info.dlpi_adds + info.dlpi_subs);
    generation
}
