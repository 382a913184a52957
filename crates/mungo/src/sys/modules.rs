//! The program and its libraries, as the loader lists them.

use std::ffi::{c_int, c_void};
#[cfg(mungo_own_tls)]
use std::mem::MaybeUninit;
use std::ops::Range;
#[cfg(mungo_own_tls)]
use std::ptr::null_mut;
#[cfg(mungo_own_tls)]
use std::sync::OnceLock;

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

/// Returns the ranges of a module's code.
pub(crate) fn code_of(
    module: &libc::dl_phdr_info,
    headers: &[libc::Elf64_Phdr],
) -> impl Iterator<Item = Range<usize>> {
    let is_code = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0;
    headers.iter().filter(is_code).map(|h| {
        let start = (module.dlpi_addr + h.p_vaddr) as usize;
        start..start + h.p_memsz as usize
    })
}

/// Returns the address of the `malloc` that the C library calls.
pub(crate) fn malloc() -> usize {
    // SAFETY: a NUL-terminated name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) }.addr()
}

/// Returns whether that is the program's, or of the library that the runtime is in.
#[cfg(mungo_own_tls)]
pub(crate) fn program_brings_malloc() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let malloc = malloc();
        let (mut is_first, mut found) = (true, false); // the program is the first module
        each(|module, headers| {
            let has = |at: usize| code_of(module, headers).any(|code| code.contains(&at));
            found |= has(malloc) && (is_first || has(program_brings_malloc as *const () as usize));
            is_first = false;
        });
        found && is_defined_at(malloc)
    })
}

#[cfg(not(mungo_own_tls))]
pub(crate) fn program_brings_malloc() -> bool {
    false
}

/// Returns whether a symbol is defined at this address. A program that was linked to a fixed address has symbols, which
/// are not defined there, for its jumps to a library's functions.
#[cfg(mungo_own_tls)]
fn is_defined_at(address: usize) -> bool {
    const RTLD_DL_SYMENT: c_int = 1; // of <dlfcn.h>
    let (mut info, mut symbol) = (MaybeUninit::uninit(), null_mut());
    // SAFETY: writes both, or returns 0.
    let known =
        unsafe { libc::dladdr1(address as *const c_void, info.as_mut_ptr(), &mut symbol, RTLD_DL_SYMENT) != 0 };
    // SAFETY: null, or an entry of the symbol table of a module; it stays loaded, by the caller.
    let symbol = unsafe { symbol.cast::<libc::Elf64_Sym>().as_ref() };
    known && symbol.is_some_and(|symbol| symbol.st_shndx != 0)
}

#[cfg(all(test, mungo_own_tls, not(mungo_asan), not(mungo_tsan)))]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_brings_malloc() {
        assert!(!program_brings_malloc()); // where it is the other way round: tests/faults_own_malloc.rs
        assert!(is_defined_at(malloc()));
    }
}
