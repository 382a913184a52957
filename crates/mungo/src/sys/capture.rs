//! Puts what goroutines of a test print into the test's output, as the harness does for its threads.
//!
//! std keeps the buffer that the test harness captures into in a thread-local. The harness makes each new thread copy
//! it from the one that starts it, by a hook that calls `std::io::set_output_capture`. A goroutine has thread-locals of
//! its own, so the copy must be made there too. That function is for std and the harness: no stable name leads to it.
//! So it is looked up in the program's symbol table, where the harness has left it, and called with the very types that
//! std declares.
//!
//! Whether it still has these types cannot be seen in the table, so it is called only if the program was compiled by
//! a version of Rust whose sources were looked at ([`KNOWN_MINORS`]), if it is a global symbol (else an optimiser
//! that saw the whole program may have changed how it is called), and if a trial does what it should. In all other
//! cases (another compiler, a stripped program) the output of goroutines is not captured. Nor is that of a thread
//! that a goroutine starts: the hook is in a thread-local too, and the function that sets it is generic, so that it
//! is in no table.
//!
//! WHY NOT copy the thread-local: its place and type are private, and nothing would tell if they were others. WHY NOT
//! run std's start routine of a thread on the goroutine: it comes by way of `pthread_create`, which we would have to
//! replace for the whole program. WHY NOT redirect file descriptors: the tests of a process share them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, OnceLock};

/// A buffer as std has it.
type Buffer = Option<Arc<Mutex<Vec<u8>>>>;

/// `std::io::set_output_capture`: sets the calling thread's buffer, and returns what it was.
type SetCapture = fn(Buffer) -> Buffer;

/// Versions 1.x of Rust in which [`SetCapture`] is the type of that function.
const KNOWN_MINORS: [u32; 2] = [95, 96];

/// The end of the function's name, between the number of the crate `std` and the end of the string.
const NAME: (&[u8], &[u8]) = (b"_RNvNtNtCs", b"_3std2io5stdio18set_output_capture\0");

/// The buffer that a test's goroutines print to.
#[derive(Debug)]
pub(crate) struct Capture {
    set: SetCapture,
    buffer: Arc<Mutex<Vec<u8>>>,
}

impl Capture {
    /// Returns the buffer of the calling thread. `None`: its output is not captured, or there is no way to know.
    pub(crate) fn current() -> Option<Capture> {
        static SET: OnceLock<Option<SetCapture>> = OnceLock::new();
        let set = (*SET.get_or_init(|| find().ok().flatten().filter(works)))?;
        let buffer = set(None)?;
        set(Some(buffer.clone()));
        Some(Capture { set, buffer })
    }

    /// Sets the buffer on a goroutine that has just started, with thread-locals of its own: their destructors give it
    /// back.
    pub(crate) fn begin(&self) {
        (self.set)(Some(self.buffer.clone()));
    }
}

/// Returns whether output comes where it should.
fn works(set: &SetCapture) -> bool {
    let buffer = Arc::new(Mutex::new(Vec::new()));
    let before = set(Some(buffer.clone()));
    print!("mungo");
    let after = set(before);
    after.is_some_and(|after| Arc::ptr_eq(&after, &buffer))
        && buffer.lock().is_ok_and(|text| text.as_slice() == b"mungo")
}

/// Returns the function, if this program has it and its type is known.
fn find() -> io::Result<Option<SetCapture>> {
    let program = Program(File::open("/proc/self/exe")?);
    let sections = program.sections()?;
    let texts = sections.get(program.word::<2>(0x3e)? as usize).ok_or(io::ErrorKind::InvalidData)?;
    let texts = program.read(texts)?;
    let comment = sections.iter().find(|s| texts.get(s.name..).is_some_and(|t| t.starts_with(b".comment\0")));
    let Some(comment) = comment else { return Ok(None) };
    if !is_known(&program.read(comment)?) {
        return Ok(None);
    }
    let Some(symbols) = sections.iter().find(|s| s.kind == SYMBOL_TABLE) else { return Ok(None) };
    let names = program.read(sections.get(symbols.link).ok_or(io::ErrorKind::InvalidData)?)?;
    let Some(name) = find_name(&names) else { return Ok(None) };
    let is_it = |symbol: &&[u8]| {
        const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
        number(&symbol[..4]) as usize == name && symbol[4] == GLOBAL_FUNCTION
    };
    let symbols = program.read(symbols)?;
    let Some(symbol) = symbols.chunks_exact(SYMBOL).find(is_it) else { return Ok(None) };
    let at = load_address().wrapping_add(number(&symbol[8..16]) as usize);
    // SAFETY: a function of this program, and by its name and the compiler's version of this type. Both were
    // compiled by the same compiler, so they agree on how it is called.
    Ok(Some(unsafe { std::mem::transmute::<usize, SetCapture>(at) }))
}

