//! Progress bars on standard error. Where that is no terminal they are silent.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar of `steps`, with an estimate of the time that is left.
pub(crate) fn bar(steps: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("{prefix} {bar:30.cyan/blue} {pos}/{len} {msg} [{elapsed}, {eta} left]");
    bar.set_style(style.expect("the template is right").progress_chars("█▉▊▋▌▍▎▏ "));
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
