//! Counters and latencies of an engine and of its stores.

use std::time::Duration;

use bowwave_core::Stats;
use bowwave_core::schedule::SchedulerStats;
use hdrhistogram::Histogram;

/// Counters and current state of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// Reads, hits, fills and evictions; [`Stats`] has the unit of each.
    pub cache: Stats,
    /// Requests to stores.
    pub store: StoreStats,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages that are dirty or in flight to a store.
    pub pages_unwritten: u64,
    /// Frames that hold a page or are in flight.
    pub frames_used: u64,
    /// Number of frames.
    pub frames: u64,
    /// Bytes of bookkeeping.
    pub metadata_bytes: u64,
}

/// Requests to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Requests sent, including retries.
    pub requests: u64,
    /// Requests that failed.
    pub requests_failed: u64,
    /// Requests that returned fewer bytes than requested.
    pub requests_short: u64,
    /// Retries: of fills after a failed or short request, of write-outs, and of object parts.
    pub retries: u64,
    /// Late demand reads that were hedged: requested a second time. They also count as requests.
    pub hedges: u64,
    /// Hedges whose second request completed first.
    pub hedges_won: u64,
    /// Readahead that a full queue dropped, in fills.
    pub readahead_dropped: u64,
    /// Bytes received, except those of hedged requests that were no longer needed.
    pub bytes_fetched: u64,
    /// Bytes that the store accepted from write-back, syncs and object parts.
    pub bytes_written: u64,
    /// Pages that the store still rejected when the last writing handle closed: their bytes are
    /// lost.
    pub pages_lost: u64,
    /// Objects whose publication failed when a handle was dropped, which returns no error.
    pub objects_lost: u64,
    /// Nanoseconds from sending to the end, summed over requests.
    pub latency_ns_total: u64,
    /// Most requests that were in flight at once.
    pub in_flight_max: u64,
    /// Most requests queued at once, after merging.
    pub waiting_max: u64,
    /// Requests in flight when one was sent, including it, summed over requests. Divided by the
    /// number of requests: mean queue depth of the store.
    pub in_flight_total: u64,
    /// Requests still queued when one was sent, after merging, summed over requests.
    pub waiting_total: u64,
    /// The scheduler's counters: merged, promoted and cancelled fills, and requests by reason of
    /// dispatch.
    pub scheduler: SchedulerStats,
}

impl std::ops::AddAssign for StoreStats {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.requests_failed += other.requests_failed;
        self.requests_short += other.requests_short;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        self.readahead_dropped += other.readahead_dropped;
        self.bytes_fetched += other.bytes_fetched;
        self.bytes_written += other.bytes_written;
        self.pages_lost += other.pages_lost;
        self.objects_lost += other.objects_lost;
        self.latency_ns_total += other.latency_ns_total;
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
        self.waiting_max = self.waiting_max.max(other.waiting_max);
        self.in_flight_total += other.in_flight_total;
        self.waiting_total += other.waiting_total;
        self.scheduler += other.scheduler;
    }
}

bowwave_core::named_enum! {
    /// Classes of requests in [`Latencies`]: direction, and demand or speculative.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Work {
        /// Reads that were demand when they were sent, including promoted readahead.
        DemandRead = "demand_read",
        /// Speculative reads.
        Readahead = "readahead",
        /// Writes that a sync waited for when they were sent.
        SyncWrite = "sync_write",
        /// Writes without a waiter, and all parts of objects.
        WriteBack = "write_back",
    }
}

/// Times that requests waited for the store and that the store took, by [`Work`].
///
/// Each fill or write-out counts once for each successful attempt; the fills or write-outs of one
/// merged request count separately. Values are exact to 1 %.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Latencies {
    /// By work.
    kinds: [Times; Work::ALL.len()],
}

/// Allocated on first use: each takes tens of kilobytes.
#[derive(Clone, Debug, Default)]
struct Times {
    queue: Option<Histogram<u64>>,
    device: Option<Histogram<u64>>,
}

/// Statistics of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Number of samples.
    pub count: u64,
    /// Mean.
    pub mean: Duration,
    /// Median.
    pub p50: Duration,
    /// 90th percentile.
    pub p90: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// 99.9th percentile.
    pub p999: Duration,
    /// Maximum, exact to 1 %.
    pub max: Duration,
}

/// Shorter times count as this.
const SHORTEST_NS: u64 = 512;
/// Longer times count as this: one hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Latencies {
    /// From queueing to sending.
    pub fn queue(&self, work: Work) -> Spread {
        self.kinds[work as usize].queue.as_ref().map(Spread::of).unwrap_or_default()
    }

    /// From sending to the last byte needed.
    pub fn device(&self, work: Work) -> Spread {
        self.kinds[work as usize].device.as_ref().map(Spread::of).unwrap_or_default()
    }

    /// The difference from an earlier snapshot.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (now, before) in self.kinds.iter_mut().zip(&before.kinds) {
            for (now, before) in [(&mut now.queue, &before.queue), (&mut now.device, &before.device)] {
                if let (Some(now), Some(before)) = (now, before) {
                    // Fails only for a different histogram; then the value stays unchanged.
                    let _other = now.subtract(before);
                }
            }
        }
        self
    }

    pub(crate) fn record_queue(&mut self, work: Work, ns: u64) {
        record(&mut self.kinds[work as usize].queue, ns);
    }

    pub(crate) fn record_device(&mut self, work: Work, ns: u64) {
        record(&mut self.kinds[work as usize].device, ns);
    }
}

impl std::ops::AddAssign<&Self> for Latencies {
    fn add_assign(&mut self, other: &Self) {
        for (own, other) in self.kinds.iter_mut().zip(&other.kinds) {
            for (own, other) in [(&mut own.queue, &other.queue), (&mut own.device, &other.device)] {
                if let Some(other) = other {
                    own.get_or_insert_with(histogram).add(other).expect("all have the same bounds");
                }
            }
        }
    }
}

impl Spread {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        Self {
            count: histogram.len(),
            mean: Duration::from_nanos(histogram.mean() as u64),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Duration::from_nanos(histogram.max()),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, 2).expect("bounds in order")
}

fn record(histogram: &mut Option<Histogram<u64>>, ns: u64) {
    histogram.get_or_insert_with(self::histogram).saturating_record(ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_work_added_and_subtracted() {
        let (mut first, mut second) = (Latencies::default(), Latencies::default());
        for ms in 1..=100 {
            first.record_device(Work::DemandRead, ms * 1_000_000);
            second.record_queue(Work::WriteBack, 5);
        }
        assert_eq!(first.device(Work::Readahead), Spread::default());
        let spread = first.device(Work::DemandRead);
        assert_eq!(spread.count, 100);
        for (time, ms) in [(spread.p50, 50.0), (spread.p90, 90.0), (spread.max, 100.0), (spread.mean, 50.5)] {
            assert!((time.as_secs_f64() * 1e3 / ms - 1.0).abs() < 0.01, "{time:?} for {ms} ms");
        }
        let before = first.clone();
        first += &second;
        first.record_device(Work::DemandRead, LONGEST_NS * 2);
        let since = first.since(&before);
        assert_eq!((since.device(Work::DemandRead).count, since.queue(Work::WriteBack).count), (1, 100));
        assert!(since.device(Work::DemandRead).p50 >= Duration::from_secs(3500));
    }
}
