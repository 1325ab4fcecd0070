//! Limits of requests: times, attempts, response sizes.

use std::sync::OnceLock;
use std::time::{Duration, Instant as StdInstant};

use bowwave_core::Instant;
use bowwave_core::network::{PaceLimits, RetryLimits};

use crate::Options;

/// Limits of all requests to one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest silence.
    pub(crate) timeout: Duration,
    /// Longest call, all attempts together.
    pub(crate) deadline: Duration,
    pub(crate) retry: RetryLimits,
    pub(crate) pace: PaceLimits,
}

impl Limits {
    pub(crate) fn new(options: &Options) -> Self {
        let timeout = options.timeout;
        let deadline = options.deadline.unwrap_or_else(|| timeout.saturating_mul(5) / 4);
        let retry = RetryLimits {
            attempts_max: options.retries.saturating_add(1),
            budget_ns: nanos(deadline),
            ..RetryLimits::default()
        };
        let pace = PaceLimits { silence_ns: nanos(timeout), least_rate: options.least_rate };
        Self { timeout, deadline, retry, pace }
    }

    /// For requests whose bodies take as long as their size needs: the budget starts with the first
    /// failure, which may itself be a standstill of a time-out.
    pub(crate) fn for_uploads(&self) -> RetryLimits {
        RetryLimits { from_first_failure: true, budget_ns: nanos(self.timeout), ..self.retry }
    }
}

/// Now, for the state machines of the core.
pub(crate) fn now() -> Instant {
    Instant(nanos(epoch().elapsed()))
}

/// A time of the core as the runtime has it.
pub(crate) fn at(instant: Instant) -> tokio::time::Instant {
    let far = Duration::from_secs(FAR_SECONDS);
    let since = Duration::from_nanos(instant.0).min(epoch().elapsed() + far);
    (epoch() + since).into()
}

fn epoch() -> StdInstant {
    static EPOCH: OnceLock<StdInstant> = OnceLock::new();
    *EPOCH.get_or_init(StdInstant::now)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Latest timer from now: the runtime's timers end after two years.
const FAR_SECONDS: u64 = 365 * 86_400;

/// Most bytes of an error document; proxies' error pages are larger, and explain nothing more.
pub(super) const ERROR_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a page of a listing. S3 sends at most 1000 entries of some 2 KiB, Azure 5000.
pub(super) const LIST_PAGE_BYTES_MAX: usize = 16 << 20;
/// Most bytes of any other document, such as responses to copies and completions.
pub(super) const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Consecutive pages of a listing without a new entry. S3 skips deleted versions by such pages.
pub(super) const LIST_IDLE_PAGES_MAX: u32 = 100;
/// Most bytes of all pages of a listing, for each allowed entry: the longest key, escaped, and its
/// other elements.
pub(super) const LIST_ENTRY_BYTES_MAX: u64 = 8 << 10;
/// A whole listing may take this many times the deadline of a call, since its pages make progress.
pub(super) const LIST_DEADLINES: u64 = 20;
/// Longest wait for the text of an error: the status is known, the text only explains it.
pub(super) const ERROR_TEXT_WAIT: Duration = Duration::from_secs(1);
