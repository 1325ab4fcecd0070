//! How reliable each detector is. Most detectors predict all the time. The next reads score the
//! predictions, even if nothing was read ahead.

use super::tuning::tuning;

named_enum! {
    /// A detector of an access pattern.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Detector {
        /// The next read begins where the last one ended, or shortly after.
        Sequential = "sequential",
        /// The next read ends where the last one began.
        Backward = "backward",
        /// Runs begin at an equal distance from each other.
        Stride = "stride",
        /// The next run is at least as long as the last ones were.
        Cluster = "cluster",
        /// The offset deltas between runs repeat.
        Jumps = "jumps",
        /// All of a small file is read.
        Whole = "whole",
        /// More of the last pages of the file is read.
        Tail = "tail",
    }
}

/// A score for each detector: from 0, wrong lately, to [`Scores::MAX`], right lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scores([u8; Detector::ALL.len()]);

impl Scores {
    /// The best score.
    pub const MAX: u8 = 15;

    /// Sequential reads, small files and tails are trusted at once; the other detectors must prove
    /// themselves.
    pub(super) fn new() -> Self {
        let (trusted, unproven) = (tuning().trusted as u8, tuning().trusted as u8 / 2);
        Self([trusted + 2, unproven, unproven, unproven, unproven, trusted, trusted])
    }

    /// The score of a detector.
    pub fn of(self, detector: Detector) -> u8 {
        self.0[detector as usize]
    }

    /// Whether new runs are read ahead by this detector's predictions.
    pub fn trusts(self, detector: Detector) -> bool {
        u64::from(self.of(detector)) >= tuning().trusted && tuning().disabled & 1 << detector as u64 == 0
    }

    /// Whether the score of a detector differs from its first one.
    pub(super) fn has_judged(self, detector: Detector) -> bool {
        self.of(detector) != Self::new().of(detector)
    }

    /// Counts a prediction that was exact to the page. It counts twice, as chance is unlikely.
    pub(super) fn count_exact(&mut self, detector: Detector) {
        self.count(detector, true);
        self.count(detector, true);
    }

    /// Counts a prediction.
    pub(super) fn count(&mut self, detector: Detector, right: bool) {
        let (score, step) = (&mut self.0[detector as usize], tuning().score_step as u8);
        *score = if right { (*score + step).min(Self::MAX) } else { score.saturating_sub(step + 1) };
    }
}
