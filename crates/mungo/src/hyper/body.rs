//! Bodies as bytes.

use crate::context::Context;
use hyper::body::{Body, Incoming};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;

/// Reads a body to its end, and waits for it.
///
/// ```
/// use hyper::{Request, Response};
/// use mungo::context::Context;
/// use mungo::hyper::{Client, handler, read_body, serve};
///
/// let (ctx, cancel) = Context::background().with_cancel();
/// let listener = mungo::net::TcpListener::bind("127.0.0.1:0")?;
/// let url = format!("http://{}/", listener.local_addr()?);
/// let serving = ctx.clone();
/// let server = mungo::go(move || {
///     let echo = handler(|request: Request<hyper::body::Incoming>| {
///         let body = read_body(&Context::background(), request.into_body(), 1000)?;
///         std::io::Result::Ok(Response::new(String::from_utf8_lossy(&body).into_owned()))
///     });
///     serve(listener, echo, &serving)
/// });
/// let request = Request::post(url).body("echo".to_owned()).unwrap();
/// let response = Client::new().send(&ctx, request)?;
/// assert_eq!(read_body(&ctx, response.into_body(), 1000)?, b"echo");
/// # cancel.cancel();
/// # server.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// `FileTooLarge` if it has more than `limit` bytes; the reason why the context is done; else what went wrong with the
/// connection.
pub fn read_body(ctx: &Context, mut body: Incoming, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let frame = ctx.block_on(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)))?;
        let Some(frame) = frame.transpose().map_err(io::Error::other)? else { return Ok(bytes) };
        if let Some(data) = frame.data_ref() {
            if data.len() > limit - bytes.len() {
                let why = format!("the body has more than {limit} bytes");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            bytes.extend_from_slice(data);
        }
    }
}
