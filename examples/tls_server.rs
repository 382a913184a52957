//! HTTPS: hyper on rustls, with a goroutine for each connection and request. `tls_server 127.0.0.1:8443` serves until
//! Ctrl-C, without an argument it tries itself. It needs `--features hyper,tokio-io`.

use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mungo::context::Context;
use mungo::hyper::{Server, handler};
use mungo::net::{TcpListener, TcpStream};
use mungo::signal::{Signal, raise};
use mungo::sync::Group;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

fn answer(request: Request<Incoming>) -> io::Result<Response<String>> {
    mungo::sleep(std::time::Duration::from_millis(2)); // it may block
    Ok(Response::new(format!("You asked for {}, and no third party knows", request.uri().path())))
}

#[mungo::main]
fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // A server in earnest reads these two from files.
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let certificate = made.cert.der().clone();
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate.clone()], key)?));

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    let here = listener.local_addr()?;
    println!("https://{here}/; ^C ends");
    let (ctx, _cancel) = Context::background().with_signals(&[Signal::INTERRUPT, Signal::TERMINATE]);
    let shake_hands = move |stream| {
        let accepting = acceptor.accept(stream);
        async { accepting.await.map(TokioIo::new) }
    };
    let server = mungo::go(move || Server::new().serve_through(listener, shake_hands, handler(answer), &ctx));
    if address.is_none() {
        try_it(here, certificate)?;
        raise(Signal::INTERRUPT);
    }
    Ok(server.join().expect("no panic")?)
}

/// Asks twenty times at once, in blocking code, and once without TLS.
fn try_it(here: SocketAddr, certificate: CertificateDer<'static>) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(io::Error::other)?;
    let config = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let group = Group::new();
    for i in 0..20 {
        let config = config.clone();
        group.go(move |_| {
            let name = "localhost".try_into().expect("a name");
            let client = ClientConnection::new(config, name).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(client, TcpStream::connect(here)?);
            write!(stream, "GET /{i} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            assert!(answer.contains(&format!("You asked for /{i},")), "{answer}");
            io::Result::Ok(())
        });
    }
    group.wait()?;
    let mut plain = TcpStream::connect(here)?;
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    let mut answer = Vec::new();
    _ = plain.read_to_end(&mut answer); // an alert of TLS, or the end
    assert!(!answer.starts_with(b"HTTP"));
    println!("all requests were answered, the one without TLS was not");
    Ok(())
}
