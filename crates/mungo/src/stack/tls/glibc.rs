//! Thread blocks as glibc makes them, for x86-64.
//!
//! glibc exports what is needed: `_dl_allocate_tls` (its own `pthread_create` uses it), and for
//! debuggers the offsets of the fields of `struct pthread` (`_thread_db_*`), so nothing is guessed.
//! Every fact is checked against the calling thread before it is trusted; if one check fails,
//! [`layout`] refuses and the runtime falls back to shared thread-locals.

use super::{CURRENT_OFFSET, FIRST_TID, WORDS, Words};
use crate::sys::modules;
use std::arch::asm;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

type Word = usize;

/// Offsets in the thread control block that the x86-64 ABI and glibc's `tcbhead_t` fix.
mod tcb {
    pub(super) const SELF_A: usize = 0;
    pub(super) const DTV: usize = 8;
    pub(super) const SELF_B: usize = 16;
    /// malloc and stdio take their locks only if this is set.
    pub(super) const MULTIPLE_THREADS: usize = 24;
    /// `multiple_threads` up to the CET word: stack guard, pointer guard, feature bits.
    pub(super) const INHERITED: std::ops::Range<usize> = 24..80;
}

/// `HWCAP2_FSGSBASE`: the kernel lets user code write the FS base.
const HWCAP2_FSGSBASE: u64 = 2;
/// pthread keys live in 32 blocks of 32 (`PTHREAD_KEY_2NDLEVEL_SIZE`).
const KEYS_PER_BLOCK: usize = 32;
/// POSIX: destructors that set keys again are run this often (`PTHREAD_DESTRUCTOR_ITERATIONS`).
const KEY_DESTRUCTOR_ROUNDS: usize = 4;
/// `LC_GLOBAL_LOCALE` of <locale.h>.
const LC_GLOBAL_LOCALE: libc::locale_t = -1isize as libc::locale_t;
/// An entry of a block's vector of modules whose memory is made at the first use (`TLS_DTV_UNALLOCATED`).
const UNALLOCATED: Word = Word::MAX;

/// [`Layout::tid`] and [`Layout::loader()`] for those who must not wait for [`layout`], such as an allocator; 0 while
/// it is not known. Written once, before the first block is made.
static TID_OFFSET: AtomicUsize = AtomicUsize::new(0);
static LOADER_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// A module's thread-locals within the static TLS area, to be put back when a block is reused.
#[derive(Debug)]
struct Module {
    /// Distance below the thread pointer.
    below: usize,
    /// Relocated initial image.
    image: usize,
    image_len: usize,
    total_len: usize,
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

/// What is known about this process's thread blocks; made once.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Bytes that must be reserved below the thread pointer.
    pub(crate) below: usize,
    /// Bytes of `struct pthread` from the thread pointer on, and one word of ours: perhaps the loader.
    pub(crate) above: usize,
    /// Alignment of the thread pointer.
    pub(crate) align: usize,
    allocate_tls: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    call_tls_dtors: unsafe extern "C" fn(),
    ctype_init: unsafe extern "C" fn(),
    keys: usize,
    tid: usize,
    size_of_pthread: usize,
    /// Offset of [`Words`] if that is the same for all threads and blocks.
    words: Option<isize>,
    list: usize,
    specific: usize,
    rseq: Option<isize>,
    /// `__resp` and the resolver state that it points to, both relative to the thread pointer.
    resolver: Option<(isize, isize)>,
    errno: isize,
    /// The loader's count of TLS modules when this was made; another number in a block's vector means that the
    /// goroutine touched thread-locals of a library loaded since.
    generation: usize,
    /// Modules that start afresh with each goroutine: all but libc, which has malloc's cache there, and ld.so.
    fresh: Vec<Module>,
}

// SAFETY: addresses and offsets that never change after `layout` made them.
unsafe impl Send for Layout {}
// SAFETY: as above.
unsafe impl Sync for Layout {}

/// The layout, or why goroutines must share thread-locals.
pub(crate) fn layout() -> Result<&'static Layout, &'static str> {
    static LAYOUT: OnceLock<Result<Layout, &'static str>> = OnceLock::new();
    LAYOUT
        .get_or_init(|| {
            if !crate::debug_env::get().own_tls {
                return Err("MUNGO_DEBUG says owntls=0");
            }
            let layout = discover()?;
            if let Some(words) = layout.words {
                CURRENT_OFFSET.store(words as usize + offset_of!(Words, current), Relaxed);
            }
            LOADER_OFFSET.store(layout.loader(), Relaxed);
            TID_OFFSET.store(layout.tid, Relaxed);
            Ok(layout)
        })
        .as_ref()
        .map_err(|e| *e)
}

