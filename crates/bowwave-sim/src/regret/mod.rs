//! How far the policy `stream` is from the best other policy, on patterns outside the tuned set.
//!
//! A [`Point`] is a pattern of the [family](bowwave_trace::generate::Family), a device and a memory
//! size. At each point, `stream` runs with its own window, and every other policy with each of the
//! [windows](Settings::windows). The fastest other run is the *best other*.
//!
//! ```text
//!   seed ──► trace ──► stream ──────────────────► Outcome ──► log, one line each
//!                 ├──► others × windows ──┘                     │
//!                 └──► oracle                                   └──► Summary ──► text, JSON, HTML
//! ```
//!
//! A point takes milliseconds, and its outcome follows from the point alone. So a log can be
//! continued, and the other policies' runs of one log can be compared with the `stream` of another
//! commit.

mod log;
mod page;
mod summary;
#[cfg(test)]
mod tests;

pub use log::{Log, LogError};
pub use page::page;
pub use summary::{Share, Shares, Spread, Summary};

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, PageSize, Policy};
use bowwave_trace::generate::Family;
use serde::{Deserialize, Serialize};

use crate::device::DeviceSpec;
use crate::fast::Writes;
use crate::machine::RecordOptions;
use crate::oracle::Future;
use crate::parallel;
use crate::replay::{ReplayOptions, Workload};
use crate::sweep::{Case, Common, SweepError};

/// The memory sizes, the devices and the windows of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Devices, as [`DeviceSpec::open`] takes them.
    pub devices: Vec<String>,
    /// Memory sizes.
    pub memory: Vec<Memory>,
    /// Largest window of `stream`, in pages.
    pub stream_window: u32,
    /// Largest windows of the other policies, in pages.
    pub windows: Vec<u32>,
}

bowwave_core::named_enum! {
    /// Memory of the cache.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Memory {
        /// Nothing is ever evicted.
        Unlimited = "unlimited",
        /// A quarter of the pages the trace touches, but at least [`Memory::LEAST`] bytes.
        Quarter = "quarter",
    }
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// Seed of the pattern.
    pub seed: u64,
    /// The device.
    pub device: String,
    /// Memory of the cache.
    pub memory: Memory,
}

/// The time and the bytes of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Policy by name.
    pub policy: String,
    /// Largest window in pages.
    pub ra_pages: u32,
    /// Simulated seconds.
    pub seconds: f64,
    /// Bytes read from the device.
    pub bytes: u64,
}

/// The result at a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The point.
    #[serde(flatten)]
    pub point: Point,
    /// The pattern in words.
    pub pattern: String,
    /// Bytes that the readers requested, in whole pages read once for each request.
    pub bytes_wanted: u64,
    /// Seconds of the oracle; `None` for a device without limits.
    pub oracle_seconds: Option<f64>,
    /// `stream`.
    pub stream: Cost,
    /// Each other policy at its fastest window; `none` is among them.
    pub others: Vec<Cost>,
}

impl Memory {
    /// Least bytes of a cache: room for the pinned pages of many readers.
    pub const LEAST: u64 = 4 << 20;
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: ["s3", "hdd", "nvme", "lustre"].map(str::to_owned).to_vec(),
            memory: Memory::ALL.to_vec(),
            stream_window: 256,
            windows: vec![32, 256, 2048],
        }
    }
}

impl Settings {
    /// Every point of these patterns; those of one pattern are adjacent.
    pub fn points(&self, seeds: &[u64]) -> Vec<Point> {
        let mut points = Vec::new();
        for &seed in seeds {
            for device in &self.devices {
                for &memory in &self.memory {
                    points.push(Point { seed, device: device.clone(), memory });
                }
            }
        }
        points
    }
}

impl Outcome {
    /// The fastest of the other policies.
    ///
    /// # Panics
    ///
    /// If there are no others: [`measure`] always has some.
    pub fn best_other(&self) -> &Cost {
        let best = self.others.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        best.expect("other policies were measured")
    }

