//! Random numbers from a seed: SplitMix64.

#![allow(dead_code, reason = "each test program uses its part of this")]

use bowwave_core::{MIX_STEP, mix};

/// A stream of random numbers.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Any 64-bit number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(MIX_STEP);
        mix(self.0)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True with a probability of `percent`.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