/// The calling thread's FS base.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let tp;
    // SAFETY: the first word of a glibc thread block is its own address. `mov` rather than
    // `rdfsbase`, which would fault on a kernel that does not allow it. Not `pure`: the answer
    // changes when a goroutine is switched.
    unsafe { asm!("mov {}, fs:0", out(reg) tp, options(nostack, preserves_flags, readonly)) };
    tp
}

/// The word so far from the FS base.
///
/// # Safety
/// It is part of the block that this thread is on.
#[inline(always)]
pub(crate) unsafe fn word_at(offset: usize) -> usize {
    let word;
    // SAFETY: by the caller. Not `pure`, as above.
    unsafe {
        asm!("mov {}, fs:[{}]", out(reg) word, in(reg) offset, options(nostack, preserves_flags, readonly))
    };
    word
}

/// Moves this OS thread to another thread block.
///
/// # Safety
/// `tp` is a live block that no other thread uses, and [`layout`] is known to be there.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(tp: usize) {
    // SAFETY: by the caller. No `nomem`: no memory access may move across it.
    unsafe { asm!("wrfsbase {}", in(reg) tp, options(nostack, preserves_flags)) };
}

/// Notes in the block `tp` who is about to move its thread there.
///
/// # Safety
/// `tp` was made by [`Layout::create`] and is the caller's.
#[inline(always)]
pub(crate) unsafe fn set_loader(tp: usize, who: *const ()) {
    // SAFETY: the word is part of each block.
    unsafe { (tp.wrapping_add(LOADER_OFFSET.load(Relaxed)) as *mut *const ()).write(who) }
}

/// Asks for the lines of a block that a goroutine touches from its wake-up to its end.
#[inline]
pub(crate) fn prefetch(tp: usize) {
    if let Ok(layout) = layout() {
        let offsets = [layout.loader(), layout.errno as usize, tcb::DTV, layout.keys_used()];
        offsets.into_iter().for_each(|offset| crate::sys::prefetch(tp.wrapping_add(offset)));
    }
}

/// Who moved this thread to the block of a goroutine; `None` if it is on a block of its own, as plain threads always
/// are. Touches no thread-local, allocates nothing, and may be asked before anything else of the runtime.
#[inline(always)]
pub(crate) fn loader() -> Option<NonNull<()>> {
    let tid = TID_OFFSET.load(Relaxed);
    if tid == 0 {
        return None; // no goroutine yet, or with shared thread-locals
    }
    let tp = thread_pointer();
    // SAFETY: the id of glibc's or of our block, which this thread is on. Ours are known by their ids: no real thread
    // has such a large one. Volatile: in a forked child the kernel writes its real id there.
    unsafe {
        if ((tp + tid) as *const u32).read_volatile() < FIRST_TID {
            return None;
        }
        NonNull::new((tp.wrapping_add(LOADER_OFFSET.load(Relaxed)) as *const *mut ()).read())
    }
}

