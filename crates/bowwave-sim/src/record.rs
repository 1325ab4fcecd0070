//! What a run leaves behind for `report`: every access, decision and request, or an even sample of them.
//!
//! Lists are kept as columns (one list a field), so that a file of a million events stays small and loads fast.

mod saved;

use serde::{Deserialize, Serialize};

pub use saved::{EVENTS_SAVED_MAX, Writer};

/// A file of recorded runs: what `replay --save` writes and `report` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The format's number; readers refuse one they do not know.
    pub version: u32,
    /// How events were sampled, for people who open the file; empty if all were kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What was replayed: a trace's or plan's name.
    pub title: String,
    /// The command that made it, for the reader to repeat.
    pub command: String,
    /// The runs, in the order of the table.
    pub runs: Vec<Run>,
    /// Rows of bounds: the oracle of each device and cache size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Row>,
}

impl Recording {
    /// The version that this program writes and reads.
    pub const VERSION: u32 = 1;

    /// An empty recording of today's version.
    #[must_use]
    pub fn new() -> Self {
        Self { version: Self::VERSION, ..Self::default() }
    }
}

/// One run: a policy on a device with a cache size and a largest window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The row of the table.
    pub row: Row,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Names of the files, by number.
    pub files: Vec<String>,
    /// Every how many reads one is kept in `reads`; 1 for all. Likewise for the other lists.
    pub reads_every: u64,
    /// Reads.
    pub reads: Reads,
    /// Every how many decisions one is kept.
    pub decisions_every: u64,
    /// Decisions of the policy.
    pub decisions: Decisions,
    /// Every how many requests one is kept.
    pub requests_every: u64,
    /// Requests to the device.
    pub requests: Requests,
    /// The state of things at even steps of time.
    pub samples: Samples,
}

/// One row of `replay --json` and `read --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Readahead policy.
    pub policy: String,
    /// Which pages go first; empty if it is the cache's default.
    #[serde(default)]
    pub eviction: String,
    /// Which of a plan's workloads; empty if there is one only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Device model.
    pub device: String,
    /// The scheduler before it; empty if it is the device's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scheduler: String,
    /// Bytes of the cache; none if it is unlimited.
    pub cache_bytes: Option<u64>,
    /// Most pages of a window.
    pub ra_pages: u32,
    /// Seed of what was drawn.
    #[serde(default)]
    pub seed: u64,
    /// Simulated seconds.
    pub seconds: f64,
    /// Reads that failed, by faults.
    #[serde(default)]
    pub reads_failed: u64,
    /// Pages asked for.
    pub accesses: u64,
    /// Of these: up to date.
    pub hits: u64,
    /// In flight.
    pub late: u64,
    /// Neither.
    pub misses: u64,
    /// Requests to the device.
    pub requests: u64,
    /// Bytes read from the device.
    pub bytes_fetched: u64,
    /// Bytes that readers asked for, within the file, and got.
    pub bytes_wanted: u64,
    /// Bytes fetched for each byte wanted.
    pub amplification: f64,
    /// Pages read ahead and used.
    pub pages_used: u64,
    /// Pages read ahead, dropped and never wanted, or still unused at the end.
    pub pages_wasted: u64,
    /// Pages evicted unused and then wanted.
    pub pages_thrashed: u64,
    /// Bytes of a request on average.
    pub avg_io_bytes: f64,
    /// Share of the time that the device was busy, 0 to 1.
    pub utilisation: f64,
    /// Latency of a read.
    pub latency_ns: Latency,
    /// Requests to the device by class and direction; empty if they were not told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassRow>,
    /// Requests that became part of another before the device had them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// Requests that were dropped before the device had them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cancelled: u64,
    /// Readahead that someone waited for before it had ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub promoted: u64,
    /// Seconds as a multiple of the least that any policy could take with this cache and device; none if that was not
    /// asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regret: Option<f64>,
}

