//! `hyper::serve` and `hyper::Client`: requests, limits, time-outs, and the end.
#![cfg(feature = "hyper")]

mod common;

use common::{PATIENCE, wait_until};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use mungo::context::{Cancel, Context};
use mungo::hyper::{Client, Server, handler, read_body};
use mungo::net::{TcpListener, TcpStream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

struct Running {
    here: SocketAddr,
    stop: Cancel,
    server: mungo::JoinHandle<io::Result<()>>,
}

fn start<F>(settings: Server, f: F) -> Running
where
    F: Fn(Request<Incoming>) -> io::Result<Response<String>> + Send + Sync + 'static,
{
    let (ctx, stop) = Context::background().with_cancel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    Running { here, stop, server: mungo::go(move || settings.serve(listener, handler(f), &ctx)) }
}

impl Running {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.here)
    }

    fn end(self) -> io::Result<()> {
        self.stop.cancel();
        self.server.join().unwrap()
    }
}

fn get(url: &str) -> Request<String> {
    Request::get(url).body(String::new()).unwrap()
}

fn ask(client: &Client<String>, url: &str) -> io::Result<String> {
    let ctx = Context::background();
    let body = read_body(&ctx, client.send(&ctx, get(url))?.into_body(), 1 << 20)?;
    Ok(String::from_utf8(body).unwrap())
}

#[test]
fn many_requests_over_few_connections() {
    let server = start(Server::new(), |request| Ok(Response::new(request.uri().path().to_owned())));
    let client = std::sync::Arc::new(Client::new());
    let group = mungo::sync::Group::<(), io::Error>::new();
    for i in 0..20 {
        let (client, url) = (client.clone(), server.url(&format!("/{i}")));
        group.go(move |_| {
            for _ in 0..10 {
                assert_eq!(ask(&client, &url)?, format!("/{i}"));
            }
            Ok(())
        });
    }
    group.wait().unwrap();
    drop(client);
    server.end().unwrap();
}

#[test]
fn bodies_are_read_up_to_a_limit() {
    let server =
        start(Server::new(), |request| match read_body(&Context::background(), request.into_body(), 100_000) {
            Ok(body) => Ok(Response::new(body.len().to_string())),
            Err(e) if e.kind() == ErrorKind::FileTooLarge => {
                Ok(Response::builder().status(StatusCode::PAYLOAD_TOO_LARGE).body(e.to_string()).unwrap())
            }
            Err(e) => Err(e),
        });
    let (client, ctx) = (Client::new(), Context::background());
    for (len, status) in [(0, 200), (70_000, 200), (100_001, 413)] {
        let request = Request::post(server.url("/")).body("x".repeat(len)).unwrap();
        let response = client.send(&ctx, request).unwrap();
        assert_eq!(response.status(), status);
    }
    drop(client);
    server.end().unwrap();
}

#[test]
fn a_request_under_way_is_answered_and_idle_connections_end() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    let server = start(Server::new(), |_| {
        INSIDE.store(1, SeqCst);
        wait_until("the test lets it go", || RELEASED.load(SeqCst) == 1);
        Ok(Response::new("finished".to_owned()))
    });
    let mut idle = TcpStream::connect(server.here).unwrap();
    let url = server.url("/");
    let client = mungo::go(move || ask(&Client::new(), &url));
    wait_until("the request is there", || INSIDE.load(SeqCst) == 1);
    server.stop.cancel();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(idle.read(&mut [0; 8]).unwrap(), 0, "idle connections end at once");
    wait_until("the listener is closed", || TcpStream::connect(server.here).is_err());
    RELEASED.store(1, SeqCst);
    assert_eq!(client.join().unwrap().unwrap(), "finished");
    server.server.join().unwrap().unwrap();
}

#[test]
fn what_does_not_end_is_cut() {
    let settings = Server::new().drain_timeout(Duration::from_millis(20));
    let (tx, rx) = mungo::chan::bounded::<()>(1);
    let server = start(settings, move |_| {
        tx.send(()).unwrap();
        mungo::sleep(PATIENCE);
        Ok(Response::new(String::new()))
    });
    let url = server.url("/");
    let client = mungo::go(move || ask(&Client::new(), &url));
    rx.recv().unwrap();
    let error = server.end().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().starts_with("1 connections were cut"), "{error}");
    assert!(client.join().unwrap().is_err());
}

#[test]
fn a_client_that_sends_nothing_is_shown_out() {
    let server = start(Server::new().header_timeout(Duration::from_millis(20)), |_| unreachable!());
    let mut slow = TcpStream::connect(server.here).unwrap();
    slow.write_all(b"GET / HT").unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
    server.end().unwrap();
}

