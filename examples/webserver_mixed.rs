//! The web server that is often shown to explain Go's scheduler: a fifth of the requests computes, the others do not
//! wait for them. `webserver_mixed 127.0.0.1:8080` serves until Ctrl-C, without an argument it tries itself. It needs
//! `--features hyper`.

use hyper::body::Incoming;
use hyper::{Request, Response};
use mungo::context::Context;
use mungo::hyper::{Client, handler, read_body, serve};
use mungo::net::TcpListener;
use mungo::signal::{Signal, raise};
use mungo::sync::Group;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{io, time::Instant};

fn answer(_: Request<Incoming>) -> io::Result<Response<String>> {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    Ok(Response::new(match REQUESTS.fetch_add(1, Relaxed) % 5 {
        0 => format!("Heavy task result: {}", compute_heavy_task()),
        _ => "Hello, World!".to_owned(),
    }))
}

fn compute_heavy_task() -> u64 {
    (0..10_000_000u64).map(std::hint::black_box).sum()
}

#[mungo::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let url = format!("http://{}/", listener.local_addr()?);
    println!("{url}; ^C ends");
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let server = mungo::go(move || serve(listener, handler(answer), &ctx));
    if address.is_none() {
        try_it(&url)?;
        raise(Signal::INTERRUPT);
    }
    server.join().expect("no panic")
}

/// Asks fifty times, ten at a time, and sorts the answers by how long they took.
fn try_it(url: &str) -> io::Result<()> {
    let (group, client) = (Group::new().limit(10), Arc::new(Client::new()));
    for _ in 0..50 {
        let request = Request::get(url).body(String::new()).map_err(io::Error::other)?;
        let client = client.clone();
        group.go(move |ctx| {
            let start = Instant::now();
            let body = read_body(ctx, client.send(ctx, request)?.into_body(), 1000)?;
            io::Result::Ok((start.elapsed(), body.starts_with(b"Heavy")))
        });
    }
    let (mut heavy, mut light): (Vec<_>, Vec<_>) = group.wait()?.into_iter().partition(|(_, heavy)| *heavy);
    heavy.sort();
    light.sort();
    println!("{} heavy answers, half of them within {:?}", heavy.len(), heavy[heavy.len() / 2].0);
    println!("{} light answers, half of them within {:?}", light.len(), light[light.len() / 2].0);
    assert_eq!((heavy.len(), light.len()), (10, 40));
    Ok(())
}
