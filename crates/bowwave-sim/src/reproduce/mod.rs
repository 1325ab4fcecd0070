//! Reproduces published experiments: each figure of the source documents next to the simulator's.
//!
//! An experiment configures machines with the engine's cache and policies, runs them in virtual
//! time, and converts the results to [`Figure`]s. No figure is omitted. Each row has a [`Kind`];
//! the note of one that differs has the reason.

mod aio_stress;
mod beyond;
pub mod document;
mod figure;
mod fsync_tester;
mod iozone;
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
pub use figure::{Bar, Figure, Kind, Pair};

use crate::record::Recording;

/// A published experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub id: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// Runs it.
    pub run: fn(&Options) -> Result<Outcome, ReproduceError>,
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to record data for the report.
    pub record: bool,
    /// Whether to run the variants of the notes, which take most of the time. The rows are the
    /// same without them.
    pub notes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { record: false, notes: true }
    }
}

/// Results of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The figures, in the order of the documents.
    pub figures: Vec<Figure>,
    /// How the figures were obtained, as lines of text.
    pub notes: Vec<String>,
    /// The runs, for the report; empty unless requested.
    pub recording: Recording,
}

/// Why an experiment failed: a bug of this program.
pub type ReproduceError = Box<dyn std::error::Error + Send + Sync>;

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
    lustre::SWEEP,
    fsync_tester::EXPERIMENT,
    tiotest::EXPERIMENT,
    swap::EXPERIMENT,
    beyond::EXPERIMENT,
];

/// The source documents by number, with the experiments for each.
pub const DOCUMENTS: &[(&str, &[&str])] = &[
    ("000", &["overheads", "iozone", "aio-stress", "sysbench-fileio", "oltp", "thrashing"]),
    ("001", &["swap"]),
    ("002", &["patterns", "overheads", "overlapped", "iozone", "thrashing"]),
    ("003", &["lustre-mmap", "lustre-sweep"]),
    ("004", &["fsync-tester", "tiotest"]),
    ("beyond", &["beyond"]),
];

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
