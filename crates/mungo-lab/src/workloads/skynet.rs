//! The skynet benchmark: a tree of goroutines, ten children each; sums travel to the root through channels.

use super::{Class, Outcome, Setting, Workload, fingerprint_of_streams};
use crate::error::Result;
use crate::goroutines::sky;
use crate::rng::Rng;
use crate::stats::Times;
use mungo::chan;
use std::time::Instant;

/// Leaves of a tree.
const LEAVES: u64 = 10_000;

pub(super) struct Skynet;

/// The number of the first leaf.
fn first(rng: &mut Rng) -> u64 {
    rng.between(0, 1 << 32)
}

impl Workload for Skynet {
    fn name(&self) -> &'static str {
        "skynet"
    }

    fn about(&self) -> &'static str {
        "trees of 11,111 goroutines, ten children each, sum up 10,000 numbers through channels"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        let mut rng = Rng::new(setting.seed, 0);
        let mut trees = Times::default();
        while !setting.over() {
            let (start, first) = (Instant::now(), first(&mut rng));
            let (root, sum) = chan::bounded(0);
            mungo::go(move || sky(&root, first, LEAVES));
            let sum = sum.recv().expect("the tree sends its sum");
            assert_eq!(sum, LEAVES * first + LEAVES * (LEAVES - 1) / 2, "a leaf was lost");
            trees.record(start.elapsed());
        }
        let print = fingerprint_of_streams(setting.seed, 1, first);
        let outcome = Outcome::all_done(setting, trees.len() * LEAVES, print);
        Ok(Outcome {
            classes: vec![Class { name: "tree", latency: Some(trees), ..Class::default() }],
            ..outcome
        })
    }
}
