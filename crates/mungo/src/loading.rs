//! `dlopen` and `dlclose` beside goroutines.
//!
//! The C library prepares the static thread-locals of a library that is loaded in the blocks of all threads, before its
//! constructors run. It does not know goroutines' blocks. So these two functions are defined here by their C names, as
//! those in `stack::tls::symbols`: a goroutine loads on the block of its thread, where constructors find what they
//! expect, and then all goroutines get the new thread-locals.
//!
//! `dlmopen` is left alone: another namespace has a C library of its own, and no goroutine runs in it.
//!
//! A name without a slash is searched for where the *calling* object says (its `RUNPATH`), and the C library knows the
//! caller by the return address. So `dlopen` passes its own on, and the C library's is called from there: `arch` has
//! the few instructions for it, a file a processor.

use crate::sched::run::current;
use crate::sched::run::m::M;
use crate::stack::tls;
use crate::sys::modules;
use crate::sys::next::Next;
use crate::sys::say::say;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

#[cfg_attr(target_arch = "x86_64", path = "loading/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "loading/aarch64.rs")]
mod arch;

use arch::Return;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Loads a library, for `dlopen`, which was called from `caller`.
///
/// # Safety
/// As `dlopen`.
unsafe extern "C" fn load(file: *const c_char, mode: c_int, caller: usize) -> *mut c_void {
    static NEXT: Next = Next::new(c"dlopen");
    let function = NEXT.get();
    if function == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: by the caller; the C library's function.
    unsafe {
        let go = |returns_by: Option<Return>| match returns_by {
            Some(gadget) => arch::call_as(file, mode, function, gadget),
            None => std::mem::transmute::<usize, Dlopen>(function)(file, mode),
        };
        let returns_by = if is_bare(file) { return_of(caller) } else { None };
        let mut loaded = on_thread(&go, returns_by);
        if loaded.is_null() && tls::loader().is_some() {
            loaded = go(returns_by); // repeated for `dlerror`, which speaks to the goroutine
        }
        if loaded.is_null() && hint() {
            loaded = go(returns_by); // and again, since its text is gone once read
        }
        if !loaded.is_null() && tls::is_known() {
            tls::adopt();
        }
        loaded
    }
}

/// Says, once, what to do if the C library has no room for static thread-locals because it was given away. Returns
/// whether it has read why the library was not loaded.
#[cold]
fn hint() -> bool {
    static SAID: Once = Once::new();
    if !tls::is_known() || tls::has_late_static() || SAID.is_completed() {
        return false;
    }
    // SAFETY: a C string of the calling thread or goroutine, or null.
    let why = unsafe { libc::dlerror().cast_const().as_ref().map(|text| CStr::from_ptr(text)) };
    if why.is_some_and(|why| why.to_string_lossy().contains("static TLS")) {
        SAID.call_once(|| {
            say!(
                "mungo: a library with static thread-locals was not loaded, because goroutines have no room for them; \
                 set MUNGO_LATE_STATIC_TLS=1, or load it before the first runtime starts"
            );
        });
    }
    true
}

/// Unloads a library.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    static NEXT: Next = Next::new(c"dlclose");
    let function = NEXT.get();
    if function == 0 {
        return -1;
    }
    // SAFETY: by the caller; the C library's function.
    let result = unsafe { std::mem::transmute::<usize, Dlclose>(function)(handle) };
    if tls::is_known() {
        tls::adopt();
    }
    result
}

/// Runs `f` on the thread's own block. There it is a plain thread, which no signal interrupts: constructors may wait,
/// and the P may be taken meanwhile.
#[inline(never)]
fn on_thread(f: &dyn Fn(Option<Return>) -> *mut c_void, argument: Option<Return>) -> *mut c_void {
    if tls::loader().is_none() {
        return f(argument);
    }
    // The goroutine is in the runtime while the thread moves: outside, it may be interrupted and go on elsewhere.
    let g = current::g();
    g.inspect(|g| g.enter_runtime());
    let m = tls::loader().expect("on a goroutine's block").cast::<M>();
    let goroutines = tls::thread_pointer();
    // SAFETY: an M moved this thread to the block, and lives at least until the thread has left it. To the block of
    // this very thread, and back. `f` is not in line, and this function uses no thread-local in between.
    unsafe {
        tls::set_thread_pointer(m.as_ref().own_tp());
        g.inspect(|g| g.leave_runtime());
        let result = f(argument);
        g.inspect(|g| g.enter_runtime());
        tls::set_thread_pointer(goroutines);
        g.inspect(|g| g.leave_runtime());
        result
    }
}

/// Returns whether `file` is a name that is searched for, without a slash.
///
/// # Safety
/// `file` is null or a C string.
unsafe fn is_bare(file: *const c_char) -> bool {
    // SAFETY: by the caller.
    !file.is_null() && !unsafe { CStr::from_ptr(file) }.to_bytes().contains(&b'/')
}

/// Returns instructions that return in the object that holds `caller`, if that is not the object with this function: a
/// call that returns there, and from there to here, looks to the C library like a call from that object.
fn return_of(caller: usize) -> Option<Return> {
    let mut found = None;
    modules::each(|info, headers| {
        let part = |at: usize| {
            headers.iter().find_map(|h| {
                let start = (info.dlpi_addr + h.p_vaddr) as usize;
                let code = h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0;
                (code && (start..start + h.p_memsz as usize).contains(&at)).then(|| start + h.p_memsz as usize)
            })
        };
        if let Some(end) = part(caller)
            && part(load as *const () as usize).is_none()
        {
            // SAFETY: code of an object that is loaded: it waits for our return.
            found = unsafe { arch::find_return(caller..end) };
        }
    });
    found
}
