//! Periodically logs notable events of a mount's store and cache.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowwave_engine::EngineStats;
use bowwave_engine::backend::NetworkStats;
use log::{debug, error, info, warn};

use crate::logging::{CACHE, STORE};
use crate::mounted::Calls;
use crate::setup::Opened;

/// Runs until dropped, and then logs the rest.
pub(super) struct Monitor {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    pub(super) fn start(opened: Arc<Opened>, calls: Arc<Calls>) -> Self {
        let (end, ended) = sync_channel::<()>(0);
        let thread = thread::Builder::new().name("monitor".to_owned()).spawn(move || {
            let mut before = Counts::of(&opened);
            loop {
                let is_last = ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                calls.flush(is_last);
                let now = Counts::of(&opened);
                now.log_since(&before);
                before = now;
                if is_last {
                    return;
                }
            }
        });
        // Without the thread only these lines are missing.
        Self { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

struct Counts {
    engine: EngineStats,
    network: NetworkStats,
}

impl Counts {
    fn of(opened: &Opened) -> Self {
        Self { engine: opened.engine.stats(), network: opened.store.backend().network().unwrap_or_default() }
    }

    fn log_since(&self, before: &Self) {
        let (store, cache, network) = (&self.engine.store, &self.engine.cache, &self.network);
        let (store_before, cache_before) = (&before.engine.store, &before.engine.cache);
        let lost = list([
            (store.pages_lost - store_before.pages_lost, "pages"),
            (store.objects_lost - store_before.objects_lost, "objects"),
        ]);
        if let Some(lost) = lost {
            error!(target: STORE, "the store refused what was written, which is lost: {lost}");
        }
        let bad = list([
            (network.gave_up - before.network.gave_up, "requests given up"),
            (network.corrupt - before.network.corrupt, "responses with a wrong checksum"),
        ]);
        if let Some(bad) = bad {
            warn!(target: STORE, "{bad}");
        }
        let trouble = list([
            (store.requests_failed - store_before.requests_failed, "requests failed"),
            (store.retries - store_before.retries + network.retries - before.network.retries, "retries"),
            (network.timeouts - before.network.timeouts, "timeouts"),
            (network.throttled - before.network.throttled, "responses of an overloaded store (429, 503)"),
            (store.hedges - store_before.hedges, "late reads sent again"),
        ]);
        if let Some(trouble) = trouble {
            info!(target: STORE, "{trouble}");
        }
        let reclaim = list([
            (cache.pages_evicted - cache_before.pages_evicted, "pages evicted"),
            (cache.pages_wasted - cache_before.pages_wasted, "of them read ahead and never used"),
            (cache.pages_thrashed - cache_before.pages_thrashed, "of them read again since"),
            (cache.writes_throttled - cache_before.writes_throttled, "writes waited for dirty pages"),
        ]);
        if let Some(reclaim) = reclaim {
            debug!(target: CACHE, "{reclaim}");
        }
    }
}

/// The nonzero counts, if any.
fn list<const N: usize>(counts: [(u64, &str); N]) -> Option<String> {
    let some: Vec<_> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!some.is_empty()).then(|| some.join(", "))
}

/// Interval of checks.
const EVERY: Duration = Duration::from_secs(10);
