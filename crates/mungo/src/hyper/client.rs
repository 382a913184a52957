//! A client that keeps connections.

use crate::context::Context;
use crate::net::TcpStream;
use crate::spawn::go;
use crate::sync::Mutex;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::rt::{Read, Write};
use hyper::{Request, Response, Uri, header};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;

/// The most idle connections that are kept for one server.
const KEPT: usize = 32;

/// Sends HTTP/1.1 requests, and keeps connections for further ones. To be shared by reference.
///
/// The whole of a request, from the connect to the head of its response, ends when its context is done. For HTTPS,
/// [`https_through`](Self::https_through) takes the TLS library of your choice.
///
/// ```
/// use hyper::{Request, Response};
/// use mungo::context::Context;
/// use mungo::hyper::{Client, handler, serve};
/// use std::time::Duration;
///
/// let (serving, stop) = Context::background().with_cancel();
/// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
/// let url = format!("http://{}/slow", listener.local_addr()?);
/// let server = mungo::go(move || {
///     let slow = handler(|_| {
///         mungo::sleep(Duration::from_millis(200));
///         Ok::<_, std::io::Error>(Response::new(String::new()))
///     });
///     serve(listener, slow, &serving)
/// });
/// let (ctx, _cancel) = Context::background().with_timeout(Duration::from_millis(10));
/// let request = Request::get(url).body(String::new()).unwrap();
/// let error = Client::new().send(&ctx, request).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
/// # stop.cancel();
/// # server.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
pub struct Client<B> {
    /// Connections without a request, by server.
    idle: Mutex<HashMap<Server, Vec<SendRequest<B>>>>,
    /// Makes a connection for HTTPS of a stream to the host of that name.
    https: Option<Box<Begin<B>>>,
}

type Begin<B> = dyn Fn(&Context, TcpStream, &str) -> io::Result<SendRequest<B>> + Send + Sync;

/// A server, as connections are kept for it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Server {
    authority: Authority,
    is_https: bool,
}

impl Server {
    fn host(&self) -> &str {
        self.authority.host().trim_matches(['[', ']'])
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_https { 443 } else { 80 })
    }
}

impl<B> Default for Client<B> {
    fn default() -> Self {
        Client { idle: Mutex::new(HashMap::new()), https: None }
    }
}

