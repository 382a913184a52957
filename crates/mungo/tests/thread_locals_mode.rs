//! Whose thread-locals goroutines see is decided when the first runtime starts; nothing that fails for the moment is
//! remembered. Where own thread-locals are impossible: see `ci/elsewhere.sh`.
#![cfg(mungo_own_tls)]

mod common;
mod tls_support;

use common::child;
use mungo::{Runtime, ThreadLocals};

own_thread_locals_only!();
children!(starts_when_a_thread_can_be_started, shared_by_the_environment);

/// No thread can be started while there is no room for its stack. The one that looks at the layout is the first.
fn starts_when_a_thread_can_be_started() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let set = |bytes: libc::rlim_t, max: libc::rlim_t| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: max };
        // SAFETY: a setting of this process.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    };
    // SAFETY: writes to `limit`.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) }, 0);
    let (used, most) = (common::status_bytes("VmSize") as libc::rlim_t, limit.rlim_max);
    set(used + (64 << 10), most);
    let refused = Runtime::new().map(drop);
    set(most, most);
    let error = refused.expect_err("no room for a thread");
    assert!(error.to_string().contains("no thread could be started"), "{error}");
    let runtime = Runtime::new().expect("a runtime");
    assert_eq!(runtime.info().thread_locals, ThreadLocals::Own);
    common::end(runtime);
}

#[test]
fn a_refusal_for_the_moment_is_not_remembered() {
    if child::is_emulated("limits of memory are not emulated") {
        return;
    }
    child::run("starts_when_a_thread_can_be_started").assert_success();
}

#[test]
fn a_permission_changes_nothing_where_it_is_not_needed() {
    // SAFETY: no goroutine refers to a thread-local.
    let runtime = unsafe { Runtime::builder().allow_shared_thread_locals() }.build().expect("a runtime");
    assert_eq!(runtime.info().thread_locals, ThreadLocals::Own);
    common::end(runtime);
}

fn shared_by_the_environment() {
    let runtime = common::runtime(2);
    assert!(matches!(runtime.info().thread_locals, ThreadLocals::Shared(_)));
    assert_eq!(runtime.run(|| mungo::go(|| 42).join().unwrap()), 42);
}

#[test]
fn the_environment_is_permission_enough() {
    let mut command = child::command("shared_by_the_environment");
    command.env("MUNGO_DEBUG", "asyncpreempt=1,owntls=0");
    child::finish(command).assert_success();
}
