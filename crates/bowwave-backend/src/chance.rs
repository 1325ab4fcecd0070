//! Repeatable chance: numbers that depend on a seed and a count alone.

use bowwave_core::{MIX_STEP, mix};

/// A 64-bit number for the `count`th draw with `seed` (splitmix64).
pub(crate) fn draw(seed: u64, count: u64) -> u64 {
    mix(seed.wrapping_add(count.wrapping_add(1).wrapping_mul(MIX_STEP)))
}

/// The same, in [0, 1).
pub(crate) fn unit(seed: u64, count: u64) -> f64 {
    (draw(seed, count) >> 11) as f64 / (1u64 << 53) as f64
}
