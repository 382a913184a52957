//! Profiles as answers.

use super::{Answer, duration};
use crate::profile::{self, Profile};
use crate::sched::report::collect::on_a_new_thread;

/// Returns the profile with this name, of all time or of the next seconds, gzipped for pprof, or as text. `None`: there
/// is none.
pub(super) fn named(name: &str, debug: Option<&str>, seconds: Option<&str>) -> Option<Answer> {
    let take: fn() -> Profile = match name {
        "goroutine" => profile::goroutine,
        "block" => profile::block,
        "mutex" => profile::mutex,
        "sleep" => profile::sleep,
        "network" => profile::network,
        "runnable" => profile::runnable,
        _ => return None,
    };
    if let Some(other) = debug.filter(|debug| !["0", "1", "2"].contains(debug)) {
        let why = format!("debug is 0 (for pprof), 1 (text) or 2 (each goroutine), not '{other}'\n");
        return Some(Answer::text(400, why));
    }
    if name == "goroutine" && debug == Some("2") {
        return Some(Answer::text(200, crate::debug::dump().to_string()));
    }
    let taken = match seconds.map(duration) {
        None => take(),
        Some(Err(refused)) => return Some(refused),
        Some(Ok(duration)) => {
            let before = take();
            crate::time::sleep(duration);
            take().since(&before)
        }
    };
    Some(match debug {
        None | Some("0") => written(&taken),
        _ => Answer::text(200, taken.to_text()),
    })
}

/// Takes a CPU profile of the next seconds.
pub(super) fn cpu(seconds: &str, hz: &str) -> Answer {
    let duration = match duration(seconds) {
        Ok(duration) => duration,
        Err(refused) => return refused,
    };
    let Some(hz) = hz.parse::<u32>().ok().filter(|hz| (1..=10_000).contains(hz)) else {
        return Answer::text(400, format!("hz is a number from 1 to 10000, not '{hz}'\n"));
    };
    match profile::cpu(duration, hz) {
        Ok(profile) => written(&profile),
        Err(e) => Answer::text(503, format!("no CPU profile: {e}\n")),
    }
}

/// Returns a profile as pprof reads it. The compressor needs more stack than a goroutine has.
fn written(profile: &Profile) -> Answer {
    let write = || {
        let mut body = Vec::new();
        profile.write_to(&mut body).map(|()| body)
    };
    match on_a_new_thread(write) {
        Some(Ok(body)) => Answer::of("application/octet-stream", body),
        None => Answer::text(503, "the profile cannot be written: the system has no thread for that\n"),
        Some(Err(e)) => Answer::text(503, format!("the profile cannot be written: {e}\n")),
    }
}
