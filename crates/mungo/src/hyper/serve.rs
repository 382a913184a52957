//! A server: a goroutine for each connection, and an end without broken answers.

use super::MungoTimer;
use crate::context::Context;
use crate::net::{TcpListener, TcpStream};
use crate::spawn::go;
use crate::sync::{Semaphore, WaitGroup};
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper::{Request, Response};
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Serves HTTP/1.1 until the context is done, with the defaults of [`Server`]. See the [module](super).
///
/// ```
/// use hyper::Response;
/// use mungo::context::Context;
/// use mungo::hyper::{handler, serve};
///
/// let (ctx, cancel) = Context::background().with_cancel();
/// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
/// cancel.cancel();
/// serve(listener, handler(|_| Ok::<_, std::convert::Infallible>(Response::new(String::new()))), &ctx)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// As [`Server::serve`].
pub fn serve<S>(listener: TcpListener, service: S, ctx: &Context) -> io::Result<()>
where
    S: HttpService<Incoming> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Server::new().serve(listener, service, ctx)
}

/// Makes a service of a function in plain blocking code. Each request has a goroutine of its own, so the function may
/// block, compute, and [read the body](super::read_body). If it panics, its connection ends, and no other one.
///
/// ```
/// use hyper::service::Service;
/// use hyper::{Response, StatusCode};
///
/// let teapot = mungo::hyper::handler(|request: hyper::Request<hyper::body::Incoming>| {
///     Response::builder().status(StatusCode::IM_A_TEAPOT).body(request.uri().path().to_owned())
/// });
/// # fn takes(_: impl Service<hyper::Request<hyper::body::Incoming>>) {}
/// # takes(teapot);
/// ```
pub fn handler<F, B, E>(
    f: F,
) -> impl Service<Request<Incoming>, Response = Response<B>, Error = E, Future: Send> + Clone + Send + 'static
where
    F: Fn(Request<Incoming>) -> Result<Response<B>, E> + Send + Sync + 'static,
    B: Body + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
{
    let f = Arc::new(f);
    service_fn(move |request| {
        let f = f.clone();
        let answer = go(move || f(request));
        async move { answer.await.unwrap_or_else(|payload| resume_unwind(payload)) }
    })
}

/// The settings of a server. [`serve`] has the defaults.
///
/// ```
/// use hyper::Response;
/// use mungo::context::Context;
/// use mungo::hyper::{Server, handler};
/// use std::time::Duration;
///
/// let (ctx, cancel) = Context::background().with_cancel();
/// let server = Server::new()
///     .max_connections(10_000)
///     .header_timeout(Duration::from_secs(5))
///     .drain_timeout(Duration::from_secs(20));
/// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
/// cancel.cancel();
/// server.serve(listener, handler(|_| Ok::<_, std::io::Error>(Response::new(String::new()))), &ctx)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a server does nothing until `serve`"]
pub struct Server {
    max_connections: usize,
    header_timeout: Duration,
    drain_timeout: Duration,
    keep_alive: bool,
    max_header_bytes: usize,
}

impl Default for Server {
    fn default() -> Self {
        Server::new()
    }
}

