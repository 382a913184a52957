//! Ctrl-C: the first one asks for an orderly end, the second one ends the process.

use crate::error::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the user asked for the end. Clones look at the same flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT and SIGTERM from now on.
    pub(crate) fn install() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal finds the flag set by the first.
            flag::register_conditional_shutdown(signal, 128 + signal, interrupt.0.clone())
                .and_then(|_| flag::register(signal, interrupt.0.clone()))
                .map_err(|e| Error::Failed(format!("cannot catch signal {signal}: {e}")))?;
        }
        Ok(interrupt)
    }

    /// One that has come already.
    #[cfg(test)]
    pub(crate) fn set_for_test() -> Interrupt {
        Interrupt(Arc::new(AtomicBool::new(true)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// # Errors
    /// [`Error::Interrupted`] once the user asked for the end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(Error::Interrupted("interrupted")) } else { Ok(()) }
    }
}
