//! `libmungo_preload.so`: the functions of `mungo-interpose`, for programs that were built without it.
//!
//! `LD_PRELOAD` has the dynamic loader take them before the C library's, and `MUNGO_THREADS=goroutines` makes the
//! program's threads goroutines. `mungo run --threads PROGRAM` sets both.

use mungo_interpose as _;
