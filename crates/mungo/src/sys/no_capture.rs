//! Stands in where the program's symbol table cannot be read: what goroutines print is not captured.

#[derive(Debug)]
pub(crate) struct Capture;

impl Capture {
    pub(crate) fn current() -> Option<Capture> {
        None
    }

    pub(crate) fn begin(&self) {}
}
