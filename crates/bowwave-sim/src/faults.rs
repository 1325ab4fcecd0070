//! Requests that fail, from a seed.

use bowwave_core::FillError;

use bowwave_core::Random;

/// Which requests fail: a share of them, drawn from a seed, the same ones in each run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// What the draws come from.
    pub seed: u64,
    /// Share of requests that fail, 0 to 1.
    pub failing: f64,
}

impl Faults {
    /// Nothing fails.
    pub const NONE: Self = Self { seed: 0, failing: 0.0 };
    /// What a cancelled request ends with.
    pub const CANCELLED: FillError = FillError(2);
    /// What a failed request ends with.
    pub const FAILED: FillError = FillError(1);

    /// How the request with this number ends.
    ///
    /// # Errors
    /// If it is one of those that fail.
    pub fn judge(&self, request: u64) -> Result<(), FillError> {
        if self.failing <= 0.0 {
            return Ok(());
        }
        let draw = Random::from_state(self.seed ^ request.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unit();
        if draw < self.failing { Err(Self::FAILED) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_fails_is_the_one_asked_for() {
        let faults = Faults { seed: 7, failing: 0.1 };
        let failed = (0..10_000).filter(|&request| faults.judge(request).is_err()).count();
        assert!((900..1100).contains(&failed), "{failed}");
        assert!((0..10_000).all(|request| Faults::NONE.judge(request).is_ok()));
    }
}