impl Layout {
    /// The CPU that the thread with this block of its own was last on. `None`: the kernel does not tell.
    ///
    /// # Safety
    /// It is a thread's block, not a goroutine's, and the thread has not ended.
    pub(crate) unsafe fn cpu_of(&self, tp: usize) -> Option<u32> {
        /// Of `cpu_id` in the kernel's `struct rseq`.
        const CPU_ID: usize = 4;
        let at = tp.wrapping_add_signed(self.rseq?) + CPU_ID;
        // SAFETY: by the caller. The kernel writes the word, which glibc has registered, whenever the thread moves.
        let cpu = unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Relaxed);
        (cpu as i32 >= 0).then_some(cpu)
    }

    /// Builds a thread block around `tp`, with `tid` as its thread id for the C library.
    ///
    /// # Safety
    /// `below` zeroed bytes under `tp` and `above` zeroed bytes from it on belong to the caller; `tp` is
    /// aligned to `align`. `tid` is no other thread's or block's.
    pub(crate) unsafe fn create(&self, tp: *mut u8, tid: u32) -> io::Result<()> {
        // SAFETY: memory by the caller; the fields' offsets were checked by `discover`.
        unsafe {
            let own = thread_pointer();
            if (self.allocate_tls)(tp.cast()).is_null() {
                return Err(io::Error::from(io::ErrorKind::OutOfMemory));
            }
            set::<Word>(tp, tcb::SELF_A, tp as Word);
            set::<Word>(tp, tcb::SELF_B, tp as Word);
            let from = (own as *const u8).add(tcb::INHERITED.start);
            from.copy_to_nonoverlapping(tp.add(tcb::INHERITED.start), tcb::INHERITED.len());
            set::<c_int>(tp, tcb::MULTIPLE_THREADS, 1);
            set::<u32>(tp, self.tid, tid);
            // An empty list: `fork` unlinks the calling thread from it in the child.
            set::<Word>(tp, self.list, tp as Word + self.list);
            set::<Word>(tp, self.list + 8, tp as Word + self.list);
            set::<Word>(tp, self.specific, tp as Word + self.first_keys());
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
        crate::sys::prefetch(unsafe { dtv(tp) } as usize); // for `reset`
        // SAFETY: by the caller; glibc calls the same function in `start_thread`. The destructor of a key may
        // touch a thread-local that has a destructor. glibc forgets that one together with the thread; here it would
        // lie in wait for the next goroutine on this block, hence another round, and keys go before thread-locals.
        unsafe {
            for _ in 0..KEY_DESTRUCTOR_ROUNDS {
                (self.call_tls_dtors)();
                if tp.add(self.keys_used()).read() == 0 {
                    break;
                }
                self.run_key_destructors(tp);
            }
            if tp.add(self.keys_used()).read() != 0 {
                self.forget_keys(tp);
                (self.call_tls_dtors)();
            }
            // The locale is a pointer in libc's part, which stays: the next goroutine must not see it.
            libc::uselocale(LC_GLOBAL_LOCALE);
        }
    }

    /// One round over all keys.
    #[cold]
    unsafe fn run_key_destructors(&self, tp: *mut u8) {
        let keys = self.keys as *const KeyStruct;
        // SAFETY: `specific` is an array of 32 pointers to blocks of 32 keys; `__pthread_keys` has as many
        // entries, which other threads may change: volatile, and a destructor of the past is told by its number.
        unsafe {
            tp.add(self.keys_used()).write(0);
            let blocks = tp.add(self.specific).cast::<*mut KeyData>();
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

    /// Drops the values of all keys without destructors.
    #[cold]
    unsafe fn forget_keys(&self, tp: *mut u8) {
        // SAFETY: as `run_key_destructors`. A block other than the first is malloc'ed by glibc, and freed at a
        // thread's end as here.
        unsafe {
            let blocks = tp.add(self.specific).cast::<*mut KeyData>();
            for b in 1..KEYS_PER_BLOCK {
                libc::free(blocks.add(b).replace(std::ptr::null_mut()).cast());
            }
            tp.add(self.first_keys()).write_bytes(0, KEYS_PER_BLOCK * size_of::<KeyData>());
            tp.add(self.keys_used()).write(0);
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
            if dtv(tp).read() != self.generation {
                free_dynamic_tls(tp);
            }
            if tp.add(self.keys_used()).read() != 0 {
                self.forget_keys(tp); // set after the destructors had run
            }
            for m in &self.fresh {
                let at = tp.sub(m.below);
                (m.image as *const u8).copy_to_nonoverlapping(at, m.image_len);
                at.add(m.image_len).write_bytes(0, m.total_len - m.image_len);
            }
            loader.write(loaded_by);
            tp.offset(self.errno).cast::<c_int>().write(0);
        }
    }

    /// Offset of the word that says who moved its thread here: see [`loader`].
    fn loader(&self) -> usize {
        match self.words {
            Some(words) => words as usize + offset_of!(Words, loader),
            None => self.above - size_of::<Word>(),
        }
    }

    /// Offset of the first block of pthread keys, which lies in the thread block itself.
    fn first_keys(&self) -> usize {
        self.specific - KEYS_PER_BLOCK * size_of::<KeyData>()
    }

    /// Offset of the flag that a key was ever set.
    fn keys_used(&self) -> usize {
        self.specific + KEYS_PER_BLOCK * size_of::<*mut KeyData>()
    }
}

unsafe fn set<T>(tp: *mut u8, offset: usize, value: T) {
    // SAFETY: by the caller: a field of a block that it owns.
    unsafe { tp.add(offset).cast::<T>().write(value) }
}

/// The block's vector of TLS modules: pairs of words, the first pair's first word counts generations.
unsafe fn dtv(tp: *const u8) -> *mut Word {
    // SAFETY: by the caller: a block that glibc initialised.
    unsafe { tp.add(tcb::DTV).cast::<*mut Word>().read() }
}

/// Gives back the thread-locals that were made on demand, those of libraries loaded by `dlopen`; they are made anew
/// at the next use.
#[cold]
unsafe fn free_dynamic_tls(tp: *const u8) {
    // SAFETY: by the caller. The pair before the first one holds the number of entries. An entry is the address of
    // the module's thread-locals and what to pass to `free`; null for those in the block itself.
    unsafe {
        let dtv = dtv(tp);
        for i in 1..=dtv.sub(2).read() {
            let entry = dtv.add(2 * i);
            if entry.add(1).read() != 0 {
                let to_free = entry.add(1).replace(0);
                entry.write(UNALLOCATED);
                libc::free(to_free as *mut c_void);
            }
        }
    }
}

/// Looks a symbol up in the loaded libraries.
fn symbol(name: &CStr) -> Result<usize, &'static str> {
    // SAFETY: a NUL-terminated name.
    match unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize {
        0 => Err("this C library lacks a symbol that own thread-locals need"),
        at => Ok(at),
    }
}

/// The offset of a field of `struct pthread`, as glibc tells debuggers: (bits, count, offset).
fn field(name: &CStr) -> Result<usize, &'static str> {
    // SAFETY: glibc's `_thread_db_` descriptors are three 32-bit words.
    Ok(unsafe { (symbol(name)? as *const [u32; 3]).read() }[2] as usize)
}

