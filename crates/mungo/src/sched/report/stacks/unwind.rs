//! From a copy of a stack to the addresses of its calls.

use super::capture::Capture;
use super::names::{forget_symbols, name, of_program};
use super::tables::{Table, modules};
use super::{Image, Registers};
use crate::sched::report::dump::{Frame, Stack};
use framehop::{
    CacheNative, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder as _, UnwinderNative,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of frames beyond which none is looked for; recursion may go deeper.
const UNWOUND: usize = 1024;
const WORD: usize = size_of::<usize>();

/// A stack without names.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Trace {
    /// Where each call goes on.
    pub(crate) addresses: Vec<usize>,
    pub(crate) note: Option<&'static str>,
}

/// Unwinds copies of stacks, and numbers them: equal traces are one.
pub(crate) struct Unwinder {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    tables: Vec<Table>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    numbers: HashMap<Arc<Trace>, usize>,
    traces: Vec<Arc<Trace>>,
    /// By instruction and number of words: the ways that were found in stacks that began alike.
    known: HashMap<(usize, usize), Vec<Way>>,
}

/// The way up a stack that was unwound.
struct Way {
    /// Where the return addresses lie in the copy, in words from its begin, and what they are.
    returns: Vec<(usize, usize)>,
    number: usize,
}

impl Unwinder {
    /// Makes one for the objects that are loaded now.
    pub(crate) fn new() -> Unwinder {
        let mut made = Unwinder {
            unwinder: UnwinderNative::new(),
            tables: Vec::new(),
            cache: CacheNative::new(),
            numbers: HashMap::new(),
            traces: Vec::new(),
            known: HashMap::new(),
        };
        made.reload();
        made
    }

    /// Looks again at which objects are loaded. The numbers stay.
    pub(crate) fn reload(&mut self) {
        (self.unwinder, self.cache) = (UnwinderNative::new(), CacheNative::new());
        self.tables.clear();
        self.known.clear();
        for (module, table) in modules() {
            self.unwinder.add_module(module);
            self.tables.push(table);
        }
    }

    /// Returns the trace of a number.
    #[cfg_attr(not(all(feature = "profile", mungo_native)), allow(dead_code))]
    pub(crate) fn get(&self, number: usize) -> &Arc<Trace> {
        &self.traces[number]
    }

    /// Returns the number of a trace.
    pub(crate) fn number_of(&mut self, trace: Trace) -> usize {
        if let Some(number) = self.numbers.get(&trace) {
            return *number;
        }
        let (number, trace) = (self.traces.len(), Arc::new(trace));
        self.traces.push(trace.clone());
        self.numbers.insert(trace, number);
        number
    }

    /// Returns the number of the trace of a copied stack.
    ///
    /// A stack of the same length, which stopped at the same instruction, and has the same return addresses in the same
    /// places as one before, was made by the same calls: it is not unwound again. A million goroutines that wait at the
    /// same place take the time of looking at a dozen words each.
    pub(crate) fn number(&mut self, image: &Image<'_>) -> usize {
        let like = (image.registers.ip, image.words.len());
        let is_whole = !image.cut && !image.foreign;
        if is_whole && let Some(ways) = self.known.get(&like) {
            let fits = |way: &&Way| way.returns.iter().all(|(at, to)| image.words[*at] == *to);
            if let Some(way) = ways.iter().find(fits) {
                return way.number;
            }
        }
        let mut returns = Some(Vec::new());
        let trace = self.unwind(image, &mut returns);
        let number = self.number_of(trace);
        if is_whole && let Some(returns) = returns {
            self.known.entry(like).or_default().push(Way { returns, number });
        }
        number
    }

