//! The limits of the client, from the seed.

use bowwave_core::network::{PaceLimits, RetryLimits};

use super::context::{Context, MS, SECOND};

/// Limits of one run. They are as different as the options of the stores allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) retry: RetryLimits,
    pub(super) pace: PaceLimits,
    /// Share of small reads that may be hedged, in percent.
    pub(super) hedge_percent: u32,
    /// Typical latency that the store's profile states, in nanoseconds.
    pub(super) latency_ns: u64,
    pub(super) idle_pages_max: u32,
    /// Time of one listing, in nanoseconds.
    pub(super) listing_ns: u64,
}

/// Most entries of a listing. More than the honest server has.
pub(super) const ENTRIES_MAX: u64 = 60;
/// Most bytes of a listing.
pub(super) const LISTING_BYTES_MAX: u64 = 1 << 20;
/// Longer reads are not hedged.
pub(super) const SMALL_MAX: u64 = 256 << 10;

impl Settings {
    pub(super) fn draw(context: &mut Context<'_>) -> Self {
        let retry = RetryLimits {
            attempts_max: context.between(1, 7) as u32,
            budget_ns: context.pick(&[1, 3, 10, 45]) * SECOND,
            from_first_failure: false,
            jitter: true,
            pause_min_ns: 10 * MS,
            pause_max_ns: context.pick(&[100 * MS, 5 * SECOND]),
        };
        let pace = PaceLimits {
            silence_ns: context.pick(&[500, 2000, 10_000, 30_000]) * MS,
            least_rate: context.pick(&[0, 4096, 4096, 1 << 16]),
        };
        Self {
            retry,
            pace,
            hedge_percent: context.pick(&[0, 5, 34, 50, 100]),
            latency_ns: context.pick(&[5, 20, 30]) * MS,
            idle_pages_max: context.between(1, 5) as u32,
            listing_ns: context.pick(&[5, 60]) * SECOND,
        }
    }

    /// The limits of an upload.
    pub(super) fn upload(&self) -> RetryLimits {
        RetryLimits { from_first_failure: true, ..self.retry }
    }
}
