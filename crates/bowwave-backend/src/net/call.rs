//! A call to a store: requests are retried where that is safe and useful, within the core's limits.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use bowwave_core::network::{Failure, GiveUp, Retry, RetryLimits, Verdict};

use super::limits::{at, now};
use super::traffic::Traffic;
use crate::{Error, ErrorKind, Result};

/// Runs `attempt` until it succeeds, cannot succeed, or reaches the limits. Only for requests that
/// change nothing or may be repeated. `place` names the requested object in the deadline's error.
pub(super) async fn persist<T, F>(
    limits: RetryLimits,
    traffic: &Traffic,
    place: &str,
    attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let attempts_max = match traffic.has_responded() {
        true => limits.attempts_max,
        false => limits.attempts_max.min(FIRST_ATTEMPTS_MAX),
    };
    let mut retry = Retry::new(RetryLimits { attempts_max, ..limits }, now());
    go_on(&mut retry, traffic, place, attempt).await
}

/// As [`persist`], as part of a call in progress, with the attempts and the deadline of `retry`.
pub(super) async fn go_on<T, F>(
    retry: &mut Retry,
    traffic: &Traffic,
    place: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    loop {
        let ended = match retry.deadline() {
            Some(deadline) => match tokio::time::timeout_at(at(deadline), attempt()).await {
                Ok(ended) => ended,
                Err(_) => {
                    let message = format!("{place}: the store has not answered by the deadline (--deadline)");
                    Err(Error::new(ErrorKind::TimedOut, message))
                }
            },
            None => attempt().await,
        };
        let error = match ended {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        traffic.failed(error.kind());
        match retry.failed(now(), failure(&error), random()) {
            Verdict::Again(time) => {
                traffic.retried();
                tokio::time::sleep_until(at(time)).await;
            }
            Verdict::GiveUp(why) => {
                traffic.gave_up();
                return Err(after_all(error, why, retry.attempts()));
            }
        }
    }
}

/// The meaning of an error for retries.
pub(super) fn failure(error: &Error) -> Failure {
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

/// A random number; only pauses depend on it.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Attempts at a call to a store that has never responded. The pauses between four attempts are at
/// most 0.4 s together, so `mount` reports a wrong address at once. With seven, they can take 10 s.
const FIRST_ATTEMPTS_MAX: u32 = 4;
