//! Almost only short requests, and a few that are a hundred times as long: the head-of-line blocking that makes tails.

use super::open_loop::{Kind, serve};
use super::{Outcome, Setting, Workload};
use crate::error::Result;
use std::time::Duration;

const KINDS: [Kind; 2] = [
    Kind { name: "short", share: 0.995, work: Duration::from_micros(20), limit: Duration::from_millis(1) },
    Kind { name: "long", share: 0.005, work: Duration::from_millis(2), limit: Duration::from_millis(50) },
];

/// Of what the processors can do. TUNED: a guess; spawning costs come on top.
const LOAD: f64 = 0.5;

pub(super) struct Bimodal;

impl Workload for Bimodal {
    fn name(&self) -> &'static str {
        "bimodal"
    }

    fn about(&self) -> &'static str {
        "requests at random times, 99.5 % short (20 us), 0.5 % long (2 ms); processors 50 % busy"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        Ok(serve(&KINDS, LOAD, setting))
    }
}
