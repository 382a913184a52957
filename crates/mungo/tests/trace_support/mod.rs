//! What tests of traces share.
#![allow(dead_code)] // each test binary uses its own part

use mungo_trace::Trace;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};

/// A trace is of the whole process, so there is one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A writer into memory.
#[derive(Clone, Default)]
pub(crate) struct Memory(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    pub(crate) fn read(&self) -> Trace {
        Trace::read(&self.0.lock().unwrap()[..]).expect("a trace")
    }
}
