//! A web crawler: each page once, eight at a time, at most 500 a second, until all are seen or the time is over:
//! `crawler http://host/` crawls that host, without an argument a site of its own. It needs `--features hyper`.

use hyper::body::Incoming;
use hyper::{Request, Response};
use mungo::context::Context;
use mungo::hyper::{Client, handler, read_body, serve};
use mungo::net::TcpListener;
use mungo::sync::{Group, Mutex, RateLimiter, Semaphore};
use std::collections::HashSet;
use std::sync::Arc;
use std::{io, time::Duration};

struct Crawler {
    site: String,
    client: Client<String>,
    seen: Mutex<HashSet<String>>,
    at_a_time: Semaphore,
    rate: RateLimiter,
}

impl Crawler {
    /// Crawls a page and all that it leads to, in a goroutine each.
    fn visit(self: &Arc<Self>, group: &Group<usize, io::Error>, path: String) {
        if !self.seen.lock().insert(path.clone()) {
            return;
        }
        let (crawler, more) = (self.clone(), group.clone());
        group.go(move |ctx| {
            let page = crawler.fetch(ctx, &path)?;
            links(&page).for_each(|link| crawler.visit(&more, link.to_owned()));
            Ok(page.len())
        });
    }

    fn fetch(&self, ctx: &Context, path: &str) -> io::Result<String> {
        let _place = ctx.acquire(&self.at_a_time)?;
        self.rate.wait_with(ctx)?;
        let request = Request::get(format!("{}{path}", self.site)).body(String::new());
        let response = self.client.send(ctx, request.map_err(io::Error::other)?)?;
        let page = read_body(ctx, response.into_body(), 1 << 20)?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }
}

/// The links of a page to its own site.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let ends = |rest: &'_ str| rest.find('"');
    page.split("href=\"")
        .skip(1)
        .filter_map(move |rest| Some(&rest[..ends(rest)?]))
        .filter(|l| l.starts_with('/'))
}

/// A site of 200 pages: each leads to two further on, and back to the first.
fn page(request: Request<Incoming>) -> io::Result<Response<String>> {
    let n: u32 = request.uri().path()[1..].parse().unwrap_or(0);
    let links =
        [2 * n + 1, 2 * n + 2, 0].map(|to| format!("<a href=\"/{}\">next</a>", if to < 200 { to } else { 0 }));
    Ok(Response::new(links.concat()))
}

#[mungo::main]
fn main() -> io::Result<()> {
    let (ctx, cancel) = Context::background().with_timeout(Duration::from_secs(60));
    let site = match std::env::args().nth(1) {
        Some(site) => site.trim_end_matches('/').to_owned(),
        None => {
            let (listener, serving) = (TcpListener::bind("127.0.0.1:0")?, ctx.clone());
            let site = format!("http://{}", listener.local_addr()?);
            mungo::go(move || serve(listener, handler(page), &serving));
            site
        }
    };
    let crawler = Arc::new(Crawler {
        site,
        client: Client::new(),
        seen: Mutex::default(),
        at_a_time: Semaphore::new(8),
        rate: RateLimiter::new(500.0, 50),
    });
    let group = Group::with_context(&ctx);
    crawler.visit(&group, "/0".to_owned());
    let lengths = group.wait()?; // the first error ends all
    println!("{} pages, {} bytes", lengths.len(), lengths.iter().sum::<usize>());
    cancel.cancel();
    Ok(())
}
