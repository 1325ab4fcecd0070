//! The mixing function of SplitMix64 (Steele, Lea, Flood 2014), for hashes and for numbers that depend on a seed alone.

/// Mixes 64 bits: a bijection without visible pattern.
///
/// ```
/// // The first number of the published sequence from state 1,234,567.
/// let state = 1_234_567_u64.wrapping_add(bowwave_core::MIX_STEP);
/// assert_eq!(bowwave_core::mix(state), 6_457_827_717_110_365_317);
/// ```
#[must_use]
pub const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The step between two states of SplitMix64: 2^64 divided by the golden ratio.
pub const MIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
