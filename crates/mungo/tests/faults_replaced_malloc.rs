//! A library takes `malloc` over, with one lock that threads sleep for. Goroutines are interrupted all the time, and a
//! thread that is started needs memory too. Nothing hangs.
#![cfg(mungo_own_tls)]

#[macro_use]
mod common;

use common::child;
use std::hint::{black_box, spin_loop};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

children!(goroutines_that_allocate);

/// The lock is held for long, so that many of the interruptions come meanwhile. What is freed is not used again.
const LIBRARY: &str = r#"
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next, *end;

void *memalign(size_t align, size_t n)
{
    pthread_mutex_lock(&lock);
    for (volatile int i = 0; i < 2000; i++) {}
    if (align < 16) align = 16;
    char *at = (char *)(((size_t)next + 16 + align - 1) & ~(align - 1));
    if (!next || at + n > end) {
        size_t size = 64 << 20;
        if (n + align + 16 > size) size = n + align + 4096;
        next = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (next == MAP_FAILED) __builtin_trap();
        end = next + size;
        at = (char *)(((size_t)next + 16 + align - 1) & ~(align - 1));
    }
    next = at + n;
    ((size_t *)at)[-1] = n;
    pthread_mutex_unlock(&lock);
    return at;
}

void free(void *at) { if (at) memset(at, 0, 1); }
void *malloc(size_t n) { return memalign(16, n ? n : 1); }
void *calloc(size_t n, size_t m) { return malloc(n * m); }
void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }
int posix_memalign(void **at, size_t align, size_t n) { *at = memalign(align, n); return 0; }
size_t malloc_usable_size(void *at) { return at ? ((size_t *)at)[-1] : 0; }

void *realloc(void *at, size_t n)
{
    void *new = malloc(n);
    size_t old = malloc_usable_size(at);
    return at ? memcpy(new, at, n < old ? n : old) : new;
}

char which_malloc_this_is[] = "one lock";
"#;

/// One P, four goroutines that call malloc, and some that sleep on their threads, so that others have to be started.
fn goroutines_that_allocate() {
    // SAFETY: a NUL-terminated name.
    let library = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"which_malloc_this_is".as_ptr()) };
    assert!(!library.is_null(), "malloc is the C library's");
    let slice = Duration::from_millis(1);
    let runtime = mungo::Runtime::builder().procs(1).time_slice(slice).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut all: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    drop(black_box(Box::new([0u8; 64])));
                    (0..100).for_each(|_| spin_loop());
                }
            })
        })
        .collect();
    for _ in 0..8 {
        all.push(runtime.spawn(|| (0..40).for_each(|_| std::thread::sleep(Duration::from_millis(2)))));
    }
    all.drain(4..).for_each(|g| g.join().unwrap());
    stop.store(true, Relaxed);
    all.into_iter().for_each(|g| g.join().unwrap());
    let interruptions = runtime.metrics().interruptions;
    eprintln!("{interruptions:?}");
    assert!(interruptions.injected + interruptions.in_libc > 0, "{interruptions:?}");
    common::end(runtime);
    println!("done");
}

#[test]
fn goroutines_in_a_malloc_with_one_lock_go_on() {
    if child::is_emulated("the library would be loaded into the emulator") {
        return;
    }
    let (source, library) = (common::TempFile::new("malloc.c"), common::TempFile::new("malloc.so"));
    std::fs::write(&source.0, LIBRARY).unwrap();
    let mut cc = child::cc();
    cc.args(["-O1", "-fno-builtin", "-shared", "-fPIC", "-o"]).arg(&library.0).arg(&source.0);
    let built = cc.arg("-lpthread").stdin(Stdio::null()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for _ in 0..3 {
        let mut command = child::command("goroutines_that_allocate");
        command.env("LD_PRELOAD", &library.0);
        assert!(child::finish(command).assert_success().stdout.contains("done"));
    }
}
