//! How well each detector foretells: shadow predictions, made whether or not anything is read for them.

use core::fmt;

named_enum! {
    /// What looks for a pattern.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Detector {
        /// The next read begins where the last one ended, or a little behind.
        Sequential = "sequential",
        /// The next read ends where the last one began.
        Backward = "backward",
        /// The next run begins as far from the last one as that from the one before.
        Stride = "stride",
        /// The next run is at least as long as the last ones were.
        Cluster = "cluster",
        /// The jumps between runs repeat.
        Jumps = "jumps",
        /// All of a small file is wanted.
        Whole = "whole",
        /// More of the last pages of the file is wanted.
        Tail = "tail",
    }
}

/// A score of each detector, from 0, always wrong, to [`Scores::MAX`], always right lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scores([u8; Detector::ALL.len()]);

impl Scores {
    /// The best score.
    pub const MAX: u8 = 15;
    /// From here on a detector's predictions are acted on.
    pub const TRUSTED: u8 = 8;
    /// A right prediction counts so much, a wrong one a point more, so that a coin is not trusted.
    const STEP: u8 = 2;

    /// Sequential reads, small files and tails are trusted at once, as by every readahead there is; the others have to
    /// show first what they can.
    pub(super) const fn new() -> Self {
        Self([Self::TRUSTED + 2, 4, 4, 4, 4, Self::TRUSTED, Self::TRUSTED])
    }

    /// The score of a detector.
    #[must_use]
    pub fn of(self, detector: Detector) -> u8 {
        self.0[detector as usize]
    }

    /// Whether a detector's predictions are acted on.
    #[must_use]
    pub fn trusts(self, detector: Detector) -> bool {
        self.of(detector) >= Self::TRUSTED
    }

    /// Whether predictions of a detector have come true, or not. It may have come back to where it was.
    pub(super) fn has_judged(self, detector: Detector) -> bool {
        self.of(detector) != Self::new().of(detector)
    }

    /// A prediction has come true to the page, which hardly happens by chance: as good as two.
    pub(super) fn count_exact(&mut self, detector: Detector) {
        self.count(detector, true);
        self.count(detector, true);
    }

    /// A prediction has come true, or not.
    pub(super) fn count(&mut self, detector: Detector, right: bool) {
        let score = &mut self.0[detector as usize];
        *score =
            if right { (*score + Self::STEP).min(Self::MAX) } else { score.saturating_sub(Self::STEP + 1) };
    }
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
