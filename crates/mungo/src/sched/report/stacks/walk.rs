//! From a goroutine to the number of its stack, in some nanoseconds a call: for traces.
//!
//! The stack is read where it lies, between the stack pointer and the slot's end, and nowhere else. Nothing of it
//! changes meanwhile: the goroutine is suspended and belongs to the caller, is the caller, or is interrupted by a
//! handler that the caller is in. A stack that is not the slot's (`stacker` and the like) has bounds that are not
//! known: nothing is read of it.
//!
//! The way from call to call goes by [rules](super::rules). Whatever a wrong rule may lead to, a walk moves up, within
//! the slot, and ends after [`DEPTH`] calls.

use super::names::{self, part_of};
use super::rules::{self, By, Rule};
use super::{Registers, capture};
use crate::sched::run::g::G;
use crate::sched::run::m::M;
use crate::stack::coro;
use crate::tracer::{self, Code, DEPTH, Named};
use mungo_trace::StackEnd;
use std::mem::MaybeUninit;
use std::ops::Range;

const WORD: usize = size_of::<usize>();

/// Whether a walk makes rules that it does not find in the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Make,
    /// It ends there: there is little stack to make one.
    Ends,
}

/// Tells the tracer what it cannot know itself of the program's code.
pub(crate) fn know_code() {
    let name = |address: u64| {
        let named = |frame: crate::sched::report::dump::Frame| Named {
            part: part_of(&frame),
            name: frame.function,
            file: frame.file.unwrap_or_default(),
            line: frame.line.unwrap_or(0),
        };
        names::name(address as usize).into_iter().map(named).collect()
    };
    tracer::set_code(Code { refresh: rules::refresh, name, forget: names::forget_symbols });
}

/// Returns the number of the stack of a goroutine that is suspended, and that the caller owns.
#[inline(never)]
pub(crate) fn of_suspended(g: &G) -> u32 {
    let Some(stack) = g.slot().map(|slot| slot.stack()) else { return walk(None, 0..0, Unknown::Ends) };
    if let Some((at, _)) = g.interruption()
        && let Some(registers) = capture::interrupted(g, at)
    {
        return walk(Some(registers), stack, Unknown::Make);
    }
    let sp = g.suspended_sp().filter(|sp| stack.contains(sp) && stack.end - sp >= coro::SAVED * WORD);
    let registers = sp.and_then(|sp| {
        // SAFETY: within the slot, above the stack pointer of a goroutine that is the caller's.
        let words: [usize; coro::SAVED] = std::array::from_fn(|at| unsafe { load(sp + at * WORD) });
        capture::suspended(sp, &words)
    });
    walk(registers, stack, Unknown::Make)
}

/// Returns the number of the stack of the goroutine that a signal interrupted on `m`. In the handler.
pub(crate) fn of_interrupted(m: &M, g: &G) -> u32 {
    let stack = g.slot().map_or(0..0, |slot| slot.stack());
    walk(Some(m.interrupted.read().1), stack, Unknown::Ends)
}

/// Returns the number of the stack of the goroutine that calls, from these registers on.
pub(crate) fn of_caller(g: &G, from: Registers) -> u32 {
    let Some(slot) = g.slot() else { return walk(None, 0..0, Unknown::Ends) };
    let unknown = match from.sp.checked_sub(slot.limit()) {
        Some(room) if room >= rules::NEEDED => Unknown::Make,
        _ => Unknown::Ends,
    };
    walk(Some(from), slot.stack(), unknown)
}

/// Returns the number of the stack that begins with some registers, and lies in `stack` or else is not read.
#[inline(always)]
fn walk(from: Option<Registers>, stack: Range<usize>, unknown: Unknown) -> u32 {
    let Some(from) = from.filter(|from| stack.contains(&from.sp)) else {
        return tracer::stack_number(FOREIGN, &[], StackEnd::Foreign);
    };
    let mut addresses = [const { MaybeUninit::uninit() }; DEPTH];
    // SAFETY: it begins in the stack, whose owner is as the module says.
    let (count, hash, end) = unsafe { climb(from, stack.end, unknown, &mut addresses) };
    // SAFETY: the first `count` are written.
    let addresses = unsafe { std::slice::from_raw_parts(addresses.as_ptr().cast::<u64>(), count) };
    tracer::stack_number(hash, addresses, end)
}

