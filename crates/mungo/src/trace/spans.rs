//! Spans of the crate `tracing` as regions.

use super::user::{self, Region};
use std::cell::RefCell;
use std::fmt::{self, Debug};
use tracing_core::field::{Field, Visit};
use tracing_core::span::Id;
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

thread_local! {
    /// The spans that this goroutine, or thread, is in, and their regions.
    static ENTERED: RefCell<Vec<(u64, Region)>> = const { RefCell::new(Vec::new()) };
}

/// Returns a layer for the crate `tracing`: while a span is entered, it is a [`region`](super::region) of that name,
/// and an event is a line of the [log](super::log). With no trace and no [`FlightRecorder`](super::FlightRecorder) it
/// does nothing.
///
/// With the feature `tracing`. It stands beside other layers:
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let file = std::env::temp_dir().join(format!("mungo-doc-{}.spans", std::process::id()));
/// let tracing = mungo::trace::start(&file)?;
/// let subscriber = tracing_subscriber::registry().with(mungo::trace::layer());
/// tracing::subscriber::with_default(subscriber, || {
///     let _parsing = tracing::info_span!("parse").entered();
/// });
/// tracing.stop()?;
/// let bytes = std::fs::read(&file)?;
/// assert!(bytes.windows(5).any(|name| name == b"parse"));
/// # std::fs::remove_file(file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn layer() -> SpanLayer {
    SpanLayer { _private: () }
}

/// Makes regions of spans: see [`layer`].
#[derive(Clone, Copy, Debug)]
pub struct SpanLayer {
    _private: (),
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if user::is_watched()
            && let Some(metadata) = context.metadata(id)
        {
            let region = user::region(metadata.name());
            _ = ENTERED.try_with(|entered| entered.borrow_mut().push((id.into_u64(), region)));
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let of = |entered: &RefCell<Vec<(u64, Region)>>| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().rposition(|(span, _)| *span == id.into_u64())?;
            Some(entered.remove(at))
        };
        drop(ENTERED.try_with(of)); // the region, when its place is free again
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if super::is_on() {
            super::log(Line(event));
        }
    }
}

/// Writes the message of an event, or its other fields.
struct Fields<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    is_message: bool,
    result: fmt::Result,
}

impl Visit for Fields<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.result = self.result.and_then(|()| match (field.name(), self.is_message) {
            ("message", true) => write!(self.out, " {value:?}"),
            ("message", false) | (_, true) => Ok(()),
            (name, false) => write!(self.out, " {name}={value:?}"),
        });
    }
}

/// An event as a line: its message, then its fields.
struct Line<'a>(&'a Event<'a>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.metadata().target())?;
        for is_message in [true, false] {
            let mut fields = Fields { out: f, is_message, result: Ok(()) };
            self.0.record(&mut fields);
            fields.result?;
        }
        Ok(())
    }
}
