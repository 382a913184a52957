//! Many requests at a time, with a limit, a time limit for all, and one for each: `client URL...` prints how long each
//! page is, without an argument it asks a server of its own. It needs `--features hyper`.

use hyper::{Request, Response};
use mungo::context::Context;
use mungo::hyper::{Client, handler, read_body, serve};
use mungo::net::TcpListener;
use mungo::sync::Group;
use std::sync::Arc;
use std::{io, time::Duration};

const AT_A_TIME: usize = 8;
const LARGEST: usize = 16 << 20;

/// Returns the length of a page, or an error after ten seconds.
fn fetch(ctx: &Context, client: &Client<String>, url: &str) -> io::Result<usize> {
    let (ctx, cancel) = ctx.with_timeout(Duration::from_secs(10));
    let _cancel = cancel.on_drop();
    let request = Request::get(url).body(String::new()).map_err(io::Error::other)?;
    let response = client.send(&ctx, request)?;
    if !response.status().is_success() {
        return Err(io::Error::other(format!("{url}: {}", response.status())));
    }
    Ok(read_body(&ctx, response.into_body(), LARGEST)?.len())
}

#[mungo::main]
fn main() -> io::Result<()> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let (serving, stop) = Context::background().with_cancel();
    if urls.is_empty() {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let here = listener.local_addr()?;
        urls = (0..50).map(|i| format!("http://{here}/{i}")).collect();
        let page = |request: Request<_>| Ok::<_, io::Error>(Response::new(request.uri().path().repeat(1000)));
        mungo::go(move || serve(listener, handler(page), &serving));
    }
    let (all, _cancel) = Context::background().with_timeout(Duration::from_secs(30));
    let group = Group::with_context(&all).limit(AT_A_TIME);
    let client = Arc::new(Client::new());
    for url in urls.clone() {
        let client = client.clone();
        group.go(move |ctx| fetch(ctx, &client, &url)); // the first failure ends the others
    }
    let lengths = group.wait()?;
    for (url, length) in urls.iter().zip(&lengths) {
        println!("{length:8} {url}");
    }
    println!("{} pages, {} bytes", lengths.len(), lengths.iter().sum::<usize>());
    stop.cancel();
    Ok(())
}
