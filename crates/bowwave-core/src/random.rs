//! SplitMix64 (Steele, Lea, Flood 2014): numbers that depend on a seed alone, and a hash.

/// Mixes 64 bits: a bijection without visible pattern.
///
/// ```
/// // The first number of the published sequence from state 1,234,567.
/// let state = 1_234_567_u64.wrapping_add(bowwave_core::MIX_STEP);
/// assert_eq!(bowwave_core::mix(state), 6_457_827_717_110_365_317);
/// ```
pub const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The step between two states: 2^64 divided by the golden ratio.
pub const MIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Writes the bytes at `offset` of the pattern of `seed`. Each 8 bytes mix the seed with their
/// position, so any range can be written alone.
///
/// ```
/// let (mut all, mut part) = ([0; 32], [0; 5]);
/// bowwave_core::fill_pattern(42, 0, &mut all);
/// bowwave_core::fill_pattern(42, 7, &mut part);
/// assert_eq!(part, all[7..12]);
/// ```
pub fn fill_pattern(seed: u64, offset: u64, bytes: &mut [u8]) {
    let word = |index: u64| mix(seed ^ index.wrapping_mul(MIX_STEP)).to_le_bytes();
    let lead = ((8 - offset % 8) % 8).min(bytes.len() as u64) as usize;
    let (head, rest) = bytes.split_at_mut(lead);
    let first = word(offset / 8);
    let skip = (offset % 8) as usize;
    head.copy_from_slice(&first[skip..skip + lead]);
    let mut index = offset.div_ceil(8);
    let mut words = rest.chunks_exact_mut(8);
    for eight in &mut words {
        eight.copy_from_slice(&word(index));
        index = index.wrapping_add(1);
    }
    let tail = words.into_remainder();
    tail.copy_from_slice(&word(index)[..tail.len()]);
}

/// A sequence of 2^64 numbers, the same on every machine.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        // Adjacent seeds must not give shifted copies of one sequence.
        Self { state: mix(seed ^ 0x6a09_e667_f3bc_c908) }
    }

    /// The published sequence from this state. Sequences of related states may be shifted copies.
    pub const fn from_state(state: u64) -> Self {
        Self { state }
    }

    /// A uniformly distributed number.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(MIX_STEP);
        mix(self.state)
    }

    /// A number below `bound`, exactly uniformly distributed (Lemire 2019).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        let mut product = u128::from(self.bits()) * u128::from(bound);
        // Rejects the draws that would make some numbers likelier.
        if (product as u64) < bound {
            let uneven = bound.wrapping_neg() % bound;
            while (product as u64) < uneven {
                product = u128::from(self.bits()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// A number in `[0, 1)`, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[random.below(6) as usize] += 1;
        }
        // Five deviations of a binomial with mean 10000.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 460), "{counts:?}");
    }

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::from_state(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn adjacent_seeds_share_no_number() {
        let draws = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.bits()).collect::<Vec<_>>()
        };
        let (a, b) = (draws(0), draws(1));
        assert!(a.iter().all(|number| !b.contains(number)));
        assert_eq!(a, draws(0));
    }
}
