//! `block_on`: runs a future on the calling goroutine.

use crate::sched::run::parker::Parker;
use std::future::IntoFuture;
use std::pin::pin;
use std::task::{Context, Poll};

/// Runs a future to its end on the calling goroutine, and returns its output. Between polls the goroutine is parked,
/// and its P runs others; a plain thread sleeps.
///
/// There is no executor behind it and none is needed: `mungo::go(|| mungo::block_on(future))` is a task of its own.
/// Futures of other runtimes work if they bring their own reactor: what wakes them may be on any thread. A call that
/// blocks inside the future parks the goroutine and holds up no other one, but its siblings in a `join!` wait too.
///
/// Tokens of [`unpark`](crate::Goroutine::unpark) are not touched. Calls may nest.
///
/// ```
/// let (tx, rx) = mungo::chan::bounded(1);
/// let worker = mungo::go(move || mungo::block_on(async move { rx.recv_async().await.unwrap() + 1 }));
/// let answer = mungo::block_on(async {
///     tx.send_async(41).await.unwrap();
///     worker.await.unwrap()
/// });
/// assert_eq!(answer, 42);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let parker = Parker::new();
    let waker = parker.waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        parker.park();
    }
}
