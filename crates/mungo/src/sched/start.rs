//! A runtime starts, and the default one with the first goroutine that has no other.

use super::config::Settings;
use super::engine::switch;
use super::interpose;
use super::profile;
use super::report::{live, overflow, sigquit, stacks};
use super::run::current::{self, Running};
use super::run::{lock, panic_hook};
use super::shared::Shared;
use super::sysmon::monitor;
use super::threads::{preempt, setxid};
use super::traced;
use crate::environment;
use crate::stack;
use crate::tracer;
use std::io;
use std::sync::{Arc, OnceLock};

/// Starts a runtime.
pub(crate) fn start(settings: Settings) -> io::Result<Arc<Shared>> {
    stack::tls::decide(settings.allow_shared_tls, settings.late_static_tls()?)?;
    tracer::set_census(traced::census);
    stacks::know_code();
    let with_stacks = environment::number("MUNGO_TRACE_STACKS", 0..=1)? == Some(1);
    tracer::start_as_asked(environment::duration("MUNGO_TRACE_LAST")?, with_stacks);
    let (config, quota) = settings.config()?;
    profile::start_as_asked(environment::duration("MUNGO_BLOCK_RATE")?);
    crate::lock::set_hooks(&lock::HOOKS);
    current::note_decision();
    interpose::note_decision();
    stack::overflow::install(overflow::report);
    preempt::install();
    setxid::install();
    panic_hook::install();
    sigquit::install();
    let shared = Shared::new(config)?;
    if let Some(policy) = shared.config.policy.clone() {
        drop(switch::install(&shared, policy));
    }
    monitor::start(&shared, quota)?;
    live::start_as_asked();
    Ok(shared)
}

/// Returns the runtime behind `go` on plain threads.
pub(crate) fn default_runtime() -> io::Result<&'static Arc<Shared>> {
    static DEFAULT: OnceLock<Arc<Shared>> = OnceLock::new();
    static MAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    if let Some(runtime) = DEFAULT.get() {
        return Ok(runtime);
    }
    let _making = MAKING.lock().unwrap_or_else(|e| e.into_inner());
    match DEFAULT.get() {
        Some(runtime) => Ok(runtime),
        None => start(Settings::default()).map(|runtime| DEFAULT.get_or_init(|| runtime)),
    }
}

pub(crate) fn with_current<R>(f: impl FnOnce(&Shared) -> R) -> R {
    match Running::enter() {
        Some(running) => f(running.shared()),
        None => f(default_runtime().unwrap_or_else(|e| panic!("mungo: cannot start the runtime: {e}"))),
    }
}
