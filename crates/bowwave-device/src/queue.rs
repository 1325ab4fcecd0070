//! How a queue is set up, checked once.

use std::fmt;
use std::str::FromStr;

use bowwave_baselines::{DEADLINE_LITERAL, DEADLINE_RW};
use bowwave_core::schedule::{Algorithm, CONGESTED_REQUESTS, KnobError, QUEUE_REQUESTS, SchedulerConfig};

/// Knobs of the queue before a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// In which order requests go to the device.
    pub elevator: Elevator,
    /// Most requests of a direction after merging, those at the device included; further ones wait outside, in order
    /// of arrival. At least 1.
    pub requests_max: usize,
    /// Requests of a direction from which it counts as congested: at most `requests_max`, at least 1.
    pub congested_on: usize,
    /// Requests of a direction below which it no longer does: at most `congested_on`, at least 1.
    pub congested_off: usize,
    /// Whether neighbouring requests become one.
    pub merge: bool,
    /// Most bytes of a fill that the cache makes before this queue; what is larger is several, which may be merged again.
    pub fill_bytes_max: u64,
    /// Where the elevator is one of the core's algorithms: what waits is dealt out over the device's slots, as the engine does,
    /// so no request is merged to more than its share of what waits and is at the device, or this. 0: to as much as there is.
    pub spread_bytes_min: u64,
    /// How long [`Elevator::Anticipatory`] waits for the same owner's next request, in nanoseconds.
    pub idle_ns: u64,
    /// How far from the end of the owner's last request its next may begin to be worth the wait, in bytes.
    pub near_bytes: u64,
    /// Knobs of the core's scheduler, if the elevator is one of its algorithms. Its algorithm, merges behind a request and
    /// request size are not looked at: the elevator, `merge` and the device say these.
    pub scheduler: SchedulerConfig,
}

/// In which order requests go to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elevator {
    /// In order of arrival.
    Noop,
    /// The next one upwards from where the last one ended; from the highest back to the lowest.
    ///
    /// Fair to addresses, not to owners: every request is served before the head comes past its address again, but an
    /// owner that always has its next request queued before its last has ended keeps the head until it stops.
    Clook,
    /// As [`Clook`](Self::Clook), but after a demand read the device stays idle for a short time, if the owner's next
    /// read nearby is likely to come within it.
    ///
    /// An owner whose requests came later than that on average (decaying over some eight requests) is not waited for.
    Anticipatory,
    /// Linux 2.6.29's deadline ([`DEADLINE_RW`]).
    DeadlineRw,
    /// The scheduler of the core: sync before async.
    Deadline,
    /// The patch that sync before async comes from, to the letter ([`DEADLINE_LITERAL`]).
    DeadlineLiteral,
}

/// A knob of [`QueueConfig`] that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfigError {
    /// Name of the knob.
    pub field: &'static str,
    /// Its value.
    pub value: usize,
    /// What it must be.
    pub bound: &'static str,
}

impl QueueConfig {
    /// Checks every knob.
    ///
    /// # Errors
    /// The first knob that is out of bounds.
    pub fn validate(&self) -> Result<(), QueueConfigError> {
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
            return Err(QueueConfigError { field, value, bound });
        }
        self.scheduler.validate().map_err(|error| QueueConfigError {
            field: error.field,
            value: error.value as usize,
            bound: error.bound,
        })
    }

    /// The same queue in another order: the name of an [`Elevator`] and, behind a colon, knobs of the core's scheduler, as in
    /// `deadline:starved=4,async_expire_ms=1000`. Knobs that are not named stay as they are.
    ///
    /// # Errors
    /// An unknown name or knob, or a value out of bounds: one line.
    pub fn with_scheduler(&self, text: &str) -> Result<Self, String> {
        let (name, knobs) = text.split_once(':').map_or((text, None), |(name, knobs)| (name, Some(knobs)));
        let elevator: Elevator = name.parse()?;
        let mut config = Self { elevator, ..self.clone() };
        match knobs {
            None => {}
            Some(_) if elevator.algorithm().is_none() => return Err(format!("{elevator} has no knobs")),
            Some(knobs) => config.scheduler.turn(knobs).map_err(|error: KnobError| error.to_string())?,
        }
        Ok(config)
    }

    /// As many requests as come, in order, unmerged: a device without a queue before it.
    #[must_use]
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

/// Linux's of the time of the source documents: 128 requests, congested at 7/8, merging, C-LOOK.
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
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Noop,
        Self::Clook,
        Self::Anticipatory,
        Self::DeadlineRw,
        Self::Deadline,
        Self::DeadlineLiteral,
    ];

    /// The algorithm of the core's scheduler, if that decides.
    #[must_use]
    pub const fn algorithm(self) -> Option<Algorithm> {
        match self {
            Self::Noop | Self::Clook | Self::Anticipatory => None,
            Self::DeadlineRw => Some(DEADLINE_RW),
            Self::Deadline => Some(Algorithm::Deadline),
            Self::DeadlineLiteral => Some(DEADLINE_LITERAL),
        }
    }

    /// Its name on the command line and in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Clook => "clook",
            Self::Anticipatory => "anticipatory",
            Self::DeadlineRw => DEADLINE_RW.name(),
            Self::Deadline => Algorithm::Deadline.name(),
            Self::DeadlineLiteral => DEADLINE_LITERAL.name(),
        }
    }
}

impl fmt::Display for Elevator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Elevator {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|elevator| elevator.name() == name);
        found.ok_or_else(|| format!("unknown elevator `{name}`; known: {known}"))
    }
}

impl fmt::Display for QueueConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.field, self.value, self.bound)
    }
}

impl std::error::Error for QueueConfigError {}
