// Included by the test of each allocator: it is the global one of the whole process.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tls_support::{
    MIGRATIONS, Pattern, assert_flat, emulator, finish, in_child, malloc_storm, migrate, preempted_storm, runtime,
    spawn_cycles,
};

#[test]
fn plain_threads_allocate() {
    let threads: Vec<_> = (0..4u64)
        .map(|seed| std::thread::spawn(move || (0..200).map(|i| Pattern::new(i + 1, seed)).collect::<Vec<_>>()))
        .collect();
    for thread in threads {
        // Freed by another thread, which may be gone already.
        thread.join().unwrap().iter().for_each(Pattern::check);
    }
}

#[test]
fn all_functions_work_in_a_goroutine() {
    let rt = runtime(2);
    rt.run(|| {
        for size in [1usize, 8, 24, 100, 4096, 70_000, 3 << 20] {
            for align in [1usize, 16, 64, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: used within its size, freed once with the layout that it has then.
                unsafe {
                    let zeroed = GLOBAL.alloc_zeroed(layout);
                    assert!(!zeroed.is_null() && (zeroed as usize).is_multiple_of(align));
                    assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                    zeroed.write_bytes(0xA5, size);
                    migrate();
                    let grown = GLOBAL.realloc(zeroed, layout, 3 * size);
                    assert!(std::slice::from_raw_parts(grown, size).iter().all(|byte| *byte == 0xA5));
                    let other = GLOBAL.alloc(layout);
                    other.write_bytes(0x5A, size);
                    let (other, grown) = (other as usize, grown as usize);
                    // Freed by another goroutine.
                    mungo::go(move || GLOBAL.dealloc(other as *mut u8, layout)).join().unwrap();
                    let layout = Layout::from_size_align(3 * size, align).unwrap();
                    GLOBAL.dealloc(grown as *mut u8, layout);
                }
            }
        }
    });
    finish(rt);
}

#[test]
fn goroutines_allocate_while_they_migrate() {
    let goroutines = if emulator::is_emulated("200 goroutines instead of 5,000") { 200 } else { 5000 };
    let migrations = malloc_storm(4, goroutines, 40);
    assert!(migrations > 4 * goroutines, "{migrations} migrations");
}

#[test]
fn goroutines_are_preempted_while_they_allocate() {
    let preemptions = preempted_storm();
    assert!(preemptions > 0, "nobody was preempted");
}

/// Goroutines and threads come and go and free each other's memory.
#[test]
fn runtimes_come_and_go() {
    let mut kept = Vec::new();
    for seed in 0..20 {
        let rt = runtime(3);
        kept.extend(rt.run(|| {
            let all: Vec<_> = (0..50).map(|i| mungo::go(move || Pattern::new(100 + i, seed))).collect();
            all.into_iter().map(|h| h.join().unwrap()).collect::<Vec<_>>()
        }));
        finish(rt);
    }
    kept.iter().for_each(Pattern::check);
}

#[test]
fn a_million_goroutines_leave_nothing_behind() {
    if emulator::is_emulated("minutes, and the emulator's own memory is counted") {
        return;
    }
    if in_child("a_million_goroutines_leave_nothing_behind", &[]).is_none() {
        assert_flat(2, |i| {
            let patterns: Vec<_> = (0..3).map(|n| Pattern::new(10 + 20 * n + i % 16, i as u64)).collect();
            patterns.iter().for_each(Pattern::check);
        });
    }
}

#[test]
fn shared_thread_locals_need_no_detour() {
    if in_child("shared_thread_locals_need_no_detour", &[("MUNGO_DEBUG", "owntls=0")]).is_none() {
        let migrations = malloc_storm(4, 500, 40);
        assert!(migrations > 100, "{migrations} migrations");
    }
}

/// What the detour costs: `cargo test --release --test alloc_… -- --ignored --nocapture cost`.
#[test]
#[ignore = "measures"]
fn cost_of_an_allocation() {
    const PAIRS: u32 = 2_000_000;
    fn pairs(allocator: &dyn GlobalAlloc) -> Duration {
        let layout = Layout::from_size_align(64, 8).unwrap();
        let start = Instant::now();
        for _ in 0..PAIRS {
            // SAFETY: allocated and freed at once.
            unsafe { allocator.dealloc(std::hint::black_box(allocator.alloc(layout)), layout) };
        }
        start.elapsed()
    }
    let best = |allocator: &'static (dyn GlobalAlloc + Sync)| {
        let fastest = (0..7).map(|_| pairs(allocator)).min().unwrap();
        fastest.as_secs_f64() * 1e9 / f64::from(PAIRS)
    };
    let rt = runtime(1);
    let system: &'static (dyn GlobalAlloc + Sync) = &std::alloc::System;
    let wrapped: &'static (dyn GlobalAlloc + Sync) = &GLOBAL;
    let bare: &'static (dyn GlobalAlloc + Sync) = GLOBAL.get_ref();
    println!("ns for a pair of alloc and dealloc, 64 bytes, best of 7:");
    println!(
        "  plain thread: system {:.1}, wrapped {:.1}, bare {:.1}",
        best(system),
        best(wrapped),
        best(bare)
    );
    rt.run(|| {
        println!("  goroutine:    system {:.1}, wrapped {:.1}", best(system), best(wrapped));
    });
    finish(rt);
    let rt = runtime(1);
    rt.run(|| {
        for _ in 0..5 {
            let start = Instant::now();
            spawn_cycles(200_000, |_| ());
            println!("  spawn and join: {:.0} ns", start.elapsed().as_secs_f64() * 1e9 / 200_000.0);
        }
    });
    finish(rt);
    println!("  ({} migrations)", MIGRATIONS.load(Relaxed));
}
