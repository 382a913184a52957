//! A pipeline whose stages have different speeds: bounded channels make the fast ones wait, so that memory stays
//! bounded; and a stage that fails ends all the others.

use mungo::chan::{Receiver, bounded};
use mungo::context::Context;
use mungo::sync::Group;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Places between two stages.
const ROOM: usize = 4;
/// Workers of the slow stage.
const WORKERS: usize = 3;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Numbers up to `last`, squared by slow workers, summed up. `bad` is one that they cannot square.
fn run(last: u64, bad: Option<u64>) -> Result<(u64, usize), Failed> {
    let group = Group::<u64, Failed>::with_context(&Context::background());
    let (numbers, to_square) = bounded(ROOM);
    let (squares, to_sum) = bounded(ROOM);
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));

    let (begun, highest) = (under_way.clone(), most.clone());
    group.go(move |ctx| {
        for n in 1..=last {
            highest.fetch_max(begun.fetch_add(1, SeqCst) + 1, SeqCst);
            ctx.send(&numbers, n)?; // waits while the next stage is busy, and ends with the group
        }
        Ok(0)
    });
    for _ in 0..WORKERS {
        let (to_square, squares) = (to_square.clone(), squares.clone());
        group.go(move |ctx| {
            for n in numbers_of(ctx, &to_square) {
                if Some(n) == bad {
                    return Err(format!("{n} cannot be squared").into());
                }
                ctx.sleep(Duration::from_micros(100))?; // slow
                ctx.send(&squares, n * n)?;
            }
            Ok(0)
        });
    }
    drop((to_square, squares)); // the last worker to end closes the channel
    group.go(move |ctx| {
        Ok(numbers_of(ctx, &to_sum).inspect(|_| _ = under_way.fetch_sub(1, SeqCst)).sum::<u64>())
    });
    let sums = group.wait()?;
    Ok((sums.iter().sum(), most.load(SeqCst)))
}

/// Receives until the channel is closed, or the context is done.
fn numbers_of<'a>(ctx: &'a Context, from: &'a Receiver<u64>) -> impl Iterator<Item = u64> + 'a {
    std::iter::from_fn(|| ctx.recv(from).ok())
}

#[mungo::main]
fn main() -> Result<(), Failed> {
    let (sum, most) = run(500, None)?;
    println!("the sum of the squares of 1 to 500 is {sum}; at most {most} numbers were under way");
    assert_eq!(sum, 41_791_750);
    assert!(most <= 2 * ROOM + WORKERS + 2, "{most}: the channels did not hold the first stage back");

    let failed = run(1_000_000_000, Some(100)).expect_err("one of them cannot be squared");
    println!("a failure ends all stages: {failed}");
    Ok(())
}
