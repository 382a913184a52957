//! Whether the environment can be trusted.

use std::ffi::{OsStr, OsString};

/// Returns whether the program has rights that its caller has not: it is set-uid or set-gid, or its file has
/// capabilities. Its environment is then the caller's, and a caller must not be able to use the program's rights by it.
pub(crate) fn has_foreign_rights() -> bool {
    if cfg!(miri) {
        return false; // it has no such vector
    }
    // SAFETY: no memory involved.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns a variable of the environment that makes the program write files, listen, or do less than it should.
/// `None`: it is not set, or the environment cannot be trusted.
pub(crate) fn variable(name: impl AsRef<OsStr>) -> Option<OsString> {
    if has_foreign_rights() { None } else { std::env::var_os(name) }
}
