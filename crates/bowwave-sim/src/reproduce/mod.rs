//! The published experiments, again: each figure that the source documents print beside the one this simulator gives.
//!
//! An experiment sets up machines with the same cache and policies as the engine, runs them in virtual time, and turns
//! what it sees into [`Figure`]s. A figure that cannot be had says so in its note and does not hold; none is left out.

mod aio_stress;
mod beyond;
mod figure;
mod fsync_tester;
mod iozone;
mod lab;
mod lustre;
mod oltp;
pub mod overheads;
mod overlapped;
mod patterns;
mod script;
mod swap;
mod sysbench;
mod testbed;
pub mod thrashing;
mod tiotest;

#[cfg(feature = "ablation")]
pub use beyond::{Measured, Variant, ablate};
pub use figure::{Bar, Figure, Pair};

use bowwave_core::{ConfigError, Violation};
use std::fmt;

use crate::record::Recording;

/// A published experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// Runs it.
    pub run: fn(&Options) -> Result<Outcome, ReproduceError>,
}

/// How experiments are run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether to keep what the pictures need.
    pub record: bool,
}

/// What an experiment gives.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The figures, in the order of the documents.
    pub figures: Vec<Figure>,
    /// What the figures are made of, in lines for people.
    pub notes: Vec<String>,
    /// The runs, for the report; empty unless asked for.
    pub recording: Recording,
}

/// Why an experiment could not be run: a fault of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReproduceError {
    /// The cache refused its configuration.
    Config(ConfigError),
    /// An invariant did not hold.
    Violation(Violation),
    /// The device refused its parameters.
    Device(String),
}

/// Every experiment, in the order of the documents.
pub const EXPERIMENTS: &[Experiment] = &[
    patterns::EXPERIMENT,
    overheads::EXPERIMENT,
    overlapped::EXPERIMENT,
    iozone::EXPERIMENT,
    aio_stress::EXPERIMENT,
    sysbench::EXPERIMENT,
    oltp::EXPERIMENT,
    thrashing::EXPERIMENT,
    lustre::EXPERIMENT,
    fsync_tester::EXPERIMENT,
    tiotest::EXPERIMENT,
    swap::EXPERIMENT,
    beyond::EXPERIMENT,
];

/// The source documents by number, and the experiments that have figures of each.
pub const DOCUMENTS: &[(&str, &[&str])] = &[
    ("000", &["overheads", "iozone", "aio-stress", "sysbench-fileio", "oltp", "thrashing"]),
    ("001", &["swap"]),
    ("002", &["patterns", "overheads", "overlapped", "iozone", "thrashing"]),
    ("003", &["lustre-mmap"]),
    ("004", &["fsync-tester", "tiotest"]),
    ("future", &["beyond"]),
];

impl fmt::Display for ReproduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "{error}"),
            Self::Violation(violation) => write!(f, "an invariant does not hold: {violation:?}"),
            Self::Device(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for ReproduceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Violation(_) | Self::Device(_) => None,
        }
    }
}

impl From<ConfigError> for ReproduceError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<Violation> for ReproduceError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_belongs_to_a_document_and_every_name_is_one() {
        let named = |id: &str| DOCUMENTS.iter().any(|(_, names)| names.contains(&id));
        assert!(EXPERIMENTS.iter().all(|experiment| named(experiment.id)));
        for name in DOCUMENTS.iter().flat_map(|(_, names)| *names) {
            assert!(EXPERIMENTS.iter().any(|experiment| experiment.id == *name), "{name}");
        }
    }
}
