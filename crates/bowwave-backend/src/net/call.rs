//! A call to a store: requests are retried where that is safe and useful, within the core's limits,
//! and counted.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowwave_core::network::{Failure, GiveUp, Retry, RetryLimits, Verdict};

use super::exchange::Client;
use super::limits::{at, now};
use crate::sync::Mutex;
use crate::{Error, ErrorKind, NetworkStats, Result};

impl Client {
    /// Runs `attempt` until it succeeds, cannot succeed, or reaches the limits. Only for requests
    /// that change nothing or may be repeated. `place` names the requested object in the deadline's
    /// error.
    pub(super) async fn persist<T, F>(&self, place: &str, attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.persist_within(self.limits.retry, place, attempt).await
    }

    /// As [`persist`](Self::persist), within other limits.
    pub(super) async fn persist_within<T, F>(
        &self,
        limits: RetryLimits,
        place: &str,
        attempt: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let attempts_max = match self.traffic.responded.load(Ordering::Relaxed) {
            true => limits.attempts_max,
            false => limits.attempts_max.min(FIRST_ATTEMPTS_MAX),
        };
        let mut retry = Retry::new(RetryLimits { attempts_max, ..limits }, now());
        self.go_on(&mut retry, place, attempt).await
    }

    /// As [`persist`](Self::persist), as part of a call in progress, with the attempts and the
    /// deadline of `retry`.
    pub(super) async fn go_on<T, F>(
        &self,
        retry: &mut Retry,
        place: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        loop {
            let error = match by_deadline(retry.deadline().map(at), place, attempt()).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            self.traffic.failed(error.kind());
            // Only pauses depend on the random number.
            match retry.failed(now(), failure(&error), RandomState::new().hash_one(0)) {
                Verdict::Again(time) => {
                    self.traffic.count(|stats| stats.retries += 1);
                    tokio::time::sleep_until(at(time)).await;
                }
                Verdict::GiveUp(why) => {
                    self.traffic.count(|stats| stats.gave_up += 1);
                    return Err(after_all(error, why, retry.attempts()));
                }
            }
        }
    }
}

/// The result of `call`, or an error if it takes longer than the whole call may.
pub(super) async fn by_deadline<T>(
    deadline: Option<tokio::time::Instant>,
    place: &str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(deadline) = deadline else { return call.await };
    tokio::time::timeout_at(deadline, call).await.unwrap_or_else(|_| {
        let message = format!("{place}: no response by the deadline (--deadline)");
        Err(Error::new(ErrorKind::TimedOut, message))
    })
}

/// Counters of the requests to one store.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    stats: Mutex<NetworkStats>,
    /// Whether the store has ever sent the head of a response, be it an error.
    pub(super) responded: AtomicBool,
}

impl Traffic {
    pub(super) fn count(&self, add: impl FnOnce(&mut NetworkStats)) {
        add(&mut self.stats.lock());
    }

    pub(super) fn failed(&self, kind: ErrorKind) {
        self.count(|stats| match kind {
            ErrorKind::TimedOut => stats.timeouts += 1,
            ErrorKind::Throttled => stats.throttled += 1,
            _ => {}
        });
    }

    pub(super) fn stats(&self) -> NetworkStats {
        *self.stats.lock()
    }
}

/// The meaning of an error for retries.
fn failure(error: &Error) -> Failure {
    let nanos = |pause: Duration| u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    Failure { transient: error.is_retryable(), retry_after_ns: error.retry_after().map(nanos) }
}

/// The error with the number of attempts, if there were several.
fn after_all(error: Error, why: GiveUp, attempts: u32) -> Error {
    if why == GiveUp::Permanent || attempts < 2 {
        return error;
    }
    let message = format!("{error} (after {attempts} attempts)");
    error.with_message(message)
}

/// Attempts at a call to a store that has never responded. The pauses between four attempts are at
/// most 0.4 s together, so `mount` reports a wrong address at once. With seven, they can take 10 s.
const FIRST_ATTEMPTS_MAX: u32 = 4;
