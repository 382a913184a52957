//! Finds out how this process's thread blocks are laid out, and checks it against a thread.

use super::{
    Extra, KEYS_PER_BLOCK, KeyData, Layout, Parts, Word, arch, malloc_cache, modules, robust, surplus,
    thread_name, thread_pointer,
};
use crate::stack::tls::{Refusal, WORDS};
use crate::sys::{is_readable, thread};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

const UNKNOWN: &str = "this C library lays its thread blocks out in an unknown way";

/// Bytes of stack of the thread whose block is looked at.
const INSPECTOR_STACK: usize = 256 << 10;

/// Looks a symbol up in the loaded libraries.
fn symbol(name: &CStr) -> Result<usize, &'static str> {
    // SAFETY: a NUL-terminated name.
    match unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize {
        0 => Err("this C library lacks a symbol that own thread-locals need"),
        at => Ok(at),
    }
}

/// Returns the offset of a field of `struct pthread`, as glibc tells debuggers: (bits, count, offset).
fn field(name: &CStr) -> Result<usize, &'static str> {
    // SAFETY: glibc's `_thread_db_` descriptors are three 32-bit words.
    Ok(unsafe { (symbol(name)? as *const [u32; 3]).read() }[2] as usize)
}

/// Returns the bytes that each thread has for `struct pthread` and the thread-locals of the program and its libraries,
/// with some for libraries to come, and their alignment. Both never change.
fn static_info() -> Result<(usize, usize), &'static str> {
    let at = symbol(c"_dl_get_tls_static_info")?;
    let (mut size, mut align) = (0usize, 0usize);
    // SAFETY: glibc's internal function, with the signature it has had since 2.1.
    unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*mut usize, *mut usize)>(at)(&mut size, &mut align);
    }
    Ok((size, align))
}

/// Returns what the C library takes from the stack of each thread, in bytes. Asked once.
pub(crate) fn static_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| static_info().map_or(0, |(size, align)| size + align))
}

/// Collects the layout. Takes the room for static thread-locals of later libraries away, unless it is wanted.
pub(super) fn layout(late_static: bool) -> Result<Layout, Refusal> {
    arch::may_write_thread_pointer()?;
    // A second thread sees the layout of an ordinary thread; the main thread's differs (`__resp`).
    let builder = std::thread::Builder::new().name(thread_name::PROBE.to_owned());
    let builder = builder.stack_size(INSPECTOR_STACK + static_size());
    let thread = thread::own(|| builder.spawn(inspect)).map_err(Refusal::NotNow)?;
    let mut layout = thread.join().unwrap_or(Err(Refusal::Never("looking at a thread's layout failed")))?;
    layout.late_static = late_static || !layout.take_surplus()?;
    Ok(layout)
}

/// Collects the layout from the calling, ordinary thread, and checks it against this thread.
fn inspect() -> Result<Layout, Refusal> {
    thread_name::learn();
    let tp = thread_pointer();
    let relative = |at: usize| at.wrapping_sub(tp) as isize;
    let (size, align) = static_info()?;
    // SAFETY: glibc's internal symbols, with the signatures they have had since 2.1 (`_dl_*`) and 2.18.
    let mut layout = unsafe {
        let size_of_pthread = (symbol(c"_thread_db_sizeof_pthread")? as *const u32).read() as usize;
        let parts = arch::parts(size, size_of_pthread, size_of::<Extra>());
        let Parts { below, above, pthread, static_tls, extra } =
            parts.ok_or("the static TLS area is smaller than a thread block")?;
        let words = relative(WORDS.with(std::ptr::from_ref).addr());
        let fields = arch::FIRST_FIELD..size_of_pthread;
        let field = |name| field(name).map(|at| pthread + at as isize);
        let robust = robust::find(tp.wrapping_add_signed(pthread), fields);
        Layout {
            below,
            above,
            pthread,
            size_of_pthread,
            extra,
            words: static_tls.contains(&words).then_some(words),
            static_tls,
            align,
            allocate_tls: std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> *mut c_void>(
                symbol(c"_dl_allocate_tls")?,
            ),
            deallocate_tls: std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void, bool)>(symbol(
                c"_dl_deallocate_tls",
            )?),
            malloc: symbol(c"malloc")?,
            call_tls_dtors: std::mem::transmute::<usize, unsafe extern "C" fn()>(symbol(c"__call_tls_dtors")?),
            ctype_init: std::mem::transmute::<usize, unsafe extern "C" fn()>(symbol(c"__ctype_init")?),
            keys: symbol(c"__pthread_keys")?,
            tid: field(c"_thread_db_pthread_tid")?,
            list: field(c"_thread_db_pthread_list")?,
            specific: field(c"_thread_db_pthread_specific")?,
            rseq: None,
            resolver: None,
            h_errno: None,
            malloc_cache: None,
            libc_part: None,
            libc_usual: Vec::new(),
            texts: Vec::new(),
            dlerror: None,
            close_resolver: None,
            errno: relative(libc::__errno_location() as usize),
            robust: robust.map(|(at, offset)| (pthread + at as isize, offset)),
            vector: Default::default(),
            generation: 0,
            late_static: true,
        }
    };
    layout.check(tp)?;
    if let Some(part) = layout.find_modules()?.libc {
        let at = part.range(tp);
        layout.malloc_cache = malloc_cache::find(at);
        // SAFETY: this thread's block.
        layout.libc_usual = unsafe { part.changed_words(tp as *const u8) }.collect();
        layout.libc_part = Some(part);
    }
    layout.find_optional(tp);
    if !layout.has_rseq_inside() {
        return Err(UNKNOWN.into());
    }
    Ok(layout)
}

