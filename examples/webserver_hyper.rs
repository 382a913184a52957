//! The web server of `webserver.rs` with hyper on goroutines: `webserver_hyper 127.0.0.1:8080` serves until SIGINT or
//! SIGTERM, without an argument it tries itself. It needs `--features hyper`.

use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use mungo::context::Context;
use mungo::hyper::{Server, handler};
use mungo::net::{TcpListener, TcpStream};
use mungo::signal::Signal;
use std::io::{self, Write};
use std::time::Duration;

#[mungo::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let here = listener.local_addr()?;
    println!("http://{here}/light, /heavy and /debug/sched; ^C ends");
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let server = mungo::go(move || {
        Server::new().header_timeout(Duration::from_secs(10)).serve(listener, handler(respond), &ctx)
    });
    if address.is_none() {
        for (path, part) in [("/light", "Hello"), ("/heavy", "4999"), ("/debug/sched", "procs"), ("/", "404")] {
            let mut stream = TcpStream::connect(here)?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            assert!(io::read_to_string(stream)?.contains(part));
        }
        let _idle = TcpStream::connect(here)?; // is not waited for
        mungo::signal::raise(Signal::INTERRUPT);
    }
    server.join().expect("no panic")?;
    println!("all requests were answered");
    Ok(())
}

/// Plain code, as long as it takes: the goroutine is preempted, and no other request waits.
fn respond(request: Request<Incoming>) -> Result<Response<String>, hyper::http::Error> {
    let (status, body) = match request.uri().path() {
        "/light" => (StatusCode::OK, "Hello, World!\n".to_owned()),
        "/heavy" => (StatusCode::OK, (0..10_000_000u64).map(std::hint::black_box).sum::<u64>().to_string()),
        "/debug/sched" => (StatusCode::OK, format!("{:#?}\n", mungo::metrics())),
        _ => (StatusCode::NOT_FOUND, "404\n".to_owned()),
    };
    Response::builder().status(status).body(body)
}
