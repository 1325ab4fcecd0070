//! Counters of an engine and of its stores, and how long things took.

use std::time::Duration;

use bowwave_core::Stats;
use bowwave_core::schedule::SchedulerStats;
use hdrhistogram::Histogram;

/// What an engine has done so far, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// Reads, hits, fills, evictions: in pages, see [`Stats`].
    pub cache: Stats,
    /// Requests to stores.
    pub store: StoreStats,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages that are dirty or on their way to a store.
    pub pages_unwritten: u64,
    /// Frames that hold a page or wait for one.
    pub frames_used: u64,
    /// Frames there are.
    pub frames: u64,
    /// Bytes of bookkeeping.
    pub metadata_bytes: u64,
}

/// What was asked of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Requests sent, tries included.
    pub requests: u64,
    /// Requests that failed.
    pub requests_failed: u64,
    /// Requests that brought less than they asked for.
    pub requests_short: u64,
    /// Fills tried again after a failed or short request.
    pub retries: u64,
    /// Reads that somebody waited for and that were asked for once more because they were late; they count as requests, too.
    pub hedges: u64,
    /// Of these, those that came before the first try.
    pub hedges_won: u64,
    /// Bytes that arrived, but for those of late tries that nobody wanted any more.
    pub bytes_fetched: u64,
    /// Bytes that the store has taken by write-back and for syncs, and in parts of objects.
    pub bytes_written: u64,
    /// Pages that the store refused even when the last handle that wrote was closed: what they held is lost.
    pub pages_lost: u64,
    /// Objects that could not be published when they were closed by being dropped, which tells nobody.
    pub objects_lost: u64,
    /// Nanoseconds from sending to the end, summed over requests.
    pub latency_ns_total: u64,
    /// Most requests that were in flight at once.
    pub in_flight_max: u64,
    /// Most requests that waited at once, after merging.
    pub waiting_max: u64,
    /// Requests at the store when one was sent, that one included, summed over requests: by their number, the depth that
    /// the store's queue had.
    pub in_flight_total: u64,
    /// Requests that still waited then, after merging, summed likewise.
    pub waiting_total: u64,
    /// What the scheduler did: fills that were merged, promoted, cancelled, and requests by the reason for their turn.
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

/// What requests are told apart by in [`Latencies`]: which way the bytes go, and whether someone waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Reads that someone waited for when they were sent, promoted readahead included.
    DemandRead,
    /// Reads ahead of their readers.
    Readahead,
    /// Writes that an fsync waited for when they were sent.
    SyncWrite,
    /// Writes that nobody waited for.
    WriteBack,
}

/// How long things waited for the store, and how long it took, by [`Work`].
///
/// A fill or a write-out counts once, with each try that succeeded; those of one joint request count each by itself.
/// Values are kept to 1 %.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Latencies {
    /// By work.
    kinds: [Times; Work::ALL.len()],
}

/// Taken when first needed: each is some tens of kilobytes.
#[derive(Clone, Debug, Default)]
struct Times {
    queue: Option<Histogram<u64>>,
    device: Option<Histogram<u64>>,
}

/// Figures of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many were counted.
    pub count: u64,
    /// Their average.
    pub mean: Duration,
    /// Half took no longer.
    pub p50: Duration,
    /// Nine of ten took no longer.
    pub p90: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
    /// 999 of 1000 took no longer.
    pub p999: Duration,
    /// The longest, to 1 %.
    pub max: Duration,
}

/// Times below count as this.
const SHORTEST_NS: u64 = 512;
/// Times above count as this: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Work {
    /// All of it.
    pub const ALL: [Self; 4] = [Self::DemandRead, Self::Readahead, Self::SyncWrite, Self::WriteBack];

    /// Its name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DemandRead => "demand_read",
            Self::Readahead => "readahead",
            Self::SyncWrite => "sync_write",
            Self::WriteBack => "write_back",
        }
    }
}

impl Latencies {
    /// From entering the queue to being sent.
    #[must_use]
    pub fn queue(&self, work: Work) -> Spread {
        self.kinds[work as usize].queue.as_ref().map(Spread::of).unwrap_or_default()
    }

    /// From being sent to the last byte that was wanted.
    #[must_use]
    pub fn device(&self, work: Work) -> Spread {
        self.kinds[work as usize].device.as_ref().map(Spread::of).unwrap_or_default()
    }

    /// What has come since an earlier look at the same.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (now, before) in self.kinds.iter_mut().zip(&before.kinds) {
            for (now, before) in [(&mut now.queue, &before.queue), (&mut now.device, &before.device)] {
                if let (Some(now), Some(before)) = (now, before) {
                    // Of something else it could say no; then it stays whole.
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
    fn times_are_told_apart_by_work_added_and_taken_off() {
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
