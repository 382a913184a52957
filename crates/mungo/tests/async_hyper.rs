//! hyper and axum on goroutines, over loopback.
#![cfg(feature = "hyper")]

mod common;

use common::{PATIENCE, end, runtime};
use futures::future::{join_all, select};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use mungo::hyper::{MungoExecutor, MungoTimer};
use mungo::net::{TcpListener, TcpStream};
use mungo::{block_on, go};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `/echo` sends the body back, `/work` computes and blocks first.
async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mut response = Response::new(Full::default());
    match request.uri().path() {
        "/echo" => *response.body_mut() = request.into_body().collect().await?.to_bytes().into(),
        "/work" => {
            let sum = (0..100_000u64).fold(0, |sum, i| std::hint::black_box(sum + i));
            mungo::sleep(Duration::from_millis(1));
            *response.body_mut() = Bytes::from(sum.to_string()).into();
        }
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn http1(stream: TcpStream) -> impl Future<Output = hyper::Result<()>> + Send {
    hyper::server::conn::http1::Builder::new().timer(MungoTimer).serve_connection(stream, service_fn(respond))
}

fn request(path: &str, body: Bytes) -> Request<Full<Bytes>> {
    Request::post(path).header("host", "localhost").body(Full::new(body)).unwrap()
}

/// Sends it as soon as the connection is ready for another one.
async fn ask(sender: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>) -> Response<Incoming> {
    sender.ready().await.unwrap();
    sender.send_request(request).await.unwrap()
}

async fn body(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[test]
fn http1_round_trips() {
    let runtime = runtime(2);
    runtime.run(|| {
        let (listener, address) = listen();
        let closer = Arc::new(listener);
        let listener = closer.clone();
        let server = go(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                go(move || block_on(http1(stream)));
            }
        });
        let clients: Vec<_> = (0..8)
            .map(|i| {
                go(move || {
                    let stream = TcpStream::connect(address).unwrap();
                    block_on(async {
                        let (mut sender, connection) =
                            hyper::client::conn::http1::handshake(stream).await.unwrap();
                        let connection = go(move || block_on(connection));
                        for round in 0..20 {
                            let text = Bytes::from(format!("{i} {round}"));
                            let response = ask(&mut sender, request("/echo", text.clone())).await;
                            assert_eq!(body(response).await, text);
                        }
                        let response = ask(&mut sender, request("/work", Bytes::new())).await;
                        assert_eq!(body(response).await, "4999950000");
                        let response = ask(&mut sender, request("/", Bytes::new())).await;
                        assert_eq!(response.status(), StatusCode::NOT_FOUND);
                        drop(sender);
                        connection.await.unwrap().unwrap();
                    });
                })
            })
            .collect();
        clients.into_iter().for_each(|c| c.join().unwrap());
        closer.close().unwrap();
        server.join().unwrap();
    });
    end(runtime);
}

/// A body larger than the buffers on the way: hyper reads and writes at once.
#[test]
fn http1_large_bodies() {
    let runtime = runtime(1);
    runtime.run(|| {
        let (client, server) = pair();
        let server = go(move || block_on(http1(server)));
        block_on(async {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(client).await.unwrap();
            let connection = go(move || block_on(connection));
            let large = Bytes::from((0..8_000_000u32).map(|i| i as u8).collect::<Vec<_>>());
            let response = ask(&mut sender, request("/echo", large.clone())).await;
            assert!(body(response).await == large);
            drop(sender);
            connection.await.unwrap().unwrap();
        });
        server.join().unwrap().unwrap();
    });
    end(runtime);
}

fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listen();
    let client = TcpStream::connect(address).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Many requests over one connection; the executor runs each as a goroutine.
