//! hyper on goroutines: what hyper 1.x wants of a runtime.
//!
//! [`net::TcpStream`](crate::net::TcpStream) implements hyper's [`Read`](hyper::rt::Read) and
//! [`Write`](hyper::rt::Write) itself. A connection is a future: a goroutine runs it with
//! [`block_on`](crate::block_on()), and the service's code may block, compute, or call anything: its goroutine is
//! preempted like any other, and no other connection waits for it.
//!
//! ```
//! use hyper::body::Incoming;
//! use hyper::server::conn::http1;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use mungo::hyper::MungoTimer;
//! use mungo::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! async fn hello(_: Request<Incoming>) -> Result<Response<String>, std::convert::Infallible> {
//!     mungo::sleep(std::time::Duration::from_millis(1)); // nobody else waits for this
//!     Ok(Response::new("Hello".to_owned()))
//! }
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! mungo::go(move || {
//!     for stream in listener.incoming().map_while(Result::ok) {
//!         let connection = http1::Builder::new().timer(MungoTimer).serve_connection(stream, service_fn(hello));
//!         mungo::go(move || mungo::block_on(connection));
//!     }
//! });
//!
//! let mut client = TcpStream::connect(address)?;
//! client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
//! let mut response = String::new();
//! client.read_to_string(&mut response)?;
//! assert!(response.ends_with("Hello"));
//! # std::io::Result::Ok(())
//! ```
//!
//! An axum `Router` is a tower service: `hyper_util::service::TowerToHyperService` makes it one of hyper's.

use crate::time::{Sleep, sleep_async, sleep_until_async};
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
    /// As [`go`](crate::go).
    fn execute(&self, future: F) {
        drop(crate::go(move || crate::block_on(future)));
    }
}

/// hyper's time-outs, by the timers of the runtime.
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
