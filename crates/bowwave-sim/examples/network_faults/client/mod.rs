//! The client: it carries out what the state machines of `bowwave_core::network` decide.
//!
//! ```text
//!   call (read, status, listing, upload)
//!    └─ task: one Retry           a status request, a part of a read, a page, a part of an upload
//!        ├─ try: one Pace         the running attempt
//!        └─ hedge: one Pace       at most one second request, with a buffer of its own
//! ```

mod attempts;
mod listings;
mod reads;
mod tasks;

use bowwave_core::Instant;
use bowwave_core::network::{
    Expected, Fault, GiveUp, Hedging, Listing, ListingEnd, Pace, Response, Retry, RetryLimits, TooSlow,
    Validators,
};

use crate::counts::{Counter, Defect};
use crate::run::{Bytes, Context, Event, Listed, Net, Note, Settings};
use crate::server::Server;
use listings::Entries;
use reads::Read;

/// What the client does, one of several things at once.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) settings: Settings,
    defect: Option<Defect>,
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
    main: Option<Attempt>,
    hedge: Option<Attempt>,
    hedged: bool,
    /// Failed there is no further attempt, while the hedge still runs.
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
struct Attempt {
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
    /// Nothing but the end of the body shows the size of the version: its bytes count when all have
    /// arrived.
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

/// Failed a task or a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Error {
    Changed,
    Missing,
    Denied(u16),
    Protocol(&'static str),
    GaveUp(&'static str),
    Listing(&'static str),
}

/// Failed an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Failed {
    Refused,
    Reset,
    Truncated,
    Slow { silent: bool },
    Deadline,
    Status { status: u16, retry_after_ns: Option<u64> },
    Fatal(Error),
}

impl Client {
    pub(crate) fn new(settings: Settings, defect: Option<Defect>) -> Self {
        Self {
            settings,
            defect,
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
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}

impl Task {
    /// When the task must have ended, as the limits say; apart from [`Retry::deadline`], to check
    /// it.
    fn must_end(&self) -> Option<Instant> {
        let from = if self.limits.from_first_failure { self.first_failure } else { Some(self.begun) };
        from.map(|from| Instant(from.0.saturating_add(self.limits.budget_ns)))
    }
}

impl Client {
    /// Draws a call; it begins at `at`.
    pub(crate) fn plan(&mut self, context: &mut Context<'_>, at: Instant) {
        let object = context.random.below(2) as u32;
        let (small, rounds) = (context.chance(1, 2), context.between(1, 3) as u32);
        let kind = match context.random.below(10) {
            0 => Kind::Status { object },
            1..=2 => Kind::List(Entries::new(&self.settings, self.defect, at)),
            3 => Kind::Upload { bytes: context.between(1, 16 << 20) },
            _ => Kind::Read(Read::new(object, small, rounds)),
        };
        self.push(context, at, kind, false);
    }

    /// One call of each kind, which must succeed: the server is honest now, and nothing fails.
    pub(crate) fn plan_calm(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let kinds = [
            Kind::Status { object: 0 },
            Kind::Read(Read::new(0, true, 2)),
            Kind::Read(Read::new(1, false, 1)),
            Kind::List(Entries::new(&self.settings, self.defect, now)),
            Kind::Upload { bytes: 5 << 20 },
        ];
        for kind in kinds {
            self.push(context, now, kind, true);
        }
    }

    fn push(&mut self, context: &mut Context<'_>, at: Instant, kind: Kind, must_succeed: bool) {
        let number = self.calls.len() as u32;
        self.calls.push(Call { kind, begun: at, must_succeed, over: false });
        self.open += 1;
        context.at(at, Event::Begin(number));
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, net: &mut Net<'_>, number: u32) {
        net.context.count(Counter::Calls);
        let call = &self.calls[number as usize];
        let what = match &call.kind {
            Kind::Status { .. } => "status",
            Kind::Read(_) => "read",
            Kind::List(_) => "list",
            Kind::Upload { .. } => "upload",
        };
        net.context.note(&Note::Begin { call: number, what });
        let retry = self.settings.retry;
        match call.kind {
            Kind::Status { object } | Kind::Read(Read { object, .. }) => {
                self.task(net, number, Goal::Head { object }, retry);
            }
            Kind::List(_) => self.next_page(net, number, None),
            Kind::Upload { bytes } => {
                self.task(net, number, Goal::Put { bytes }, self.settings.upload());
            }
        }
    }

    /// Whether the server has given reason for an error.
    fn has_cause(&self, server: &Server, call: u32, error: Error) -> bool {
        match (error, &self.calls[call as usize].kind) {
            (Error::Changed, Kind::Read(read)) => server.objects[read.object as usize].versions.len() > 1,
            (Error::Missing, &(Kind::Read(Read { object, .. }) | Kind::Status { object })) => {
                server.objects[object as usize].versions.iter().any(|version| version.removed)
            }
            (Error::Changed | Error::Missing, _) => false,
            // A network that is slow at times is reason enough.
            (Error::GaveUp(_) | Error::Listing(listings::TOO_SLOW), _) => true,
            (Error::Protocol(_) | Error::Denied(_) | Error::Listing(_), _) => server.faults > 0,
        }
    }

    /// A call ends.
    fn over(&mut self, net: &mut Net<'_>, number: u32, result: Result<(), Error>) {
        net.context.note(&Note::Over { call: number, result: &result });
        let call = &mut self.calls[number as usize];
        if call.over {
            return net.context.violated(|| format!("call {number} ends twice"));
        }
        call.over = true;
        self.open -= 1;
        if let (true, Err(error)) = (call.must_succeed, result) {
            net.context.violated(|| format!("call {number}: {error:?} from a server without faults"));
        }
        if let Err(error) = result
            && !self.has_cause(&net.server, number, error)
        {
            net.context.violated(|| format!("call {number}: {error:?}, and nothing was wrong"));
        }
        if self.listing_end(number).is_some_and(|end| net.context.now > end) {
            net.context.violated(|| format!("call {number}: the listing ends after its deadline"));
        }
        // Parts still being read are unused.
        for task in 0..self.tasks.len() as u32 {
            if self.tasks[task as usize].call == number {
                self.abandon(&mut net.server, task);
            }
        }
        if result.is_ok() {
            self.check_listing(net, number);
            let is_upload = matches!(self.calls[number as usize].kind, Kind::Upload { .. });
            if is_upload && !net.server.stored.contains(&number) {
                net.context.violated(|| format!("call {number}: the server has not stored the part"));
            }
        }
        net.context.count(match (&self.calls[number as usize].kind, result) {
            (Kind::Status { .. }, Ok(())) => Counter::StatDone,
            (Kind::Status { .. }, Err(_)) => Counter::StatFailed,
            (Kind::Read(_), Ok(())) => return,
            (Kind::Read(_), Err(Error::Changed)) => Counter::ReadChanged,
            (Kind::Read(_), Err(_)) => Counter::ReadFailed,
            (Kind::List(_), Ok(())) => Counter::ListDone,
            (Kind::List(_), Err(Error::Listing(_))) => Counter::ListGivenUp,
            (Kind::List(_), Err(_)) => Counter::ListFailed,
            (Kind::Upload { .. }, Ok(())) => Counter::UploadDone,
            (Kind::Upload { .. }, Err(_)) => Counter::UploadFailed,
        });
    }
}
