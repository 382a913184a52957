//! jemalloc as the global allocator, with one heap per OS thread: `OnThread<Jemalloc>`.
#![cfg(not(miri))]

mod tls_support;

use mungo::alloc::OnThread;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static GLOBAL: OnThread<Jemalloc> = OnThread::new(Jemalloc);

include!("tls_support/allocator_tests.rs");
