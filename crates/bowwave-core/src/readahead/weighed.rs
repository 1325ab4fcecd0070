//! What a policy weighed before it decided, for `explain`.

use alloc::vec::Vec;

use super::Scores;

named_enum! {
    /// What may be read ahead at a decision.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Candidate {
        /// The next window of a run.
        NextWindow = "next_window",
        /// The window of a first read at page 0.
        FirstWindow = "first_window",
        /// The rest of a run of predicted length.
        KnownLength = "known_length",
        /// The next blocks of a stride.
        Stride = "stride",
        /// The next run, where offset deltas repeat.
        Jump = "jump",
        /// The rest of a place that is read in any order.
        Place = "place",
        /// Pages never read of a file whose pages are read once.
        Rest = "rest",
        /// All of a small file.
        WholeFile = "whole_file",
        /// The last pages of the file.
        Tail = "tail",
    }
}

named_enum! {
    /// What became of a candidate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Verdict {
        /// It is read ahead, as far as its pages are neither cached nor beyond the file.
        Chosen = "chosen",
        /// It would cost more time than it is expected to save.
        NoGain = "no_gain",
        /// Its detector was wrong too often, or never tried yet.
        NotTrusted = "not_trusted",
        /// The waste budget or the free memory does not cover it, or the store is congested.
        NoBudget = "no_budget",
    }
}

/// A candidate of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeighedCandidate {
    /// What may be read ahead.
    pub candidate: Candidate,
    /// Pages of it; of a chosen window, those that the budget covers.
    pub pages: u64,
    /// Expected gain in nanoseconds: the waiting that it saves, less what its pages cost. `None`
    /// while costs are unknown, and where the score of a detector decides.
    pub gain_ns: Option<i64>,
    /// What became of it.
    pub verdict: Verdict,
}

/// What a policy weighed in one call. Candidates are in the order in which they were considered.
/// Usually the first one that pays and that the budget covers is read ahead; jumps may come beside
/// another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weighed {
    /// How well each detector of `stream` has predicted so far.
    pub scores: Option<Scores>,
    /// The candidates.
    pub candidates: Vec<WeighedCandidate>,
}

impl Weighed {
    /// Whether the policy said nothing.
    pub fn is_empty(&self) -> bool {
        self.scores.is_none() && self.candidates.is_empty()
    }
}