#[test]
fn connections_are_limited() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let server = start(Server::new().max_connections(2).keep_alive(false), |_| {
        MOST.fetch_max(NOW.fetch_add(1, SeqCst) + 1, SeqCst);
        mungo::sleep(Duration::from_millis(1));
        NOW.fetch_sub(1, SeqCst);
        Ok(Response::new(String::new()))
    });
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let url = server.url("/");
            mungo::go(move || ask(&Client::new(), &url).unwrap())
        })
        .collect();
    asking.into_iter().for_each(|one| drop(one.join().unwrap()));
    assert!(MOST.load(SeqCst) <= 2, "{MOST:?}");
    server.end().unwrap();
}

#[test]
fn a_handler_that_panics_ends_its_connection_alone() {
    let server = start(Server::new(), |request| match request.uri().path() {
        "/panic" => std::panic::resume_unwind(Box::new("on purpose")),
        _ => Ok(Response::new("fine".to_owned())),
    });
    let client = Client::new();
    assert!(ask(&client, &server.url("/panic")).is_err());
    assert_eq!(ask(&client, &server.url("/")).unwrap(), "fine");
    drop(client);
    server.end().unwrap();
}

#[test]
fn clients_name_what_is_wrong_with_an_address() {
    let (client, ctx) = (Client::new(), Context::background());
    for (url, part) in
        [("/path", "names no server"), ("https://localhost/", "https_through"), ("ftp://localhost/", "alone")]
    {
        let error = client.send(&ctx, get(url)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(part), "{error}");
    }
    // A port that is taken, and that nobody listens at.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let nobody = format!("http://{}/", taken.local_addr().unwrap());
    assert_eq!(client.send(&ctx, get(&nobody)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_handshake_has_the_time_of_the_headers_and_ends_with_the_context() {
    let (ctx, stop) = Context::background().with_cancel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let hello = handler(|_| Ok::<_, io::Error>(Response::new("hello".to_owned())));
    let never = |stream: TcpStream| async move {
        std::future::pending::<()>().await;
        io::Result::Ok(stream)
    };
    let settings = Server::new().header_timeout(Duration::from_millis(20));
    let (service, serving) = (hello.clone(), ctx.clone());
    let server = mungo::go(move || settings.serve_through(listener, never, service, &serving));
    let mut client = TcpStream::connect(here).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the time is over");
    stop.cancel();
    server.join().unwrap().unwrap();

    // With all the time there is: the end of the context ends the handshake too.
    let (ctx, stop) = Context::background().with_cancel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let (started, starting) = mungo::chan::bounded(1);
    let never = move |stream: TcpStream| {
        let started = started.clone();
        async move {
            started.send(()).unwrap();
            std::future::pending::<()>().await;
            io::Result::Ok(stream)
        }
    };
    let settings = Server::new().header_timeout(PATIENCE).drain_timeout(PATIENCE);
    let server = mungo::go(move || settings.serve_through(listener, never, hello, &ctx));
    let _client = TcpStream::connect(here).unwrap();
    starting.recv().unwrap();
    stop.cancel();
    server.join().unwrap().unwrap();
}

/// A client that has a way to shake hands uses it for https alone, once a connection, and a context ends it.
#[test]
fn https_goes_through_the_handshake_and_http_does_not() {
    let server = start(Server::new(), |request| Ok(Response::new(request.uri().path().to_owned())));
    let shaken = std::sync::Arc::new(mungo::sync::Mutex::new(Vec::new()));
    let seen = shaken.clone();
    let client = Client::new().https_through(move |stream: TcpStream, host: &str| {
        seen.lock().push(host.to_owned());
        async { Ok(stream) }
    });
    let https = format!("https://{}", server.here);
    for _ in 0..3 {
        assert_eq!(ask(&client, &server.url("/plain")).unwrap(), "/plain");
        assert_eq!(ask(&client, &format!("{https}/secret")).unwrap(), "/secret");
    }
    assert_eq!(*shaken.lock(), ["127.0.0.1"]);

    let hangs = Client::new().https_through(|stream: TcpStream, _: &str| async {
        std::future::pending::<()>().await;
        Ok(stream)
    });
    let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(20));
    assert_eq!(hangs.send(&ctx, get(&https)).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let refuses = Client::new()
        .https_through(|_: TcpStream, _: &str| async { Err::<TcpStream, _>(io::Error::other("no")) });
    assert_eq!(ask(&refuses, &https).unwrap_err().to_string(), "no");
    drop((client, hangs, refuses));
    server.end().unwrap();
}
