//! Zipf's law, sampled exactly and without tables, and a permutation to scatter its ranks.

use bowwave_core::mix;

use bowwave_core::Random;

/// Draws ranks from 0 with probabilities proportional to `(rank + 1)^-exponent`.
///
/// Uses rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996). It inverts the integral of the density, which envelops
/// the steps of the distribution, and rejects samples between envelope and step. Exact up to `f64`
/// rounding; setup and memory do not depend on the number of ranks.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: f64,
    exponent: f64,
    /// The integral of the density at 1.5, minus the first step: lower end of the inverted range.
    low: f64,
    /// The integral at the upper end of the range.
    high: f64,
    /// A sample at most this far below its rank is accepted without evaluating the integral.
    sure: f64,
}

impl Zipf {
    /// A law over `ranks` ranks (1 to 2^48) with this exponent (0 to 10).
    ///
    /// # Panics
    /// If either is out of bounds.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        assert!((1..=1 << 48).contains(&ranks) && (0.0..=10.0).contains(&exponent), "{ranks} {exponent}");
        let mut zipf = Self { ranks: ranks as f64, exponent, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank, from 0.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.high + random.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                // At most 2^48.
                return rank as u64 - 1;
            }
        }
    }

    /// x^-exponent.
    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to x: (x^(1-exponent) - 1) / (1-exponent), or ln x for
    /// exponent 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        if power.abs() > 1e-8 { power.exp_m1() / power * log } else { log * (1.0 + power / 2.0) }
    }

    /// The inverse of [`integral`](Self::integral).
    fn inverse(&self, area: f64) -> f64 {
        // Rounding may slightly pass the pole.
        let power = (area * (1.0 - self.exponent)).max(-1.0);
        let log = if power.abs() > 1e-8 { power.ln_1p() / power * area } else { area * (1.0 - power / 2.0) };
        log.exp()
    }
}

/// A permutation of the numbers below a bound. It separates most neighbours.
///
/// Four rounds of a Feistel network over the next power of four, repeated until the result is below
/// the bound.
#[derive(Clone, Debug)]
pub struct Scatter {
    bound: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Scatter {
    /// A permutation of the numbers below `bound` (1 to 2^62).
    ///
    /// # Panics
    /// If `bound` is out of bounds.
    pub fn new(bound: u64, random: &mut Random) -> Self {
        assert!((1..=1 << 62).contains(&bound), "{bound}");
        let bits = u64::BITS - (bound - 1).leading_zeros();
        Self { bound, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| random.bits()) }
    }

    /// The image of `number`.
    ///
    /// # Panics
    /// If `number` is not below the bound.
    pub fn of(&self, number: u64) -> u64 {
        assert!(number < self.bound, "{number} is not below {}", self.bound);
        let mask = (1 << self.half_bits) - 1;
        let mut moved = number;
        loop {
            let (mut left, mut right) = (moved >> self.half_bits, moved & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            moved = left << self.half_bits | right;
            // The network permutes at most `4 * bound` numbers, so few repetitions are needed. They
            // end, because each cycle returns to its start.
            if moved < self.bound {
                return moved;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        for (ranks, exponent) in
            [(1, 1.0), (2, 0.0), (10, 0.5), (10, 1.0), (1000, 0.99), (1000, 3.0), (1 << 40, 1.2)]
        {
            let (zipf, mut random) = (Zipf::new(ranks, exponent), Random::new(7));
            let mut counts = [0.0f64; 10];
            let draws = 200_000;
            for _ in 0..draws {
                let rank = zipf.draw(&mut random);
                assert!(rank < ranks);
                if let Some(count) = counts.get_mut(rank as usize) {
                    *count += 1.0;
                }
            }
            // The sum of the weights; beyond 2^20 ranks, approximated by the integral.
            let summed = ranks.min(1 << 20);
            let mut total: f64 = (1..=summed).map(|rank| (rank as f64).powf(-exponent)).sum();
            if ranks > summed {
                let rest = |x: f64| x.powf(1.0 - exponent) / (1.0 - exponent);
                total += rest(ranks as f64 + 0.5) - rest(summed as f64 + 0.5);
            }
            for (rank, &count) in (1..=ranks).zip(&counts) {
                let share = (rank as f64).powf(-exponent) / total;
                let deviation = (f64::from(draws) * share * (1.0 - share)).sqrt();
                let expected = f64::from(draws) * share;
                let error = (count - expected).abs();
                assert!(
                    error <= 5.0 * deviation + 1.0,
                    "{ranks} {exponent} rank {rank}: {count}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn scatter_is_a_permutation() {
        for bound in [1, 2, 3, 100, 4096, 5000] {
            let scatter = Scatter::new(bound, &mut Random::new(bound));
            let mut seen: Vec<u64> = (0..bound).map(|number| scatter.of(number)).collect();
            let neighbours = seen.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
            assert!(neighbours < 10, "{neighbours} of {bound} still follow each other");
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..bound));
        }
    }
}