impl Row {
    /// Where it ran: the device, and the scheduler and the workload if there are several. Rows of one place and cache size
    /// can be compared.
    #[must_use]
    pub fn place(&self) -> String {
        let parts = [&self.device, &self.scheduler, &self.workload].map(String::as_str);
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Seconds for each GiB that readers got: what runs are compared by, also those that were stopped at the same time with
    /// different amounts read. The seconds themselves if nothing is known of bytes.
    #[must_use]
    pub fn seconds_a_gib(&self) -> f64 {
        if self.bytes_wanted == 0 { self.seconds } else { self.seconds * GIB / self.bytes_wanted as f64 }
    }
}

/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What requests of one class and direction met, as the cache asked for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassRow {
    /// `sync`: someone waited in the end; or `async`.
    pub class: String,
    /// `read` or `write`.
    pub op: String,
    /// Requests that ended.
    pub requests: u64,
    /// Of these, sent to the device past their deadlines.
    pub expired: u64,
    /// From being asked for to their ends.
    pub latency_ns: Latency,
    /// From being asked for until the device began.
    pub waited_ns: Latency,
    /// Waiting or at the device, average over the time.
    pub depth: f64,
    /// At most.
    pub depth_max: u32,
}

/// Percentiles of the latency of reads, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50: u64,
    /// 90 of 100 reads are no slower.
    pub p90: u64,
    /// 99 of 100 reads are no slower.
    pub p99: u64,
    /// The slowest.
    pub max: u64,
}

/// Reads, in the order in which they ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// When each began.
    pub time_ns: Vec<u64>,
    /// How long it took.
    pub latency_ns: Vec<u64>,
    /// File number.
    pub file: Vec<u32>,
    /// First page.
    pub start: Vec<u64>,
    /// Pages.
    pub pages: Vec<u32>,
    /// 0: all pages were there; 1: some were in flight, none missing; 2: some were missing.
    pub outcome: Vec<u8>,
}

/// Decisions, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// When.
    pub time_ns: Vec<u64>,
    /// File number.
    pub file: Vec<u32>,
    /// The page accessed.
    pub page: Vec<u64>,
    /// Name of the reason.
    pub reason: Vec<String>,
    /// First page of the window.
    pub start: Vec<u64>,
    /// Its pages, before clipping.
    pub size: Vec<u64>,
    /// Its pages from the lookahead mark on.
    pub async_size: Vec<u64>,
    /// The page that got the mark.
    pub mark: Vec<Option<u64>>,
}

/// Requests to the device, in the order in which they were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// When each was asked for.
    pub queued_ns: Vec<u64>,
    /// When the device began with it.
    pub started_ns: Vec<u64>,
    /// When it was done.
    pub ended_ns: Vec<u64>,
    /// File number.
    pub file: Vec<u32>,
    /// First page.
    pub start: Vec<u64>,
    /// Pages.
    pub pages: Vec<u32>,
    /// Whether it was readahead that nobody waited for when it was asked.
    pub readahead: Vec<bool>,
}

/// Samples at even steps of time, each over the step that ends there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// End of each step.
    pub time_ns: Vec<u64>,
    /// Share of the step that the device was busy, 0 to 1.
    pub busy: Vec<f64>,
    /// Requests at the device or waiting for it, at the end of the step.
    pub queued: Vec<u32>,
    /// Bytes read from the device in the step.
    pub bytes_fetched: Vec<u64>,
    /// Bytes given to readers in the step.
    pub bytes_delivered: Vec<u64>,
    /// Requests to the device that began in the step.
    pub requests: Vec<u32>,
    /// Pages evicted unused and found missing in the step.
    #[serde(default)]
    pub thrashed: Vec<u64>,
    /// Of `queued`, requests that nobody waits for.
    #[serde(default)]
    pub queued_async: Vec<u32>,
    /// Requests that went to the device past their deadlines in the step.
    #[serde(default)]
    pub expired: Vec<u32>,
}