    /// The run without readahead, if it was measured.
    pub fn none(&self) -> Option<&Cost> {
        self.others.iter().find(|cost| cost.policy == Policy::None.name())
    }

    /// Seconds of `stream` per second of the best other policy.
    pub fn to_best(&self) -> f64 {
        ratio(self.stream.seconds, self.best_other().seconds)
    }

    /// Seconds of `stream` per second without readahead.
    pub fn to_none(&self) -> Option<f64> {
        self.none().map(|none| ratio(self.stream.seconds, none.seconds))
    }

    /// Seconds of `stream` per second of the oracle.
    pub fn to_oracle(&self) -> Option<f64> {
        self.oracle_seconds.filter(|&oracle| oracle > 0.0).map(|oracle| self.stream.seconds / oracle)
    }

    /// Bytes that `stream` fetches per byte wanted.
    pub fn amplification(&self) -> f64 {
        ratio(self.stream.bytes as f64, self.bytes_wanted as f64)
    }

    /// Whether `stream` fetches at most 1.5 x the bytes wanted, or no more than the best other.
    pub fn are_bytes_in_bounds(&self) -> bool {
        self.amplification() <= 1.5 || self.stream.bytes <= self.best_other().bytes
    }
}

/// `a / b`; two zeros are equal.
fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { a / b }
}

/// Why a point was not measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegretError {
    /// A simulation failed.
    Sweep(Point, SweepError),
    /// The trace of a seed could not be built.
    Trace(u64, String),
    /// The caller asked to stop.
    Stopped,
    /// The caller's sink failed.
    Sink(std::io::Error),
}

