//! A reverse proxy: requests go to the servers in turn; if one does not answer in time, the next is asked, unless the
//! request may not be made twice: `reverse_proxy 127.0.0.1:8080 http://one http://two...`, without arguments it tries
//! itself. It needs `--features hyper`.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, Response, StatusCode};
use mungo::context::Context;
use mungo::hyper::{Client, Server, handler, read_body, serve};
use mungo::net::TcpListener;
use mungo::signal::{Signal, raise};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{io, time::Duration};

const PATIENCE: Duration = Duration::from_secs(2);
const LARGEST: usize = 8 << 20; // bytes of a body
/// Headers that are about one connection, and not about the request. `Connection` may name further ones.
const OF_THE_CONNECTION: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

struct Proxy {
    servers: Vec<String>,
    next: AtomicUsize,
    client: Client<Full<Bytes>>,
}

impl Proxy {
    fn forward(&self, ctx: &Context, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let (mut head, body) = request.into_parts();
        let body = Bytes::from(read_body(ctx, body, LARGEST)?);
        pass_on(&mut head.headers);
        head.headers.remove("host");
        let tries = if head.method.is_idempotent() { self.servers.len() } else { 1 };
        let first = self.next.fetch_add(1, Relaxed);
        for server in self.servers.iter().cycle().skip(first % self.servers.len().max(1)).take(tries) {
            let mut head = head.clone();
            head.uri = format!("{server}{}", head.uri).parse().map_err(io::Error::other)?;
            match self.ask(ctx, Request::from_parts(head, Full::new(body.clone()))) {
                Err(e) => eprintln!("{server}: {e}"),
                answered => return answered,
            }
        }
        let mut answer = Response::new(Full::from("no server answers\n"));
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        Ok(answer)
    }

    fn ask(&self, ctx: &Context, request: Request<Full<Bytes>>) -> io::Result<Response<Full<Bytes>>> {
        let (ctx, cancel) = ctx.with_timeout(PATIENCE);
        let _cancel = cancel.on_drop();
        let (mut head, body) = self.client.send(&ctx, request)?.into_parts();
        pass_on(&mut head.headers);
        Ok(Response::from_parts(head, Full::from(read_body(&ctx, body, LARGEST)?)))
    }
}

/// Leaves out what is not for the other side.
fn pass_on(headers: &mut HeaderMap) {
    let named: Vec<_> = headers.get_all("connection").iter().filter_map(|value| value.to_str().ok()).collect();
    for name in named.join(",").split(',').chain(OF_THE_CONNECTION) {
        headers.remove(name.trim());
    }
}

/// A server that says its name, and whether a header came along that should not, after a while.
fn start_server(ctx: &Context, name: &'static str, delay: Duration) -> io::Result<String> {
    let (listener, ctx) = (TcpListener::bind("127.0.0.1:0")?, ctx.clone());
    let url = format!("http://{}", listener.local_addr()?);
    let answer = move |request: Request<Incoming>| {
        mungo::sleep(delay);
        io::Result::Ok(Response::new(format!("{name} {}", request.headers().contains_key("x-hop"))))
    };
    mungo::go(move || serve(listener, handler(answer), &ctx));
    Ok(url)
}

#[mungo::main]
fn main() -> io::Result<()> {
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, servers) = match &*arguments {
        [address, servers @ ..] => (&**address, servers.to_vec()),
        [] => {
            let fast = start_server(&ctx, "fast", Duration::ZERO)?;
            ("127.0.0.1:0", vec![fast, start_server(&ctx, "slow", PATIENCE * 4)?])
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
        let ask = |method| -> io::Result<_> {
            let request = Request::builder().method(method).uri(&url).header("connection", "x-hop");
            let request = request.header("x-hop", "1").body(String::new()).map_err(io::Error::other)?;
            let (head, body) = client.send(&ctx, request)?.into_parts();
            Ok((head.status.as_u16(), read_body(&ctx, body, LARGEST)?))
        };
        let fast = (200, b"fast false".to_vec());
        assert_eq!([ask("GET")?, ask("GET")?, ask("POST")?], [fast.clone(), fast.clone(), fast]);
        assert_eq!(ask("POST")?.0, 502);
        println!("the fast server answers, also in place of the slow one, but for what may not be asked twice");
        raise(Signal::INTERRUPT);
    }
    server.join().expect("no panic")
}
