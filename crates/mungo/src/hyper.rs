//! hyper on goroutines: what hyper 1.x wants of a runtime.
//!
//! [`serve`] is a server in one call, with a goroutine for each connection, limits, time-outs and a graceful end. A
//! service is a function in plain blocking code ([`handler`]), or any of hyper's; an axum `Router` is one through
//! `hyper_util::service::TowerToHyperService`. [`Client`] sends requests, and keeps connections.
//!
//! ```
//! use hyper::body::Incoming;
//! use hyper::{Request, Response};
//! use mungo::context::Context;
//! use mungo::hyper::{Client, handler, read_body, serve};
//! use mungo::net::TcpListener;
//! use std::convert::Infallible;
//!
//! fn hello(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     mungo::sleep(std::time::Duration::from_millis(1)); // no other request waits for this
//!     Ok(Response::new(format!("You asked for {}", request.uri().path())))
//! }
//!
//! let (ctx, cancel) = Context::background().with_cancel();
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let url = format!("http://{}/tea", listener.local_addr()?);
//! let server = mungo::go({
//!     let ctx = ctx.clone();
//!     move || serve(listener, handler(hello), &ctx)
//! });
//!
//! let request = Request::get(url).body(String::new()).unwrap();
//! let response = Client::new().send(&ctx, request)?;
//! assert_eq!(response.status(), 200);
//! assert_eq!(read_body(&ctx, response.into_body(), 1 << 20)?, b"You asked for /tea");
//!
//! cancel.cancel(); // requests that are under way are answered
//! server.join().unwrap()?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # The parts
//!
//! [`net::TcpStream`](crate::net::TcpStream) implements hyper's [`Read`](hyper::rt::Read) and
//! [`Write`](hyper::rt::Write). A connection is a future: a goroutine runs it with [`block_on`](crate::block_on()).
//! [`MungoTimer`] and [`MungoExecutor`] are what hyper's builders want of a runtime.

mod body;
mod client;
mod serve;

pub use body::read_body;
pub use client::Client;
pub use serve::{Server, handler, serve};

use crate::sched::timers::sleep::{Sleep, sleep_until_async};
use crate::time::sleep_async;
use hyper::rt;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Runs hyper's background tasks, such as the streams of HTTP/2, as goroutines.
///
/// ```
/// use hyper::rt::Executor;
///
/// let (tx, rx) = mungo::chan::bounded(0);
/// mungo::hyper::MungoExecutor.execute(async move { tx.send_async(1).await.unwrap() });
/// assert_eq!(rx.recv(), Ok(1));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MungoExecutor;

impl<F> rt::Executor<F> for MungoExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// # Panics
    /// Panics as [`go`](crate::go) does.
    fn execute(&self, future: F) {
        drop(crate::spawn::go(move || crate::block_on::block_on(future)));
    }
}

/// Serves hyper's time-outs by the timers of the runtime.
///
/// ```
/// use hyper::rt::Timer;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// mungo::block_on(mungo::hyper::MungoTimer.sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MungoTimer;

impl rt::Sleep for Sleep {}

impl rt::Timer for MungoTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(sleep_async(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(sleep_until_async(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(sleep) => sleep.get_mut().reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
