//! Thread blocks as glibc makes them. What depends on the processor is in `arch`, a file each: how the thread pointer
//! is read and written, and where in a block the parts lie.
//!
//! glibc exports what is needed: `_dl_allocate_tls` (its own `pthread_create` uses it), which makes the pattern of all
//! blocks, and for debuggers the offsets of the fields of `struct pthread` (`_thread_db_*`), so nothing is guessed.
//! Every fact is checked against a thread before it is trusted; if one check fails, there are no own thread-locals.

use super::{CURRENT_OFFSET, FIRST_TID, Refusal, Words, layout};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;
mod blocks;
mod discover;
mod malloc_cache;
mod modules;
mod robust;
mod surplus;
mod symbols;
mod thread_name;
mod vector;

pub(crate) use arch::{set_thread_pointer, thread_pointer, word_at};
pub(crate) use discover::static_size;
pub(crate) use malloc_cache::{own_malloc_cache, share_malloc_cache};
pub(crate) use modules::adopt;
pub(crate) use symbols::set_names;
pub(crate) use thread_name::set as set_thread_name;

type Word = usize;

/// pthread keys live in 32 blocks of 32 (`PTHREAD_KEY_2NDLEVEL_SIZE`).
const KEYS_PER_BLOCK: usize = 32;
/// Number of rounds of destructors, for those that set keys again: POSIX's `PTHREAD_DESTRUCTOR_ITERATIONS`.
const KEY_DESTRUCTOR_ROUNDS: usize = 4;
/// `LC_GLOBAL_LOCALE` of <locale.h>.
const LC_GLOBAL_LOCALE: libc::locale_t = -1isize as libc::locale_t;

/// [`Layout::tid`] and [`Layout::loader()`] for code that must not wait for [`layout`], such as an allocator; 0 while
/// it is not known. Written once, before the first block is made, [`TID_OFFSET`] last.
static TID_OFFSET: AtomicUsize = AtomicUsize::new(0);
static LOADER_OFFSET: AtomicUsize = AtomicUsize::new(0);
/// As above, for [`Layout::extra`] and [`Layout::pthread`].
static EXTRA_OFFSET: AtomicUsize = AtomicUsize::new(0);
static PTHREAD_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// The runtime's own words beside `struct pthread`, in goroutines' blocks only.
#[repr(C)]
struct Extra {
    /// The worker that moved its thread here, if [`Words`] are not the same for all: see [`loader`].
    loader: *const (),
    /// The bounds of the goroutine's stack. Written once by [`Layout::create`].
    stack: [usize; 2],
}

/// The parts of a block, as `arch` says: bytes to reserve on both sides of the thread pointer, and offsets from it.
struct Parts {
    below: usize,
    above: usize,
    pthread: isize,
    static_tls: Range<isize>,
    extra: isize,
}

/// Returns whether [`layout`] has found that there may be blocks.
pub(crate) fn is_known() -> bool {
    TID_OFFSET.load(Acquire) != 0 // ORDERING: as in `loader`
}

/// A `pthread_key_t`'s value: `struct pthread_key_data`.
#[repr(C)]
struct KeyData {
    seq: usize,
    data: *mut c_void,
}