/// Goes from call to call, up to the end of a stack. Returns the number of return addresses, which it writes, their
/// hash, and where they end.
///
/// # Safety
/// The stack can be read from the stack pointer to `stack_end`.
#[inline(always)]
unsafe fn climb(
    from: Registers,
    stack_end: usize,
    unknown: Unknown,
    addresses: &mut [MaybeUninit<u64>; DEPTH],
) -> (usize, u64, StackEnd) {
    let Registers { ip, mut sp, mut bp, .. } = from;
    let (mut count, mut hash) = (0, 0);
    // As a place to return to, whose call is before it.
    let mut address = ip.wrapping_add(1);
    let end = loop {
        if address >> 48 != 0 {
            break StackEnd::Lost;
        }
        addresses[count].write(address as u64);
        count += 1;
        hash = mix(hash, address as u64);
        if count == DEPTH {
            break StackEnd::Cut;
        }
        let rule = match Rule::known(address) {
            Some(rule) => rule,
            None if unknown == Unknown::Make => Rule::make(address),
            None => break StackEnd::Lost,
        };
        let caller = match rule.by() {
            By::StackPointer => sp.wrapping_add(rule.distance()),
            By::FramePointer => bp.wrapping_add(rule.distance()),
            By::End => break StackEnd::Whole,
            By::Lost => break StackEnd::Lost,
        };
        // The frame is above the stack pointer and below the end, and has at least the return address.
        if caller % WORD != 0 || caller > stack_end || caller < sp + WORD {
            break StackEnd::Lost;
        }
        // SAFETY: in the stack, above its pointer.
        address = unsafe { load(caller - WORD) };
        let saved = caller.wrapping_sub(rule.saved());
        // One that was restored already, at the end of a function, may still have a rule.
        if (sp..caller).contains(&saved) {
            // SAFETY: as above.
            bp = unsafe { load(saved) };
        }
        sp = caller;
    };
    (count, mix(hash, u64::from(end.code())), end)
}

/// The hash of a stack that was not read.
const FOREIGN: u64 = 1;

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(26) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Reads a word of other code's stack: AddressSanitizer would object to what lies between its variables.
///
/// # Safety
/// `at` is aligned and can be read.
#[inline(always)]
unsafe fn load(at: usize) -> usize {
    let word;
    // SAFETY: by the caller.
    unsafe {
        std::arch::asm!("mov {}, [{}]", out(reg) word, in(reg) at, options(nostack, readonly, preserves_flags));
    }
    word
}

#[cfg(test)]
mod tests {
    use super::super::{Capture, Unwinder};
    use super::*;
    use crate::sched::run::current;
    use std::hint::black_box;

    /// Parks in a depth of `n` calls, with frames of different sizes, until `from` has a value.
    #[inline(never)]
    fn deep(n: usize, from: &crate::chan::Receiver<()>) -> usize {
        if n == 0 {
            from.recv().unwrap();
            return 0;
        }
        let room = [n; 37];
        let aligned = Aligned([n as u8; 64]);
        let sum = black_box(&room)[3] + usize::from(black_box(&aligned).0[5]);
        let inner = if n.is_multiple_of(2) { other(n, from) } else { deep(n - 1, from) };
        black_box(sum + inner)
    }

    #[repr(align(64))]
    struct Aligned([u8; 64]);

    #[inline(never)]
    fn other(n: usize, from: &crate::chan::Receiver<()>) -> usize {
        let text = format!("{n}");
        black_box(deep(n - 1, from)) + text.len()
    }

    /// The walk finds what an unwinder finds that evaluates the tables, in one goroutine after the other.
    #[test]
    fn a_walk_finds_the_same_calls_as_an_unwinder() {
        rules::refresh();
        let (mut capture, mut unwinder) = (Capture::new(true), Unwinder::new());
        for depth in 0..30 {
            let (to, from) = crate::chan::bounded(0);
            let (tell, told) = std::sync::mpsc::channel();
            let parked = crate::go(move || {
                tell.send(current::g().map(|g| std::ptr::from_ref(g).addr())).unwrap();
                deep(depth, &from)
            });
            // SAFETY: Gs are never freed.
            let g = unsafe { &*(told.recv().unwrap().expect("a goroutine") as *const G) };
            let mut compare = || {
                capture.parked(g);
                let number = unwinder.number(&capture.image());
                let mut addresses = [const { MaybeUninit::uninit() }; DEPTH];
                let end = g.slot().expect("a stack").stack().end;
                // SAFETY: the goroutine is held.
                let (count, _, end) = unsafe { climb(capture.registers, end, Unknown::Make, &mut addresses) };
                // SAFETY: written.
                let walked = addresses[..count].iter().map(|address| unsafe { address.assume_init() } as usize);
                (unwinder.get(number).addresses.clone(), walked.collect::<Vec<_>>(), end)
            };
            let (unwound, walked, end) = loop {
                match g.hold(&mut compare) {
                    Some(found) => break found,
                    None => std::thread::yield_now(),
                }
            };
            assert!(end == StackEnd::Whole || end == StackEnd::Cut && walked.len() == DEPTH, "{end:?}");
            assert_eq!(walked, unwound[..walked.len()]);
            assert!(end == StackEnd::Cut || walked.len() == unwound.len());
            to.send(()).unwrap();
            parked.join().unwrap();
        }
    }
}
