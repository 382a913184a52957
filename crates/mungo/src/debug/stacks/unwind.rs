//! From a copy of a stack to the names of functions.

use super::capture::Capture;
use crate::debug::dump::{Frame, Stack};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames beyond this are not even looked for; recursion may go deeper.
const UNWOUND: usize = 1024;

/// Takes stacks: one at a time in the process.
pub(crate) struct Tracer {
    pub(crate) capture: Capture,
    most_frames: usize,
    unwinder: UnwinderX86_64<Vec<u8>>,
    tables: Vec<Table>,
    cache: CacheX86_64,
    /// Equal traces are one.
    numbers: HashMap<Trace, usize>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// A stack without names.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Trace {
    /// Where each call goes on.
    addresses: Vec<usize>,
    note: Option<&'static str>,
}

impl Tracer {
    /// On a plain thread, since it waits for the one before.
    pub(crate) fn new(wanted: bool, most_frames: usize) -> Tracer {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut unwinder, mut tables) = (UnwinderX86_64::new(), Vec::new());
        if wanted {
            for (module, table) in modules() {
                unwinder.add_module(module);
                tables.push(table);
            }
        }
        Tracer {
            capture: Capture::new(wanted),
            most_frames,
            unwinder,
            tables,
            cache: CacheX86_64::new(),
            numbers: HashMap::new(),
            _one_at_a_time: one,
        }
    }

    /// The number of what was captured last.
    pub(crate) fn trace(&mut self) -> usize {
        let trace = match self.capture.missing {
            _ if !self.capture.wanted => Trace { addresses: Vec::new(), note: None },
            Some(note) => Trace { addresses: Vec::new(), note: Some(note) },
            None => self.unwind(),
        };
        let next = self.numbers.len();
        *self.numbers.entry(trace).or_insert(next)
    }

    fn unwind(&mut self) -> Trace {
        let Capture { registers, cut, .. } = self.capture;
        let mut at = registers;
        let mut state = UnwindRegsX86_64::new(at.ip as u64, at.sp as u64, at.bp as u64);
        let mut read = |address| self.capture.word(address).ok_or(());
        // As a place to return to, whose call is before it. If it was interrupted there instead, the place after.
        let mut addresses = vec![at.ip + 1];
        let mut ended = false;
        while addresses.len() < UNWOUND
            && let Some(address) = match addresses.len() {
                1 => Some(FrameAddress::from_instruction_pointer(at.ip as u64)),
                _ => FrameAddress::from_return_address(at.ip as u64),
            }
        {
            match self.unwinder.unwind_frame(address, &mut state, &mut self.cache, &mut read) {
                Ok(Some(next)) if next != 0 => {
                    at.ip = next as usize;
                    addresses.push(at.ip);
                }
                // The first frame of a goroutine has no caller, or one on the stack of its thread, which is not in the
                // copy. Others need a frame pointer, and that of a blocked thread is not known: see `Capture::blocked`.
                Ok(None)
                    if state.bp() == 0
                        && let Some(found) = self.return_of(at.ip, state.sp() as usize) =>
                {
                    let word = |address: usize| self.capture.word(address as u64).unwrap_or(0);
                    at.ip = word(found) as usize;
                    addresses.push(at.ip);
                    state = UnwindRegsX86_64::new(at.ip as u64, found as u64 + 8, word(found - 8));
                }
                _ => {
                    ended = true;
                    break;
                }
            }
        }
        let note = (cut || !ended).then_some("the stack is deeper: this is its inner part");
        Trace { addresses, note }
    }

    /// Where on the stack the return address of the call of the function at `ip` lies: the first word above `sp` that
    /// follows a call of just this function.
    fn return_of(&self, ip: usize, sp: usize) -> Option<usize> {
        /// The frames of std's functions are small.
        const SEARCHED: usize = 4096;
        let function = self.tables.iter().find_map(|table| table.function_at(ip))?;
        (sp + 8..sp + SEARCHED).step_by(8).find(|at| {
            let to = self.capture.word(*at as u64).map_or(0, |word| word as usize);
            let from = self.tables.iter().find(|table| table.code.contains(&to));
            from.and_then(|table| table.called_before(to)) == Some(function)
        })
    }

    /// The stacks by number, with names.
    pub(crate) fn name_all(self) -> Vec<Arc<Stack>> {
        let mut names: HashMap<usize, Vec<Frame>> = HashMap::new();
        let mut stacks = vec![Arc::default(); self.numbers.len()];
        for (trace, number) in &self.numbers {
            let mut frames: Vec<Frame> = Vec::new();
            for address in &trace.addresses {
                frames.extend_from_slice(names.entry(*address).or_insert_with(|| name(*address)));
            }
            let mut frames = without_runtime(frames);
            let mut note = trace.note;
            if frames.len() > self.most_frames {
                frames.truncate(self.most_frames);
                note = Some("more frames are not shown: see DumpOptions::frames");
            }
            stacks[*number] = Arc::new(Stack { frames, note });
        }
        backtrace::clear_symbol_cache();
        stacks
    }
}