/// An entry of `__pthread_keys`: `struct pthread_key_struct`.
#[repr(C)]
struct KeyStruct {
    seq: usize,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// The facts about this process's thread blocks; made once. Offsets are from the thread pointer, in bytes.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Bytes that must be reserved below the thread pointer.
    pub(crate) below: usize,
    /// Bytes that must be reserved from the thread pointer on.
    pub(crate) above: usize,
    /// Alignment of the thread pointer.
    pub(crate) align: usize,
    /// `struct pthread`, which a `pthread_t` points to.
    pthread: isize,
    size_of_pthread: usize,
    /// Where static thread-locals are: of the modules that were there at the start, and of some to come.
    static_tls: Range<isize>,
    /// [`Extra`].
    extra: isize,
    allocate_tls: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    deallocate_tls: unsafe extern "C" fn(*mut c_void, bool),
    malloc: usize,
    call_tls_dtors: unsafe extern "C" fn(),
    ctype_init: unsafe extern "C" fn(),
    keys: usize,
    tid: isize,
    /// Offset of [`Words`] if that is the same for all threads and blocks.
    words: Option<isize>,
    list: isize,
    specific: isize,
    rseq: Option<isize>,
    /// `__resp` and the resolver state that it points to.
    resolver: Option<(isize, isize)>,
    errno: isize,
    h_errno: Option<isize>,
    /// The pointer to malloc's cache: see [`malloc_cache`]. `None`: each block has a cache of its own, for ever.
    malloc_cache: Option<isize>,
    /// libc's own thread-locals: where they are, and the words there that are set in every thread and own nothing.
    libc_part: Option<modules::Module>,
    libc_usual: Vec<usize>,
    /// The pointers in `struct pthread` to texts that `strerror` and `strsignal` have made for the thread, those of
    /// numbers without a name. glibc frees them with it. Empty: they are elsewhere, as before glibc 2.32.
    texts: Vec<isize>,
    /// What the loader keeps of its last error, a pointer in libc's part, since glibc 2.34.
    dlerror: Option<isize>,
    /// `__res_nclose`, which ends a resolver state.
    close_resolver: Option<unsafe extern "C" fn(*mut c_void)>,
    /// `robust_head`, and what the C library writes to its second word; `None` where the kernel knows no such lists.
    robust: Option<(isize, Word)>,
    /// What a block's vector of modules is made from.
    vector: vector::Template,
    /// The loader's count of changes in a new vector; another number means that the goroutine touched thread-locals of
    /// a library loaded since.
    generation: usize,
    /// Whether there is room left for static thread-locals of libraries that are loaded later: see [`surplus`].
    late_static: bool,
}

// SAFETY: addresses and offsets that never change after `layout` made them.
unsafe impl Send for Layout {}
// SAFETY: as above.
unsafe impl Sync for Layout {}

/// Finds out the layout, and makes it known to code that must not wait for it.
pub(super) fn discover(late_static: bool) -> Result<Layout, Refusal> {
    let layout = discover::layout(late_static)?;
    if let Some(words) = layout.words {
        CURRENT_OFFSET.store(words as usize + offset_of!(Words, current), Relaxed);
    }
    if let Some(cache) = layout.malloc_cache {
        let copy = layout.words.map_or(0, |words| words as usize + offset_of!(Words, malloc_cache));
        malloc_cache::set_offset(cache as usize, copy);
    }
    LOADER_OFFSET.store(layout.loader(), Relaxed);
    EXTRA_OFFSET.store(layout.extra as usize, Relaxed);
    PTHREAD_OFFSET.store(layout.pthread as usize, Relaxed);
    // ORDERING: Release the offsets above to threads that find this one and know nothing else: `loader`, `stack_of`.
    TID_OFFSET.store(layout.tid as usize, Release);
    modules::adopt_for(&layout); // what was loaded just before
    Ok(layout)
}

/// Notes in the block `tp` which worker is about to move its thread there.
///
/// # Safety
/// `tp` was made by [`Layout::create`] and is the caller's.
#[inline(always)]
pub(crate) unsafe fn set_loader(tp: usize, who: *const ()) {
    // SAFETY: the word is part of each block.
    unsafe { (tp.wrapping_add(LOADER_OFFSET.load(Relaxed)) as *mut *const ()).write(who) }
}

/// Makes sure that malloc has room for what the next `n` blocks need of it, with one call of the kernel for a thousand;
/// it has room for `known` already. glibc's arenas of threads other than the first grow by what is asked for, a page at
/// a time: each 42 blocks a system call that locks the address space. What is freed at once stays theirs.
pub(crate) fn make_room(n: usize, known: &mut usize) {
    /// TUNED: guess; 96 KiB with four modules. 300,000 parked goroutines made 7,033 calls of `mprotect` without, 1,493
    /// with this.
    const AT_ONCE: usize = 1024;
    let are_many = n > 1;
    if are_many
        && *known < n
        && let Ok(layout) = layout()
    {
        layout.vector.make_room(AT_ONCE);
        *known = AT_ONCE;
    }
    *known = known.saturating_sub(n);
}

/// Prefetches the lines of a block that a goroutine touches from its wake-up to its end.
#[inline]
pub(crate) fn prefetch(tp: usize) {
    if let Ok(layout) = layout() {
        let offsets = [layout.loader(), layout.errno as usize, arch::DTV, layout.keys_used() as usize];
        offsets.into_iter().for_each(|offset| crate::sys::prefetch(tp.wrapping_add(offset)));
    }
}

