//! A recorded run for `report`: every access, decision and request, or an even sample of them.
//!
//! Lists are stored as columns (one list per field), so that a file of a million events stays small
//! and loads fast.

mod saved;

use serde::{Deserialize, Serialize};

pub use saved::{EVENTS_SAVED_MAX, Writer};

/// A file of recorded runs: what `replay --save` writes and `report` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Format version; readers reject an unknown one.
    pub version: u32,
    /// How events were sampled, for people who open the file; empty if all are in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Name of the trace or experiment.
    pub title: String,
    /// The command line, to repeat the run.
    pub command: String,
    /// The runs, in the order of the table.
    pub runs: Vec<Run>,
    /// Lower bounds: the oracle's run for each device and cache size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Row>,
}

impl Recording {
    /// The version that this program writes and reads.
    pub const VERSION: u32 = 1;

    /// An empty recording of the current version.
    pub fn new() -> Self {
        Self { version: Self::VERSION, ..Self::default() }
    }
}

/// One run: a policy with a device, cache size and maximum window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The row of the table.
    pub row: Row,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Names of the files, by number.
    pub files: Vec<String>,
    /// Sampling interval of `reads`: one in this many is in the list; 1 means all. Likewise for the
    /// other lists.
    pub reads_every: u64,
    /// Reads.
    pub reads: Reads,
    /// Sampling interval of decisions.
    pub decisions_every: u64,
    /// Decisions of the policy.
    pub decisions: Decisions,
    /// Sampling interval of requests.
    pub requests_every: u64,
    /// Requests to the device.
    pub requests: Requests,
    /// State at regular intervals.
    pub samples: Samples,
}

/// One row of `replay --json` and `read --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Readahead policy.
    pub policy: String,
    /// Eviction policy; empty for the cache's default.
    #[serde(default)]
    pub eviction: String,
    /// The workload of the experiment; empty if there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Device model.
    pub device: String,
    /// The scheduler in front of it; empty for the device's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scheduler: String,
    /// Bytes of the cache; `None` is unlimited.
    pub cache_bytes: Option<u64>,
    /// Maximum pages of a window.
    pub ra_pages: u32,
    /// Seed of all draws.
    #[serde(default)]
    pub seed: u64,
    /// Simulated seconds.
    pub seconds: f64,
    /// Reads that failed by fault injection.
    #[serde(default)]
    pub reads_failed: u64,
    /// Pages requested.
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
    /// Bytes requested by readers within the file and delivered.
    pub bytes_wanted: u64,
    /// Bytes fetched per byte requested.
    pub amplification: f64,
    /// Pages read ahead and used.
    pub pages_used: u64,
    /// Readahead pages dropped unused, or still unused at the end.
    pub pages_wasted: u64,
    /// Pages evicted unused and requested later.
    pub pages_thrashed: u64,
    /// Mean request size in bytes.
    pub avg_io_bytes: f64,
    /// Share of the time the device was busy, 0 to 1.
    pub utilisation: f64,
    /// Latency of a read.
    pub latency_ns: Latency,
    /// Requests to the device by class and direction; empty if not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassRow>,
    /// Requests merged into another before dispatch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// Requests cancelled before dispatch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cancelled: u64,
    /// Readahead that became demand while in flight.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub promoted: u64,
    /// Seconds relative to the lower bound for this cache and device; `None` if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regret: Option<f64>,
}

impl Row {
    /// The device, with scheduler and workload if there are several. Rows with the same place and
    /// cache size are comparable.
    pub fn place(&self) -> String {
        let parts = [&self.device, &self.scheduler, &self.workload].map(String::as_str);
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Seconds per GiB delivered, to compare runs that were stopped at the same time. Without byte
    /// counts, the seconds themselves.
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

/// Requests of one class and direction, counted as the cache submits them, before any merge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassRow {
    /// `sync` (demand in the end) or `async`.
    pub class: String,
    /// `read` or `write`.
    pub op: String,
    /// Completed requests.
    pub requests: u64,
    /// Requests dispatched past their deadlines.
    pub expired: u64,
    /// Time from submission to completion.
    pub latency_ns: Latency,
    /// Time from submission until the device started.
    pub waited_ns: Latency,
    /// Mean number waiting or at the device.
    pub depth: f64,
    /// Maximum number.
    pub depth_max: u32,
}

/// Percentiles of a time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

/// Declares a list of events, stored as columns of one length.
macro_rules! columns {
    ($(#[$about:meta])* $Name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $Name {
            $($(#[$doc])* pub $field: Vec<$kind>,)*
        }

        impl $Name {
            /// Retains the entries whose index `keep` accepts.
            pub(crate) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
                $(retain(&mut self.$field, &keep);)*
            }

            /// Name and length of each column.
            pub(crate) fn lengths(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($field), self.$field.len())),*]
            }
        }
    };
}

columns! {
    /// Reads, in order of completion.
    Reads {
        /// Start times.
        time_ns: u64,
        /// Latencies.
        latency_ns: u64,
        /// File number.
        file: u32,
        /// First page.
        start: u64,
        /// Pages.
        pages: u32,
        /// 0: all pages were cached; 1: some were in flight, none missing; 2: some were missing.
        outcome: u8,
    }
}

columns! {
    /// Decisions, in order.
    Decisions {
        /// When.
        time_ns: u64,
        /// File number.
        file: u32,
        /// The page accessed.
        page: u64,
        /// Reason by name.
        reason: String,
        /// First page of the window.
        start: u64,
        /// Pages of the window, before clipping.
        size: u64,
        /// Pages from the lookahead mark on.
        async_size: u64,
        /// The marked page.
        mark: Option<u64>,
    }
}

columns! {
    /// Requests to the device, in order of submission.
    Requests {
        /// Submission times.
        queued_ns: u64,
        /// When the device started each.
        started_ns: u64,
        /// Completion times.
        ended_ns: u64,
        /// File number.
        file: u32,
        /// First page.
        start: u64,
        /// Pages.
        pages: u32,
        /// Whether it was readahead when submitted.
        readahead: bool,
    }
}

/// Retains the values whose index `keep` accepts.
pub(crate) fn retain<T>(list: &mut Vec<T>, keep: &impl Fn(usize) -> bool) {
    let mut indices = 0..;
    list.retain(|_| indices.next().is_some_and(keep));
}

columns! {
    /// Samples at regular intervals, each over the interval that ends there.
    Samples {
        /// End of each interval.
        time_ns: u64,
        /// Share of the interval the device was busy, 0 to 1.
        busy: f64,
        /// Requests at the device or waiting for it, at the end of the interval.
        queued: u32,
        /// Bytes read from the device in the interval.
        bytes_fetched: u64,
        /// Bytes delivered to readers in the interval.
        bytes_delivered: u64,
        /// Requests the device started in the interval.
        requests: u32,
        /// Pages evicted unused and then missed in the interval.
        #[serde(default)]
        thrashed: u64,
        /// Async requests among `queued`.
        #[serde(default)]
        queued_async: u32,
        /// Requests dispatched past their deadlines in the interval.
        #[serde(default)]
        expired: u32,
    }
}
