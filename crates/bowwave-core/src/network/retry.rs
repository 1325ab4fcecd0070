//! Whether and when a failed request is sent again.

use crate::Instant;

/// Bounds of the attempts at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Attempts in all, the first included; at least 1. More attempts outlast longer outages and
    /// delay the error.
    pub attempts_max: u32,
    /// Nanoseconds after which no attempt begins and the running one ends; see [`Retry::deadline`].
    pub budget_ns: u64,
    /// Whether the budget starts with the first failure instead of the first attempt. For uploads:
    /// a body that moves may take as long as its size demands.
    pub from_first_failure: bool,
    /// Shortest pause between attempts, in nanoseconds. Smaller values load a store that is already
    /// failing.
    pub pause_min_ns: u64,
    /// Longest pause that the client chooses by itself, in nanoseconds. `Retry-After` may demand a
    /// longer one.
    pub pause_max_ns: u64,
    /// Whether pauses are random, for stores of many clients. If not, the first retry is immediate,
    /// and the pause after the n-th failure is n times the shortest.
    pub jitter: bool,
}

impl RetryLimits {
    /// For a store of this machine, which has no other clients. At one failure in a hundred, one
    /// request in 10^12 fails for good. With shorter pauses, all attempts fall into one outage;
    /// longer pauses delay a page that the store can return again.
    pub const LOCAL: Self = Self {
        attempts_max: 6,
        budget_ns: u64::MAX,
        from_first_failure: false,
        pause_min_ns: 1_000_000,
        pause_max_ns: u64::MAX,
        jitter: false,
    };
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self {
            attempts_max: 7,
            budget_ns: 45_000_000_000,
            from_first_failure: false,
            pause_min_ns: 10_000_000,
            pause_max_ns: 5_000_000_000,
            jitter: true,
        }
    }
}

/// A failed attempt, as far as it matters for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether another attempt may succeed.
    pub transient: bool,
    /// The pause that the server requested (`Retry-After`), in nanoseconds.
    pub retry_after_ns: Option<u64>,
}

/// What happens after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the request again at this time.
    Again(Instant),
    /// Return the error.
    GiveUp(GiveUp),
}

/// Why there is no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// Another attempt cannot succeed.
    Permanent,
    /// All attempts are used.
    Attempts,
    /// The next attempt would begin after the deadline.
    Time,
}

/// The attempts at one call: their number, pauses and common deadline.
///
/// Pauses follow "decorrelated jitter" (M. Brooker, "Exponential Backoff And Jitter", AWS
/// Architecture Blog, 2015): each is drawn between the minimum and three times the previous one.
/// Bytes that an attempt returned reset nothing: otherwise a server that ends every body early
/// would be requested forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    limits: RetryLimits,
    attempts: u32,
    pause_ns: u64,
    deadline: Option<Instant>,
}

impl Retry {
    /// A call whose first attempt begins `now`.
    pub fn new(limits: RetryLimits, now: Instant) -> Self {
        let deadline = (!limits.from_first_failure).then(|| after(now, limits.budget_ns));
        Self { limits, attempts: 1, pause_ns: limits.pause_min_ns, deadline }
    }

    /// When the call must have ended; `None` while nothing limits it yet.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Attempts so far, the running one included.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Decides what follows an attempt that has failed. `random` is a uniformly distributed number.
    pub fn failed(&mut self, now: Instant, failure: Failure, random: u64) -> Verdict {
        if !failure.transient {
            return Verdict::GiveUp(GiveUp::Permanent);
        }
        if self.attempts >= self.limits.attempts_max {
            return Verdict::GiveUp(GiveUp::Attempts);
        }
        let deadline = *self.deadline.get_or_insert_with(|| after(now, self.limits.budget_ns));
        let (least, most) = (self.limits.pause_min_ns, self.pause_ns.saturating_mul(3));
        let most = most.min(self.limits.pause_max_ns).max(least);
        self.pause_ns = match self.attempts {
            _ if self.limits.jitter => least + scaled(random, most - least),
            1 => 0,
            failures => least.saturating_mul(failures.into()).min(self.limits.pause_max_ns),
        };
        let at = after(now, self.pause_ns.max(failure.retry_after_ns.unwrap_or(0)));
        if at >= deadline {
            return Verdict::GiveUp(GiveUp::Time);
        }
        self.attempts += 1;
        Verdict::Again(at)
    }
}

fn after(now: Instant, ns: u64) -> Instant {
    Instant(now.0.saturating_add(ns))
}

/// `random`, uniform in 64 bits, as a number from 0 to `most`.
fn scaled(random: u64, most: u64) -> u64 {
    ((u128::from(random) * (u128::from(most) + 1)) >> 64) as u64
}
