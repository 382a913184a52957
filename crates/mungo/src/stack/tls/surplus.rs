//! The room that glibc keeps in each thread block for libraries with static thread-locals that are loaded later.
//!
//! It is 1.7 KB right below the thread-locals that are in use, where a goroutine's stack would have to begin for both
//! to share a page. So it is taken away before the first goroutine: a library that has thread-locals of that size and
//! nothing else, 500 bytes of ELF in memory, is loaded and stays. From then on glibc has no room left, and refuses a
//! library that wants some with its own message ("cannot allocate memory in static TLS block"); no two things ever lie
//! in one place. Programs that load such libraries ask for the room to be kept, and pay a page a goroutine:
//! `RuntimeBuilder::late_static_tls`.
//!
//! WHY NOT change the loader's own count of what is in use: it lies at a private offset.

use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Where the libraries were loaded to; 0: none yet.
static OURS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Returns whether the library at this address is one of those that take room.
pub(super) fn is_ours(address: usize) -> bool {
    address != 0 && OURS.iter().any(|ours| ours.load(Relaxed) == address)
}

/// Takes the `room` in bytes that glibc has left for static thread-locals. Returns `false` if some may be left.
pub(super) fn take(room: usize) -> bool {
    // The second one is refused if the first took all.
    room != 0 && load(room, 0) && !load(1, 1)
}

/// Loads a library with `room` bytes of static thread-locals, the one with this `number`. It stays. Returns `false` if
/// it cannot be done.
fn load(room: usize, number: usize) -> bool {
    let Some(file) = in_memory(&image(room)) else { return false };
    // glibc knows a library by its path, which no other one may have: so a detour, another for each.
    let detour = "task/../".repeat(1 + number);
    let path = CString::new(format!("/proc/self/{detour}fd/{}", file.as_raw_fd())).expect("no NUL");
    // SAFETY: a library without code. A handle is a `struct link_map`, whose first word is the address.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE);
        if library.is_null() {
            libc::dlerror(); // frees its text
            return false;
        }
        OURS[number].store(library.cast::<usize>().read(), Relaxed);
    }
    true
}

/// Returns a file with this content that is in no folder.
fn in_memory(content: &[u8]) -> Option<OwnedFd> {
    const NAME: &std::ffi::CStr = c"mungo-static-tls";
    /// `MFD_NOEXEC_SEAL` of <linux/memfd.h>, since Linux 6.3; systems may insist on it.
    const NOEXEC: u32 = 8;
    /// The least number of its descriptor; 1024 descriptors are what processes may usually have.
    const UNUSUAL: c_int = 1000;
    let open = |flags| {
        // SAFETY: a C string; the descriptor is ours.
        let fd: c_int = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | flags) };
        // SAFETY: as above.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let file = open(NOEXEC).or_else(|| open(0))?;
    // Debuggers open the path of each library, which names a descriptor: of theirs, since it says "self". A pipe there
    // would make them wait for ever, so the number is one that hardly any process has.
    // SAFETY: no memory involved; the descriptor is ours.
    let file = match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, UNUSUAL) } {
        ..0 => file, // fewer are allowed
        // SAFETY: as above.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    // SAFETY: bytes of ours.
    let written = unsafe { libc::write(file.as_raw_fd(), content.as_ptr().cast::<c_void>(), content.len()) };
    (written == content.len() as isize).then_some(file)
}

// The parts of the library, by their offsets in bytes: header, program headers, dynamic section, one symbol, one
// relocation, strings (none), and the word that is relocated.
const SEGMENTS_AT: u64 = 64;
const SEGMENTS: u64 = 4;
const DYNAMIC_AT: u64 = SEGMENTS_AT + 56 * SEGMENTS;
const DYNAMIC_LEN: u64 = 16 * 8;
const SYMBOL_AT: u64 = DYNAMIC_AT + DYNAMIC_LEN;
const SYMBOL_LEN: u64 = 24;
const RELOCATION_AT: u64 = SYMBOL_AT + SYMBOL_LEN;
const RELOCATION_LEN: u64 = 24;
const STRINGS_AT: u64 = RELOCATION_AT + RELOCATION_LEN;
const STRINGS_LEN: u64 = 8;
const WORD_AT: u64 = STRINGS_AT + STRINGS_LEN;
const LEN: u64 = WORD_AT + 8;

/// Bytes in the making; numbers are little-endian.
struct Bytes(Vec<u8>);

impl Bytes {
    fn half(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a program header; addresses are offsets in the file.
    fn segment(&mut self, kind: u32, flags: u32, at: u64, [file_len, len, align]: [u64; 3]) -> &mut Self {
        self.word(kind).word(flags).long(at).long(at).long(at).long(file_len).long(len).long(align)
    }
}

/// Returns a shared library with `room` zeroed bytes of thread-locals, and one relocation that makes them static.
fn image(room: usize) -> Vec<u8> {
    const READ_WRITE: u32 = libc::PF_R | libc::PF_W;
    /// `R_X86_64_TPOFF64`: the offset of a thread-local from the thread pointer.
    const TPOFF64: u64 = 18;
    const VERSION: u32 = 1;
    let mut it = Bytes(Vec::with_capacity(LEN as usize));
    it.0.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"); // 64 bits, little-endian
    it.half(libc::ET_DYN).half(libc::EM_X86_64).word(VERSION).long(0).long(SEGMENTS_AT).long(0).word(0);
    it.half(64).half(56).half(SEGMENTS as u16).half(64).half(0).half(0); // lengths of headers, and no sections
    it.segment(libc::PT_LOAD, READ_WRITE, 0, [LEN, LEN, 4096]);
    it.segment(libc::PT_DYNAMIC, READ_WRITE, DYNAMIC_AT, [DYNAMIC_LEN, DYNAMIC_LEN, 8]);
    it.segment(libc::PT_TLS, libc::PF_R, 0, [0, room as u64, 1]);
    it.segment(libc::PT_GNU_STACK, READ_WRITE, 0, [0, 0, 16]); // without it, stacks would become executable
    let dynamic = [
        (5, STRINGS_AT), // DT_STRTAB and its length
        (10, STRINGS_LEN),
        (6, SYMBOL_AT), // DT_SYMTAB and the length of one
        (11, SYMBOL_LEN),
        (7, RELOCATION_AT), // DT_RELA, its length, the length of one
        (8, RELOCATION_LEN),
        (9, RELOCATION_LEN),
        (0, 0),
    ];
    dynamic.into_iter().for_each(|(tag, value)| _ = it.long(tag).long(value));
    it.long(0).long(0).long(0); // the symbol without a name: the library itself
    it.long(WORD_AT).long(TPOFF64).long(0);
    it.long(0).long(0); // strings, and the word
    it.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_of_the_library_are_where_its_headers_say() {
        let image = image(1000);
        assert_eq!(image.len() as u64, LEN);
        let long = |at: u64| u64::from_le_bytes(image[at as usize..][..8].try_into().unwrap());
        assert_eq!(long(RELOCATION_AT), WORD_AT);
        assert_eq!(long(DYNAMIC_AT + 8), STRINGS_AT);
        assert_eq!(long(SEGMENTS_AT + 2 * 56 + 40), 1000, "the length of the thread-locals");
    }
}