impl Layout {
    /// Looks for the modules that are loaded now.
    fn find_modules(&mut self) -> Result<modules::Found, &'static str> {
        let mut found = modules::find(self)?;
        self.vector = std::mem::take(&mut found.template);
        // Where libraries with on-demand TLS are there already, each reset looks for it.
        self.generation = if found.dynamic { usize::MAX } else { self.vector.generation() };
        Ok(found)
    }

    /// Takes the room below the thread-locals that are in use away from the loader, and gives it to the stack. Returns
    /// `false` if some is left.
    fn take_surplus(&mut self) -> Result<bool, &'static str> {
        if !arch::STACK_BELOW_STATIC_TLS {
            return Ok(false);
        }
        // What the kernel writes for the thread may lie there as well.
        let lowest = self.find_modules()?.lowest.min(self.rseq.unwrap_or(0));
        let refused = surplus::take((lowest - self.static_tls.start) as usize);
        // The vectors have a module more, whose place says that all was taken.
        let taken = refused && self.find_modules()?.taken_from == self.static_tls.start;
        if taken {
            self.below = lowest.unsigned_abs();
        }
        Ok(taken)
    }

    /// Looks for what not every version has. Last: a symbol that is missing leaves a message in libc's thread-locals.
    fn find_optional(&mut self, tp: usize) {
        let relative = |at: usize| at.wrapping_sub(tp) as isize;
        // SAFETY: glibc's symbols, with the types that they have.
        unsafe {
            self.rseq = symbol(c"__rseq_offset").ok().map(|at| (at as *const isize).read());
            self.h_errno = symbol(c"__h_errno_location")
                .ok()
                .map(|at| relative(std::mem::transmute::<usize, unsafe extern "C" fn() -> usize>(at)()));
            self.close_resolver = symbol(c"__res_nclose")
                .ok()
                .map(|at| std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(at));
            if let Ok(resp) = symbol(c"__resp") {
                // A pointer in this thread's TLS.
                let state = relative((resp as *const usize).read());
                if self.fields().contains(&state) {
                    self.resolver = Some((relative(resp), state));
                }
            }
        }
        self.dlerror = symbol(c"__libc_dlerror_result").ok().map(relative);
        self.find_texts(tp);
    }

    /// Looks for the pointers to texts in `struct pthread`: they lead to what the functions return.
    fn find_texts(&mut self, tp: usize) {
        /// The number of no error and of no signal.
        const UNKNOWN: c_int = 0x7654_3210;
        // SAFETY: any number will do. The texts are this thread's until its next call.
        let made = unsafe { [libc::strerror(UNKNOWN) as Word, libc::strsignal(UNKNOWN) as Word] };
        let words = self.fields().step_by(size_of::<Word>());
        // SAFETY: `check` found that the fields are part of this thread's block.
        let leads_to_one =
            |at: &isize| made.contains(&unsafe { (tp.wrapping_add_signed(*at) as *const Word).read() });
        self.texts = words.filter(leads_to_one).collect();
    }

    /// Returns whether the kernel's `struct rseq`, if there is one, is part of a block: `create` writes there.
    fn has_rseq_inside(&self) -> bool {
        /// Bytes of the structure in its first version, and its alignment.
        const LEN: isize = 32;
        let block = -(self.below as isize)..=self.above as isize - LEN;
        self.rseq.is_none_or(|at| block.contains(&at) && at % 4 == 0)
    }

    /// Returns where `struct pthread` has its fields, behind the ABI's head.
    fn fields(&self) -> Range<isize> {
        self.pthread + arch::FIRST_FIELD as isize..self.pthread + self.size_of_pthread as isize
    }

    /// Compares what the symbols say with the thread that runs this.
    fn check(&self, tp: usize) -> Result<(), Refusal> {
        let at = tp as *const u8;
        // SAFETY: all offsets are checked to lie within this thread's block before they are read.
        let ok = unsafe {
            let address = |offset: isize| tp.wrapping_add_signed(offset);
            let word = |offset: isize| (address(offset) as *const Word).read();
            let fields = self.fields();
            let inside = |at: isize, len: usize| fields.contains(&at) && at + len as isize <= fields.end;
            self.align.is_power_of_two()
                && self.align <= 4096
                && inside(self.tid, 4)
                && inside(self.list, 16)
                && inside(self.first_keys(), KEYS_PER_BLOCK * size_of::<KeyData>())
                && inside(self.keys_used(), 1)
                && arch::is_head(at)
                && libc::pthread_self() as usize == address(self.pthread)
                && at.offset(self.tid).cast::<i32>().read() == libc::gettid()
                && word(self.specific) == address(self.first_keys())
                && is_in_list(address(self.list))
                && self.keys_are_where_we_think(at)?
        };
        if ok { Ok(()) } else { Err(UNKNOWN.into()) }
    }

    /// Sets a key and looks for it. Returns whether it is where it should be.
    ///
    /// # Safety
    /// `tp` is this thread's block, and the offsets lie in it.
    unsafe fn keys_are_where_we_think(&self, tp: *const u8) -> Result<bool, Refusal> {
        let mut key = 0;
        // SAFETY: by the caller. The key is this function's alone.
        unsafe {
            match libc::pthread_key_create(&mut key, None) {
                0 => {}
                errno => return Err(Refusal::NotNow(io::Error::from_raw_os_error(errno))),
            }
            libc::pthread_setspecific(key, tp.cast());
            let value = tp.offset(self.first_keys()).cast::<KeyData>().add(key as usize);
            let seen = tp.offset(self.keys_used()).read() == 1
                && (key as usize >= KEYS_PER_BLOCK || (*value).data.cast_const() == tp.cast());
            libc::pthread_setspecific(key, std::ptr::null());
            libc::pthread_key_delete(key);
            Ok(seen)
        }
    }
}

