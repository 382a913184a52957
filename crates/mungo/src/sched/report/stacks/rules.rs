//! The rules by which a walk gets from a call to its caller, one for each return address, made of the tables that the
//! compiler wrote for panics.
//!
//! Of nearly all code a rule is: where the caller's frame begins, as a distance from the stack pointer or from the
//! frame pointer, and where the caller's frame pointer was saved. It fits 30 bits. A cache has one word for it and for
//! what its place does not say of the address, so that a word is good or not, and needs neither a lock nor a version.
//!
//! A rule that is not in the cache is made where it is needed, of tables that lie in memory: without an allocation or a
//! lock. TUNED: it takes 0.3 µs in a release build, some hundred times a look into the cache.

use super::tables::{Sections, sections};
use crate::sys::modules;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection, UnwindTableRow, X86_64,
};
use std::ops::Range;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Mutex, PoisonError};

const WORD: usize = size_of::<usize>();

/// Bits of an address.
const ADDRESS_BITS: u32 = 48;
/// Bits of it that are the place in the cache. TUNED: guess; 128 KiB, of which a program touches what it uses.
const PLACE_BITS: u32 = 14;
const TAG_BITS: u32 = ADDRESS_BITS - PLACE_BITS;

/// The cache: rules in the low 30 bits, tags above.
static CACHE: [AtomicU64; 1 << PLACE_BITS] = [const { AtomicU64::new(0) }; 1 << PLACE_BITS];

/// Bytes of stack that [`Rule::make`] may take. TUNED: a debug build takes 16 KiB.
pub(super) const NEEDED: usize = 32 << 10;

/// How to get from a call to its caller: in the low bits what the caller's frame is found by, from bit 2 on the
/// distance of its begin from there, and from bit 16 on the distance from there down to the saved frame pointer, in
/// words; 0: it is not saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule(u32);

/// What a frame is found by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    StackPointer,
    FramePointer,
    /// There is no caller.
    End,
    /// It cannot be found.
    Lost,
}

const DISTANCE_BITS: u32 = 14;
const SAVED_BITS: u32 = 13;

impl Rule {
    const fn new(by: By, distance: usize, saved: usize) -> Rule {
        let by = match by {
            By::StackPointer => 1,
            By::FramePointer => 2,
            By::End => return Rule(3),
            By::Lost => return Rule(3 | 1 << 2),
        };
        match distance >> DISTANCE_BITS == 0 && saved >> SAVED_BITS == 0 {
            true => Rule(by | (distance as u32) << 2 | (saved as u32) << (2 + DISTANCE_BITS)),
            false => Rule(3 | 1 << 2),
        }
    }

    #[inline(always)]
    pub(super) fn by(self) -> By {
        match self.0 & 3 {
            1 => By::StackPointer,
            2 => By::FramePointer,
            _ if self.0 >> 2 == 0 => By::End,
            _ => By::Lost,
        }
    }

    /// Returns the distance to the begin of the caller's frame, in bytes.
    #[inline(always)]
    pub(super) fn distance(self) -> usize {
        (self.0 >> 2 & ((1 << DISTANCE_BITS) - 1)) as usize * WORD
    }

    /// Returns the distance from there down to the saved frame pointer, in bytes; 0: it is not saved.
    #[inline(always)]
    pub(super) fn saved(self) -> usize {
        (self.0 >> (2 + DISTANCE_BITS)) as usize * WORD
    }

    /// Returns the rule for a return address, which has no more than 48 bits. `None`: it is not in the cache.
    #[inline(always)]
    pub(super) fn known(address: usize) -> Option<Rule> {
        let (place, tag) = split(address);
        let entry = CACHE[place].load(Relaxed);
        (entry >> (64 - TAG_BITS) == tag && entry != 0).then_some(Rule(entry as u32 & ((1 << 30) - 1)))
    }

    /// Makes the rule for a return address, and keeps it. Neither locks nor allocates; takes up to [`NEEDED`] bytes of
    /// stack.
    #[cold]
    #[inline(never)]
    pub(super) fn make(address: usize) -> Rule {
        let objects = OBJECTS.load(Acquire); // ORDERING: the list, by `refresh`
        // SAFETY: made by `refresh`, and never freed.
        let rule = unsafe { objects.as_ref() }.and_then(|objects| table_rule(objects, address.wrapping_sub(1)));
        let rule = rule.unwrap_or(Rule::new(By::Lost, 0, 0));
        let (place, tag) = split(address);
        // ORDERING: SeqCst: the rule is in the cache before the second look at the list. `refresh` changes the list
        // before it empties the cache: if that was before the rule came, the second look finds another list.
        CACHE[place].store(tag << (64 - TAG_BITS) | u64::from(rule.0), SeqCst);
        if OBJECTS.load(SeqCst) != objects {
            CACHE[place].store(0, Relaxed); // of an object that is gone, perhaps
        }
        rule
    }
}