fn discover() -> Result<Layout, &'static str> {
    // SAFETY: no memory involved.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE == 0 {
        return Err("this kernel does not let programs write the FS base (fsgsbase)");
    }
    // A second thread sees the layout of an ordinary thread; the main thread's differs (`__resp`).
    let thread =
        std::thread::Builder::new().spawn(inspect).map_err(|_| "no thread could be started to look at")?;
    thread.join().unwrap_or(Err("looking at a thread's layout failed"))
}

/// Collects the layout from the calling, ordinary thread, and checks it against this thread.
fn inspect() -> Result<Layout, &'static str> {
    let tp = thread_pointer();
    let relative = |at: usize| at.wrapping_sub(tp) as isize;
    let static_info = symbol(c"_dl_get_tls_static_info")?;
    let (mut size, mut align) = (0usize, 0usize);
    // SAFETY: glibc's internal symbols, with the signatures they have had since 2.1 (`_dl_*`) and 2.18.
    let mut layout = unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*mut usize, *mut usize)>(static_info)(
            &mut size, &mut align,
        );
        let size_of_pthread = (symbol(c"_thread_db_sizeof_pthread")? as *const u32).read() as usize;
        let below = size.checked_sub(size_of_pthread);
        let below = below.ok_or("the static TLS area is smaller than a thread block")?;
        let words = relative(WORDS.with(std::ptr::from_ref).addr());
        Layout {
            below,
            above: size_of_pthread.next_multiple_of(align_of::<Word>()) + size_of::<Word>(),
            size_of_pthread,
            words: (-(below as isize)..0).contains(&words).then_some(words),
            align,
            allocate_tls: std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> *mut c_void>(
                symbol(c"_dl_allocate_tls")?,
            ),
            call_tls_dtors: std::mem::transmute::<usize, unsafe extern "C" fn()>(symbol(c"__call_tls_dtors")?),
            ctype_init: std::mem::transmute::<usize, unsafe extern "C" fn()>(symbol(c"__ctype_init")?),
            keys: symbol(c"__pthread_keys")?,
            tid: field(c"_thread_db_pthread_tid")?,
            list: field(c"_thread_db_pthread_list")?,
            specific: field(c"_thread_db_pthread_specific")?,
            rseq: symbol(c"__rseq_offset").ok().map(|at| (at as *const isize).read()),
            resolver: None,
            errno: relative(libc::__errno_location() as usize),
            generation: dtv(tp as *const u8).read(),
            fresh: Vec::new(),
        }
    };
    if let Ok(resp) = symbol(c"__resp") {
        // SAFETY: `__resp` is a pointer in this thread's TLS.
        let state = relative(unsafe { (resp as *const usize).read() });
        if (0..layout.above as isize).contains(&state) {
            layout.resolver = Some((relative(resp), state));
        }
    }
    layout.check(tp)?;
    layout.find_modules()?;
    Ok(layout)
}

