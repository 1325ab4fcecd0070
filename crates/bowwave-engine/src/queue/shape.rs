//! How a store is asked: in which order, with how many requests at once, of which size.

use std::time::Duration;

use bowwave_backend::Profile;
use bowwave_core::schedule::{Algorithm, Request, Scheduler, SchedulerConfig};

/// A readahead run is spread over free slots in requests no smaller than this part of the best size.
const SPREAD: u64 = 32;
/// One slot in this many is kept for demand.
const DEMAND_SLOTS: u32 = 32;
/// Stores that answer within this are near: how long a request takes there says how busy they are. Those further off are
/// many servers, or many connections at least, and a long request says that it was large.
const NEAR: Duration = Duration::from_millis(1);

/// What follows from a store's profile and the options.
#[derive(Debug)]
pub(super) struct Shape {
    /// Requests kept at the device.
    pub(super) depth: u32,
    /// Bytes beyond which larger requests do not pay.
    best: u64,
    config: SchedulerConfig,
}

impl Shape {
    pub(super) fn new(profile: &Profile, page_bytes: u64, algorithm: Algorithm, depth: Option<u32>) -> Self {
        let depth = depth.unwrap_or(profile.slots).max(1);
        let best = profile.request_bytes_best.max(page_bytes);
        let room = (depth - depth / DEMAND_SLOTS).max(1);
        let config = SchedulerConfig {
            request_bytes_max: best,
            seeks: false,
            async_depth_max: room,
            async_beside_max: room,
            sync_slowdown_max: if profile.latency <= NEAR { 2 } else { u32::MAX },
            sync_fast_ns: u64::try_from((2 * profile.latency).max(2 * NEAR).as_nanos()).unwrap_or(u64::MAX),
            ..SchedulerConfig::of(algorithm)
        };
        Self { depth, best, config }
    }

    pub(super) fn scheduler(&self) -> Scheduler {
        Scheduler::new(self.config.clone()).expect("every knob is at least 1")
    }

    /// Bytes that are enough for the next request, of `pending` bytes that wait or are at the device.
    ///
    /// They are dealt out over all slots: if the slot that comes free first took all that waits, the others would find
    /// nothing.
    pub(super) fn enough(&self, pending: u64, _next: &Request) -> u64 {
        (pending / u64::from(self.depth)).clamp((self.best / SPREAD).max(1), self.best)
    }

    /// Bytes in units of the best size.
    pub(super) fn requests_of(&self, bytes: u64) -> u64 {
        bytes / self.best
    }
}
