//! mimalloc as the global allocator, with one heap per OS thread: `OnThread<MiMalloc>`.
#![cfg(not(miri))]

mod tls_support;

use mimalloc::MiMalloc;
use mungo::alloc::OnThread;

#[global_allocator]
static GLOBAL: OnThread<MiMalloc> = OnThread::new(MiMalloc);

include!("tls_support/allocator_tests.rs");
