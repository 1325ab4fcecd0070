//! Distributions, computed from basic operations alone: every machine draws the same bits.

use std::f64::consts::{LN_2, SQRT_2};

use bowwave_core::Random;

/// Draws from the normal distribution with mean 0 and standard deviation 1.
pub(super) fn normal(random: &mut Random) -> f64 {
    // The midpoint of the interval this number represents: never 0, never 1.
    quantile_normal(random.unit() + 0.5 / (1u64 << 53) as f64)
}

/// Draws from the lognormal distribution with this median and standard deviation `sigma` of the
/// logarithm.
pub(super) fn lognormal(random: &mut Random, median: f64, sigma: f64) -> f64 {
    if sigma == 0.0 { median } else { median * exp(sigma * normal(random)) }
}

/// Draws from the uniform distribution on `[low, high)`; `low` if the two are equal.
pub(super) fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    if low == high { low } else { low + (high - low) * random.unit() }
}

/// The quantile `p` of the normal distribution, 0 < p < 1. Relative error below 1.2e-9 (the
/// rational approximation of P. J. Acklam).
pub(super) fn quantile_normal(p: f64) -> f64 {
    let tail = |p: f64| {
        let q = (-2.0 * ln(p)).sqrt();
        polynomial(&TAIL, q) / (polynomial(&TAIL_BELOW, q) * q + 1.0)
    };
    if p < TAIL_SHARE {
        tail(p)
    } else if p > 1.0 - TAIL_SHARE {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        let r = q * q;
        polynomial(&MIDDLE, r) * q / (polynomial(&MIDDLE_BELOW, r) * r + 1.0)
    }
}

/// e to the power of `x`, for |x| up to 700; relative error below 1e-14 for |x| up to 50.
pub(super) fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let power = (x / LN_2).round();
    // At most 0.35: the eighteenth term is below the last digit.
    let rest = x - power * LN_2;
    let series = (1..18).rev().fold(1.0, |sum, n| 1.0 + rest / f64::from(n) * sum);
    series * f64::from_bits(((1023 + power as i64) as u64) << 52)
}

/// The natural logarithm of a normal number above 0; error below 2e-15, times |ln x| if above 1.
pub(super) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut power = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        power += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), where the fraction is at most 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let series = (0..12).rev().fold(0.0, |sum, n| 1.0 / f64::from(2 * n + 1) + t * t * sum);
    power as f64 * LN_2 + 2.0 * t * series
}

/// Coefficients start with the highest power.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

const TAIL_SHARE: f64 = 0.02425;
const MIDDLE: [f64; 6] = [
    -3.969_683_028_665_376e1,
    2.209_460_984_245_205e2,
    -2.759_285_104_469_687e2,
    1.383_577_518_672_69e2,
    -3.066_479_806_614_716e1,
    2.506_628_277_459_239,
];
const MIDDLE_BELOW: [f64; 5] = [
    -5.447_609_879_822_406e1,
    1.615_858_368_580_409e2,
    -1.556_989_798_598_866e2,
    6.680_131_188_771_972e1,
    -1.328_068_155_288_572e1,
];
const TAIL: [f64; 6] = [
    -7.784_894_002_430_293e-3,
    -3.223_964_580_411_365e-1,
    -2.400_758_277_161_838,
    -2.549_732_539_343_734,
    4.374_664_141_464_968,
    2.938_163_982_698_783,
];
const TAIL_BELOW: [f64; 4] =
    [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_power_agree_with_the_libraries() {
        for step in 1..2000 {
            let x = f64::from(step) * 0.37 * 10f64.powi(step % 20 - 10);
            assert!((ln(x) - x.ln()).abs() <= 2e-15 * x.ln().abs().max(1.0), "ln {x}");
            let y = f64::from(step - 1000) * 0.05;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-14, "exp {y}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.001, -3.090_232_306_167_813),
            (0.9, 1.281_551_565_544_6),
        ] {
            assert!((quantile_normal(p) - z).abs() < 1e-8, "{p}");
        }
    }

    #[test]
    fn draws_have_their_median_and_spread() {
        let mut random = Random::from_state(1);
        let mut draws: Vec<_> = (0..20_000).map(|_| lognormal(&mut random, 30.0, 0.55)).collect();
        draws.sort_unstable_by(f64::total_cmp);
        assert!((draws[10_000] / 30.0 - 1.0).abs() < 0.02, "{}", draws[10_000]);
        // One standard deviation above the median.
        assert!((draws[16_827] / (30.0 * exp(0.55)) - 1.0).abs() < 0.03, "{}", draws[16_827]);
    }
}
