//! `debug::http`: each path answers, and what is asked wrongly is answered by a line that says how.
#![cfg(feature = "debug-http")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The status and the body of an answer.
fn get(address: SocketAddr, target: &str) -> (u16, Vec<u8>) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(common::PATIENCE)).unwrap();
    write!(client, "GET {target} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, answer[end + 4..].to_vec())
}

#[test]
fn each_path_answers() {
    let address = mungo::debug::http::listen("127.0.0.1:0").unwrap();
    for (target, part) in [
        ("/debug/", "/debug/goroutines"),
        ("/debug/sched", "\"runtimes\":[{"),
        ("/debug/goroutines", "mungo-debug-http"),
        ("/debug/waits", "[net accept] waits for descriptor "),
        ("/debug/waits?format=dot", "digraph waits {"),
        ("/metrics", "mungo_goroutines "),
    ] {
        let (status, body) = get(address, target);
        let body = String::from_utf8_lossy(&body);
        assert!(status == 200 && body.contains(part), "{target}: {status} {body}");
    }
    let mut answer = (503, Vec::new());
    common::wait_until("no other test takes a trace", || {
        answer = get(address, "/debug/pprof/trace?seconds=0.05");
        answer.0 != 503
    });
    let (status, trace) = answer;
    assert!(status == 200 && trace.len() > 16, "{status}, {} bytes", trace.len());
    if cfg!(all(feature = "profile", mungo_native)) {
        let targets = ["goroutine", "block", "mutex", "sleep", "network", "runnable", "profile?seconds=0.05"];
        for target in targets.map(|name| format!("/debug/pprof/{name}")) {
            let (status, profile) = get(address, &target);
            assert!(status == 200 && profile.starts_with(&[0x1f, 0x8b]), "{target}: {status}");
        }
        let (_, text) = get(address, "/debug/pprof/goroutine?debug=1");
        assert!(String::from_utf8_lossy(&text).starts_with("goroutine profile: "));
        let (_, text) = get(address, "/debug/pprof/goroutine?debug=2");
        assert!(String::from_utf8_lossy(&text).contains("mungo-debug-http"));
    }
}

#[inline(never)]
#[cfg(all(feature = "profile", mungo_native))]
fn waits_in_vain() {
    let (_tx, rx) = mungo::chan::bounded::<u8>(0);
    std::hint::black_box(rx.recv_timeout(std::time::Duration::from_millis(20)).unwrap_err());
}

/// A collector asks for what was added in the next seconds.
#[test]
#[cfg(all(feature = "profile", mungo_native))]
fn profiles_of_the_next_seconds() {
    use std::time::Duration;
    let address = mungo::debug::http::listen("127.0.0.1:0").unwrap();
    mungo::profile::set_block_rate(Duration::from_micros(10)).unwrap();
    let waits = || mungo::go(waits_in_vain).join().unwrap();
    waits();
    let text = |target: &str| String::from_utf8(get(address, target).1).unwrap();
    let all = text("/debug/pprof/block?debug=1");
    assert!(all.contains("waits_in_vain"), "{all}");
    let none = text("/debug/pprof/block?seconds=0.05&debug=1");
    assert!(none.starts_with("block profile: ") && !none.contains("waits_in_vain"), "{none}");
    let asked = std::thread::spawn(move || get(address, "/debug/pprof/block?seconds=0.5&debug=2"));
    while !asked.is_finished() {
        waits();
    }
    let some = String::from_utf8(asked.join().unwrap().1).unwrap();
    assert!(some.contains("waits_in_vain"), "{some}");
    let (status, profile) = get(address, "/debug/pprof/block?seconds=0.05");
    assert!(status == 200 && profile.starts_with(&[0x1f, 0x8b]), "{status}");
    mungo::profile::set_block_rate(Duration::ZERO).unwrap();
}

#[test]
fn one_trace_at_a_time() {
    let address = mungo::debug::http::listen("127.0.0.1:0").unwrap();
    let long = std::thread::spawn(move || get(address, "/debug/pprof/trace?seconds=3").0);
    common::wait_until("it is taken", mungo::trace::is_on);
    let mut refused = (200, Vec::new());
    while refused.0 != 503 && !long.is_finished() {
        refused = get(address, "/debug/pprof/trace?seconds=0");
    }
    let line = String::from_utf8(refused.1).unwrap();
    assert_eq!(line, "/debug/pprof/trace: another trace is being taken: ask again later\n");
    long.join().unwrap();
}

#[test]
fn what_is_asked_wrongly_is_answered_by_a_line() {
    let address = mungo::debug::http::listen("127.0.0.1:0").unwrap();
    for (target, status, part) in [
        ("/elsewhere", 404, "there are\n/debug/sched\n"),
        ("/debug/pprof/heap", 404, "/debug/pprof/heap is not here"),
        ("/debug/sched?x=1", 400, "the parameter 'x' is not known"),
        ("/debug/waits?format=png", 400, "format is text or dot, not 'png'"),
        ("/debug/pprof/trace?seconds=-1", 400, "seconds is a number from 0 to 60, not '-1'"),
        ("/debug/pprof/trace?seconds", 400, "'seconds' is not key=value"),
        ("/debug/pprof/profile?seconds=1e9", 400, "seconds is a number from 0 to 60, not '1e9'"),
        ("/debug/pprof/profile?hz=0", 400, "hz is a number from 1 to 10000, not '0'"),
        ("/debug/pprof/block?debug=7", 400, "not '7'"),
        ("/debug/pprof/block?seconds=61", 400, "seconds is a number from 0 to 60, not '61'"),
    ] {
        let (found, body) = get(address, target);
        let body = String::from_utf8_lossy(&body);
        if found == 503 && cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            assert!(body.contains("Linux on x86-64"), "{target}: {body}");
            continue;
        }
        assert!(found == status && body.contains(part), "{target}: {found} {body}");
    }
}