/// Returns the worker that moved this thread to the block of a goroutine; `None` if it is on a block of its own, as
/// plain threads always are. Touches no thread-local, allocates nothing, and may be asked before anything else of the
/// runtime.
#[inline(always)]
pub(crate) fn loader() -> Option<NonNull<()>> {
    // ORDERING: Acquire pairs with `discover`: the other offsets are there as well.
    let tid = TID_OFFSET.load(Acquire);
    if tid == 0 {
        return None; // no goroutine yet, or with shared thread-locals
    }
    let tp = thread_pointer();
    // SAFETY: the id of glibc's or of a goroutine's block, which this thread is on. Goroutines' are known by their
    // ids: no real thread has such a large one. Volatile: in a forked child the kernel writes its real id there.
    unsafe {
        if (tp.wrapping_add(tid) as *const u32).read_volatile() < FIRST_TID {
            return None;
        }
        NonNull::new((tp.wrapping_add(LOADER_OFFSET.load(Relaxed)) as *const *mut ()).read())
    }
}

/// Returns the bounds of the stack of a goroutine, by its `pthread_t`. `None`: it is a thread, or a goroutine forked
/// and this is the child.
///
/// # Safety
/// The thread or the goroutine is alive.
unsafe fn stack_of(thread: usize) -> Option<Range<usize>> {
    let tid = TID_OFFSET.load(Acquire); // ORDERING: as in `loader`
    let tp = thread.wrapping_sub(PTHREAD_OFFSET.load(Relaxed));
    // SAFETY: by the caller; as in `loader`. `create` wrote the bounds before the block was ever used.
    unsafe {
        if tid == 0 || (tp.wrapping_add(tid) as *const u32).read_volatile() < FIRST_TID {
            return None;
        }
        let [low, high] = (*(tp.wrapping_add(EXTRA_OFFSET.load(Relaxed)) as *const Extra)).stack;
        Some(low..high)
    }
}

impl Layout {
    /// Returns whether libraries that are loaded later may have static thread-locals.
    pub(super) fn has_late_static(&self) -> bool {
        self.late_static
    }

