//! A web server with hyper on goroutines: light requests stay fast beside heavy ones, and Ctrl-C ends it gracefully.
//!
//! ```console
//! $ cargo run --release --example webserver_hyper --features hyper -- 127.0.0.1:8080 &
//! $ curl http://127.0.0.1:8080/light http://127.0.0.1:8080/heavy http://127.0.0.1:8080/debug/sched
//! $ wrk -t2 -c64 -d10s http://127.0.0.1:8080/light
//! ```

use futures::future::{Either, select};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use mungo::chan::{Receiver, bounded};
use mungo::hyper::MungoTimer;
use mungo::net::{TcpListener, TcpStream};
use mungo::sync::WaitGroup;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

static RUNTIME: LazyLock<mungo::Runtime> = LazyLock::new(|| mungo::Runtime::new().expect("a runtime"));

fn main() -> std::io::Result<()> {
    let stop = on_interrupt();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    RUNTIME.run(|| serve(&TcpListener::bind(address)?, &stop))
}

/// Takes connections until `stop` is disconnected, and waits for those that are left.
fn serve(listener: &TcpListener, stop: &Receiver<()>) -> std::io::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    let connections = WaitGroup::new();
    mungo::scope(|s| {
        s.spawn(|| {
            _ = stop.recv();
            listener.close() // ends the loop below
        });
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    let stop = stop.clone();
                    connections.go(move || mungo::block_on(converse(stream, &stop)));
                }
                Err(_) if stop.try_recv().is_err_and(|e| e.is_disconnected()) => break,
                Err(e) => eprintln!("accept: {e}"),
            }
        }
    });
    println!("waiting for {} connections", connections.count());
    connections.wait();
    Ok(())
}

/// One connection, with as many requests as the client sends; when it is time to stop, the current one is the last.
async fn converse(stream: TcpStream, stop: &Receiver<()>) {
    _ = stream.set_nodelay(true);
    let mut server = http1::Builder::new();
    server.timer(MungoTimer).header_read_timeout(Duration::from_secs(30));
    let mut connection = pin!(server.serve_connection(stream, service_fn(respond)));
    let ended = match select(connection.as_mut(), pin!(stop.recv_async())).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = ended
        && !e.is_incomplete_message()
    {
        eprintln!("connection: {e}");
    }
}

/// Plain code, as long as it takes: the goroutine is preempted, and nobody else waits.
async fn respond(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    let mut response = Response::new(String::new());
    *response.body_mut() = match request.uri().path() {
        "/light" => "Hello\n".to_owned(),
        "/heavy" => format!("{}\n", (0..10_000_000u64).fold(0, |sum, i| std::hint::black_box(sum + i))),
        "/debug/sched" => format!("{:#?}\n", RUNTIME.metrics()),
        path => {
            *response.status_mut() = StatusCode::NOT_FOUND;
            format!("there is no {path}; try /light, /heavy or /debug/sched\n")
        }
    };
    Ok(response)
}

/// A channel that is disconnected by Ctrl-C. To be called before there are other threads, which inherit the mask.
fn on_interrupt() -> Receiver<()> {
    let (tx, rx) = bounded(0);
    // SAFETY: the set is made by the first two calls; the others read it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        std::thread::spawn(move || (libc::sigwait(&set, &mut 0), drop(tx)));
    }
    rx
}