/// Returns the offset in bytes at which the name begins in a table of names.
fn find_name(names: &[u8]) -> Option<usize> {
    let (start, end) = NAME;
    let end_at = names.windows(end.len()).position(|text| text == end)?;
    let name = names[..end_at].iter().rposition(|&byte| byte == 0)? + 1;
    let number = names[name..end_at].strip_prefix(start)?;
    number.iter().all(u8::is_ascii_alphanumeric).then_some(name)
}

/// Returns whether all compilers that had a part in the program are known, and there is one.
fn is_known(comment: &[u8]) -> bool {
    let comment = String::from_utf8_lossy(comment);
    let mut versions = comment.split('\0').filter_map(|text| text.strip_prefix("rustc version ")).peekable();
    versions.peek().is_some()
        && versions.all(|version| {
            let mut parts = version.split(['.', '-', ' ']);
            parts.next() == Some("1")
                && parts.next().and_then(|minor| minor.parse().ok()).is_some_and(|n| KNOWN_MINORS.contains(&n))
        })
}

/// Returns the distance, in bytes, of the program from the address that it was linked for.
fn load_address() -> usize {
    let mut found = None;
    // The program comes first.
    crate::sys::modules::each(|info, _| _ = found.get_or_insert(info.dlpi_addr as usize));
    found.unwrap_or(0)
}

const SECTION: u64 = 64;
const SYMBOL_TABLE: u32 = 2;
const SYMBOL: usize = 24;

/// An ELF file of 64 bits, little endian, as this program is.
struct Program(File);

struct Section {
    name: usize,
    kind: u32,
    offset: u64,
    size: usize,
    link: usize,
}

impl Program {
    /// Reads a number of `N` bytes.
    fn word<const N: usize>(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(number(&bytes))
    }

    fn sections(&self) -> io::Result<Vec<Section>> {
        let (table, count) = (self.word::<8>(0x28)?, self.word::<2>(0x3c)?);
        let section = |at: u64| {
            Ok(Section {
                name: self.word::<4>(at)? as usize,
                kind: self.word::<4>(at + 4)? as u32,
                offset: self.word::<8>(at + 24)?,
                size: self.word::<8>(at + 32)? as usize,
                link: self.word::<4>(at + 40)? as usize,
            })
        };
        (0..count).map(|i| section(table + i * SECTION)).collect()
    }

    fn read(&self, section: &Section) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; section.size];
        self.0.read_exact_at(&mut bytes, section.offset)?;
        Ok(bytes)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_compilers() {
        assert!(is_known(b"rustc version 1.95.0 (59807616e 2026-04-14)\0Linker: LLD\0GCC: (Debian) 12\0"));
        assert!(is_known(b"\0rustc version 1.95.1\0"));
        assert!(is_known(b"rustc version 1.96.0 (Debian)\0"));
        for other in ["1.94.0", "1.950.0", "2.95.0", "1.97.0-nightly (abc)", "dev"] {
            assert!(!is_known(format!("rustc version {other}\0").as_bytes()), "{other}");
            assert!(!is_known(format!("rustc version 1.95.0\0rustc version {other}\0").as_bytes()), "{other}");
        }
        assert!(!is_known(b"GCC: (Debian) 12\0"));
    }

    #[test]
    fn names_of_others_are_not_taken() {
        let table = |name: &str| format!("\0main\0{name}\0end\0").into_bytes();
        assert_eq!(find_name(&table("_RNvNtNtCsjr9_3std2io5stdio18set_output_capture")), Some(6));
        for name in [
            "_RNvNtNtCsjr9_3std2io5stdio22try_set_output_capture",
            "_RNvNtNtCsjr9_5other3std2io5stdio18set_output_capture",
            "_RNvMNtNtCsjr9_3std2io5stdio18set_output_capture",
            "_RNvNtNtCsjr9_3std2io5stdio18set_output_capture2",
        ] {
            assert_eq!(find_name(&table(name)), None, "{name}");
        }
    }
}
