//! A pipeline of goroutines and channels: numbers, squares, a sum, and a time limit by `select!`.

use mungo::chan;
use std::time::Duration;

#[mungo::main]
fn main() {
    let (numbers, to_square) = chan::bounded::<u64>(16);
    let (squares, to_sum) = chan::bounded::<u64>(16);
    mungo::go(move || (1..=1000).for_each(|n| numbers.send(n).unwrap()));
    for _ in 0..4 {
        let (to_square, squares) = (to_square.clone(), squares.clone());
        mungo::go(move || to_square.iter().for_each(|n| squares.send(n * n).unwrap()));
    }
    drop(squares); // the last worker to end closes the channel

    let limit = chan::after(Duration::from_secs(10));
    let mut sum = 0;
    loop {
        mungo::select! {
            recv(to_sum) -> square => match square {
                Ok(n) => sum += n,
                Err(_) => break,
            },
            recv(limit) -> _ => panic!("too slow"),
        }
    }
    println!("the sum of the squares of 1 to 1000 is {sum}");
    assert_eq!(sum, 333_833_500);
}
