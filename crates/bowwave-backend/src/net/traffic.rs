//! Counters of the requests to one store.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was requested of a store over the network besides the bytes that the engine reads, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkStats {
    /// Requests, retries included.
    pub requests: u64,
    /// Calls (a lookup, a page of a listing, a part of an upload, ...) that were tried again.
    pub retries: u64,
    /// Of the failed attempts, those for silence, a deadline or too low a throughput.
    pub timeouts: u64,
    /// Of the failed attempts, those that the store refused because it is overloaded (429, 503).
    pub throttled: u64,
    /// Calls that failed after all attempts.
    pub gave_up: u64,
    /// Responses whose bytes did not match the store's checksum.
    pub corrupt: u64,
    /// Responses whose bytes were verified by the store's checksum.
    pub verified: u64,
}

/// The same while it grows.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    retries: AtomicU64,
    timeouts: AtomicU64,
    throttled: AtomicU64,
    gave_up: AtomicU64,
    corrupt: AtomicU64,
    verified: AtomicU64,
}

impl Traffic {
    pub(crate) fn sent(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn gave_up(&self) {
        self.gave_up.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, kind: crate::ErrorKind) {
        match kind {
            crate::ErrorKind::TimedOut => self.timeouts.fetch_add(1, Ordering::Relaxed),
            crate::ErrorKind::Throttled => self.throttled.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    pub(crate) fn checked(&self, is_right: bool) {
        if is_right { &self.verified } else { &self.corrupt }.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> NetworkStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NetworkStats {
            requests: load(&self.requests),
            retries: load(&self.retries),
            timeouts: load(&self.timeouts),
            throttled: load(&self.throttled),
            gave_up: load(&self.gave_up),
            corrupt: load(&self.corrupt),
            verified: load(&self.verified),
        }
    }
}