/// The functions at an address that a call returns to: several if some were inlined.
fn name(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        // Without the hash at its end.
        let name = symbol.name().map(|name| format!("{name:#}"));
        let function = name.map_or_else(|| format!("{address:#x}"), without_arguments);
        let file = symbol.filename().map(|path| path.display().to_string());
        frames.push(Frame { function, file, line: symbol.lineno() });
    });
    if frames.is_empty() {
        frames.push(Frame { function: format!("{address:#x}"), file: None, line: None });
    }
    frames
}

/// `recv<alloc::vec::Vec<u8>>` as `recv`: line tables have names like that, and they can be very long.
fn without_arguments(mut name: String) -> String {
    let mut depth = 0;
    let open = name.rfind(|c| {
        depth += i32::from(c == '>') - i32::from(c == '<');
        depth == 0
    });
    if name.ends_with('>') && !name.ends_with("->") && open.is_some_and(|at| at > 0) {
        name.truncate(open.unwrap_or(name.len()));
    }
    name
}

/// Leaves out how a goroutine is started and how it is switched.
fn without_runtime(mut frames: Vec<Frame>) -> Vec<Frame> {
    if let Some(entry) = frames.iter().position(|f| is_ours(f, "sched/entry.rs")) {
        let kept = frames[..entry].iter().rposition(|f| !starts_closure(f)).map_or(0, |at| at + 1);
        frames.truncate(kept);
    }
    let switches = |f: &Frame| {
        let file = f.file.as_deref().unwrap_or_default();
        file.contains("/corosensei-") || ["sched/", "stack/", "current.rs"].iter().any(|part| is_ours(f, part))
    };
    let first = frames.iter().position(|f| !switches(f));
    frames.drain(..first.unwrap_or(0));
    frames
}

/// It is a function in this part of our own sources. By the file, since names of inlined functions are short in
/// programs with line tables only.
fn is_ours(frame: &Frame, part: &str) -> bool {
    let root = file!().trim_end_matches("debug/stacks/unwind.rs");
    let file = frame.file.as_deref().unwrap_or_default();
    file.find(root).is_some_and(|at| file[at + root.len()..].starts_with(part))
}

/// It is between a goroutine's entry and its closure.
fn starts_closure(frame: &Frame) -> bool {
    const LIBRARY: [&str; 4] = [
        "std/src/panic.rs",
        "std/src/panicking.rs",
        "core/src/panic/unwind_safe.rs",
        "core/src/ops/function.rs",
    ];
    let file = frame.file.as_deref().unwrap_or_default();
    frame.function == "__rust_try" || LIBRARY.iter().any(|name| file.ends_with(name))
}

/// The sorted table of an object's functions.
struct Table {
    /// Its instructions, and everything of it that can be read.
    code: Range<usize>,
    readable: Vec<Range<usize>>,
    /// Its `.eh_frame_hdr`, and where that lies.
    index: Vec<u8>,
    at: usize,
}

impl Table {
    /// The function that is called by the instruction before `to`, if there is such an instruction.
    fn called_before(&self, to: usize) -> Option<usize> {
        if !self.code.contains(&to.checked_sub(6)?) {
            return None;
        }
        // SAFETY: six bytes of an object's code, which is loaded: somebody is about to return there.
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

    /// Where the function begins that has an instruction at `ip`.
    fn function_at(&self, ip: usize) -> Option<usize> {
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

/// The unwind tables of the program and its libraries, copied: a library may go away as soon as it likes.
fn modules() -> Vec<(Module<Vec<u8>>, Table)> {
    let mut modules = Vec::new();
    // SAFETY: it is loaded while it is shown.
    crate::sys::modules::each(|info, headers| modules.extend(unsafe { module(info, headers) }));
    modules
}

/// # Safety
/// The object of `info` is loaded.
unsafe fn module(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr]) -> Option<(Module<Vec<u8>>, Table)> {
    let base = info.dlpi_addr as usize;
    let range = |h: &libc::Elf64_Phdr| h.p_vaddr as usize..(h.p_vaddr + h.p_memsz) as usize;
    let loaded = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(range);
    let index = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).map(range)?;
    // SAFETY: by the caller, segments are mapped at these addresses, and these are readable.
    let bytes = |part: &Range<usize>| unsafe {
        std::slice::from_raw_parts((base + part.start) as *const u8, part.len()).to_vec()
    };
    let index_bytes = bytes(&index);
    // Version 1, and the table's place as a signed distance from here (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`): what all
    // linkers write.
    let [1, 0x1b, _, _, a, b, c, d, ..] = index_bytes[..] else { return None };
    let start = index.start.checked_add_signed(4 + i32::from_le_bytes([a, b, c, d]) as isize)?;
    let table = start..loaded().find(|segment| segment.contains(&start))?.end;
    let all = loaded().map(|s| s.start).min()?..loaded().map(|s| s.end).max()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_last_arguments_only() {
        let short = |name: &str| without_arguments(name.to_owned());
        assert_eq!(short("recv<alloc::vec::Vec<u8>>"), "recv");
        assert_eq!(short("chan::Chan<T>::recv"), "chan::Chan<T>::recv");
        assert_eq!(short("<core::A<F> as B<()>>::call"), "<core::A<F> as B<()>>::call");
        assert_eq!(short("<A as B>"), "<A as B>");
        assert_eq!(short(""), "");
    }
}