impl fmt::Display for RegretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sweep(Point { seed, device, memory }, error) => {
                write!(f, "seed {seed} on {device}, memory {memory}: {error}")
            }
            Self::Trace(seed, error) => write!(f, "the trace of seed {seed}: {error}"),
            Self::Stopped => f.write_str("stopped"),
            Self::Sink(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RegretError {}

/// A pattern, ready to run at its points.
struct Subject {
    workload: Workload,
    future: Future,
    options: ReplayOptions,
    pattern: String,
}

impl Subject {
    fn new(seed: u64) -> Result<Self, RegretError> {
        let family = Family::new(seed);
        let failed = |error: &dyn fmt::Display| RegretError::Trace(seed, error.to_string());
        let trace = family.trace().map_err(|error| failed(&error))?;
        let future = Future::of(&trace, PageSize::KIB_4, Writes::LeftOut).map_err(|error| failed(&error))?;
        let workload = Workload::new(trace, None).map_err(|error| failed(&error))?;
        let options = ReplayOptions { think_ns: family.think_ns(), ..ReplayOptions::default() };
        Ok(Self { workload, future, options, pattern: family.description().to_owned() })
    }

    fn cache_bytes(&self, memory: Memory) -> Option<u64> {
        match memory {
            Memory::Unlimited => None,
            Memory::Quarter => {
                let touched = self.future.distinct_pages() * PageSize::KIB_4.bytes();
                Some((touched / 4).max(Memory::LEAST))
            }
        }
    }

    fn case(&self, point: &Point, policy: Policy, ra_pages: u32) -> Case {
        Case {
            policy,
            ra_pages,
            cache_bytes: self.cache_bytes(point.memory),
            device: point.device.clone(),
            seed: point.seed,
            ..Case::default()
        }
    }

    fn run(&self, case: &Case, common: &Common) -> Result<crate::record::Run, SweepError> {
        self.workload.run(case, common, self.options, &Arc::new(AtomicU64::new(0)))
    }

    fn cost(&self, point: &Point, policy: Policy, ra_pages: u32) -> Result<(Cost, u64), RegretError> {
        let run = self.run(&self.case(point, policy, ra_pages), &Common::default());
        let row = run.map_err(|error| RegretError::Sweep(point.clone(), error))?.row;
        let cost = Cost { policy: row.policy, ra_pages, seconds: row.seconds, bytes: row.bytes_fetched };
        Ok((cost, row.accesses * PageSize::KIB_4.bytes()))
    }

    /// Each other policy at its fastest window; of equally fast ones, the one with fewest bytes.
    fn others(&self, point: &Point, windows: &[u32]) -> Result<Vec<Cost>, RegretError> {
        let mut others = Vec::new();
        for policy in bowwave_baselines::ALL.into_iter().filter(|&policy| policy != Policy::Stream) {
            // Without readahead, the window has no effect.
            let windows = if policy == Policy::None { &windows[..windows.len().min(1)] } else { windows };
            let mut best: Option<Cost> = None;
            for &window in windows {
                let (cost, _) = self.cost(point, policy, window)?;
                let is_better = |best: &Cost| (cost.seconds, cost.bytes) < (best.seconds, best.bytes);
                if best.as_ref().is_none_or(is_better) {
                    best = Some(cost);
                }
            }
            others.extend(best);
        }
        Ok(others)
    }

    fn oracle_seconds(&self, point: &Point) -> Option<f64> {
        let limits = DeviceSpec::open(&point.device, &ALGORITHMS).ok()?.limits()?;
        let pages = self.cache_bytes(point.memory).map_or(u64::MAX, |bytes| bytes / PageSize::KIB_4.bytes());
        let frames = u32::try_from(pages).unwrap_or(Config::UNLIMITED).clamp(1, Config::UNLIMITED);
        Some(self.future.bound(frames).oracle(&limits).seconds)
    }
}

/// Measures one point. `others` are runs of the other policies at this point, if they are known.
///
/// # Errors
///
/// A failed simulation.
pub fn measure(point: &Point, settings: &Settings, others: Option<&[Cost]>) -> Result<Outcome, RegretError> {
    let subject = Subject::new(point.seed)?;
    let (stream, bytes_wanted) = subject.cost(point, Policy::Stream, settings.stream_window)?;
    let others = match others {
        Some(others) => others.to_vec(),
        None => subject.others(point, &settings.windows)?,
    };
    let oracle_seconds = subject.oracle_seconds(point);
    let pattern = subject.pattern;
    Ok(Outcome { point: point.clone(), pattern, bytes_wanted, oracle_seconds, stream, others })
}

/// Measures points in parallel, and passes the outcomes to `sink` in the order of the points.
/// `known` has runs of the other policies at some of the points. Stops when `is_stopped` says so.
///
/// # Errors
///
/// The first failed simulation, an error of the sink, or [`RegretError::Stopped`].
pub fn measure_all(
    points: &[Point],
    settings: &Settings,
    known: &BTreeMap<Point, Vec<Cost>>,
    jobs: NonZeroUsize,
    is_stopped: &(dyn Fn() -> bool + Sync),
    mut sink: impl FnMut(Outcome) -> std::io::Result<()> + Send,
) -> Result<(), RegretError> {
    let one = |point: &Point| {
        if is_stopped() {
            return Err(RegretError::Stopped);
        }
        measure(point, settings, known.get(point).map(Vec::as_slice))
    };
    parallel::try_in_order(points, jobs, one, |outcome| sink(outcome).map_err(RegretError::Sink))
}

/// How often `stream` decided for which reason at a point, most frequent first.
///
/// # Errors
///
/// A failed simulation.
pub fn reasons(point: &Point, settings: &Settings) -> Result<Vec<(String, usize)>, RegretError> {
    let subject = Subject::new(point.seed)?;
    let common = Common { record: Some(RecordOptions::default()), ..Common::default() };
    let case = subject.case(point, Policy::Stream, settings.stream_window);
    let run = subject.run(&case, &common).map_err(|error| RegretError::Sweep(point.clone(), error))?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in run.decisions.reason {
        *counts.entry(reason).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    Ok(counts)
}
