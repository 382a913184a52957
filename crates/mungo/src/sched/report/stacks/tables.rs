//! The unwind tables of the program and its libraries.

use framehop::{ExplicitModuleSectionInfo, Module};
use std::ops::Range;

/// The sorted table of an object's functions.
pub(super) struct Table {
    /// Its instructions, and everything of it that can be read.
    pub(super) code: Range<usize>,
    readable: Vec<Range<usize>>,
    /// Its `.eh_frame_hdr`, and where that lies.
    index: Vec<u8>,
    at: usize,
}

impl Table {
    /// Returns `None`: on aarch64 libc keeps the frame pointer with the return address, so it need not be guessed.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn called_before(&self, _to: usize) -> Option<usize> {
        _ = &self.readable;
        None
    }

    /// Returns the function that is called by the instruction before `to`, if there is such an instruction.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn called_before(&self, to: usize) -> Option<usize> {
        if !self.code.contains(&to.checked_sub(6)?) {
            return None;
        }
        // SAFETY: six bytes of an object's code, which is loaded: a thread is about to return there.
        let [a, b, distance @ ..] = unsafe { ((to - 6) as *const [u8; 6]).read() };
        let target = to.wrapping_add_signed(i32::from_le_bytes(distance) as isize);
        match [a, b] {
            // `call [rip + distance]`: by way of the object's table of imported functions.
            [0xff, 0x15]
                if target.is_multiple_of(8) && self.readable.iter().any(|part| part.contains(&target)) =>
            {
                // SAFETY: an aligned word of the loaded object.
                Some(unsafe { (target as *const usize).read() })
            }
            [_, 0xe8] => Some(target),
            _ => None,
        }
    }

    /// Returns where the function begins that has an instruction at `ip`.
    pub(super) fn function_at(&self, ip: usize) -> Option<usize> {
        // Pairs of 32-bit distances from the table's begin (`DW_EH_PE_datarel | DW_EH_PE_sdata4`), behind the number.
        let (3, 0x3b) = (self.index[2], self.index[3]) else { return None };
        let (entries, _) = self.index.get(12..)?.as_chunks::<8>();
        let begin = |entry: &[u8; 8]| {
            let [a, b, c, d, ..] = *entry;
            self.at.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]) as isize)
        };
        let after = entries.partition_point(|entry| begin(entry) <= ip);
        self.code.contains(&ip).then(|| entries.get(after.checked_sub(1)?).map(begin))?
    }
}

/// Returns the unwind tables of the program and its libraries, copied: a library may go away at any time.
pub(super) fn modules() -> Vec<(Module<Vec<u8>>, Table)> {
    let mut modules = Vec::new();
    // SAFETY: it is loaded while it is shown.
    crate::sys::modules::each(|info, headers| modules.extend(unsafe { module(info, headers) }));
    modules
}

/// Where an object's unwind tables lie, before it is moved to its base.
pub(super) struct Sections {
    pub(super) base: usize,
    /// Its `.eh_frame_hdr`.
    pub(super) index: Range<usize>,
    /// Its `.eh_frame`, and what follows it in its segment.
    pub(super) table: Range<usize>,
    /// Whether no code writes to that segment.
    #[cfg_attr(not(mungo_stacks), allow(dead_code))]
    pub(super) is_constant: bool,
    /// All that is loaded.
    pub(super) all: Range<usize>,
}

/// Finds the unwind tables of an object.
///
/// # Safety
/// The object of `info` is loaded.
pub(super) unsafe fn sections(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr]) -> Option<Sections> {
    let base = info.dlpi_addr as usize;
    let range = |h: &libc::Elf64_Phdr| h.p_vaddr as usize..(h.p_vaddr + h.p_memsz) as usize;
    let index = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).map(range)?;
    if index.len() < 8 {
        return None;
    }
    // SAFETY: by the caller, its segments are mapped at these addresses, and these are readable.
    let begin = unsafe { &*((base + index.start) as *const [u8; 8]) };
    // Version 1, and the table's place as a signed distance from here (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`): what all
    // linkers write.
    let [1, 0x1b, _, _, a, b, c, d] = *begin else { return None };
    let start = index.start.checked_add_signed(4 + i32::from_le_bytes([a, b, c, d]) as isize)?;
    let segments = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let segment = segments().find(|segment| range(segment).contains(&start))?;
    let all = segments().map(|s| range(s).start).min()?..segments().map(|s| range(s).end).max()?;
    let (table, is_constant) = (start..range(segment).end, segment.p_flags & libc::PF_W == 0);
    Some(Sections { base, index, table, is_constant, all })
}

/// # Safety
/// The object of `info` is loaded.
unsafe fn module(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr]) -> Option<(Module<Vec<u8>>, Table)> {
    // SAFETY: by the caller.
    let Sections { base, index, table, all, .. } = unsafe { sections(info, headers) }?;
    let range = |h: &libc::Elf64_Phdr| h.p_vaddr as usize..(h.p_vaddr + h.p_memsz) as usize;
    // SAFETY: by the caller, segments are mapped at these addresses, and these are readable.
    let bytes = |part: &Range<usize>| unsafe {
        std::slice::from_raw_parts((base + part.start) as *const u8, part.len()).to_vec()
    };
    let index_bytes = bytes(&index);
    let as_u64 = |r: &Range<usize>| r.start as u64..r.end as u64;
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        eh_frame_svma: Some(as_u64(&table)),
        eh_frame: Some(bytes(&table)),
        eh_frame_hdr_svma: Some(as_u64(&index)),
        eh_frame_hdr: Some(index_bytes.clone()),
        ..Default::default()
    };
    let moved = |part: Range<usize>| base + part.start..base + part.end;
    let with = |flag| move |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & flag != 0;
    let table = Table {
        code: moved(headers.iter().find(with(libc::PF_X)).map(range)?),
        readable: headers.iter().filter(with(libc::PF_R)).map(|h| moved(range(h))).collect(),
        index: index_bytes,
        at: base + index.start,
    };
    Some((Module::new(String::new(), as_u64(&moved(all)), base as u64, sections), table))
}
