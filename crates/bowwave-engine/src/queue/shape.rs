//! How requests are sent to a store: order, number in flight, size.

use std::ops::Range;
use std::time::Duration;

use bowwave_backend::Profile;
use bowwave_core::network::Hedging;
use bowwave_core::schedule::{Dispatcher, SchedulerConfig};

use crate::entry::FileEntry;
use crate::options::{Options, turn};

/// A readahead run is spread over free slots in requests no smaller than this part of the best
/// size.
const SPREAD: u64 = 32;
/// One slot in this many is reserved for demand. Smaller: fewer slots for readahead.
const DEMAND_SLOTS: u32 = 32;
/// Most bytes of a request to a device with a head: the transfer time of two or three seeks. Eight
/// sequential readers get 57 MB/s of `emulate:hdd` with it, 51 MB/s with half of it, and other
/// requests wait no longer.
const HEAD_BYTES: u64 = 2 << 20;
/// Most requests of a batch, which is not interrupted, on such a device: as many bytes as Linux's
/// 16 requests of 512 KiB.
const HEAD_BATCH: u32 = 4;
/// Offsets on a device lie below this, and no file exceeds 2^63 bytes, so addresses cannot
/// overflow.
const PLACES: u64 = 1 << 62;
/// Low-latency stores: their response time shows how busy they are. Stores with a higher latency
/// are many servers or connections behind a link: the useful number of requests is measured.
const NEAR: Duration = Duration::from_millis(1);
/// Initially one in this many of a store's slots is for readahead.
const START_SHARE: u32 = 2;
/// Most slots for readahead initially. The first distance of a read plan, 16 windows of 1 MiB, is
/// 32 requests of `best / SPREAD`: with fewer slots, its second half waits for another TTFB.
const START_MAX: u32 = 32;
/// Longer requests are slow because of their length, so they are no samples.
const SAMPLE_BYTES: u64 = 512 << 10;

/// Parameters derived from a store's profile and the options.
#[derive(Debug)]
pub(super) struct Shape {
    /// Requests in flight at the device.
    depth: u32,
    /// Bytes beyond which larger requests do not pay.
    best: u64,
    config: SchedulerConfig,
}

impl Shape {
    pub(super) fn new(profile: &Profile, options: &Options) -> Self {
        let depth = options.device_depth.unwrap_or(profile.slots).max(1);
        let best = if profile.seeks {
            profile.request_bytes_best.min(HEAD_BYTES)
        } else {
            profile.request_bytes_best
        };
        let best = best.max(options.page_bytes);
        let room = (depth - depth / DEMAND_SLOTS).max(1);
        let of = SchedulerConfig::of(options.scheduler);
        let far = !profile.seeks && profile.latency > NEAR;
        let mut config = SchedulerConfig {
            request_bytes_max: best,
            batch_requests: if profile.seeks { HEAD_BATCH } else { of.batch_requests },
            seeks: profile.seeks,
            async_depth_max: room,
            async_beside_max: room,
            write_back_waits: profile.seeks,
            async_depth_start: if far { (room / START_SHARE).clamp(1, START_MAX) } else { u32::MAX },
            sync_sample_bytes_max: if far { SAMPLE_BYTES } else { u64::MAX },
            sync_fast_ns: u64::try_from((2 * profile.latency).max(2 * NEAR).as_nanos()).unwrap_or(u64::MAX),
            ..of
        };
        turn(&mut config, options.scheduler_knobs.as_deref()).expect("checked by `Options::plan`");
        Self { depth, best, config }
    }

    /// Whether a queued request becomes sync when a reader begins to wait for it.
    pub(super) fn promotes(&self) -> bool {
        self.config.promotion
    }

    /// An empty dispatcher. Only devices without a head have their slots filled evenly. Aligned
    /// reads are not hedged, since their buffers would have to be aligned, too.
    pub(super) fn dispatcher<T>(&self, profile: &Profile, options: &Options) -> Dispatcher<T> {
        let spread = if self.config.seeks { 0 } else { (self.best / SPREAD).max(1) };
        let dispatcher = Dispatcher::new(self.config.clone(), self.depth as usize, spread);
        let dispatcher = dispatcher.expect("every knob is at least 1");
        let latency_ns = u64::try_from(profile.latency.as_nanos()).unwrap_or(u64::MAX);
        match Hedging::for_store(latency_ns, options.hedge_percent) {
            Some(hedging) if profile.alignment <= 1 => dispatcher.with_hedging(hedging),
            _ => dispatcher,
        }
    }

    /// Scheduler address of bytes: on the device if it has a head, else in their file.
    pub(super) fn address(&self, entry: &FileEntry, bytes: Range<u64>) -> Range<u64> {
        let place = if self.config.seeks { entry.place() % PLACES } else { 0 };
        place + bytes.start..place + bytes.end
    }
}

#[cfg(test)]
mod tests {
    use bowwave_core::schedule::{Direction, Priority, Request};
    use bowwave_core::{Instant, Urgency};

    use super::*;

    #[test]
    fn low_latency_or_aligned_stores_are_not_hedged() {
        let is_hedged = |profile: &Profile, hedge_percent| {
            let options = Options { hedge_percent, ..Options::default() };
            let mut dispatcher = Shape::new(profile, &options).dispatcher(profile, &options);
            let (direction, urgency, priority) = (Direction::Read, Urgency::Demand, Priority::default());
            let read = Request { start: 0, end: 4096, direction, object: 0, urgency, priority };
            dispatcher.add(Instant(0), read, ());
            let dispatch = dispatcher.next(Instant(0), &mut Vec::new()).expect("it waits");
            dispatcher.sent(Instant(0), dispatch.id, 4096)
        };
        let far = Profile { latency: Duration::from_millis(30), ..Profile::read_only("far") };
        assert!(!is_hedged(&far, 0) && is_hedged(&far, 1));
        assert!(!is_hedged(&Profile { alignment: 512, ..far.clone() }, 5));
        assert!(!is_hedged(&Profile { latency: Duration::from_micros(900), ..far }, 5));
    }
}
