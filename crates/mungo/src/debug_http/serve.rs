//! A small HTTP/1.1 server: GET requests, one for each connection.

use super::{Answer, respond};
use crate::context::Context;
use crate::net::{TcpListener, TcpStream, ToSocketAddrs};
use crate::spawn::go;
use crate::sync::{Semaphore, WaitGroup};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most requests at a time.
const AT_A_TIME: usize = 64;
/// Most bytes of a request's head.
const LONGEST: usize = 8 << 10;
/// Time that a client has to send its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Listens on an address, and serves the paths of [`http`](super) there until the program ends. Returns the address,
/// whose port was chosen if it was 0.
///
/// ```
/// use std::io::{Read, Write};
///
/// let address = mungo::debug::http::listen("127.0.0.1:0")?;
/// let mut client = std::net::TcpStream::connect(address)?;
/// client.write_all(b"GET /debug/sched HTTP/1.1\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// If the address cannot be listened on.
pub fn listen(address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let here = listener.local_addr()?;
    crate::spawn::Builder::new().name("mungo-debug-http".to_owned()).spawn(move || {
        _ = serve(&listener, &Context::background());
    })?;
    Ok(here)
}

/// Serves the paths of [`http`](super) on a listener until the context is done; then it answers what was asked.
///
/// ```
/// use mungo::context::Context;
///
/// let (ctx, cancel) = Context::background().with_cancel();
/// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
/// let server = mungo::go(move || mungo::debug::http::serve(&listener, &ctx));
/// cancel.cancel();
/// server.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// If the listener fails for good. What goes wrong with one connection ends that one.
pub fn serve(listener: &TcpListener, ctx: &Context) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(AT_A_TIME));
    let busy = WaitGroup::new();
    for stream in listener.with_context(ctx).incoming() {
        let stream = stream?;
        let permit = room.clone().acquire_owned(1);
        let token = busy.token();
        drop(go(move || {
            let _held = (permit, token);
            _ = connection(&stream);
        }));
    }
    busy.wait();
    Ok(())
}

fn connection(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_deadline(Some(Instant::now() + PATIENCE));
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST {
        match stream.read(&mut buffer)? {
            0 => break,
            n => head.extend_from_slice(&buffer[..n]),
        }
    }
    let answer = answer_to(&head);
    stream.set_write_deadline(Some(Instant::now() + PATIENCE));
    let status = match answer.status {
        200 => "200 OK",
        400 => "400 Bad Request",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        503 => "503 Service Unavailable",
        _ => "500 Internal Server Error",
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        answer.content_type,
        answer.body.len()
    )?;
    if !head.starts_with(b"HEAD ") {
        stream.write_all(&answer.body)?;
    }
    Ok(())
}

fn answer_to(head: &[u8]) -> Answer {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split(' ').collect();
    match words[..] {
        ["GET" | "HEAD", target, version] if version.starts_with("HTTP/1.") && head.ends_with(b"\r\n\r\n") => {
            respond(target)
        }
        [method, target, version]
            if method != "GET"
                && method != "HEAD"
                && version.starts_with("HTTP/1.")
                && target.starts_with('/') =>
        {
            Answer::text(405, format!("{method} is not done here: GET\n"))
        }
        _ => Answer::text(400, "this is not a request of HTTP/1.1\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "a runtime")]
    fn requests_are_read() {
        let status = |head: &[u8]| answer_to(head).status;
        assert_eq!(status(b"GET /debug/ HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
        assert_eq!(status(b"GET /elsewhere HTTP/1.1\r\n\r\n"), 404);
        assert_eq!(status(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(status(b"GET /debug/ HTTP/1.1\r\nHost"), 400, "not a whole head");
        assert_eq!(status(b"\x00\xff"), 400);
        assert_eq!(status(b""), 400);
    }
}
