//! Sweeps: one workload under every combination of policy, window, cache size, device and seed, in
//! parallel.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Config, ConfigError, Eviction, Instant, Policy, Violation};

use crate::device::{DeviceError, DeviceSpec};
use crate::faults::Faults;
use crate::machine::{Host, Machine, RecordOptions, Setup, Walk};
use crate::parallel;
use crate::queue::{Queue, QueueConfig};
use crate::record::Run;

/// One machine of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Readahead policy.
    pub policy: Policy,
    /// Maximum pages of a window.
    pub ra_pages: u32,
    /// Bytes of the cache; `None` is unlimited.
    pub cache_bytes: Option<u64>,
    /// The device, as [`DeviceSpec::open`] takes it.
    pub device: String,
    /// The scheduler in front of it, as [`QueueConfig::with_scheduler`] takes it; empty for the
    /// device's own.
    pub scheduler: String,
    /// Seed of all draws: the device's noise, faults.
    pub seed: u64,
    /// The workload of the experiment; empty if there is only one.
    pub workload: String,
}

/// Settings shared by all machines of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Host costs.
    pub host: Host,
    /// The queue in front of the device; `None` for the device's own.
    pub queue: Option<QueueConfig>,
    /// How reads process their pages.
    pub walk: Walk,
    /// Eviction policy.
    pub eviction: Eviction,
    /// Share of requests that fail.
    pub failing: f64,
    /// Whether each step is checked.
    pub check: bool,
    /// What to record for a report.
    pub record: Option<RecordOptions>,
    /// When to stop; `None` when all readers have ended.
    pub until: Option<Instant>,
    /// Whether machines collect what led to each decision
    /// ([`Machine::take_explained`](crate::machine::Machine::take_explained)).
    pub explain: bool,
}

/// Lists of values: a sweep runs every combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Policies.
    pub policies: Vec<Policy>,
    /// Maximum pages of a window.
    pub ra_pages: Vec<u32>,
    /// Cache sizes in bytes; `None` is unlimited.
    pub cache_bytes: Vec<Option<u64>>,
    /// Devices.
    pub devices: Vec<String>,
    /// Schedulers; an empty name is the device's own.
    pub schedulers: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Names of workloads; one empty name if there is only one.
    pub workloads: Vec<String>,
}

/// Why a machine did not finish.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SweepError {
    /// The cache or the queue rejected its configuration.
    Config(ConfigError),
    /// An unknown or invalid device.
    Device(DeviceError),
    /// A violated invariant of the cache: a bug of this program.
    Violation(Violation),
    /// The workload does not fit the machine: one line with the cause.
    Unfit(String),
}

impl Axes {
    /// The default policies: the product's own first, no readahead, and the paper's.
    pub const POLICIES: [Policy; 3] = [Policy::Stream, Policy::None, Policy::OnDemand];

    /// Every combination, workloads and devices outermost, policies innermost: comparable rows are
    /// adjacent.
    pub fn cases(&self) -> Vec<Case> {
        self.workloads.iter().flat_map(|workload| self.cases_of(workload)).collect()
    }

    fn cases_of(&self, workload: &str) -> Vec<Case> {
        let mut cases = Vec::new();
        for (device, scheduler) in self.queues() {
            for &cache_bytes in &self.cache_bytes {
                for &ra_pages in &self.ra_pages {
                    for &seed in &self.seeds {
                        for &policy in &self.policies {
                            cases.push(Case {
                                policy,
                                ra_pages,
                                cache_bytes,
                                device: device.to_owned(),
                                scheduler: scheduler.to_owned(),
                                seed,
                                workload: workload.to_owned(),
                            });
                        }
                    }
                }
            }
        }
        cases
    }

    /// Each device with each scheduler.
    fn queues(&self) -> impl Iterator<Item = (&str, &str)> {
        let with = |device| self.schedulers.iter().map(move |scheduler| (device, scheduler.as_str()));
        self.devices.iter().map(String::as_str).flat_map(with)
    }
}

