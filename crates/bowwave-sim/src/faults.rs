//! Injects request failures from a seed.

use bowwave_core::FillError;

use bowwave_core::Random;

/// Chooses failing requests from a seed: the same ones in each run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seed of the draws.
    pub seed: u64,
    /// Share of requests that fail, 0 to 1.
    pub failing: f64,
}

impl Faults {
    /// Nothing fails.
    pub const NONE: Self = Self { seed: 0, failing: 0.0 };
    /// Result of a cancelled request.
    pub const CANCELLED: FillError = FillError(2);
    /// Result of a failed request.
    pub const FAILED: FillError = FillError(1);

    /// The result of a request by number.
    ///
    /// # Errors
    ///
    /// If the request is chosen to fail.
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
    fn the_configured_share_of_requests_fails() {
        let faults = Faults { seed: 7, failing: 0.1 };
        let failed = (0..10_000).filter(|&request| faults.judge(request).is_err()).count();
        assert!((900..1100).contains(&failed), "{failed}");
        assert!((0..10_000).all(|request| Faults::NONE.judge(request).is_ok()));
    }
}
