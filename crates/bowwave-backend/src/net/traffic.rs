//! Counters of the requests to one store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::NetworkStats;

/// [`NetworkStats`] while they grow.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    retries: AtomicU64,
    timeouts: AtomicU64,
    throttled: AtomicU64,
    gave_up: AtomicU64,
    corrupt: AtomicU64,
    verified: AtomicU64,
    responded: AtomicBool,
}

impl Traffic {
    pub(crate) fn sent(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The store has sent the head of a response.
    pub(crate) fn responded(&self) {
        self.responded.store(true, Ordering::Relaxed);
    }

    /// Whether the store has ever responded, be it with an error.
    pub(crate) fn has_responded(&self) -> bool {
        self.responded.load(Ordering::Relaxed)
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