    /// Unwinds. `returns` gets the places of the return addresses, or becomes `None` if some were found otherwise.
    fn unwind(&mut self, image: &Image<'_>, returns: &mut Option<Vec<(usize, usize)>>) -> Trace {
        let Image { registers, low, cut, foreign, .. } = *image;
        let mut at = registers;
        let mut state = begin_at(at);
        let mut read = |address| image.word(address).ok_or(());
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
                    note_return(returns, image, (state.sp() as usize).wrapping_sub(low + WORD) / WORD, at.ip);
                }
                // The first frame of a goroutine has no caller, or one on the stack of its thread, which is not in the
                // copy. Others need a frame pointer, and that of a blocked thread is not known: see `Capture::blocked`.
                Ok(None)
                    if frame_pointer(&state) == 0
                        && let Some(found) = self.return_of(image, at.ip, state.sp() as usize) =>
                {
                    let word = |address: usize| image.word(address as u64).unwrap_or(0);
                    at.ip = word(found) as usize;
                    addresses.push(at.ip);
                    state =
                        begin_at(Registers { ip: at.ip, sp: found + 8, bp: word(found - 8) as usize, lr: 0 });
                    *returns = None;
                }
                _ => {
                    ended = true;
                    break;
                }
            }
        }
        let note = match foreign {
            true => Some("it is on another stack than its own: this is the part there"),
            false => (cut || !ended).then_some("the stack is deeper: this is its inner part"),
        };
        Trace { addresses, note }
    }

    /// Returns where on the stack the return address of the call of the function at `ip` lies: the first word above
    /// `sp` that follows a call of just this function.
    fn return_of(&self, image: &Image<'_>, ip: usize, sp: usize) -> Option<usize> {
        /// Bytes that are searched: the frames of std's functions are small.
        const SEARCHED: usize = 4096;
        let function = self.tables.iter().find_map(|table| table.function_at(ip))?;
        (sp + 8..sp + SEARCHED).step_by(8).find(|at| {
            let to = image.word(*at as u64).map_or(0, |word| word as usize);
            let from = self.tables.iter().find(|table| table.code.contains(&to));
            from.and_then(|table| table.called_before(to)) == Some(function)
        })
    }
}

/// Returns the registers as the unwinder wants them.
fn begin_at(at: Registers) -> UnwindRegsNative {
    #[cfg(target_arch = "x86_64")]
    return UnwindRegsNative::new(at.ip as u64, at.sp as u64, at.bp as u64);
    #[cfg(target_arch = "aarch64")]
    {
        // Return addresses may be signed in the bits that addresses of programs do not use.
        let mask = framehop::aarch64::PtrAuthMask::from_max_known_address((1 << 48) - 1);
        UnwindRegsNative::new_with_ptr_auth_mask(mask, at.lr as u64, at.sp as u64, at.bp as u64)
    }
}

fn frame_pointer(state: &UnwindRegsNative) -> u64 {
    #[cfg(target_arch = "x86_64")]
    return state.bp();
    #[cfg(target_arch = "aarch64")]
    state.fp()
}

/// Notes that the word at `place` is the return address `to`; gives up if it is not.
fn note_return(returns: &mut Option<Vec<(usize, usize)>>, image: &Image<'_>, place: usize, to: usize) {
    match returns {
        Some(noted) if image.words.get(place) == Some(&to) => noted.push((place, to)),
        _ => *returns = None,
    }
}

/// Takes stacks: one at a time in the process.
pub(crate) struct Tracer {
    pub(crate) capture: Capture,
    most_frames: usize,
    /// `None`: stacks are not wanted.
    unwinder: Option<Unwinder>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Tracer {
    /// Makes a tracer, on a plain thread, since it waits for the one before.
    pub(crate) fn new(wanted: bool, most_frames: usize) -> Tracer {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let unwinder = wanted.then(Unwinder::new);
        Tracer { capture: Capture::new(wanted), most_frames, unwinder, _one_at_a_time: one }
    }

    /// Returns the number of what was captured last.
    pub(crate) fn trace(&mut self) -> usize {
        let Some(unwinder) = &mut self.unwinder else { return 0 };
        match self.capture.missing {
            Some(note) => unwinder.number_of(Trace { addresses: Vec::new(), note: Some(note) }),
            None => unwinder.number(&self.capture.image()),
        }
    }

    /// Returns the traces by number.
    pub(crate) fn into_traces(self) -> Vec<Arc<Trace>> {
        self.unwinder.map_or_else(|| vec![Arc::default()], |unwinder| unwinder.traces)
    }

    /// Returns the stacks by number, with names.
    pub(crate) fn name_all(self) -> Vec<Arc<Stack>> {
        let most_frames = self.most_frames;
        let mut names: HashMap<usize, Vec<Frame>> = HashMap::new();
        let named = |trace: Arc<Trace>| {
            let mut frames: Vec<Frame> = Vec::new();
            for address in &trace.addresses {
                frames.extend_from_slice(names.entry(*address).or_insert_with(|| name(*address)));
            }
            let kept = of_program(&frames);
            frames.truncate(kept.end);
            frames.drain(..kept.start);
            let mut note = trace.note;
            if frames.len() > most_frames {
                frames.truncate(most_frames);
                note = Some("more frames are not shown: see DumpOptions::frames");
            }
            Arc::new(Stack { frames, note })
        };
        let stacks = self.into_traces().into_iter().map(named).collect();
        forget_symbols();
        stacks
    }
}