/// Returns whether the neighbours of a list's member point back to it. Threads that start and end change them
/// meanwhile, in several steps, and may give their memory back: so it looks several times.
///
/// # Safety
/// Two words can be read at `member`.
unsafe fn is_in_list(member: usize) -> bool {
    const LOOKS: usize = 1000;
    // SAFETY: by the caller, or the kernel has just read it. A neighbour that ends in between leaves its stack to the C
    // library, which keeps those that were used last.
    let word = |at: usize| unsafe { (at as *const usize).read_volatile() };
    let points_back = |at: usize| is_readable(at) && word(at) == member;
    let (next, previous) = (member, member + size_of::<usize>());
    (0..LOOKS).any(|_| {
        let is_in = points_back(word(next) + size_of::<usize>()) && points_back(word(previous));
        if !is_in {
            std::thread::yield_now();
        }
        is_in
    })
}

#[cfg(test)]
mod tests {
    use super::is_in_list;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    /// A member of a list, as the C library links them: the next one, the previous one.
    type Member = [AtomicUsize; 2];

    fn at(member: &Member) -> usize {
        std::ptr::from_ref(member).addr()
    }

    /// Links `new` behind `head`, in the steps that the C library takes.
    fn link(new: &Member, head: &Member, next: &Member) {
        new[0].store(at(next), Relaxed);
        new[1].store(at(head), Relaxed);
        next[1].store(at(new), Relaxed);
        std::thread::yield_now();
        head[0].store(at(new), Relaxed);
    }

    fn unlink(head: &Member, next: &Member) {
        next[1].store(at(head), Relaxed);
        std::thread::yield_now();
        head[0].store(at(next), Relaxed);
    }

    #[test]
    fn a_list_that_others_change_is_looked_at_again() {
        let [head, own, new] = &[const { [const { AtomicUsize::new(0) }; 2] }; 3];
        link(own, head, head);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    link(new, head, own);
                    unlink(head, own);
                }
            });
            // SAFETY: a member, of two words.
            let all_in = (0..1000).all(|_| unsafe { is_in_list(at(own)) });
            stop.store(true, Relaxed);
            assert!(all_in);
        });
        let stranger: Member = [AtomicUsize::new(at(head)), AtomicUsize::new(at(head))];
        // SAFETY: as above.
        assert!(!unsafe { is_in_list(at(&stranger)) });
    }
}