impl<B> fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl<B> Client<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Makes a client without connections.
    ///
    /// ```
    /// use mungo::context::Context;
    ///
    /// let client = mungo::hyper::Client::new();
    /// let nowhere = hyper::Request::get("/no-host").body(String::new()).unwrap();
    /// let error = client.send(&Context::background(), nowhere).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    #[must_use]
    pub fn new() -> Client<B> {
        Client::default()
    }

    /// Lets the client send requests to `https` addresses, through TLS or whatever `shake_hands` makes of a connection.
    ///
    /// It gets the connection and the name of the host, and returns a future of a stream for hyper, which ends when the
    /// context of the request is done. `examples/https_client.rs` does so with `tokio-rustls`, on the feature
    /// `tokio-io`.
    ///
    /// ```
    /// use mungo::hyper::Client;
    /// use mungo::net::TcpStream;
    ///
    /// // Here nothing is encrypted. With tokio-rustls: connector.connect(host.try_into()?, stream).
    /// let client = Client::<String>::new().https_through(|stream: TcpStream, _host: &str| async { Ok(stream) });
    /// # drop(client);
    /// ```
    #[must_use]
    pub fn https_through<F, H, I>(mut self, shake_hands: F) -> Client<B>
    where
        F: Fn(TcpStream, &str) -> H + Send + Sync + 'static,
        H: Future<Output = io::Result<I>>,
        I: Read + Write + Unpin + Send + 'static,
    {
        self.https = Some(Box::new(move |ctx, stream, host| {
            let shaken = ctx.block_on(shake_hands(stream, host))??;
            begin(ctx, shaken)
        }));
        self
    }

    /// Sends a request to the server that its URI names, and returns the response when its head is there.
    ///
    /// [`read_body`](super::read_body) reads the body. A connection serves further requests when the body of its last
    /// response was read to the end. A missing `Host` is added.
    ///
    /// ```
    /// use hyper::{Request, Response};
    /// use mungo::context::Context;
    /// use mungo::hyper::{Client, handler, serve};
    ///
    /// let (ctx, cancel) = Context::background().with_cancel();
    /// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
    /// let url = format!("http://{}/", listener.local_addr()?);
    /// let server = mungo::go({
    ///     let ctx = ctx.clone();
    ///     let hello = handler(|_| Ok::<_, std::io::Error>(Response::new("hello".to_owned())));
    ///     move || serve(listener, hello, &ctx)
    /// });
    /// let response = Client::new().send(&ctx, Request::get(url).body(String::new()).unwrap())?;
    /// assert_eq!(mungo::hyper::read_body(&ctx, response.into_body(), 100)?, b"hello");
    /// cancel.cancel();
    /// server.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for a URI without a host, or with another scheme than `http`, and `https` if
    /// [it can](Self::https_through); the reason why the context is done; else what went wrong with the connection. A
    /// request is never sent twice.
    pub fn send(&self, ctx: &Context, mut request: Request<B>) -> io::Result<Response<Incoming>> {
        let server = prepare(&mut request, self.https.is_some())?;
        let mut sender = match self.take_idle(&server) {
            Some(sender) => sender,
            None => self.connect(ctx, &server)?,
        };
        let response = ctx.block_on(sender.send_request(request))?.map_err(io::Error::other)?;
        let mut idle = self.idle.lock();
        let kept = idle.entry(server).or_default();
        if kept.len() < KEPT {
            kept.push(sender);
        }
        Ok(response)
    }

    /// Returns a connection whose last response was read, and drops those that have ended.
    fn take_idle(&self, server: &Server) -> Option<SendRequest<B>> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(server)?;
        kept.retain(|sender| !sender.is_closed());
        let ready = kept.iter().position(SendRequest::is_ready)?;
        Some(kept.swap_remove(ready))
    }

    fn connect(&self, ctx: &Context, server: &Server) -> io::Result<SendRequest<B>> {
        let addresses = crate::net::lookup_context(ctx, server.host(), server.port())?;
        let stream = TcpStream::connect_context(ctx, &*addresses)?;
        match &self.https {
            Some(https) if server.is_https => https(ctx, stream, server.host()),
            _ => begin(ctx, stream),
        }
    }
}

/// Brings a request into the form that a server wants: a path, and the server's name as a header. Returns the server.
fn prepare<B>(request: &mut Request<B>, has_https: bool) -> io::Result<Server> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let uri = request.uri().clone();
    let is_https = uri.scheme() == Some(&Scheme::HTTPS);
    if is_https && !has_https {
        return Err(invalid(format!(
            "{uri} is https, which this client was not given: see Client::https_through"
        )));
    }
    if let Some(other) = uri.scheme().filter(|scheme| !is_https && **scheme != Scheme::HTTP) {
        return Err(invalid(format!("{uri} is {other}, and this client knows http and https alone")));
    }
    let Some(authority) = uri.authority().cloned() else {
        return Err(invalid(format!("{uri} names no server: write http://server/path")));
    };
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    if !request.headers().contains_key(header::HOST) {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let host = header::HeaderValue::from_str(host).map_err(|e| invalid(format!("{authority}: {e}")))?;
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(Server { authority, is_https })
}

/// Begins HTTP on a stream.
fn begin<B, I>(ctx: &Context, stream: I) -> io::Result<SendRequest<B>>
where
    I: Read + Write + Unpin + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (sender, connection) = ctx.block_on(handshake(stream))?.map_err(io::Error::other)?;
    // It ends with the server, or when the sender and the last response are dropped.
    go(move || crate::block_on::block_on(connection));
    Ok(sender)
}
