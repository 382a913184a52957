//! A reverse proxy: requests go to the servers in turn, a server that does not answer in time is passed over:
//! `reverse_proxy 127.0.0.1:8080 http://one http://two...`, without arguments it tries itself. It needs
//! `--features hyper`.

use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use mungo::context::Context;
use mungo::hyper::{Client, Server, handler, read_body, serve};
use mungo::net::TcpListener;
use mungo::signal::{Signal, raise};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{io, time::Duration};

const PATIENCE: Duration = Duration::from_secs(2);
const LARGEST: usize = 8 << 20;

struct Proxy {
    servers: Vec<String>,
    next: AtomicUsize,
    client: Client<String>,
}

impl Proxy {
    fn forward(&self, ctx: &Context, request: Request<Incoming>) -> io::Result<Response<String>> {
        let (head, body) = request.into_parts();
        let body = String::from_utf8_lossy(&read_body(ctx, body, LARGEST)?).into_owned();
        let first = self.next.fetch_add(1, Relaxed);
        for n in 0..self.servers.len() {
            let server = &self.servers[(first + n) % self.servers.len()];
            let mut request =
                Request::builder().method(head.method.clone()).uri(format!("{server}{}", head.uri));
            for (name, value) in head.headers.iter().filter(|(name, _)| *name != "host") {
                request = request.header(name, value);
            }
            match self.ask(ctx, request.body(body.clone()).map_err(io::Error::other)?) {
                Err(e) => eprintln!("{server}: {e}"),
                answered => return answered,
            }
        }
        let answer = Response::builder().status(StatusCode::BAD_GATEWAY);
        answer.body("no server answers\n".to_owned()).map_err(io::Error::other)
    }

    fn ask(&self, ctx: &Context, request: Request<String>) -> io::Result<Response<String>> {
        let (ctx, cancel) = ctx.with_timeout(PATIENCE);
        let _cancel = cancel.on_drop();
        let (head, body) = self.client.send(&ctx, request)?.into_parts();
        let body = String::from_utf8_lossy(&read_body(&ctx, body, LARGEST)?).into_owned();
        Ok(Response::from_parts(head, body))
    }
}

/// A server that says its name, after a while.
fn start_server(ctx: &Context, name: &'static str, delay: Duration) -> io::Result<String> {
    let (listener, ctx) = (TcpListener::bind("127.0.0.1:0")?, ctx.clone());
    let url = format!("http://{}", listener.local_addr()?);
    let answer = move |request: Request<Incoming>| {
        mungo::sleep(delay);
        io::Result::Ok(Response::new(format!("{name} {}", request.uri().path())))
    };
    mungo::go(move || serve(listener, handler(answer), &ctx));
    Ok(url)
}

#[mungo::main]
fn main() -> io::Result<()> {
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, servers) = match &*arguments {
        [address, servers @ ..] => (address.as_str(), servers.to_vec()),
        [] => {
            let (fast, slow) = (Duration::ZERO, PATIENCE * 4);
            let servers = [start_server(&ctx, "fast", fast)?, start_server(&ctx, "slow", slow)?];
            ("127.0.0.1:0", servers.to_vec())
        }
    };
    let listener = TcpListener::bind(address)?;
    let url = format!("http://{}/page", listener.local_addr()?);
    println!("{url} leads to {servers:?}; ^C ends");
    let proxy = Proxy { servers, next: AtomicUsize::new(0), client: Client::new() };
    let service = handler(move |request| proxy.forward(&Context::background(), request));
    let server = mungo::go(move || Server::new().max_connections(10_000).serve(listener, service, &ctx));
    if arguments.is_empty() {
        let (client, ctx) = (Client::new(), Context::background());
        for _ in 0..2 {
            let request = Request::get(&url).body(String::new()).map_err(io::Error::other)?;
            let answer = read_body(&ctx, client.send(&ctx, request)?.into_body(), LARGEST)?;
            assert_eq!(answer, b"fast /page");
        }
        println!("the fast server answers, also in place of the slow one");
        raise(Signal::INTERRUPT);
    }
    server.join().expect("no panic")
}