#[test]
fn http2_streams_are_goroutines() {
    let runtime = runtime(2);
    runtime.run(|| {
        let (client, server) = pair();
        let server = go(move || {
            let builder = hyper::server::conn::http2::Builder::new(MungoExecutor);
            block_on(builder.serve_connection(server, service_fn(respond)))
        });
        block_on(async {
            let (sender, connection) = hyper::client::conn::http2::Builder::new(MungoExecutor)
                .timer(MungoTimer)
                .handshake(client)
                .await
                .unwrap();
            let connection = go(move || block_on(connection));
            let requests = (0..50).map(async |i| {
                let mut sender = sender.clone();
                let text = Bytes::from(format!("{i}"));
                let path = if i % 5 == 0 { "/work" } else { "/echo" };
                let response = sender.send_request(request(path, text.clone())).await.unwrap();
                assert_eq!(body(response).await, if i % 5 == 0 { "4999950000".into() } else { text });
            });
            join_all(requests).await;
            drop(sender);
            connection.await.unwrap().unwrap();
        });
        server.join().unwrap().unwrap();
    });
    end(runtime);
}

#[test]
fn an_axum_router() {
    use axum::Router;
    use axum::extract::{Path, State};
    use axum::routing::{get, post};
    use hyper_util::service::TowerToHyperService;

    async fn add(State(base): State<u64>, Path(n): Path<u64>) -> String {
        mungo::yield_now();
        (base + n).to_string()
    }
    let router = Router::new()
        .route("/add/{n}", get(add))
        .route("/echo", post(|body: String| async { body }))
        .with_state(40u64);
    let runtime = runtime(2);
    runtime.run(|| {
        let (client, server) = pair();
        let service = TowerToHyperService::new(router);
        let server =
            go(move || block_on(hyper::server::conn::http1::Builder::new().serve_connection(server, service)));
        block_on(async {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(client).await.unwrap();
            let connection = go(move || block_on(connection));
            let get = Request::get("/add/2").header("host", "localhost").body(Full::new(Bytes::new())).unwrap();
            assert_eq!(body(ask(&mut sender, get).await).await, "42");
            let response = ask(&mut sender, request("/echo", "hello".into())).await;
            assert_eq!(body(response).await, "hello");
            let response = ask(&mut sender, request("/nowhere", Bytes::new())).await;
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
            drop(sender);
            connection.await.unwrap().unwrap();
        });
        server.join().unwrap().unwrap();
    });
    end(runtime);
}

/// A peer that does not send its request in time; the time-out is the runtime's timer.
#[test]
fn a_slow_client_is_cut_off() {
    let (mut client, server) = pair();
    let start = Instant::now();
    let server = go(move || {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(MungoTimer).header_read_timeout(Duration::from_millis(30));
        block_on(builder.serve_connection(server, service_fn(respond)))
    });
    client.write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\n").unwrap();
    let error = server.join().unwrap().unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(30));
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
}

/// The request that is under way is answered, and no other.
#[test]
fn graceful_shutdown() {
    let (client, server) = pair();
    let (stop, stopped) = mungo::chan::bounded::<()>(0);
    let (begun, begins) = mungo::chan::bounded(0);
    let server = go(move || {
        block_on(async {
            let service = service_fn(move |_: Request<Incoming>| {
                let begun = begun.clone();
                async move {
                    begun.send_async(()).await.unwrap();
                    mungo::time::sleep_async(Duration::from_millis(20)).await;
                    Ok::<_, Infallible>(Response::new("done".to_owned()))
                }
            });
            let builder = hyper::server::conn::http1::Builder::new();
            let mut connection = pin!(builder.serve_connection(server, service));
            select(connection.as_mut(), pin!(stopped.recv_async())).await;
            connection.as_mut().graceful_shutdown();
            connection.await
        })
    });
    block_on(async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(client).await.unwrap();
        let connection = go(move || block_on(connection));
        let response = go(move || {
            block_on(async {
                let response = ask(&mut sender, request("/", Bytes::new())).await;
                (body(response).await, sender)
            })
        });
        begins.recv_async().await.unwrap();
        drop(stop);
        let (text, sender) = response.await.unwrap();
        assert_eq!(text, "done");
        server.await.unwrap().unwrap();
        connection.await.unwrap().unwrap();
        assert!(sender.is_closed());
    });
}

/// A client that knows nothing of all this.
#[test]
fn a_blocking_client() {
    let (client, server) = pair();
    let server = go(move || block_on(http1(server)));
    let mut client = client.into_std().unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
        .write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        .unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nhi"), "{response}");
    server.join().unwrap().unwrap();
}