impl Server {
    /// Makes the defaults, which each setting names.
    ///
    /// ```
    /// # use hyper::{Request, Response};
    /// # use mungo::context::Context;
    /// # use mungo::hyper::{Client, Server, handler};
    /// # use mungo::net::TcpListener;
    /// # let (ctx, cancel) = Context::background().with_cancel();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let url = format!("http://{}/", listener.local_addr()?);
    /// let server = Server::new();
    /// # let service = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    /// # let serving = mungo::go({ let ctx = ctx.clone(); move || server.serve(listener, service, &ctx) });
    /// let response = Client::new().send(&ctx, Request::get(&url).body(String::new()).unwrap())?;
    /// assert_eq!(response.status(), 200);
    /// # cancel.cancel();
    /// # serving.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new() -> Server {
        Server {
            max_connections: Semaphore::MAX_PERMITS,
            header_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            keep_alive: true,
            max_header_bytes: 64 << 10,
        }
    }

    /// Sets the most connections at a time; further ones wait in the kernel. Default: no limit.
    ///
    /// ```
    /// # use hyper::{Request, Response};
    /// # use mungo::context::Context;
    /// # use mungo::hyper::{Client, Server, handler};
    /// # use mungo::net::TcpListener;
    /// # let (ctx, cancel) = Context::background().with_cancel();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let url = format!("http://{}/", listener.local_addr()?);
    /// let server = Server::new().max_connections(1);
    /// # let service = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    /// # let serving = mungo::go({ let ctx = ctx.clone(); move || server.serve(listener, service, &ctx) });
    /// let response = Client::new().send(&ctx, Request::get(&url).body(String::new()).unwrap())?;
    /// assert_eq!(response.status(), 200);
    /// # cancel.cancel();
    /// # serving.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn max_connections(mut self, n: usize) -> Server {
        self.max_connections = n.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the time in which a request's headers must come, from the end of the request before, or of the connect: so
    /// it bounds slow clients and idle connections. Default: 30 s.
    ///
    /// ```
    /// # use hyper::{Request, Response};
    /// # use mungo::context::Context;
    /// # use mungo::hyper::{Client, Server, handler};
    /// # use mungo::net::TcpListener;
    /// # let (ctx, cancel) = Context::background().with_cancel();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let url = format!("http://{}/", listener.local_addr()?);
    /// let server = Server::new().header_timeout(std::time::Duration::from_millis(1));
    /// # let service = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    /// # let serving = mungo::go({ let ctx = ctx.clone(); move || server.serve(listener, service, &ctx) });
    /// let mut idle = mungo::net::TcpStream::connect(&url[7..url.len() - 1])?;
    /// let mut answer = Vec::new();
    /// _ = std::io::Read::read_to_end(&mut idle, &mut answer); // it ends, because the server closes
    /// assert!(!answer.starts_with(b"HTTP/1.1 200"));
    /// # cancel.cancel();
    /// # serving.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn header_timeout(mut self, timeout: Duration) -> Server {
        self.header_timeout = timeout;
        self
    }

    /// Sets the time that requests have to end when the context is done; then their connections are cut. Default: 30 s.
    ///
    /// ```
    /// # use hyper::{Request, Response};
    /// # use mungo::context::Context;
    /// # use mungo::hyper::{Client, Server, handler};
    /// # use mungo::net::TcpListener;
    /// # let (ctx, cancel) = Context::background().with_cancel();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let url = format!("http://{}/", listener.local_addr()?);
    /// let server = Server::new().drain_timeout(std::time::Duration::from_secs(20));
    /// # let service = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    /// # let serving = mungo::go({ let ctx = ctx.clone(); move || server.serve(listener, service, &ctx) });
    /// let response = Client::new().send(&ctx, Request::get(&url).body(String::new()).unwrap())?;
    /// assert_eq!(response.status(), 200);
    /// # cancel.cancel();
    /// # serving.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain_timeout(mut self, timeout: Duration) -> Server {
        self.drain_timeout = timeout;
        self
    }

    /// Sets whether a connection may have several requests. Default: yes.
    ///
    /// ```
    /// # use hyper::{Request, Response};
    /// # use mungo::context::Context;
    /// # use mungo::hyper::{Client, Server, handler};
    /// # use mungo::net::TcpListener;
    /// # let (ctx, cancel) = Context::background().with_cancel();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let url = format!("http://{}/", listener.local_addr()?);
    /// let server = Server::new().keep_alive(false);
    /// # let service = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    /// # let serving = mungo::go({ let ctx = ctx.clone(); move || server.serve(listener, service, &ctx) });
    /// let response = Client::new().send(&ctx, Request::get(&url).body(String::new()).unwrap())?;
    /// assert_eq!(response.status(), 200);
    /// assert_eq!(response.headers()["connection"], "close");
    /// # cancel.cancel();
    /// # serving.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn keep_alive(mut self, yes: bool) -> Server {
        self.keep_alive = yes;
        self
    }

    /// Sets the most bytes that the headers of a request may have, at least 8192: then the answer is 431. Default:
    /// 64 KiB.
    ///
    /// ```
    /// # use hyper::{Request, Response};
    /// # use mungo::context::Context;
    /// # use mungo::hyper::{Client, Server, handler};
    /// # use mungo::net::TcpListener;
    /// # let (ctx, cancel) = Context::background().with_cancel();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let url = format!("http://{}/", listener.local_addr()?);
    /// let server = Server::new().max_header_bytes(8192);
    /// # let service = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    /// # let serving = mungo::go({ let ctx = ctx.clone(); move || server.serve(listener, service, &ctx) });
    /// let long = Request::get(&url).header("x", "x".repeat(10_000)).body(String::new()).unwrap();
    /// assert_eq!(Client::new().send(&ctx, long)?.status(), 431);
    /// # cancel.cancel();
    /// # serving.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn max_header_bytes(mut self, bytes: usize) -> Server {
        self.max_header_bytes = bytes.max(8192);
        self
    }

    /// Serves HTTP/1.1 until the context is done. Then it closes the listener and idle connections at once, and waits
    /// until requests that are under way are answered.
    ///
    /// A clone of `service` serves each connection. An error or panic of it ends its connection.
    ///
    /// ```
    /// use hyper::{Request, Response};
    /// use mungo::context::Context;
    /// use mungo::hyper::{Client, Server, handler};
    /// use mungo::net::TcpListener;
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let url = format!("http://{}/", listener.local_addr()?);
    /// let server = mungo::go({
    ///     let ctx = ctx.clone();
    ///     let hello = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    ///     move || Server::new().serve(listener, hello, &ctx)
    /// });
    /// let response = Client::new().send(&ctx, Request::get(url).body(String::new()).unwrap())?;
    /// assert_eq!(response.status(), 200);
    /// cancel.cancel();
    /// server.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, if connections had to be cut after the [drain time-out](Self::drain_timeout).
    pub fn serve<S>(self, listener: TcpListener, service: S, ctx: &Context) -> io::Result<()>
    where
        S: HttpService<Incoming> + Clone + Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::ResBody: 'static,
        <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.run(listener, ctx, move |server, stream, stop, cut| {
            server.connection(stream, service.clone(), stop, cut);
        })
    }

    /// As [`serve`](Self::serve), of connections on which something else comes first, as a handshake of TLS.
    ///
    /// `shake_hands` makes a future of a connection that was accepted, and the future a stream for hyper. It has the
    /// time of the [headers](Self::header_timeout), and ends when the context is done; a connection whose future fails
    /// is closed. `examples/tls_server.rs` does so with `tokio-rustls`, on the feature `tokio-io`.
    ///
    /// ```
    /// use hyper::{Request, Response};
    /// use mungo::context::Context;
    /// use mungo::hyper::{Client, Server, handler};
    /// use mungo::net::{TcpListener, TcpStream};
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let url = format!("http://{}/", listener.local_addr()?);
    /// let server = mungo::go({
    ///     let ctx = ctx.clone();
    ///     // Here it sets an option, and changes nothing else.
    ///     let prompt = |stream: TcpStream| async move { stream.set_nodelay(true).map(|()| stream) };
    ///     let hello = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    ///     move || Server::new().serve_through(listener, prompt, hello, &ctx)
    /// });
    /// let response = Client::new().send(&ctx, Request::get(url).body(String::new()).unwrap())?;
    /// assert_eq!(response.status(), 200);
    /// cancel.cancel();
    /// server.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_through<F, H, I, S>(
        self,
        listener: TcpListener,
        shake_hands: F,
        service: S,
        ctx: &Context,
    ) -> io::Result<()>
    where
        F: Fn(TcpStream) -> H + Clone + Send + 'static,
        H: Future<Output = io::Result<I>>,
        I: Read + Write + Unpin,
        S: HttpService<Incoming> + Clone + Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::ResBody: 'static,
        <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.run(listener, ctx, move |server, stream, stop, cut| {
            let (shaking, cancel) = stop.with_timeout(server.header_timeout);
            let shaken = shaking.block_on(shake_hands(stream));
            cancel.cancel();
            if let Ok(Ok(stream)) = shaken {
                server.connection(stream, service.clone(), stop, cut);
            }
        })
    }

    /// Accepts connections and calls `each` with them, on a goroutine for each, until the context is done; then waits
    /// for the goroutines. `each` gets two contexts: one that asks it to end, and one at which it must.
    fn run<F>(self, listener: TcpListener, ctx: &Context, each: F) -> io::Result<()>
    where
        F: Fn(&Server, TcpStream, &Context, &Context) + Clone + Send + 'static,
    {
        let (connections, places) = (WaitGroup::new(), Arc::new(Semaphore::new(self.max_connections)));
        let (cut, cutting) = Context::background().with_cancel();
        let mut incoming = listener.with_context(ctx).incoming();
        // The place comes before the connection, so that what is too much waits in the kernel.
        while let Ok(place) = ctx.acquire_owned(&places) {
            let Some(stream) = incoming.next() else { break };
            let Ok(stream) = stream else { continue }; // it pauses before the next one, if that may help
            let (server, each, stop, cut) = (self.clone(), each.clone(), ctx.clone(), cut.clone());
            connections.go(move || {
                let _place = place;
                each(&server, stream, &stop, &cut);
            });
        }
        drop(incoming);
        drop(listener);
        let (patience, _cancel) = Context::background().with_timeout(self.drain_timeout);
        if patience.wait(&connections).is_ok() {
            return Ok(());
        }
        let left = connections.count();
        cutting.cancel();
        connections.wait();
        let why =
            format!("{left} connections were cut: {:?} were not enough for their requests", self.drain_timeout);
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Serves one connection to its end.
    fn connection<I, S>(&self, stream: I, service: S, stop: &Context, cut: &Context)
    where
        I: Read + Write + Unpin,
        S: HttpService<Incoming>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::ResBody: 'static,
        <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut builder = http1::Builder::new();
        builder.timer(MungoTimer).header_read_timeout(self.header_timeout);
        builder.keep_alive(self.keep_alive).max_buf_size(self.max_header_bytes);
        let mut connection = pin!(builder.serve_connection(stream, service));
        let mut stopped = pin!(stop.done().recv_async());
        let mut stopping = false;
        // The client learns of an error by the end of its connection; no other party needs to.
        _ = cut.block_on(poll_fn(|cx| {
            if !stopping && stopped.as_mut().poll(cx).is_ready() {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            connection.as_mut().poll(cx)
        }));
    }
}
