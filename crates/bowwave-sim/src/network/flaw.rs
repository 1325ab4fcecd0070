//! Faults planted in the simulated client.

use super::kinds::kinds;

kinds! {
    /// A fault that a client may have. The checks must find each; the state machines of the core never have them.
    pub enum Flaw {
        /// Requests carry neither `If-Match` nor `If-Unmodified-Since`.
        NoCondition = "no-condition",
        /// An attempt that brought bytes restores the attempts and the budget of the call.
        ProgressResetsTries = "progress-resets-tries",
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
        /// An upload counts as stored with a success status, even if the body has not been sent in full.
        EarlySuccess = "early-success",
    }
}
