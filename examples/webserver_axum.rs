//! An axum `Router` on goroutines: its handlers may block. `webserver_axum 127.0.0.1:8080` serves until SIGINT or
//! SIGTERM, without an argument it tries itself. It needs `--features hyper`.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use hyper::Request;
use hyper_util::service::TowerToHyperService;
use mungo::context::Context;
use mungo::hyper::{Client, read_body, serve};
use mungo::net::TcpListener;
use mungo::signal::{Signal, raise};
use mungo::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::{io, time::Duration};

/// How often each name was greeted.
type Visits = Arc<Mutex<BTreeMap<String, u32>>>;

async fn greet(State(visits): State<Visits>, Path(name): Path<String>) -> String {
    mungo::sleep(Duration::from_millis(1)); // a call that blocks: its goroutine waits, and no other one
    let mut visits = visits.lock();
    let times = visits.entry(name.clone()).or_default();
    *times += 1;
    format!("Hello, {name}! ({times})")
}

#[mungo::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let here = listener.local_addr()?;
    println!("http://{here}/hello/you; ^C ends");
    let router = Router::new().route("/hello/{name}", get(greet)).with_state(Visits::default());
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let server = mungo::go(move || serve(listener, TowerToHyperService::new(router), &ctx));
    if address.is_none() {
        try_it(&format!("http://{here}/hello/gopher"))?;
        raise(Signal::TERMINATE);
    }
    server.join().expect("no panic")?;
    println!("all requests were answered");
    Ok(())
}

fn try_it(url: &str) -> io::Result<()> {
    let (client, ctx) = (Client::new(), Context::background());
    for times in 1..=3 {
        let request = Request::get(url).body(String::new()).map_err(io::Error::other)?;
        let body = read_body(&ctx, client.send(&ctx, request)?.into_body(), 1000)?;
        assert_eq!(body, format!("Hello, gopher! ({times})").as_bytes());
    }
    Ok(())
}
