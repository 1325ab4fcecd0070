//! Records a run: sums for the table always, events and samples for a report on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_core::{Cache, Decision, Fill, FillId, Instant, PageSize};
use hdrhistogram::Histogram;

use super::classes::Classes;
use super::events::Events;
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
const PROGRESS_READS: u64 = 4096;

/// Times from start to end, to three digits.
#[derive(Debug)]
pub(super) struct Latencies {
    histogram: Histogram<u64>,
    max: u64,
}

impl Latencies {
    pub(super) fn new() -> Self {
        // Three digits over any simulated time span.
        Self { histogram: Histogram::new(3).expect("three digits are a valid precision"), max: 0 }
    }

    pub(super) fn record(&mut self, ns: u64) {
        self.histogram.record(ns).expect("the histogram resizes itself");
        self.max = self.max.max(ns);
    }

    pub(super) fn percentiles(&self) -> Latency {
        // The histogram rounds up, which can exceed the maximum.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max);
        Latency { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: self.max }
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// In nanoseconds.
    pub(super) fn mean(&self) -> f64 {
        self.histogram.mean()
    }
}

/// Counts and records.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) latency: Latencies,
    last_end: Instant,
    pub(super) reads: u64,
    pub(super) reads_failed: u64,
    /// An external progress counter, and the reads already added to it.
    progress: Option<(Arc<AtomicU64>, u64)>,
    bytes_wanted: u64,
    pub(super) bytes_written: u64,
    pub(super) files: Vec<String>,
    classes: Classes,
    events: Option<Events>,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self { events_max: 200_000, sample_ns: 1_000_000, samples_max: 1000 }
    }
}

impl Recorder {
    pub(super) fn new(options: Option<RecordOptions>) -> Self {
        Self {
            latency: Latencies::new(),
            last_end: Instant(0),
            reads: 0,
            reads_failed: 0,
            progress: None,
            bytes_wanted: 0,
            bytes_written: 0,
            files: Vec::new(),
            classes: Classes::default(),
            events: options.map(Events::new),
        }
    }

    /// Advances to `next`.
    pub(super) fn pass(&mut self, next: Instant, cache: &Cache, queue: &Queue) {
        if let Some(events) = &mut self.events {
            events.pass(next, cache, queue);
        }
    }

    pub(super) fn read(&mut self, read: &Read, end: Instant) {
        let latency = end.0 - read.start.0;
        self.latency.record(latency);
        self.reads += 1;
        if let Some((count, reported)) = &mut self.progress
            && self.reads - *reported >= PROGRESS_READS
        {
            count.fetch_add(self.reads - *reported, Ordering::Relaxed);
            *reported = self.reads;
        }
        self.bytes_wanted += read.bytes;
        self.last_end = self.last_end.max(end);
        if let Some(events) = &mut self.events {
            events.read(read, latency);
        }
    }

    /// Counts a completed write or sync.
    pub(super) fn write(&mut self, bytes: u64, end: Instant) {
        self.bytes_written += bytes;
        self.last_end = self.last_end.max(end);
    }

    /// Adds reads to `count` from now on, in batches.
    pub(super) fn count_reads_in(&mut self, count: Arc<AtomicU64>) {
        self.progress = Some((count, self.reads));
    }

    pub(super) fn read_failed(&mut self) {
        self.reads_failed += 1;
    }

    pub(super) fn decision(&mut self, now: Instant, decision: &Decision) {
        if let Some(events) = &mut self.events {
            events.decision(now, decision);
        }
    }

    pub(super) fn request(&mut self, now: Instant, fill: &Fill) {
        if let Some(events) = &mut self.events {
            events.request(now, fill);
        }
    }

    pub(super) fn request_dropped(&mut self, fill: FillId) {
        if let Some(events) = &mut self.events {
            events.request_dropped(fill);
        }
    }

    pub(super) fn request_ended(&mut self, done: &Completed) {
        self.classes.ended(done);
        if let Some(events) = &mut self.events {
            events.request_ended(done);
        }
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
            latency_ns: self.latency.percentiles(),
            classes: self.classes.rows(device, now),
            merged: device.merged,
            cancelled: device.cancelled,
            promoted: device.promoted,
            ..Row::default()
        };
        let run = self.events.as_ref().map(Events::run).unwrap_or_default();
        Run { row, page_bytes: page_size.bytes(), files: self.files.clone(), ..run }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
