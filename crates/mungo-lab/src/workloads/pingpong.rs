//! Pairs of goroutines that play ping-pong over unbuffered channels: the cost of a hand-over, and how fair it is.

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams, gather, merged};
use crate::error::Result;
use crate::rng::{Rng, mix};
use crate::stats::{Times, jain};
use mungo::chan;
use std::time::Instant;

/// Pairs for each processor.
const PAIRS: usize = 4;

pub(super) struct PingPong;

/// A number, and when it was sent.
type Ball = (u64, Instant);

/// One pair plays until the time is over: waits of single hand-overs, and whole round trips.
fn play(pair: u64, setting: &Setting) -> (Times, Times) {
    let (serve, at_pong) = chan::bounded::<Ball>(0);
    let (reply, at_ping) = chan::bounded::<Ball>(0);
    let mut rng = Rng::new(setting.seed, pair);
    mungo::scope(|s| {
        let pong = s.spawn(move || {
            let mut waits = Times::default();
            for (number, sent) in at_pong {
                waits.record(sent.elapsed());
                reply.send((mix(number), Instant::now())).expect("ping waits for it");
            }
            waits
        });
        let mut trips = Times::default();
        while !setting.over() {
            let (number, start) = (rng.next(), Instant::now());
            serve.send((number, start)).expect("pong plays until we stop");
            let (answer, _) = at_ping.recv().expect("pong answers");
            assert_eq!(answer, mix(number), "the ball was exchanged on the way");
            trips.record(start.elapsed());
        }
        drop(serve);
        (pong.join().expect("pong does not panic"), trips)
    })
}

impl Workload for PingPong {
    fn name(&self) -> &'static str {
        "pingpong"
    }

    fn about(&self) -> &'static str {
        "4 pairs of goroutines a processor exchange numbers over unbuffered channels"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let pairs = (PAIRS * setting.procs) as u64;
        let games = gather(0..pairs, |pair| play(pair, setting));
        let counts: Vec<f64> = games.iter().map(|(_, trips)| trips.len() as f64).collect();
        let balls = fingerprint_of_streams(setting.seed, pairs, Rng::next);
        let trips = merged(games.iter().map(|g| &g.1));
        let outcome = Outcome::all_done(setting, trips.len(), balls);
        let wait = merged(games.iter().map(|g| &g.0));
        let class = Class { name: "round trip", wait: Some(wait), latency: Some(trips), deadlines: None };
        Ok(Outcome { classes: vec![class], fairness: jain(&counts), ..outcome })
    }
}