impl Default for Case {
    /// The default policy and window, in an unlimited cache on a device that takes no time.
    fn default() -> Self {
        let Config { policy, ra_pages, .. } = Config::default();
        Self {
            policy,
            ra_pages,
            cache_bytes: None,
            device: "instant".to_owned(),
            scheduler: String::new(),
            seed: 0,
            workload: String::new(),
        }
    }
}

impl Case {
    /// Frames of the cache; `None` is unlimited.
    pub fn frames(&self) -> Option<u32> {
        let pages = self.cache_bytes? / Config::default().page_size.bytes();
        Some(u32::try_from(pages).unwrap_or(Config::UNLIMITED).min(Config::UNLIMITED))
    }

    /// Creates the machine of this case, without files and processes.
    ///
    /// # Errors
    ///
    /// An invalid configuration or device.
    pub fn machine(&self, common: &Common) -> Result<Machine, SweepError> {
        let device = DeviceSpec::open(&self.device, &ALGORITHMS)?;
        let config = Config {
            frames: self.frames().unwrap_or(Config::UNLIMITED),
            ra_pages: self.ra_pages,
            policy: self.policy,
            eviction: common.eviction,
            stream: device.stream_config(),
            explain: common.explain,
            ..Config::default()
        };
        let mut queue = common.queue.clone().unwrap_or_else(|| device.queue().clone());
        if !self.scheduler.is_empty() {
            queue = queue.with_scheduler(&self.scheduler, &ALGORITHMS).map_err(SweepError::Unfit)?;
        }
        let queue = Queue::new(device.build(self.seed), queue)?;
        let faults = Faults { seed: self.seed, failing: common.failing };
        let Common { host, walk, check, record, .. } = *common;
        Ok(Machine::new(Setup { config, host, queue, walk, faults, check, record })?)
    }

    /// Runs the workload that `load` adds to a machine, to its end.
    ///
    /// # Errors
    ///
    /// An invalid configuration or device; a violated invariant.
    pub fn run(
        &self,
        common: &Common,
        load: &(dyn Fn(&mut Machine, &Self) + Sync),
        progress: &Arc<AtomicU64>,
    ) -> Result<Run, SweepError> {
        let mut machine = self.machine(common)?;
        machine.count_reads_in(Arc::clone(progress));
        load(&mut machine, self);
        machine.run(common.until)?;
        let mut run = machine.summary();
        run.row.policy = self.policy.name().to_owned();
        run.row.device = self.device.clone();
        run.row.scheduler.clone_from(&self.scheduler);
        run.row.cache_bytes = self.cache_bytes;
        run.row.ra_pages = self.ra_pages;
        run.row.seed = self.seed;
        run.row.workload.clone_from(&self.workload);
        run.row.eviction = common.eviction.name().to_owned();
        Ok(run)
    }
}

/// Runs every case on `workers` threads; runs are in the order of the cases. `progress` counts the
/// reads of all.
///
/// # Errors
///
/// The first error of a case; later cases are not started.
pub fn run(
    cases: &[Case],
    common: &Common,
    load: &(dyn Fn(&mut Machine, &Case) + Sync),
    workers: NonZeroUsize,
    progress: &Arc<AtomicU64>,
) -> Result<Vec<Run>, SweepError> {
    parallel::try_map(cases, workers, |case| case.run(common, load, progress))
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "{error}"),
            Self::Device(error) => write!(f, "{error}"),
            Self::Violation(error) => write!(f, "{error}"),
            Self::Unfit(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for SweepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Device(error) => Some(error),
            Self::Violation(error) => Some(error),
            Self::Unfit(_) => None,
        }
    }
}

impl From<ConfigError> for SweepError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<DeviceError> for SweepError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Violation> for SweepError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<bowwave_trace::Error> for SweepError {
    fn from(error: bowwave_trace::Error) -> Self {
        Self::Unfit(error.to_string())
    }
}
