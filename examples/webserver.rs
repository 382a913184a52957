//! A web server in plain blocking code, whose light requests stay fast beside heavy ones: `webserver 127.0.0.1:8080`
//! serves until SIGINT or SIGTERM, without an argument it tries itself. It needs `--features debug-http`.

use httparse::{Request, Status};
use mungo::Runtime;
use mungo::context::Context;
use mungo::net::{TcpListener, TcpStream};
use mungo::signal::Signal;
use mungo::sync::WaitGroup;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

fn main() -> io::Result<()> {
    let runtime = Runtime::new()?;
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let here = listener.local_addr()?;
    println!("http://{here}/light, /heavy and /debug/; ^C ends");
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let server = runtime.spawn(move || serve(&listener, &ctx));
    if address.is_none() {
        for (path, part) in
            [("/light", "Hello"), ("/heavy", "4999"), ("/debug/sched", "procs"), ("/tea", "404")]
        {
            let mut stream = TcpStream::connect(here)?;
            write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n")?;
            assert!(io::read_to_string(stream)?.contains(part));
        }
        let _idle = TcpStream::connect(here)?; // is not waited for
        mungo::signal::raise(Signal::INTERRUPT);
    }
    server.join().expect("no panic");
    println!("all requests were answered");
    Ok(())
}

/// Serves until the context is done; then those that are busy finish.
fn serve(listener: &TcpListener, ctx: &Context) {
    let connections = WaitGroup::new();
    for stream in listener.with_context(ctx).incoming() {
        let ctx = ctx.clone();
        match stream {
            Ok(stream) => drop(connections.go(move || connection(&stream, &ctx))),
            Err(e) => eprintln!("cannot accept: {e}"),
        }
    }
    connections.wait();
}

/// Requests until the peer ends, or the server. The server waits for the end of a request, not for the next one.
fn connection(mut stream: &TcpStream, ctx: &Context) -> io::Result<()> {
    let (mut buffer, mut len) = ([0; 8 << 10], 0);
    stream.set_read_deadline(Some(Instant::now() + Duration::from_secs(10)));
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = Request::new(&mut headers);
        let Status::Complete(end) = request.parse(&buffer[..len]).map_err(io::Error::other)? else {
            let read = match len {
                0 => stream.with_context(ctx).read(&mut buffer),
                _ => stream.read(&mut buffer[len..]),
            };
            match read? {
                0 => return Ok(()),
                n => len += n,
            }
            continue;
        };
        let (status, body) = match request.path {
            Some("/light") => (200, b"Hello, World!\n".to_vec()),
            Some("/heavy") => {
                (200, (0..10_000_000u64).map(std::hint::black_box).sum::<u64>().to_string().into_bytes())
            }
            Some(path) => {
                let answer = mungo::debug::http::respond(path);
                (answer.status, answer.body)
            }
            None => (404, b"404\n".to_vec()),
        };
        let head = format!("HTTP/1.1 {status} \r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat())?;
        if request.headers.iter().any(|h| h.name.eq_ignore_ascii_case("connection") && h.value == b"close") {
            return Ok(());
        }
        buffer.copy_within(end..len, 0);
        len -= end;
        stream.set_read_deadline(Some(Instant::now() + Duration::from_secs(10)));
    }
}
