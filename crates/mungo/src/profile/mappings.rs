//! Where the program and its libraries lie in memory, and their build ids.

use crate::sys::modules;
use std::ffi::{CStr, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A part of an object that has code.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) memory: Range<usize>,
    /// Where it begins in the file.
    pub(super) offset: u64,
    pub(super) file: PathBuf,
    /// In hexadecimal digits; empty: it has none.
    pub(super) build_id: String,
}

/// Returns the code of all objects, the program's first.
pub(super) fn all() -> Vec<Mapping> {
    let mut mappings = Vec::new();
    modules::each(|info, headers| {
        let base = info.dlpi_addr as usize;
        // SAFETY: a C string of the loader's.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        let file = match name {
            [] => std::env::current_exe().unwrap_or_default(),
            name => PathBuf::from(OsStr::from_bytes(name)),
        };
        let at = |h: &libc::Elf64_Phdr| base + h.p_vaddr as usize..base + (h.p_vaddr + h.p_memsz) as usize;
        let notes = headers.iter().filter(|h| h.p_type == libc::PT_NOTE).map(at);
        // SAFETY: notes are mapped and readable while the object is loaded, which it is during the call.
        let mut notes =
            notes.map(|part| unsafe { std::slice::from_raw_parts(part.start as *const u8, part.len()) });
        let build_id = notes.find_map(build_id).unwrap_or_default();
        for code in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0) {
            let (memory, offset) = (at(code), code.p_offset);
            mappings.push(Mapping { memory, offset, file: file.clone(), build_id: build_id.clone() });
        }
    });
    mappings
}

/// Returns the build id in a segment of notes. A note has the lengths of its name and content, its type, and both,
/// each up to a multiple of four bytes.
fn build_id(mut notes: &[u8]) -> Option<String> {
    const BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (name_len, len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let (name, rest) = rest.split_at_checked(name_len.next_multiple_of(4))?;
        let content = rest.get(..len)?;
        if kind == BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(content.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = rest.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_among_notes() {
        let mut notes = Vec::new();
        let mut note = |kind: u32, content: &[u8]| {
            notes.extend([4u32, content.len() as u32, kind].iter().flat_map(|n| n.to_le_bytes()));
            notes.extend(b"GNU\0");
            notes.extend(content);
            notes.resize(notes.len().next_multiple_of(4), 0);
        };
        note(1, &[1, 2, 3, 4, 5]);
        note(3, &[0xab, 0x01]);
        assert_eq!(build_id(&notes).as_deref(), Some("ab01"));
        assert_eq!(build_id(&notes[..20]), None);
        assert_eq!(build_id(&[]), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the loader")]
    fn this_code_is_in_the_first_mapping() {
        let here = this_code_is_in_the_first_mapping as *const () as usize;
        assert!(all()[0].memory.contains(&here));
        assert_eq!(all()[0].file, std::env::current_exe().unwrap());
    }
}
