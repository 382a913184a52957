//! RwLock: who excludes whom, and that neither side starves.

mod sync_util;

use mungo::sync::{Barrier, RwLock, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use sync_util::{KINDS, NO_MORE, Rng, meetings, on_two_procs, run, scaled, seed, spin_until};

#[test]
fn readers_share() {
    for kind in KINDS {
        let lock = Arc::new(RwLock::new(5));
        let all_in = Arc::new(Barrier::new(4));
        run(kind, 4, move |_| {
            let value = lock.read();
            all_in.wait(); // only if all four are in at once
            assert_eq!(*value, 5);
        });
    }
}

#[test]
fn a_writer_is_alone() {
    for kind in KINDS {
        let lock = Arc::new(RwLock::new((0, 0)));
        let shared = lock.clone();
        run(kind, 6, move |i| {
            for k in 0..scaled(20_000) {
                if (i + k) % 3 == 0 {
                    let mut pair = shared.write();
                    pair.0 += 1;
                    pair.1 += 1;
                } else {
                    let pair = shared.read();
                    assert_eq!(pair.0, pair.1);
                }
            }
        });
        let writes = (0..6).map(|i| (0..scaled(20_000)).filter(|k| (i + k) % 3 == 0).count()).sum();
        assert_eq!(*lock.read(), (writes, writes), "{kind:?}");
    }
}

#[test]
fn try_variants() {
    let lock = RwLock::new(1);
    {
        let _reader = lock.read();
        assert!(lock.try_read().is_some());
        assert!(lock.try_write().is_none());
        assert!(lock.is_locked() && !lock.is_locked_exclusive());
    }
    {
        let _writer = lock.try_write().unwrap();
        assert!(lock.try_read().is_none());
        assert!(lock.try_write().is_none());
        assert!(lock.is_locked_exclusive());
    }
    assert!(!lock.is_locked());
    assert_eq!(lock.into_inner(), 1);
}

#[test]
fn a_writer_that_waits_has_no_exclusive_lock() {
    let lock = Arc::new(RwLock::new(1));
    let reader = lock.read();
    let writer = {
        let lock = lock.clone();
        std::thread::spawn(move || *lock.write() += 1)
    };
    spin_until(|| lock.try_read().is_none()); // the writer is there
    spin_until(|| lock.is_locked() && !lock.is_locked_exclusive());
    drop(reader);
    writer.join().unwrap();
    assert_eq!(*lock.read(), 2);
}

#[test]
fn a_writer_becomes_a_reader() {
    on_two_procs(|| {
        let lock = Arc::new(RwLock::new(0));
        let mut writer = lock.write();
        let reading = Arc::new(AtomicUsize::new(0));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (lock, reading) = (lock.clone(), reading.clone());
                mungo::go(move || {
                    let value = lock.read();
                    reading.fetch_add(1, Relaxed);
                    *value
                })
            })
            .collect();
        *writer = 7;
        let reader = RwLockWriteGuard::downgrade(writer);
        while reading.load(Relaxed) < 3 {
            mungo::yield_now(); // they read while we do
        }
        assert_eq!(*reader, 7);
        assert!(readers.into_iter().all(|r| r.join().unwrap() == 7));
    });
}

/// Readers that never leave a gap: a writer gets in all the same.
#[test]
fn a_writer_does_not_starve() {
    on_two_procs(|| {
        let lock = Arc::new(RwLock::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let (lock, stop) = (lock.clone(), stop.clone());
                mungo::go(move || {
                    while !stop.load(Relaxed) {
                        let _value = lock.read();
                        mungo::yield_now(); // others come in before we leave
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            *lock.write() += 1;
        }
        stop.store(true, Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
        assert_eq!(*lock.read(), 100);
    });
}

/// Writers that never leave a gap: readers get in all the same, after each of them.
#[test]
fn a_reader_does_not_starve() {
    on_two_procs(|| {
        let lock = Arc::new(RwLock::new(0u64));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (lock, stop) = (lock.clone(), stop.clone());
                mungo::go(move || {
                    while !stop.load(Relaxed) {
                        *lock.write() += 1;
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            std::hint::black_box(*lock.read());
            mungo::yield_now();
        }
        stop.store(true, Relaxed);
        writers.into_iter().for_each(|w| w.join().unwrap());
    });
}

#[test]
fn stress_readers_and_writers() {
    let seed = seed();
    for kind in KINDS {
        let lock = Arc::new(RwLock::new(vec![0u64; 8]));
        let shared = lock.clone();
        let written: u64 = run(kind, 8, move |i| {
            let mut rng = Rng::new(seed ^ (i as u64) << 32);
            let mut written = 0;
            for _ in 0..scaled(10_000) {
                match rng.below(10) {
                    0 => {
                        shared.write().iter_mut().for_each(|v| *v += 1);
                        written += 1;
                    }
                    1 => {
                        let mut values = shared.write();
                        values.iter_mut().for_each(|v| *v += 1);
                        written += 1;
                        let values = RwLockWriteGuard::downgrade(values);
                        assert!(values.iter().all(|v| *v == values[0]));
                    }
                    2 => {
                        if let Some(mut values) = shared.try_write() {
                            values.iter_mut().for_each(|v| *v += 1);
                            written += 1;
                        }
                    }
                    k => {
                        let values = shared.read();
                        if k == 3 {
                            mungo::yield_now();
                        }
                        assert!(values.iter().all(|v| *v == values[0]));
                    }
                }
            }
            written
        })
        .into_iter()
        .sum();
        assert_eq!(lock.read()[0], written, "{kind:?}");
    }
}

/// The last reader leaves while the writer gets ready to wait for it; each round the times are others.
#[test]
fn stress_a_reader_leaves_as_a_writer_comes() {
    let rounds = scaled(200_000);
    let lock = RwLock::new(0);
    let (reads, wrote) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in meetings(rounds) {
                let guard = lock.read();
                reads.store(i, Relaxed);
                (0..i % 61).for_each(|_| std::hint::spin_loop());
                drop(guard);
                spin_until(|| wrote.load(Relaxed) == i);
            }
            reads.store(NO_MORE, Relaxed);
        });
        for i in 1..=rounds {
            spin_until(|| reads.load(Relaxed) >= i);
            if reads.load(Relaxed) == NO_MORE {
                break;
            }
            (0..i % 37).for_each(|_| std::hint::spin_loop());
            *lock.write() += 1;
            wrote.store(i, Relaxed);
        }
    });
    assert_eq!(*lock.read(), wrote.load(Relaxed));
}