/// Returns the place of an address in the cache, and what else there is to it: a multiplication that can be undone
/// spreads it over both.
#[inline(always)]
fn split(address: usize) -> (usize, u64) {
    let spread = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) & ((1 << ADDRESS_BITS) - 1);
    ((spread >> TAG_BITS) as usize, spread & ((1 << TAG_BITS) - 1))
}

/// The unwind tables of an object, which are not freed: a copy, or those of the program itself.
struct Object {
    /// All of it that is loaded.
    code: Range<usize>,
    index: &'static [u8],
    index_at: usize,
    table: &'static [u8],
    table_at: usize,
}

/// The objects that are loaded. Lists are never freed; there is a new one when objects were loaded or unloaded.
static OBJECTS: AtomicPtr<Vec<Object>> = AtomicPtr::new(std::ptr::null_mut());

/// What was seen so far. Under a lock.
struct Seen {
    generation: u64,
    copies: Copies,
}

/// Copies of tables, each kept once, wherever and whenever its library is loaded.
struct Copies(Vec<&'static [u8]>);

impl Copies {
    fn of(&mut self, bytes: &[u8]) -> &'static [u8] {
        if let Some(known) = self.0.iter().find(|known| **known == bytes) {
            return known;
        }
        let copy: &'static [u8] = bytes.to_vec().leak();
        self.0.push(copy);
        copy
    }
}

/// Looks which objects are loaded, if that has changed: then it returns where code is gone, or other code has come.
/// What a library's tables say is copied, because it may go away while a thread reads them; a copy stays for ever, and
/// is used again for a library that comes back.
pub(super) fn refresh() -> Option<Vec<Range<u64>>> {
    static SEEN: Mutex<Seen> = Mutex::new(Seen { generation: 0, copies: Copies(Vec::new()) });
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = modules::generation();
    if seen.generation == now {
        return None;
    }
    seen.generation = now;
    let mut list: Vec<Object> = Vec::new();
    let mut is_program = true; // the loader lists it first
    modules::each(|info, headers| {
        // SAFETY: it is loaded while it is shown.
        if let Some(found) = unsafe { sections(info, headers) } {
            // SAFETY: as above; the program stays loaded.
            list.push(unsafe { object(&found, is_program && found.is_constant, &mut seen.copies) });
        }
        is_program = false;
    });
    Some(publish(list))
}

/// Puts another list in force. Returns where code is gone, or other code has come. By the holder of the lock.
fn publish(list: Vec<Object>) -> Vec<Range<u64>> {
    let list = Box::leak(Box::new(list));
    // ORDERING: SeqCst: Release the list to `make`; and before the cache is emptied, see there.
    // SAFETY: the lists are never freed.
    let old = unsafe { OBJECTS.swap(list, SeqCst).as_ref() }.map_or(&[][..], Vec::as_slice);
    let gone: Vec<&Object> = old.iter().filter(|old| !list.iter().any(|new| new.is(old))).collect();
    if !gone.is_empty() {
        CACHE.iter().for_each(|entry| entry.store(0, SeqCst)); // ORDERING: see `make`
    }
    gone.into_iter().map(|gone| gone.code.start as u64..gone.code.end as u64).collect()
}

impl Object {
    /// Returns whether rules of the one are those of the other. A table is where it was, or it is another one: equal
    /// copies are the same.
    fn is(&self, other: &Object) -> bool {
        let parts =
            |object: &Object| (object.index_at, object.table_at, object.index.as_ptr(), object.table.as_ptr());
        self.code == other.code && parts(self) == parts(other)
    }
}

/// # Safety
/// The object is loaded; if it `stays`, it stays so, and its tables are not written to.
unsafe fn object(found: &Sections, stays: bool, copies: &mut Copies) -> Object {
    let Sections { base, index, table, all, .. } = found;
    // SAFETY: by the caller, segments are mapped at these addresses, and these are readable.
    let bytes = |part: &Range<usize>| unsafe {
        std::slice::from_raw_parts((base + part.start) as *const u8, part.len())
    };
    let (index_bytes, table_bytes) = (bytes(index), bytes(table));
    let code = base + all.start..base + all.end;
    let (index_at, table_at) = (base + index.start, base + table.start);
    let (index, table) = match stays {
        true => (index_bytes, table_bytes),
        false => (copies.of(index_bytes), copies.of(table_bytes)),
    };
    Object { code, index, index_at, table, table_at }
}

/// Room for the registers of a row of an unwind table, and for rows, without an allocation.
struct Fixed;

