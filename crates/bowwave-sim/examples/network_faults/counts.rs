//! Faults that a client may have, and counters of what the runs cover.
//!
//! A run without a finding shows nothing about a fault that it never has.

use bowwave_core::named_enum;

use crate::server::Fault;

named_enum! {
    /// A fault that a client may have. The checks must find each; the state machines of the core
    /// never have them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) enum Defect {
        /// Requests carry neither `If-Match` nor `If-Unmodified-Since`.
        NoCondition = "no-condition",
        /// An attempt that brought bytes restores the attempts and the budget of the call.
        ProgressResetsRetries = "progress-resets-retries",
        /// A weak tag identifies a version: it is sent as `If-Match` and compared alone.
        WeakIsStrong = "weak-is-strong",
        /// A weak tag that agrees is enough, whatever date and size say. It is not sent.
        WeakAlone = "weak-alone",
        /// The validators of a response are not compared: the client relies on its condition.
        HeadUnchecked = "head-unchecked",
        /// The range of a response is not compared with the requested one.
        RangeUnchecked = "range-unchecked",
        /// A body that ends is complete, whatever its length.
        LengthUnchecked = "length-unchecked",
        /// The running attempt is not ended at the deadline.
        NoDeadlineCut = "no-deadline-cut",
        /// Throughput and silence are not watched.
        NoPace = "no-pace",
        /// Messages for an abandoned attempt are taken for messages of the running one.
        LateAccepted = "late-accepted",
        /// The bytes of both tries of a hedged read go to one buffer.
        HedgeMixed = "hedge-mixed",
        /// Each late read is hedged, whatever the share.
        HedgeUnbounded = "hedge-unbounded",
        /// `Retry-After` is ignored.
        RetryAfterIgnored = "retry-after-ignored",
        /// Empty pages do not count.
        IdleUnbounded = "idle-unbounded",
        /// A listing that is given up returns the entries it has.
        PartialListing = "partial-listing",
        /// Entries that several pages have are listed several times.
        ListedTwice = "listed-twice",
        /// An upload counts as stored with a success status, even if the body has not been sent in
        /// full.
        EarlySuccess = "early-success",
    }
}

named_enum! {
    /// Calls, outcomes and steps of the client.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) enum Counter {
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

/// Figures of all counters and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    counters: [u64; Counter::ALL.len()],
    faults: [u64; Fault::ALL.len()],
}

impl Default for Counts {
    fn default() -> Self {
        Self { counters: [0; Counter::ALL.len()], faults: [0; Fault::ALL.len()] }
    }
}

impl Counts {
    /// One counter.
    pub(crate) fn of(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// How often the server had this fault.
    pub(crate) fn of_fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    pub(crate) fn add(&mut self, counter: Counter, times: u64) {
        self.counters[counter as usize] += times;
    }

    pub(crate) fn add_fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Adds the figures of other runs.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.counters.iter_mut().zip(other.counters) {
            *ours += theirs;
        }
        for (ours, theirs) in self.faults.iter_mut().zip(other.faults) {
            *ours += theirs;
        }
    }

    /// Name and figure of everything, the faults of the server last.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = Counter::ALL.iter().map(|&counter| (counter.name(), self.of(counter)));
        counters.chain(Fault::ALL.iter().map(|&fault| (fault.name(), self.of_fault(fault))))
    }
}
