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
    let (status, trace) = get(address, "/debug/pprof/trace?seconds=0.05");
    assert!(status == 200 && trace.len() > 16, "{status}, {} bytes", trace.len());
    if cfg!(all(feature = "profile", target_arch = "x86_64", target_os = "linux")) {
        let targets = ["goroutine", "block", "mutex", "sleep", "network", "runnable", "profile?seconds=0.05"];
        for target in targets.map(|name| format!("/debug/pprof/{name}")) {
            let (status, profile) = get(address, &target);
            assert!(status == 200 && profile.starts_with(&[0x1f, 0x8b]), "{target}: {status}");
        }
        let (_, text) = get(address, "/debug/pprof/goroutine?debug=1");
        assert!(String::from_utf8_lossy(&text).starts_with("goroutine profile: "));
    }
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
    ] {
        let (found, body) = get(address, target);
        let body = String::from_utf8_lossy(&body);
        assert!(found == status && body.contains(part), "{target}: {found} {body}");
    }
}
