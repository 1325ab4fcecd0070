//! The least throughput of a response.

use crate::Instant;

/// When a response counts as too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceLimits {
    /// Nanoseconds without a byte after which the attempt has failed; also the period over which
    /// throughput is measured.
    pub silence_ns: u64,
    /// Least bytes a second, measured over each period. 0 accepts any throughput. Larger values
    /// give up slow links; smaller ones let a server that drips bytes hold a read.
    pub least_rate: u64,
}

impl Default for PaceLimits {
    fn default() -> Self {
        Self { silence_ns: 30_000_000_000, least_rate: 4096 }
    }
}

/// Why an attempt is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooSlow {
    /// Nothing arrived for a whole period.
    Silent,
    /// Bytes arrive, but fewer than the least throughput.
    Dripping {
        /// Bytes of the period.
        bytes: u64,
    },
}

/// Watches one response: the head must arrive within a period, then each period must bring enough
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    limits: PaceLimits,
    /// When the last byte, or the head, arrived.
    heard: Instant,
    /// When the period began; `None` before the head.
    period: Option<Instant>,
    /// Bytes of the period.
    bytes: u64,
}

impl Pace {
    /// A request that is sent `now`.
    pub fn new(limits: PaceLimits, now: Instant) -> Self {
        Self { limits, heard: now, period: None, bytes: 0 }
    }

    /// The head of the response has arrived.
    pub fn head(&mut self, now: Instant) {
        self.heard = now;
        self.period = Some(now);
    }

    /// Bytes of the body have arrived. 0 bytes are no sign of life.
    ///
    /// # Errors
    /// As [`check`](Self::check): bytes that come after a period that brought too few do not save
    /// it.
    pub fn bytes(&mut self, now: Instant, bytes: u64) -> Result<(), TooSlow> {
        self.check(now)?;
        if bytes > 0 {
            self.heard = now;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// When to [`check`](Self::check) next, if nothing arrives before.
    pub fn due(&self) -> Instant {
        let silent = self.heard.0.saturating_add(self.limits.silence_ns);
        Instant(
            self.period.map_or(silent, |begun| silent.min(begun.0.saturating_add(self.limits.silence_ns))),
        )
    }

    /// Checks the pace; call it when it is [due](Self::due).
    ///
    /// # Errors
    /// If the attempt is to be given up.
    pub fn check(&mut self, now: Instant) -> Result<(), TooSlow> {
        let passed = |since: Instant| now.0.saturating_sub(since.0) >= self.limits.silence_ns;
        if passed(self.heard) {
            return Err(TooSlow::Silent);
        }
        if self.period.is_some_and(passed) {
            let wanted =
                u128::from(self.limits.least_rate) * u128::from(self.limits.silence_ns) / 1_000_000_000;
            if u128::from(self.bytes) < wanted {
                return Err(TooSlow::Dripping { bytes: self.bytes });
            }
            (self.period, self.bytes) = (Some(now), 0);
        }
        Ok(())
    }
}
