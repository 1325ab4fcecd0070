//! Random numbers for this crate's tests, from a seed (SplitMix64). The crate itself has none, and
//! no dependency.

use bowwave_core::{MIX_STEP, mix};

/// A sequence of random numbers.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Any 64-bit number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(MIX_STEP);
        mix(self.0)
    }

    /// Below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// True with a probability of `percent` percent.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// An index into a list of `len`.
    pub(crate) fn index(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.below(len as u64) as usize)
    }

    /// One of a list.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        self.index(from.len()).map(|index| &from[index])
    }
}

/// The seeds of a test: `count` of them, or the one in `BOWWAVE_SEED`.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("BOWWAVE_SEED") {
        Ok(seed) => vec![seed.parse().expect("BOWWAVE_SEED is a whole number")],
        Err(_) => (0..count).collect(),
    }
}
