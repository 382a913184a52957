//! Stands for profiles where there are none: see `mungo::profile`.

use super::Answer;

const WHY: &str = "profiles need the feature `profile`, and Linux on x86-64 or aarch64\n";

/// Says that there is no profile.
pub(super) fn named(name: &str, _debug: Option<&str>, _seconds: Option<&str>) -> Option<Answer> {
    let known = ["goroutine", "block", "mutex", "sleep", "network", "runnable"];
    known.contains(&name).then(|| Answer::text(503, WHY))
}

/// Says that there is no profile.
pub(super) fn cpu(_seconds: &str, _hz: &str) -> Answer {
    Answer::text(503, WHY)
}
