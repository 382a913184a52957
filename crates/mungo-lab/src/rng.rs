//! Random numbers that depend on the seed and on nothing else.

/// One step of splitmix64 (Steele, Lea, Flood 2014): number `i` of a stream.
pub fn mix(i: u64) -> u64 {
    let mut z = i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream `which` of `seed`: different goroutines take different ones.
    pub(crate) fn new(seed: u64, which: u64) -> Rng {
        Rng(mix(seed ^ mix(which)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// In `low..high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    /// In `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed: the gaps between random arrivals.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// A fingerprint of a generated load: equal loads have equal ones.
pub(crate) fn fingerprint(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, |hash, n| mix(hash ^ n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        let take = |seed, which| {
            let mut rng = Rng::new(seed, which);
            fingerprint((0..100).map(|_| rng.next()))
        };
        assert_eq!(take(1, 0), take(1, 0));
        assert_ne!(take(1, 0), take(2, 0));
        assert_ne!(take(1, 0), take(1, 1));
    }

    #[test]
    fn distributions() {
        let mut rng = Rng::new(7, 0);
        let mean = (0..20_000).map(|_| rng.exponential(5.0)).sum::<f64>() / 20_000.0;
        assert!((4.8..5.2).contains(&mean), "{mean}");
        assert!((0..1000).all(|_| (3..9).contains(&rng.between(3, 9))));
    }
}
