//! Repeatable chance: numbers that depend on a seed and a count alone.

/// A 64-bit number for the `count`th draw with `seed` (splitmix64).
pub(crate) fn draw(seed: u64, count: u64) -> u64 {
    let mut z = seed.wrapping_add(count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The same, in [0, 1).
pub(crate) fn unit(seed: u64, count: u64) -> f64 {
    (draw(seed, count) >> 11) as f64 / (1u64 << 53) as f64
}

/// The same, normally distributed with mean 0 and deviation 1 (Box-Muller).
pub(crate) fn normal(seed: u64, count: u64) -> f64 {
    let (a, b) = (unit(seed, count), unit(seed ^ 0x6a09_e667_f3bc_c908, count));
    (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}
