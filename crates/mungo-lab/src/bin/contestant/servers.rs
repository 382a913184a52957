//! The servers: they run until they are killed, and a load generator measures.

use super::Args;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use mungo::net::{TcpListener, TcpStream};
use std::convert::Infallible;
use std::io::{Read, Write};

const LIGHT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// Bytes that a connection has buffered at the most.
const BUFFER: usize = 4096;

fn listen(a: &Args) -> TcpListener {
    TcpListener::bind(("127.0.0.1", a.num("port", 9000) as u16)).expect("a free port")
}

pub(super) fn echo(a: &Args) {
    for stream in &listen(a) {
        let stream = stream.expect("a connection");
        mungo::go(move || serve_echo(stream));
    }
}

fn serve_echo(mut stream: impl Read + Write) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// `impl=raw`: a parser by hand, blocking. `impl=lib`: hyper.
pub(super) fn http(a: &Args) {
    if a.num("offload", 0) != 0 {
        return a.not_available("there is nothing to offload");
    }
    let adds = a.num("adds", 10_000_000) as u64;
    let by_hyper = a.values.get("impl").is_some_and(|which| which == "lib");
    for stream in &listen(a) {
        let stream = stream.expect("a connection");
        mungo::go(move || match by_hyper {
            true => serve_by_hyper(stream, adds),
            false => serve_http(stream, adds),
        });
    }
}

fn serve_by_hyper(stream: TcpStream, adds: u64) {
    let answer = |request: Request<Incoming>| {
        let (status, body) = match request.uri().path() {
            "/light" => (StatusCode::OK, "Hello, World!".to_string()),
            "/heavy" => (StatusCode::OK, additions(adds).to_string()),
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    };
    // An error ends the connection, as in the others.
    _ = mungo::block_on(http1::Builder::new().serve_connection(stream, service_fn(answer)));
}

fn serve_http(mut stream: impl Read + Write, adds: u64) {
    let mut buffer = vec![0; BUFFER];
    let mut have = 0;
    loop {
        while let Some(end) = buffer[..have].windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4) {
            let request = &buffer[..end];
            let sent = if request.starts_with(b"GET /light") {
                stream.write_all(LIGHT)
            } else if request.starts_with(b"GET /heavy") {
                stream.write_all(&heavy_response(additions(adds)))
            } else {
                stream.write_all(NOT_FOUND)
            };
            if sent.is_err() {
                return;
            }
            buffer.copy_within(end..have, 0);
            have -= end;
        }
        match stream.read(&mut buffer[have..]) {
            Ok(n @ 1..) => have += n,
            _ => return,
        }
    }
}

fn heavy_response(sum: u64) -> Vec<u8> {
    let body = sum.to_string();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
    (head + &body).into_bytes()
}

/// `n` additions that the compiler neither folds nor vectorises.
#[inline(never)]
pub(super) fn additions(n: u64) -> u64 {
    let mut sum = 0u64;
    for i in 0..n {
        sum = sum.wrapping_add(i);
        // SAFETY: an empty instruction, which may change the register.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) sum, options(nomem, nostack, preserves_flags)) };
    }
    sum
}

/// Additions in a nanosecond, at the best of seven times.
pub(super) fn additions_per_ns() -> f64 {
    const N: u64 = 2_000_000;
    let once = || {
        let t = std::time::Instant::now();
        std::hint::black_box(additions(N));
        t.elapsed()
    };
    N as f64 / (0..7).map(|_| once()).min().expect("seven times").as_nanos() as f64
}
