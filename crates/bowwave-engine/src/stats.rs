//! Counters of an engine and of its stores.

use bowwave_core::Stats;

/// What an engine has done so far, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Reads, hits, fills, evictions: in pages, see [`Stats`].
    pub cache: Stats,
    /// Requests to stores.
    pub store: StoreStats,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Frames that hold a page or wait for one.
    pub frames_used: u64,
    /// Frames there are.
    pub frames: u64,
    /// Bytes of bookkeeping.
    pub metadata_bytes: u64,
}

/// What was asked of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Requests sent, tries included.
    pub requests: u64,
    /// Requests that failed.
    pub requests_failed: u64,
    /// Requests that brought less than they asked for.
    pub requests_short: u64,
    /// Fills tried again after a failed or short request.
    pub retries: u64,
    /// Fills dropped from the queue because nobody needed them any more.
    pub cancelled: u64,
    /// Bytes that arrived.
    pub bytes_fetched: u64,
    /// Nanoseconds from sending to the end, summed over requests.
    pub latency_ns_total: u64,
    /// Most requests that were in flight at once.
    pub in_flight_max: u64,
}

impl std::ops::AddAssign for StoreStats {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.requests_failed += other.requests_failed;
        self.requests_short += other.requests_short;
        self.retries += other.retries;
        self.cancelled += other.cancelled;
        self.bytes_fetched += other.bytes_fetched;
        self.latency_ns_total += other.latency_ns_total;
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
    }
}
