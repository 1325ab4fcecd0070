//! The client: it carries out what the state machines of `bowwave_core::network` decide.
//!
//! ```text
//!   call (read, status, listing, upload)
//!    └─ task: one Retry           a status request, a part of a read, a page, a part of an upload
//!        ├─ try: one Pace         the running attempt
//!        └─ hedge: one Pace       at most one second request, with a buffer of its own
//! ```

mod calls;
mod listings;
mod reads;
mod tasks;
mod tries;

use bowwave_core::Instant;
use bowwave_core::network::{
    Expected, Fault, GiveUp, Hedging, Listing, ListingEnd, Pace, Response, Retry, RetryLimits, TooSlow,
    Validators,
};

use super::Flaw;
use super::context::{Context, Event};
use super::met::Met;
use super::server::Server;
use super::settings::Settings;
use super::wire::{Bytes, Listed};
use listings::Entries;
use reads::Read;

/// What the client does, one of several things at once.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) settings: Settings,
    flaw: Option<Flaw>,
    hedging: Hedging,
    /// Reads that could be hedged, and hedges; counted apart from `hedging`, to check it.
    small_reads: u64,
    hedges: u64,
    calls: Vec<Call>,
    tasks: Vec<Task>,
    /// Task of each attempt.
    attempts: Vec<u32>,
    /// Calls that are not over.
    open: u32,
}

/// A call of a program.
#[derive(Debug)]
struct Call {
    kind: Kind,
    begun: Instant,
    /// The server is honest and without faults: the call must succeed.
    must_succeed: bool,
    over: bool,
}

/// What a call does.
#[derive(Debug)]
enum Kind {
    Status { object: u32 },
    Read(Read),
    List(Entries),
    Upload { bytes: u64 },
}

/// Attempts at one request.
#[derive(Debug)]
struct Task {
    call: u32,
    goal: Goal,
    retry: Retry,
    limits: RetryLimits,
    begun: Instant,
    first_failure: Option<Instant>,
    /// The next attempt must not begin before.
    earliest: Instant,
    /// Requests sent, without the hedge.
    sent: u32,
    main: Option<Try>,
    hedge: Option<Try>,
    hedged: bool,
    /// Why there is no further attempt, while the hedge still runs.
    abandoned: Option<Error>,
    over: bool,
}

/// What a task is for.
#[derive(Debug)]
enum Goal {
    Head { object: u32 },
    Part(Part),
    Page { token: Option<String> },
    Put { bytes: u64 },
}

/// A range of one version, and what has arrived of it.
#[derive(Clone, Debug)]
struct Part {
    object: u32,
    version: Validators,
    start: u64,
    end: u64,
    arrived: Vec<Placed>,
    done: u64,
}

/// Bytes in the buffer of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Placed {
    /// Offset in the object that the reader takes them for.
    at: u64,
    bytes: Bytes,
}

/// One attempt.
#[derive(Debug)]
struct Try {
    attempt: u32,
    begun: Instant,
    pace: Pace,
    deadline: Option<Instant>,
    /// What a response must be, for a range.
    expected: Option<Expected>,
    /// When the head arrived and when anything did, counted apart from `pace`, to check it.
    head_at: Option<Instant>,
    heard: Instant,
    /// When bytes of the body arrived, and how many had by then.
    history: Vec<(Instant, u64)>,
    /// Nothing but the end of the body shows the size of the version: its bytes count when all have arrived.
    provisional: bool,
    /// Bytes of the body that have arrived, or have been sent.
    got: u64,
    arrived: Vec<Placed>,
}

/// How a task has succeeded.
#[derive(Debug)]
enum Done {
    Head(Validators),
    Bytes(Vec<Placed>),
    Page(Listed),
    Stored,
}

/// Why a task or a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Error {
    Changed,
    Missing,
    Denied(u16),
    Protocol(&'static str),
    GaveUp(&'static str),
    Listing(&'static str),
}

/// Why an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Why {
    Refused,
    Reset,
    Truncated,
    Slow { silent: bool },
    Deadline,
    Status { status: u16, retry_after_ns: Option<u64> },
    Fatal(Error),
}

impl Client {
    pub(super) fn new(settings: Settings, flaw: Option<Flaw>) -> Self {
        Self {
            settings,
            flaw,
            hedging: Hedging::new(settings.latency_ns, settings.hedge_percent),
            small_reads: 0,
            hedges: 0,
            calls: Vec::new(),
            tasks: Vec::new(),
            attempts: Vec::new(),
            open: 0,
        }
    }

    /// Calls that are not over.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

impl Task {
    /// When the task must have ended, as the limits say; apart from [`Retry::deadline`], to check it.
    fn must_end(&self) -> Option<Instant> {
        let from = if self.limits.from_first_failure { self.first_failure } else { Some(self.begun) };
        from.map(|from| Instant(from.0.saturating_add(self.limits.budget_ns)))
    }
}
