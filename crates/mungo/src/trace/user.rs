//! What a program says about itself in a trace.

use crate::sched::run::current::Running;
use crate::tracer;
use mungo_trace::format::{MAX_TEXT, NO_P, Record, kind};
use std::fmt::{self, Display, Write};
use std::marker::PhantomData;
use std::time::Instant;

/// Puts an event of the caller's down.
#[cold]
#[inline(never)]
fn put(kind: u8, body: u64, text: &str) {
    let entry = |p| Record::new(0, kind, 0, p, body);
    let Some(running) = Running::enter() else {
        return tracer::put_outside(0, entry(NO_P), text);
    };
    let (m, g) = (running.m(), running.g().id.load(std::sync::atomic::Ordering::Relaxed));
    let entry = entry(running.p().id as u16);
    match kind & mungo_trace::format::HAS_TEXT {
        0 => m.lane.put(entry, || g),
        _ => m.lane.put_text(entry, text, g),
    }
}

/// Returns whether a region would be noticed.
#[cfg(feature = "tracing")]
pub(super) fn is_watched() -> bool {
    tracer::is_on() || tracer::watches_regions()
}

/// Begins a region: a part of what the calling goroutine, or thread, does. It ends when the guard is dropped.
///
/// ```
/// let _parsing = mungo::trace::region("parse");
/// ```
pub fn region(name: &str) -> Region {
    let id = if tracer::is_on() { tracer::new_id() } else { 0 };
    if id != 0 {
        put(kind::REGION_BEGIN, id, name);
    }
    Region { id, began: tracer::watches_regions().then(Instant::now), stays: PhantomData }
}

/// A region that has not ended: see [`region`]. It stays with its goroutine or thread.
///
/// ```
/// let tracing = mungo::trace::start_writer(std::io::sink())?;
/// let region: mungo::trace::Region = mungo::trace::region("parse");
/// drop(region); // it ends here
/// assert!(tracing.stop()?.events >= 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "the region ends when this is dropped"]
pub struct Region {
    /// 0: it is not in a trace.
    id: u64,
    /// If a recorder waits for slow regions.
    began: Option<Instant>,
    stays: PhantomData<*const ()>,
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.id != 0 && tracer::is_on() {
            put(kind::REGION_END, self.id, "");
        }
        if let Some(began) = self.began {
            tracer::region_ended(began.elapsed());
        }
    }
}

/// Begins a task: work that may span goroutines, such as a request. It ends when the guard is dropped, wherever.
///
/// ```
/// let request = mungo::trace::task("GET /");
/// mungo::go(move || {
///     mungo::trace::log("on another goroutine");
///     drop(request);
/// })
/// .join()
/// .unwrap();
/// ```
pub fn task(name: &str) -> Task {
    let id = if tracer::is_on() { tracer::new_id() } else { 0 };
    if id != 0 {
        put(kind::TASK_BEGIN, id, name);
    }
    Task { id }
}

/// A task that has not ended: see [`task`].
///
/// ```
/// let tracing = mungo::trace::start_writer(std::io::sink())?;
/// let task: mungo::trace::Task = mungo::trace::task("request");
/// mungo::go(move || drop(task)).join().unwrap(); // it may end elsewhere
/// assert!(tracing.stop()?.events >= 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "the task ends when this is dropped"]
pub struct Task {
    /// 0: it is not in a trace.
    id: u64,
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.id != 0 && tracer::is_on() {
            put(kind::TASK_END, self.id, "");
        }
    }
}

/// Puts a text into the trace, of which a kilobyte is kept. With no trace nothing is formatted.
///
/// ```
/// mungo::trace::log("cache miss");
/// mungo::trace::log(format_args!("{} of {}", 3, 7));
/// ```
pub fn log(text: impl Display) {
    if tracer::is_on() {
        let mut buffer = Text { bytes: [0; MAX_TEXT], len: 0 };
        _ = write!(buffer, "{text}");
        put(kind::LOG, 0, buffer.as_str());
    }
}

/// A text that needs no allocation; cut off where the room ends.
struct Text {
    bytes: [u8; MAX_TEXT],
    len: usize,
}

impl Text {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let n = text.floor_char_boundary(text.len().min(MAX_TEXT - self.len));
        self.bytes[self.len..self.len + n].copy_from_slice(&text.as_bytes()[..n]);
        self.len += n;
        if n == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut text = Text { bytes: [0; MAX_TEXT], len: 0 };
        assert!(write!(text, "{}ä", "a".repeat(MAX_TEXT - 1)).is_err());
        assert_eq!(text.as_str(), "a".repeat(MAX_TEXT - 1));
    }
}
