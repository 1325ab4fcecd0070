//! Records a run: sums for the table always, events and samples for a report on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_core::{Cache, Decision, Fill, FillId, Instant, PageSize};
use hdrhistogram::Histogram;

use super::classes::Classes;
use super::kept::Kept;
use super::reads::Read;
use crate::queue::{Completed, Queue};
use crate::record::{Latency, Row, Run};

/// What to record for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Maximum events of a list. A longer list retains one of each two from then on, at random, and
    /// so on.
    pub events_max: usize,
    /// Initial length of a sample in nanoseconds; doubled whenever there are more than
    /// `samples_max`.
    pub sample_ns: u64,
    /// Maximum samples.
    pub samples_max: usize,
}

/// Reads between two updates of a progress counter.
const TOLD_EVERY: u64 = 4096;

/// Counts and records.
#[derive(Debug)]
pub(super) struct Recorder {
    latency: Histogram<u64>,
    latency_max: u64,
    last_end: Instant,
    reads: u64,
    reads_failed: u64,
    /// An external progress counter, and the reads already added to it.
    told: Option<(Arc<AtomicU64>, u64)>,
    bytes_wanted: u64,
    bytes_written: u64,
    files: Vec<String>,
    classes: Classes,
    kept: Option<Kept>,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self { events_max: 200_000, sample_ns: 1_000_000, samples_max: 1000 }
    }
}

impl Recorder {
    pub(super) fn new(options: Option<RecordOptions>) -> Self {
        Self {
            // Three digits over any simulated time span.
            latency: Histogram::new(3).expect("three digits are a valid precision"),
            latency_max: 0,
            last_end: Instant(0),
            reads: 0,
            reads_failed: 0,
            told: None,
            bytes_wanted: 0,
            bytes_written: 0,
            files: Vec::new(),
            classes: Classes::default(),
            kept: options.map(Kept::new),
        }
    }

    pub(super) fn file(&mut self, name: &str) {
        self.files.push(name.to_owned());
    }

    /// Advances to `next`.
    pub(super) fn pass(&mut self, next: Instant, cache: &Cache, queue: &Queue) {
        if let Some(kept) = &mut self.kept {
            kept.pass(next, cache, queue);
        }
    }

    pub(super) fn read(&mut self, read: &Read, end: Instant) {
        let latency = end.0 - read.began.0;
        // The histogram grows as needed and rejects no value.
        self.latency.record(latency).expect("the histogram resizes itself");
        self.latency_max = self.latency_max.max(latency);
        self.reads += 1;
        if let Some((count, told)) = &mut self.told
            && self.reads - *told >= TOLD_EVERY
        {
            count.fetch_add(self.reads - *told, Ordering::Relaxed);
            *told = self.reads;
        }
        self.bytes_wanted += read.bytes;
        self.last_end = self.last_end.max(end);
        if let Some(kept) = &mut self.kept {
            kept.read(read, latency);
        }
    }

    /// Counts a completed write or sync.
    pub(super) fn write(&mut self, bytes: u64, end: Instant) {
        self.bytes_written += bytes;
        self.last_end = self.last_end.max(end);
    }

    /// Bytes written so far.
    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Adds reads to `count` from now on, in batches.
    pub(super) fn count_reads_in(&mut self, count: Arc<AtomicU64>) {
        self.told = Some((count, self.reads));
    }

    /// Reads so far: completed, and failed among them.
    pub(super) fn reads(&self) -> (u64, u64) {
        (self.reads, self.reads_failed)
    }

    /// Mean latency of a read in nanoseconds.
    pub(super) fn latency_mean(&self) -> f64 {
        self.latency.mean()
    }

    pub(super) fn read_failed(&mut self) {
        self.reads_failed += 1;
    }

    pub(super) fn decision(&mut self, now: Instant, decision: &Decision) {
        if let Some(kept) = &mut self.kept {
            kept.decision(now, decision);
        }
    }

    pub(super) fn request(&mut self, now: Instant, fill: &Fill) {
        if let Some(kept) = &mut self.kept {
            kept.request(now, fill);
        }
    }

    pub(super) fn request_dropped(&mut self, fill: FillId) {
        if let Some(kept) = &mut self.kept {
            kept.request_dropped(fill);
        }
    }

    pub(super) fn request_ended(&mut self, done: &Completed) {
        self.classes.ended(done);
        if let Some(kept) = &mut self.kept {
            kept.request_ended(done);
        }
    }

    /// The histogram rounds up to three digits, which can exceed the slowest read.
    fn latency_at(&self, quantile: f64) -> u64 {
        self.latency.value_at_quantile(quantile).min(self.latency_max)
    }

    /// The table row and the recording.
    pub(super) fn summary(&self, now: Instant, page_size: PageSize, cache: &Cache, queue: &Queue) -> Run {
        let stats = cache.stats();
        let device = queue.stats();
        let seconds = self.last_end.0.max(1) as f64 / 1e9;
        // Readahead pages whose request was cancelled or not started were not fetched, so they are
        // not waste.
        let left_out = stats.pages_filled.saturating_sub(device.bytes[0] / page_size.bytes());
        let unused = stats.pages_readahead.saturating_sub(stats.pages_used + stats.pages_thrashed + left_out);
        let row = Row {
            seconds,
            reads_failed: self.reads_failed,
            accesses: stats.accesses,
            hits: stats.hits,
            late: stats.late,
            misses: stats.misses,
            requests: device.requests[0],
            bytes_fetched: device.bytes[0],
            bytes_wanted: self.bytes_wanted,
            amplification: ratio(device.bytes[0], self.bytes_wanted),
            pages_used: stats.pages_used,
            pages_wasted: unused,
            pages_thrashed: stats.pages_thrashed,
            avg_io_bytes: ratio(device.bytes[0], device.requests[0]),
            utilisation: device.busy_ns as f64 / now.0.max(1) as f64,
            latency_ns: Latency {
                p50: self.latency_at(0.5),
                p90: self.latency_at(0.9),
                p99: self.latency_at(0.99),
                max: self.latency_max,
            },
            classes: self.classes.rows(device, now),
            merged: device.merged,
            cancelled: device.cancelled,
            promoted: device.promoted,
            ..Row::default()
        };
        let kept = self.kept.as_ref().map(Kept::run).unwrap_or_default();
        Run { row, page_bytes: page_size.bytes(), files: self.files.clone(), ..kept }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