impl UnwindContextStorage<usize> for Fixed {
    type Rules = [(gimli::Register, RegisterRule<usize>); 20];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// Returns the rule at an instruction. `None`: there is none that fits.
fn table_rule(objects: &[Object], instruction: usize) -> Option<Rule> {
    let object = objects.iter().find(|object| object.code.contains(&instruction))?;
    let bases =
        BaseAddresses::default().set_eh_frame_hdr(object.index_at as u64).set_eh_frame(object.table_at as u64);
    let pc = instruction as u64;
    let index = EhFrameHdr::new(object.index, LittleEndian).parse(&bases, WORD as u8).ok()?;
    let index = index.table()?;
    let offset = index.pointer_to_offset(index.lookup(pc, &bases).ok()?).ok()?;
    let mut table: EhFrame<EndianSlice<'_, LittleEndian>> = EhFrame::new(object.table, LittleEndian);
    table.set_address_size(WORD as u8);
    let function = table.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
    let mut context = UnwindContext::<usize, Fixed>::new_in();
    let row = function.unwind_info_for_address(&table, &bases, &mut context, pc).ok()?;
    rule_of(row)
}

/// Returns what a row of an unwind table says, if it is what rules can say.
fn rule_of(row: &UnwindTableRow<usize, Fixed>) -> Option<Rule> {
    match row.register(X86_64::RA) {
        None | Some(RegisterRule::Undefined) => return Some(Rule::new(By::End, 0, 0)),
        Some(RegisterRule::Offset(-8)) => {}
        Some(_) => return None,
    }
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
    let by = match register {
        X86_64::RSP => By::StackPointer,
        X86_64::RBP => By::FramePointer,
        _ => return None,
    };
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
        Some(RegisterRule::Offset(offset)) => words(offset.checked_neg()?)?,
        Some(_) => return None,
    };
    Some(Rule::new(by, words(offset)?, saved))
}

fn words(bytes: i64) -> Option<usize> {
    let bytes = usize::try_from(bytes).ok()?;
    bytes.is_multiple_of(WORD).then_some(bytes / WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_says_what_it_was_made_of() {
        for (by, distance, saved) in
            [(By::StackPointer, 1, 0), (By::FramePointer, 2, 2), (By::StackPointer, 16383, 8191)]
        {
            let rule = Rule::new(by, distance, saved);
            assert_eq!((rule.by(), rule.distance(), rule.saved()), (by, distance * 8, saved * 8));
            assert!(rule.0 != 0 && rule.0 < 1 << 30);
        }
        assert_eq!(Rule::new(By::End, 0, 0).by(), By::End);
        assert_eq!(Rule::new(By::Lost, 0, 0).by(), By::Lost);
        assert_eq!(Rule::new(By::StackPointer, 1 << 14, 0).by(), By::Lost, "too far");
        assert_eq!(Rule::new(By::StackPointer, 1, 1 << 13).by(), By::Lost, "too far");
    }

    #[test]
    fn addresses_of_the_same_place_are_told_apart() {
        let spread = [0, 1, 0x5555_0000_1234, 0x5555_0000_1235, (1 << 48) - 1].map(split);
        for (at, one) in spread.iter().enumerate() {
            assert!(spread[..at].iter().all(|other| other != one));
        }
        assert!(spread.iter().all(|(place, tag)| *place < CACHE.len() && *tag < 1 << TAG_BITS));
    }

    #[test]
    fn tables_of_a_library_that_comes_back_are_copied_once() {
        let mut copies = Copies(Vec::new());
        let (one, two) = (copies.of(&[1, 2, 3]), copies.of(&[1, 2, 4]));
        assert!(std::ptr::eq(copies.of(&[1, 2, 3]), one) && std::ptr::eq(copies.of(&[1, 2, 4]), two));
        assert_eq!(copies.0.len(), 2);
        let object = |table| Object { code: 4096..8192, index: one, index_at: 5000, table, table_at: 6000 };
        assert!(object(one).is(&object(one)));
        assert!(!object(one).is(&object(two)), "the same place, and another library");
        assert!(!object(one).is(&Object { code: 4096..9000, ..object(one) }));
    }

    /// The compiler's functions have rules, and what is no code has none.
    #[test]
    fn code_has_rules_and_data_has_none() {
        refresh();
        let here = code_has_rules_and_data_has_none as *const () as usize;
        let first = Rule::make(here + 1);
        assert_eq!(
            (first.by(), first.distance(), first.saved()),
            (By::StackPointer, 8, 0),
            "a function begins"
        );
        assert_eq!(Rule::known(here + 1), Some(first));
        assert_eq!(Rule::known(here + 2), None);
        assert_eq!(Rule::make(&raw const first as usize).by(), By::Lost);
    }
}
