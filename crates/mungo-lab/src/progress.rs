//! Progress on standard error: a bar on a terminal, now and then a line elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal: a log should say that it goes on, not how.
const QUIET: Duration = Duration::from_secs(5);

/// The state of something that takes a while.
pub(crate) struct Progress {
    bar: ProgressBar,
    what: String,
    /// The last line where there is no terminal.
    spoke: Option<Instant>,
}

impl Progress {
    /// Of `steps`, with an estimate of the time that is left.
    pub(crate) fn new(steps: u64, what: &str) -> Progress {
        const TEMPLATE: &str = "{prefix} {bar:30.cyan/blue} {pos}/{len} {msg} [{elapsed}, {eta} left]";
        let bar = ProgressBar::new(steps).with_prefix(what.to_owned());
        bar.set_style(
            ProgressStyle::with_template(TEMPLATE).expect("the template is right").progress_chars("━╸─"),
        );
        Progress::with(bar, what)
    }

    /// Of something that takes as long as it takes.
    pub(crate) fn spinner(what: &str) -> Progress {
        let bar = ProgressBar::new_spinner().with_prefix(what.to_owned());
        let style = ProgressStyle::with_template("{prefix} {spinner} {msg} [{elapsed}]");
        bar.set_style(style.expect("the template is right"));
        Progress::with(bar, what)
    }

    fn with(bar: ProgressBar, what: &str) -> Progress {
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, what: what.to_owned(), spoke: None }
    }

    /// What is done at the moment.
    pub(crate) fn doing(&self, what: String) {
        self.bar.set_message(what);
    }

    pub(crate) fn position(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// One more step is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// Something worth a line in a log is done.
    pub(crate) fn milestone(&mut self, what: &str) {
        if !std::io::stderr().is_terminal() && self.spoke.is_none_or(|spoke| spoke.elapsed() > QUIET) {
            eprintln!("mungo: {}: {what}", self.what);
            self.spoke = Some(Instant::now());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
