//! Configuration of a request queue, validated once.

use std::fmt;

use bowwave_core::ConfigError;
use bowwave_core::schedule::{Algorithm, CONGESTED_REQUESTS, KnobError, QUEUE_REQUESTS, SchedulerConfig};

/// Settings of the queue in front of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Order of dispatch.
    pub elevator: Elevator,
    /// Maximum requests per direction after merging, including those at the device. Further
    /// requests wait outside, in order of arrival. At least 1.
    pub requests_max: usize,
    /// Requests per direction from which it is congested: from 1 to `requests_max`.
    pub congested_on: usize,
    /// Requests per direction below which it is no longer congested: from 1 to `congested_on`.
    pub congested_off: usize,
    /// Whether to merge adjacent requests.
    pub merge: bool,
    /// Maximum bytes of a fill. The cache splits larger fills; the queue may merge them again.
    pub fill_bytes_max: u64,
    /// With a scheduler of the core: spreads pending requests over the device's slots, as the
    /// engine does. A merge stops at the request's share of the queued and in-flight bytes, but at
    /// least at this size. 0: merge without this limit.
    pub spread_bytes_min: u64,
    /// How long [`Elevator::Anticipatory`] waits for the same owner's next request, in nanoseconds.
    pub idle_ns: u64,
    /// Maximum distance of the owner's next request from its last one that is worth the wait, in
    /// bytes.
    pub near_bytes: u64,
    /// Settings of the core's scheduler, if the elevator uses one. Ignores its algorithm, back
    /// merges and request size: the elevator, `merge` and the device set them.
    pub scheduler: SchedulerConfig,
}

/// Order of dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elevator {
    /// In order of arrival.
    Noop,
    /// The next request upwards from the end of the last one; from the highest back to the lowest.
    ///
    /// Fair to addresses, not to owners: every request is served before the head passes its address
    /// again. An owner whose next request is always queued before its last one ends keeps the head
    /// until it stops.
    Clook,
    /// As [`Clook`](Self::Clook), but the device idles briefly after a demand read if the owner's
    /// next read is likely to be near and soon.
    ///
    /// It does not wait for an owner whose requests came later on average (decaying over about
    /// eight requests).
    Anticipatory,
    /// The core's scheduler, with one of its algorithms or one of another crate.
    Scheduler(Algorithm),
}

impl QueueConfig {
    /// Checks every setting.
    ///
    /// # Errors
    ///
    /// The first setting that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { requests_max, congested_on, congested_off, .. } = *self;
        let checks = [
            ("requests_max", requests_max, requests_max >= 1, "at least 1"),
            (
                "congested_on",
                congested_on,
                (1..=requests_max).contains(&congested_on),
                "from 1 to requests_max",
            ),
            (
                "congested_off",
                congested_off,
                (1..=congested_on).contains(&congested_off),
                "from 1 to congested_on",
            ),
        ];
        if let Some((field, value, _, bound)) = checks.into_iter().find(|&(_, _, holds, _)| !holds) {
            return Err(ConfigError { field, value: value as u64, bound });
        }
        self.scheduler.validate()
    }

    /// The same queue with another scheduler: the name of an [`Elevator`], optionally followed by a
    /// colon and settings of the core's scheduler, as in `deadline:starved=4,async_expire_ms=1000`.
    /// Other settings keep their values. `schedulers` are the known algorithms.
    ///
    /// # Errors
    ///
    /// An unknown name or setting, or a value out of bounds: one line.
    pub fn with_scheduler(&self, text: &str, schedulers: &[Algorithm]) -> Result<Self, String> {
        let (name, knobs) = text.split_once(':').map_or((text, None), |(name, knobs)| (name, Some(knobs)));
        let elevator = Elevator::parse(name, schedulers)?;
        let mut config = Self { elevator, ..self.clone() };
        match knobs {
            None => {}
            Some(_) if elevator.algorithm().is_none() => return Err(format!("{elevator} has no knobs")),
            Some(knobs) => config.scheduler.turn(knobs).map_err(|error: KnobError| error.to_string())?,
        }
        Ok(config)
    }

    /// No limit, no merging, in order of arrival: a device without a queue.
    pub fn open() -> Self {
        Self {
            elevator: Elevator::Noop,
            requests_max: usize::MAX,
            congested_on: usize::MAX,
            congested_off: usize::MAX,
            merge: false,
            ..Self::default()
        }
    }
}

/// Linux at the time of the source documents: 128 requests, congested at 7/8, merging, C-LOOK.
impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            elevator: Elevator::Clook,
            requests_max: QUEUE_REQUESTS,
            congested_on: CONGESTED_REQUESTS,
            congested_off: CONGESTED_REQUESTS,
            merge: true,
            fill_bytes_max: u64::MAX,
            spread_bytes_min: 0,
            idle_ns: 6_000_000,
            near_bytes: 2 << 20,
            scheduler: SchedulerConfig::of(Algorithm::Deadline),
        }
    }
}

impl Elevator {
    /// The elevators without a scheduler, and one for each of `schedulers`.
    pub fn all(schedulers: &[Algorithm]) -> impl Iterator<Item = Self> {
        // `noop` needs no scheduler.
        let others = schedulers.iter().filter(|&&algorithm| algorithm != Algorithm::Noop);
        [Self::Noop, Self::Clook, Self::Anticipatory].into_iter().chain(others.copied().map(Self::Scheduler))
    }

    /// The elevator of this name in [`all`](Self::all).
    ///
    /// # Errors
    /// An unknown name.
    pub fn parse(name: &str, schedulers: &[Algorithm]) -> Result<Self, String> {
        let known = || Self::all(schedulers).map(Self::name).collect::<Vec<_>>().join(", ");
        let found = Self::all(schedulers).find(|elevator| elevator.name() == name);
        found.ok_or_else(|| format!("unknown elevator `{name}`; known: {}", known()))
    }

    /// The algorithm of the core's scheduler, if this elevator uses it.
    pub const fn algorithm(self) -> Option<Algorithm> {
        match self {
            Self::Noop | Self::Clook | Self::Anticipatory => None,
            Self::Scheduler(algorithm) => Some(algorithm),
        }
    }

    /// Name on the command line and in experiments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Clook => "clook",
            Self::Anticipatory => "anticipatory",
            Self::Scheduler(algorithm) => algorithm.name(),
        }
    }
}

impl fmt::Display for Elevator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