impl Layout {
    /// Compares what the symbols say with the thread that runs this.
    fn check(&self, tp: usize) -> Result<(), &'static str> {
        let at = tp as *const u8;
        // SAFETY: all offsets are checked to lie within this thread's block before they are read.
        let ok = unsafe {
            let word = |offset: usize| at.add(offset).cast::<Word>().read();
            let inside = |offset: usize, len: usize| offset >= 80 && offset + len <= self.size_of_pthread;
            self.align.is_power_of_two()
                && self.align <= 4096
                && inside(self.tid, 4)
                && inside(self.list, 16)
                && self.specific >= KEYS_PER_BLOCK * size_of::<KeyData>()
                && inside(self.first_keys(), KEYS_PER_BLOCK * size_of::<KeyData>())
                && inside(self.keys_used(), 1)
                && word(tcb::SELF_A) == tp
                && word(tcb::SELF_B) == tp
                && at.add(self.tid).cast::<i32>().read() == libc::gettid()
                && word(self.specific) == tp + self.first_keys()
                // The list's neighbours point back here.
                && (word(self.list) as *const Word).add(1).read() == tp + self.list
                && (word(self.list + 8) as *const Word).read() == tp + self.list
                && self.keys_are_where_we_think(at)
        };
        if ok { Ok(()) } else { Err("this C library lays its thread blocks out in an unknown way") }
    }

    /// Sets a key and looks for it.
    ///
    /// # Safety
    /// `tp` is this thread's block, and the offsets lie in it.
    unsafe fn keys_are_where_we_think(&self, tp: *const u8) -> bool {
        let mut key = 0;
        // SAFETY: by the caller. The key is ours alone.
        unsafe {
            if libc::pthread_key_create(&mut key, None) != 0 {
                return false;
            }
            libc::pthread_setspecific(key, tp.cast());
            let value = tp.add(self.first_keys()).cast::<KeyData>().add(key as usize);
            let seen = tp.add(self.keys_used()).read() == 1
                && (key as usize >= KEYS_PER_BLOCK || (*value).data.cast_const() == tp.cast());
            libc::pthread_setspecific(key, std::ptr::null());
            libc::pthread_key_delete(key);
            seen
        }
    }

    /// Asks the loader for the modules with static TLS that start afresh with each goroutine.
    fn find_modules(&mut self) -> Result<(), &'static str> {
        let (tp, static_below) = (thread_pointer(), self.below);
        let keepers = [self.call_tls_dtors as usize, self.allocate_tls as usize, symbol(c"malloc")?];
        let (mut fresh, mut kept, mut dynamic) = (Vec::new(), 0, false);
        modules::each(|info, headers| {
            let Some(tls) = headers.iter().find(|h| h.p_type == libc::PT_TLS) else { return };
            let data = info.dlpi_tls_data as usize;
            let below = tp.wrapping_sub(data);
            if data == 0 || below > static_below {
                dynamic = true;
                return;
            }
            let module = Module {
                below,
                image: (info.dlpi_addr + tls.p_vaddr) as usize,
                image_len: tls.p_filesz as usize,
                total_len: tls.p_memsz as usize,
            };
            let holds = |at: usize| {
                headers.iter().any(|h| {
                    h.p_type == libc::PT_LOAD
                        && (at as u64).wrapping_sub(info.dlpi_addr + h.p_vaddr) < h.p_memsz
                })
            };
            // The executable itself is never kept, even if its malloc is its own.
            let main = info.dlpi_name.is_null()
                // SAFETY: a C string of the loader's.
                || unsafe { *info.dlpi_name } == 0;
            match !main && keepers.iter().any(|&at| holds(at)) {
                true => kept += 1,
                false => fresh.push(module),
            }
        });
        if kept == 0 {
            return Err("libc's own thread-locals were not found");
        }
        if dynamic {
            // Libraries with on-demand TLS are there already: look for it at each reset.
            self.generation = usize::MAX;
        }
        self.fresh = fresh;
        Ok(())
    }
}
