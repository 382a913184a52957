//! An HTTPS client: hyper over rustls, on goroutines, with a context for each request. `https_client URL...` prints how
//! long each page is, without an argument it asks a server of its own. It needs `--features hyper,tokio-io`.

use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mungo::context::Context;
use mungo::hyper::{Client, Server, handler, read_body};
use mungo::net::{TcpListener, TcpStream};
use mungo::sync::Group;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use std::{io, time::Duration};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Makes a client that trusts these roots. The crate webpki-roots has those of public servers.
fn client(roots: RootCertStore) -> Client<String> {
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    Client::new().https_through(move |stream: TcpStream, host: &str| {
        let (connector, name) = (connector.clone(), ServerName::try_from(host.to_owned()));
        async move { connector.connect(name.map_err(io::Error::other)?, stream).await.map(TokioIo::new) }
    })
}

/// Returns the length of a page, or an error after ten seconds.
fn fetch(ctx: &Context, client: &Client<String>, url: &str) -> io::Result<usize> {
    let (ctx, cancel) = ctx.with_timeout(Duration::from_secs(10));
    let _cancel = cancel.on_drop();
    let response = client.send(&ctx, Request::get(url).body(String::new()).map_err(io::Error::other)?)?;
    Ok(read_body(&ctx, response.into_body(), 1 << 20)?.len())
}

/// Starts a server with a certificate of its own, which is added to the roots. Returns its port.
fn start_server(ctx: &Context, roots: &mut RootCertStore) -> Result<u16, Failed> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    roots.add(made.cert.der().clone())?;
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key)?));
    let shake_hands = move |stream| {
        let accepting = acceptor.accept(stream);
        async { accepting.await.map(TokioIo::new) }
    };
    let page = |request: Request<_>| Ok::<_, io::Error>(Response::new(request.uri().path().repeat(100)));
    let (listener, ctx) = (TcpListener::bind("127.0.0.1:0")?, ctx.clone());
    let port = listener.local_addr()?.port();
    mungo::go(move || Server::new().serve_through(listener, shake_hands, handler(page), &ctx));
    Ok(port)
}

#[mungo::main]
fn main() -> Result<(), Failed> {
    let (ctx, cancel) = Context::background().with_timeout(Duration::from_secs(60));
    let mut roots = RootCertStore::empty();
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    if urls.is_empty() {
        let port = start_server(&ctx, &mut roots)?;
        urls = (10..60).map(|i| format!("https://localhost:{port}/{i}")).collect();
        // The certificate is for another name than this one.
        let refused = fetch(&ctx, &client(roots.clone()), &format!("https://127.0.0.1:{port}/"));
        println!("for another name: {}", refused.expect_err("it is not the name in the certificate"));
    }
    let (client, group) = (Arc::new(client(roots)), Group::with_context(&ctx).limit(8));
    for url in urls {
        let client = client.clone();
        group.go(move |ctx| fetch(ctx, &client, &url));
    }
    let lengths = group.wait()?;
    println!("{} pages over TLS, {} bytes", lengths.len(), lengths.iter().sum::<usize>());
    cancel.cancel();
    Ok(())
}
