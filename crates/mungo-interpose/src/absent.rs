//! The twin of `shims/` where there are none: the same names, nothing to do.

/// Whether the functions are part of this build.
pub(crate) const ARE_BUILT: bool = false;

pub(crate) fn want_threads(_goroutines: bool) {}
