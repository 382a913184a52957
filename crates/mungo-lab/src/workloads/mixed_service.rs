//! A service in which each fifth request is heavy: does a light one have to wait for them?

use super::open_loop::{Kind, serve};
use super::{Outcome, Setting, Workload};
use crate::error::Result;
use std::time::Duration;

const KINDS: [Kind; 2] = [
    Kind { name: "light", share: 0.8, work: Duration::from_micros(50), limit: Duration::from_millis(5) },
    Kind { name: "heavy", share: 0.2, work: Duration::from_millis(4), limit: Duration::from_millis(100) },
];

/// Of what the processors can do. TUNED: a guess at a service that is well used and not overloaded.
const LOAD: f64 = 0.6;

pub(super) struct MixedService;

impl Workload for MixedService {
    fn name(&self) -> &'static str {
        "mixed-service"
    }

    fn about(&self) -> &'static str {
        "requests at random times, 80 % light (50 us), 20 % heavy (4 ms); processors 60 % busy"
    }

    fn run(&self, setting: &Setting) -> Result<Outcome> {
        Ok(serve(&KINDS, LOAD, setting))
    }
}
