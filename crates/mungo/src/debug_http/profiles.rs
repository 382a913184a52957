//! Profiles as answers.

use super::{Answer, duration};
use crate::profile::{self, Profile};
use crate::sched::report::collect::on_a_new_thread;

/// Returns the profile with this name, gzipped for pprof, or as text. `None`: there is none.
pub(super) fn named(name: &str, debug: Option<&str>) -> Option<Answer> {
    let take: fn() -> Profile = match name {
        "goroutine" => profile::goroutine,
        "block" => profile::block,
        "mutex" => profile::mutex,
        "sleep" => profile::sleep,
        "network" => profile::network,
        "runnable" => profile::runnable,
        _ => return None,
    };
    Some(match debug {
        None | Some("0") => written(&take()),
        Some("1") => Answer::text(200, take().to_text()),
        Some(other) => Answer::text(400, format!("debug is 0 (for pprof) or 1 (text), not '{other}'\n")),
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
