//! What the runs met: without figures for each fault and outcome, a run without a finding shows nothing.

use super::kinds::kinds;
use super::server::Fault;

kinds! {
    /// Calls, outcomes and steps of the client.
    pub enum Met {
        /// Calls begun.
        Calls = "calls",
        /// Requests sent.
        Requests = "requests",
        /// Events of all kinds.
        Events = "events",
        /// Ranges read in full.
        ReadDone = "reads done",
        /// Reads that ended because the object was replaced.
        ReadChanged = "reads ended by a replaced object",
        /// Reads that ended with another error.
        ReadFailed = "reads failed",
        /// Reads of versions with a strong tag that were done.
        ReadStrong = "reads done by strong tag",
        /// Reads of versions with a date that were done.
        ReadDated = "reads done by date",
        /// Reads of versions without either that were done.
        ReadByNothing = "reads done by size alone",
        /// Reads that mixed versions that nothing distinguishes.
        ReadMixed = "reads of indistinguishable versions",
        /// Parts of reads whose bytes are of several attempts.
        ReadContinued = "parts read in several attempts",
        /// Reads for which the object had been replaced between opening and success.
        ReadOutlived = "reads done of a replaced version",
        /// Hedges sent.
        Hedged = "hedges sent",
        /// Hedges whose bytes were returned.
        HedgeWon = "hedges that won",
        /// Status calls done.
        StatDone = "status calls done",
        /// Status calls failed.
        StatFailed = "status calls failed",
        /// Listings done.
        ListDone = "listings done",
        /// Listings given up without progress.
        ListGivenUp = "listings given up",
        /// Listings that failed otherwise.
        ListFailed = "listings failed",
        /// Upload parts done.
        UploadDone = "uploads done",
        /// Upload parts failed.
        UploadFailed = "uploads failed",
        /// Tasks given up after an error that no attempt can fix.
        Permanent = "given up: permanent error",
        /// Tasks given up after the last attempt.
        Attempts = "given up: attempts",
        /// Tasks given up because of the deadline.
        Time = "given up: time",
        /// Attempts ended at the deadline.
        Cut = "attempts ended at the deadline",
        /// Attempts ended because nothing arrived.
        TimedOut = "attempts ended for silence",
        /// Attempts ended because too little arrived.
        TooSlow = "attempts ended for low throughput",
        /// Attempts after the first.
        Retried = "attempts after the first",
        /// Messages for abandoned attempts.
        Late = "messages of abandoned attempts",
        /// Versions that replaced others.
        Replaced = "objects replaced",
        /// Replacements within the second of the previous version, of its size.
        ReplacedUnseen = "dated objects replaced within a second at one size",
        /// Objects removed.
        Removed = "objects removed",
        /// Requests refused for their condition.
        ConditionFailed = "conditions that failed (412)",
        /// Requests accepted in spite of their condition.
        ConditionIgnored = "conditions ignored that would have failed",
        /// Responses with the validators of an earlier version.
        StaleHead = "responses with stale validators",
    }
}

/// How often everything was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    met: [u64; Met::ALL.len()],
    faults: [u64; Fault::ALL.len()],
}

impl Default for Counts {
    fn default() -> Self {
        Self { met: [0; Met::ALL.len()], faults: [0; Fault::ALL.len()] }
    }
}

impl Counts {
    /// How often `met` was.
    #[must_use]
    pub fn of(&self, met: Met) -> u64 {
        self.met[met as usize]
    }

    /// How often the server had this fault.
    #[must_use]
    pub fn of_fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    pub(super) fn add(&mut self, met: Met, times: u64) {
        self.met[met as usize] += times;
    }

    pub(super) fn add_fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Adds the figures of other runs.
    pub fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.met.iter_mut().zip(other.met) {
            *ours += theirs;
        }
        for (ours, theirs) in self.faults.iter_mut().zip(other.faults) {
            *ours += theirs;
        }
    }

    /// Name and figure of everything, the faults of the server last.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let met = Met::ALL.iter().map(|&met| (met.name(), self.of(met)));
        met.chain(Fault::ALL.iter().map(|&fault| (fault.name(), self.of_fault(fault))))
    }
}
