//! A client that keeps connections.

use crate::context::Context;
use crate::net::TcpStream;
use crate::spawn::go;
use crate::sync::Mutex;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Request, Response, Uri, header};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;

/// The most idle connections that are kept for one server.
const KEPT: usize = 32;

/// Sends HTTP/1.1 requests, and keeps connections for further ones. To be shared by reference.
///
/// The whole of a request, from the connect to the head of its response, ends when its context is done. There is no
/// TLS: connect with a library of your choice and use [`hyper::client`] on the stream.
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
    idle: Mutex<HashMap<Authority, Vec<SendRequest<B>>>>,
}

impl<B> Default for Client<B> {
    fn default() -> Self {
        Client { idle: Mutex::new(HashMap::new()) }
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
    #[must_use]
    pub fn new() -> Client<B> {
        Client::default()
    }

    /// Sends a request to the server that its URI names, and returns the response when its head is there.
    ///
    /// [`read_body`](super::read_body) reads the body. A connection serves further requests when the body of its last
    /// response was read to the end. A missing `Host` is added.
    ///
    /// # Errors
    /// `InvalidInput` for a URI without a host or with another scheme than `http`; the reason why the context is done;
    /// else what went wrong with the connection. A request is never sent twice.
    pub fn send(&self, ctx: &Context, mut request: Request<B>) -> io::Result<Response<Incoming>> {
        let server = prepare(&mut request)?;
        let mut sender = match self.take_idle(&server) {
            Some(sender) => sender,
            None => connect(ctx, &server)?,
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
    fn take_idle(&self, server: &Authority) -> Option<SendRequest<B>> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(server)?;
        kept.retain(|sender| !sender.is_closed());
        let ready = kept.iter().position(SendRequest::is_ready)?;
        Some(kept.swap_remove(ready))
    }
}

/// Brings a request into the form that a server wants: a path, and the server's name as a header. Returns the server.
fn prepare<B>(request: &mut Request<B>) -> io::Result<Authority> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let uri = request.uri().clone();
    if let Some(other) = uri.scheme().filter(|scheme| **scheme != Scheme::HTTP) {
        return Err(invalid(format!("{uri} is {other}, and this client knows http alone")));
    }
    let Some(server) = uri.authority().cloned() else {
        return Err(invalid(format!("{uri} names no server: write http://server/path")));
    };
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    if !request.headers().contains_key(header::HOST) {
        let host = server.as_str().rsplit('@').next().unwrap_or_default();
        let host = header::HeaderValue::from_str(host).map_err(|e| invalid(format!("{server}: {e}")))?;
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(server)
}

fn connect<B>(ctx: &Context, server: &Authority) -> io::Result<SendRequest<B>>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let host = server.host().trim_matches(['[', ']']);
    let addresses = crate::net::lookup_context(ctx, host, server.port_u16().unwrap_or(80))?;
    let stream = TcpStream::connect_context(ctx, &*addresses)?;
    let (sender, connection) = ctx.block_on(handshake(stream))?.map_err(io::Error::other)?;
    // It ends with the server, or when the sender and the last response are dropped.
    go(move || crate::block_on::block_on(connection));
    Ok(sender)
}
