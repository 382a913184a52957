//! How a thread waits for a lock before it sleeps.

/// Number of `PAUSE`s between two looks, each of which costs the holder a cache miss. The longer the pause, the more
/// the holder gets done with the guarded lines in its cache: a thread that spins hard gets its turn after each of the
/// other's.
/// TUNED: four senders and four receivers on one channel and two CPUs: 112 ns a message with 1 `PAUSE` between looks,
/// 65 with 4, 36 with 10, 26 with 30, 24 with 50, 22 with 100.
const PAUSES: u32 = 40;
/// Number of looks before the thread sleeps.
const LOOKS: u32 = 16;

/// Looks again and again, with pauses, until `is_done`; returns `false` when it is time to sleep.
pub(crate) fn spin(mut is_done: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|_| {
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        is_done()
    })
}
