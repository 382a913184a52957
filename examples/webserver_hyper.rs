//! The web server of `webserver.rs` with hyper on goroutines: `webserver_hyper 127.0.0.1:8080` serves until SIGINT,
//! without an argument it tries itself. It needs `--features hyper`.

use futures::future::{Either, select};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use mungo::Runtime;
use mungo::chan::{Receiver, bounded};
use mungo::hyper::MungoTimer;
use mungo::net::{Pollable, TcpListener, TcpStream};
use mungo::sync::WaitGroup;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

fn main() -> io::Result<()> {
    let interrupts = interrupts()?;
    let runtime: &'static Runtime = Box::leak(Box::new(Runtime::new()?));
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let here = listener.local_addr()?;
    println!("http://{here}/light, /heavy and /debug/sched; ^C ends");
    let server = runtime.spawn(move || serve(runtime, listener, interrupts));
    if address.is_none() {
        for (path, part) in [("/light", "Hello"), ("/heavy", "4999"), ("/debug/sched", "procs"), ("/", "404")] {
            let mut stream = TcpStream::connect(here)?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            assert!(io::read_to_string(stream)?.contains(part));
        }
        let _idle = TcpStream::connect(here)?; // is not waited for
        // SAFETY: a signal to this process, which expects it.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    }
    server.join().expect("no panic")
}

fn serve(runtime: &'static Runtime, listener: TcpListener, interrupts: Pollable<OwnedFd>) -> io::Result<()> {
    let (listener, connections) = (Arc::new(listener), WaitGroup::new());
    let (running, stop) = bounded::<()>(0);
    let closing = listener.clone();
    mungo::go(move || {
        interrupts.readable()?;
        drop(running); // who waits for `stop` goes on
        closing.close()
    });
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                let stop = stop.clone();
                connections.go(move || mungo::block_on(connection(runtime, stream, stop)));
            }
            Err(e) if e.kind() == io::ErrorKind::NotConnected => break, // closed
            Err(e) => eprintln!("cannot accept: {e}"),
        }
    }
    connections.wait(); // those that are busy finish
    Ok(())
}

/// Requests until the peer ends, or the server: then the one under way is the last.
async fn connection(runtime: &'static Runtime, stream: TcpStream, stop: Receiver<()>) -> hyper::Result<()> {
    let service = service_fn(async |request| respond(runtime, &request));
    let mut builder = http1::Builder::new();
    builder.timer(MungoTimer).header_read_timeout(Duration::from_secs(10));
    let mut connection = pin!(builder.serve_connection(stream, service));
    match select(connection.as_mut(), pin!(stop.recv_async())).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// Plain code, as long as it takes: the goroutine is preempted, and no other connection waits.
fn respond(runtime: &Runtime, request: &Request<Incoming>) -> Result<Response<String>, hyper::http::Error> {
    let (status, body) = match request.uri().path() {
        "/light" => (StatusCode::OK, "Hello, World!\n".to_owned()),
        "/heavy" => (StatusCode::OK, (0..10_000_000u64).map(std::hint::black_box).sum::<u64>().to_string()),
        "/debug/sched" => (StatusCode::OK, format!("{:#?}\n", runtime.metrics())),
        _ => (StatusCode::NOT_FOUND, "404\n".to_owned()),
    };
    Response::builder().status(status).body(body)
}

/// Becomes readable at SIGINT. To be called before there are other threads: they inherit what is blocked.
fn interrupts() -> io::Result<Pollable<OwnedFd>> {
    // SAFETY: the mask outlives the calls, and is as good as any; the descriptor is new and ours.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigaddset(&mut mask, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &mask, std::ptr::null_mut());
        Pollable::new(OwnedFd::from_raw_fd(libc::signalfd(-1, &mask, libc::SFD_CLOEXEC)))
    }
}