    /// Returns the CPU that the thread with this block of its own was last on. `None`: the kernel does not tell.
    ///
    /// # Safety
    /// It is a thread's block, not a goroutine's, and the thread has not ended.
    pub(crate) unsafe fn cpu_of(&self, tp: usize) -> Option<u32> {
        /// The offset of `cpu_id` in the kernel's `struct rseq`, in bytes.
        const CPU_ID: usize = 4;
        let at = tp.wrapping_add_signed(self.rseq?) + CPU_ID;
        // SAFETY: by the caller. The kernel writes the word, which glibc has registered, whenever the thread moves.
        let cpu = unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Relaxed);
        (cpu as i32 >= 0).then_some(cpu)
    }

    /// Builds a thread block around `tp`, with `tid` as its thread id for the C library, for a goroutine with this
    /// `stack`.
    ///
    /// # Safety
    /// `below` zeroed bytes under `tp` and `above` zeroed bytes from it on belong to the caller; `tp` is
    /// aligned to `align`. `tid` is no other thread's or block's.
    pub(crate) unsafe fn create(&self, tp: *mut u8, tid: u32, stack: Range<usize>) -> io::Result<()> {
        // SAFETY: memory by the caller; the fields' offsets were checked by `discover`.
        unsafe {
            let own = thread_pointer();
            blocks::enlist(tid - FIRST_TID, tp)?; // before it has thread-locals: see `modules::adopt`
            if !self.vector.make(tp) {
                return Err(io::Error::from(io::ErrorKind::OutOfMemory));
            }
            modules::fill(tp);
            arch::init_head(tp, own as *const u8, self.pthread);
            tp.offset(self.tid).cast::<u32>().write(tid);
            (*tp.offset(self.extra).cast::<Extra>()).stack = [stack.start, stack.end];
            // An empty list: `fork` unlinks the calling thread from it in the child.
            let list = tp.offset(self.list).cast::<Word>();
            list.cast::<[Word; 2]>().write([list as Word; 2]);
            tp.offset(self.specific).cast::<*mut u8>().write(tp.offset(self.first_keys()));
            if let Some((head, offset)) = self.robust {
                robust::init(tp.offset(head).cast(), offset);
            }
            if let Some(rseq) = self.rseq {
                // cpu_id_start, cpu_id: -1 means "not registered", so that sched_getcpu asks the kernel.
                tp.offset(rseq).cast::<[u32; 2]>().write_unaligned([0, u32::MAX]);
            }
            if let Some((resp, state)) = self.resolver {
                tp.offset(resp).cast::<Word>().write((tp as Word).wrapping_add_signed(state));
            }
            // The character class tables of <ctype.h> are pointers in libc's TLS.
            set_thread_pointer(tp as usize);
            (self.ctype_init)();
            set_thread_pointer(own);
        }
        Ok(())
    }

    /// Runs the destructors of thread-locals and pthread keys, as at a thread's end, and undoes `uselocale`.
    ///
    /// # Safety
    /// `tp` is the block that this thread is on, on a goroutine's stack, at its end.
    pub(crate) unsafe fn run_destructors(&self, tp: *mut u8) {
        // SAFETY: a block that glibc initialised.
        crate::sys::prefetch(unsafe { vector::of(tp) } as usize); // for `reset`
        // SAFETY: by the caller; glibc calls the same function in `start_thread`. The destructor of a key may
        // touch a thread-local that has a destructor. glibc forgets that one together with the thread; here it would
        // lie in wait for the next goroutine on this block, hence another round, and keys go before thread-locals.
        unsafe {
            for _ in 0..KEY_DESTRUCTOR_ROUNDS {
                (self.call_tls_dtors)();
                if tp.offset(self.keys_used()).read() == 0 {
                    break;
                }
                self.run_key_destructors(tp);
            }
            if tp.offset(self.keys_used()).read() != 0 {
                self.forget_keys(tp);
                (self.call_tls_dtors)();
            }
            if let Some((head, _)) = self.robust {
                robust::release_all(tp.offset(head).cast(), tp.offset(self.tid).cast::<u32>().read());
            }
            // The locale is a pointer in libc's part, which stays: the next goroutine must not see it.
            libc::uselocale(LC_GLOBAL_LOCALE);
        }
    }

    /// Runs one round of destructors over all keys.
    #[cold]
    unsafe fn run_key_destructors(&self, tp: *mut u8) {
        let keys = self.keys as *const KeyStruct;
        // SAFETY: `specific` is an array of 32 pointers to blocks of 32 keys; `__pthread_keys` has as many
        // entries, which other threads may change: volatile, and a destructor of the past is told by its number.
        unsafe {
            tp.offset(self.keys_used()).write(0);
            let blocks = tp.offset(self.specific).cast::<*mut KeyData>();
            for b in 0..KEYS_PER_BLOCK {
                let block = blocks.add(b).read();
                if block.is_null() {
                    continue;
                }
                for k in 0..KEYS_PER_BLOCK {
                    let KeyData { seq, data } = block.add(k).read();
                    if data.is_null() {
                        continue;
                    }
                    (*block.add(k)).data = std::ptr::null_mut();
                    let key = keys.add(b * KEYS_PER_BLOCK + k).read_volatile();
                    if seq == key.seq
                        && let Some(f) = key.destructor
                    {
                        f(data);
                    }
                }
            }
        }
    }

    /// Drops the values of all keys without running destructors.
    #[cold]
    unsafe fn forget_keys(&self, tp: *mut u8) {
        // SAFETY: as `run_key_destructors`. A block other than the first is malloc'ed by glibc, and freed at a
        // thread's end as here.
        unsafe {
            let blocks = tp.offset(self.specific).cast::<*mut KeyData>();
            for b in 1..KEYS_PER_BLOCK {
                libc::free(blocks.add(b).replace(std::ptr::null_mut()).cast());
            }
            tp.offset(self.first_keys()).write_bytes(0, KEYS_PER_BLOCK * size_of::<KeyData>());
            tp.offset(self.keys_used()).write(0);
        }
    }

    /// Makes the block as good as new for the next goroutine; libc's part stays.
    ///
    /// # Safety
    /// `tp` was made by [`create`](Self::create), its destructors have run, no thread is on it except
    /// perhaps the calling one, which has no reference to a thread-local.
    pub(crate) unsafe fn reset(&self, tp: *mut u8) {
        // SAFETY: by the caller; the ranges were taken from the dynamic loader. Ours may be in one of them.
        unsafe {
            let loader = (tp as usize).wrapping_add(self.loader()) as *mut Word;
            let loaded_by = loader.read();
            if vector::generation(tp) != self.generation {
                vector::free_dynamic(tp);
            }
            if tp.offset(self.keys_used()).read() != 0 {
                self.forget_keys(tp); // set after the destructors had run
            }
            modules::refresh(tp);
            loader.write(loaded_by);
            tp.offset(self.errno).cast::<c_int>().write(0);
        }
    }

    /// Ends the block and gives back what glibc allocated for it, as at a thread's end. Returns `false` if libc has
    /// something there that would be lost; then the block is as it was.
    ///
    /// # Safety
    /// `tp` was made by [`create`](Self::create) and [`reset`](Self::reset) since its last use. No thread is on it, nor
    /// will be, if this returns `true`.
    pub(crate) unsafe fn destroy(&self, tp: *mut u8) -> bool {
        // SAFETY: by the caller.
        unsafe {
            if let Some(h_errno) = self.h_errno {
                tp.offset(h_errno).cast::<c_int>().write(0);
            }
            if self.malloc_cache.is_none() {
                return false;
            }
            self.end_dlerror(tp);
            if !self.libc_owns_nothing(tp) || !self.end_resolver(tp) {
                return false;
            }
            for text in &self.texts {
                libc::free(tp.offset(*text).cast::<*mut c_void>().replace(std::ptr::null_mut()));
            }
            self.forget_keys(tp);
            blocks::delist(tp.offset(self.tid).cast::<u32>().read().wrapping_sub(FIRST_TID), tp);
            (self.deallocate_tls)(tp.cast(), false);
        }
        true
    }

    /// Returns whether libc's thread-locals are as in a new thread, but for those that are always set: malloc's cache,
    /// which is not the block's, and its arena, the character classes, the locale, the resolver.
    unsafe fn libc_owns_nothing(&self, tp: *const u8) -> bool {
        // SAFETY: by the caller, a block; the module lies in it.
        self.libc_part
            .as_ref()
            .is_some_and(|part| unsafe { part.changed_words(tp) }.all(|i| self.libc_usual.contains(&i)))
    }

    /// Frees what the loader keeps of an error for this block.
    unsafe fn end_dlerror(&self, tp: *mut u8) {
        // SAFETY: by the caller, a block that no goroutine is on, and malloc is glibc's: it needs its cache, which is
        // this thread's, and nothing else of the block.
        unsafe {
            if self.dlerror.is_none_or(|at| tp.offset(at).cast::<Word>().read() == 0) {
                return;
            }
            let own = thread_pointer();
            share_malloc_cache(tp as usize, own_malloc_cache());
            set_thread_pointer(tp as usize);
            libc::dlerror(); // the message, if the goroutine did not ask for it
            libc::dlerror(); // it was returned: now it is freed
            set_thread_pointer(own);
        }
    }

    /// Closes what the resolver has open for this block. Returns `false` if it cannot be done.
    unsafe fn end_resolver(&self, tp: *mut u8) -> bool {
        /// The offset of `nscount` in `struct __res_state` of <resolv.h>, in bytes; 0 there: it was never used.
        const SERVERS: usize = 16;
        let Some((_, state)) = self.resolver else { return true };
        // SAFETY: by the caller; the state lies in the block. `__res_nclose` works on the state that it is given.
        unsafe {
            let state = tp.offset(state);
            if state.add(SERVERS).cast::<c_int>().read() != 0 {
                let Some(close) = self.close_resolver else { return false };
                close(state.cast());
            }
        }
        true
    }

    /// Returns the offset of the word that says which worker moved its thread here: see [`loader`].
    fn loader(&self) -> usize {
        match self.words {
            Some(words) => words as usize + offset_of!(Words, loader),
            None => self.extra as usize + offset_of!(Extra, loader),
        }
    }

    /// Returns the offset of the first block of pthread keys, which lies in the thread block itself.
    fn first_keys(&self) -> isize {
        self.specific - (KEYS_PER_BLOCK * size_of::<KeyData>()) as isize
    }

    /// Returns the offset of the flag that a key was ever set.
    fn keys_used(&self) -> isize {
        self.specific + (KEYS_PER_BLOCK * size_of::<*mut KeyData>()) as isize
    }
}
