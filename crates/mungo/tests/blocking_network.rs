//! The network is looked at while goroutines block the threads of all Ps. A process of its own: an idle M of any other
//! runtime would look at the network too, and hide what is tested here.

mod common;

use common::{PATIENCE, go_named, runtime, wait_until_parked};
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A goroutine that waits for the network wakes one that blocks the thread of the only P by `block`.
fn the_network_ends_a_block(block: impl Fn(Receiver<u8>) -> Option<u8> + Send + 'static) {
    let runtime = runtime(1);
    let got = runtime.run(move || {
        let (tx, rx) = channel();
        let (mut near, mut far) = mungo::net::UnixStream::pair().unwrap();
        let reader = go_named("network-reader", move || {
            let mut byte = [0];
            near.read_exact(&mut byte).unwrap();
            tx.send(byte[0]).unwrap();
        });
        wait_until_parked("network-reader");
        let writer = std::thread::spawn(move || {
            // So that the goroutine blocks before. If it does not, less is tested, and nothing fails.
            std::thread::sleep(Duration::from_millis(20));
            far.write_all(b"x").unwrap();
        });
        mungo::sleep(Duration::from_millis(1)); // a goroutine that has just computed is taken for one that does
        let got = block(rx);
        mungo::blocking(|| writer.join()).unwrap();
        reader.join().unwrap();
        got
    });
    assert_eq!(got, Some(b'x'), "nothing looked at the network");
}

const ROUNDS: usize = 10;

#[test]
fn goroutines_that_block_all_ps_do_not_keep_others_from_the_network() {
    for _ in 0..ROUNDS {
        the_network_ends_a_block(|rx| rx.recv_timeout(PATIENCE).ok());
        the_network_ends_a_block(|rx| mungo::blocking(|| rx.recv_timeout(PATIENCE).ok()));
    }
}
