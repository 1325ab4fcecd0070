//! Faults of the network, in virtual time and from a seed.
//!
//! ```text
//!   client ──► core::network ──► client ──► requests ──► server: objects, versions, faults
//!     ▲                                                     │
//!     └──────────────── agenda, in order of time ◄──────────┘
//! ```
//!
//! The state machines of `bowwave_core::network` are those of the network backends; the client here
//! composes them the same way. The server resets, truncates, stalls, drips, lies and replaces
//! objects. A run checks for each call:
//!
//! 1. Bytes that a read returns are complete, at their offsets, and of the version that was opened.
//!    Without a strong tag, versions of one size and one second may mix; without a date, too,
//!    versions of one size.
//! 2. A call ends within its budget. No attempt begins at or after the deadline, and none lasts
//!    beyond it. There are at most `attempts_max` requests, and one hedge within the share of
//!    hedged reads. Retries respect `Retry-After`. An attempt ends after a period of silence or of
//!    too few bytes.
//! 3. Everything ends, within bounds of steps and virtual time. An error has a cause, and comes no
//!    sooner than the limits say.
//! 4. A listing that succeeds has each entry once and all entries, unless the server has left out
//!    some.
//! 5. Once the server is honest and nothing fails any more, every call succeeds with its first
//!    attempt.
//! 6. The same seed gives the same run: [`run`] returns a hash of its log.
//!
//! [`Defect`] plants faults in the client, to see that the checks find them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

use bowwave_core::network::{PaceLimits, Response, RetryLimits};
use bowwave_core::{Instant, Random};

use crate::client::Client;
use crate::counts::{Counter, Counts, Defect};
use crate::server::{Fault, Server, Version};

/// Most events of a run. Runs have some hundred; one with more does not end.
const EVENTS_MAX: u64 = 20_000;
/// Most virtual time of a run, in nanoseconds.
const TIME_MAX: u64 = 2 * 3600 * SECOND;

/// Runs one seed and returns the hash of its log. `counts` is added to; `log` receives a line for
/// each step.
///
/// # Errors
/// The invariant that does not hold.
pub(crate) fn run<'a>(
    seed: u64,
    defect: Option<Defect>,
    counts: &'a mut Counts,
    log: Option<&'a mut dyn Write>,
) -> Result<u64, String> {
    let mut context = Context::new(seed, counts, log);
    let settings = Settings::draw(&mut context);
    let server = Server::new(&mut context, settings.pace.silence_ns);
    let mut net = Net { context, server };
    let mut client = Client::new(settings, defect);
    let begun = net.context.now;
    for _ in 0..net.context.between(3, 8) {
        let at = Instant(begun.0 + net.context.between(0, 5000) * 1_000_000);
        client.plan(&mut net.context, at);
    }
    let mut calm = false;
    while let Some(event) = net.context.next() {
        step(&mut net, &mut client, event);
        let context = &mut net.context;
        if let Some(violation) = context.take_violation() {
            return Err(violation);
        }
        if context.scheduled() > EVENTS_MAX || context.now.0 - begun.0 > TIME_MAX {
            return Err(format!("no end after {} events, at {:?}", context.scheduled(), context.now));
        }
        if client.open() == 0 && !calm {
            calm = true;
            context.after(SECOND, Event::Calm);
        }
    }
    if client.open() > 0 {
        return Err(format!("{} calls never end", client.open()));
    }
    Ok(net.context.digest())
}

fn step(net: &mut Net<'_>, client: &mut Client, event: Event) {
    match event {
        Event::Begin(call) => client.begin(net, call),
        Event::Round(call) => client.round(net, call),
        Event::Arrive(attempt) => net.server.arrive(&mut net.context, attempt),
        Event::Serve(attempt) => {
            if let Some(message) = net.server.serve(&mut net.context, attempt) {
                client.receive(net, attempt, message);
            }
        }
        Event::Timer(attempt) => client.timer(net, attempt),
        Event::Resume(task) => client.resume(net, task),
        Event::Late(task) => client.late(net, task),
        Event::Replace(object) => net.server.replace(&mut net.context, object),
        Event::Calm => {
            net.server.calm_down(&mut net.context);
            client.plan_calm(&mut net.context);
        }
    }
}

/// The server, and the time and the log that it shares with the client.
pub(crate) struct Net<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) server: Server,
}

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A call begins.
    Begin(u32),
    /// The next range of an opened object is read.
    Round(u32),
    /// A request, by its attempt, reaches the server.
    Arrive(u32),
    /// The next message for an attempt reaches the client.
    Serve(u32),
    /// Pace or deadline of an attempt are due.
    Timer(u32),
    /// A task's next attempt.
    Resume(u32),
    /// A read is late.
    Late(u32),
    /// An object is replaced.
    Replace(u32),
    /// The server turns honest and stays so.
    Calm,
}

/// A line of the log.
#[derive(Debug, Hash)]
pub(crate) enum Note<'a> {
    Begin { call: u32, what: &'static str },
    Sent { attempt: u32, task: u32, hedge: bool, request: &'a Request },
    Fault { attempt: u32, fault: Fault },
    Replaced { object: u32, version: u32, now: &'a Version },
    Received { attempt: u32, message: &'a Message },
    Ignored { attempt: u32 },
    Failed { attempt: u32, why: &'a dyn Loggable },
    Again { task: u32, at: Instant },
    Ended { task: u32, result: &'a dyn Loggable },
    Over { call: u32, result: &'a dyn Loggable },
    Calm,
}

/// What can be printed and hashed behind a reference.
pub(crate) trait Loggable: fmt::Debug {
    fn feed(&self, state: &mut dyn Hasher);
}

impl<T: fmt::Debug + Hash> Loggable for T {
    fn feed(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }
}

impl Hash for dyn Loggable + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.feed(state);
    }
}

/// What every part of a run shares.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) random: Random,
    agenda: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    /// Numbers events: those of one time happen in the order in which they were scheduled.
    scheduled: u64,
    counts: &'a mut Counts,
    digest: DefaultHasher,
    log: Option<&'a mut dyn Write>,
    violation: Option<String>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(seed: u64, counts: &'a mut Counts, log: Option<&'a mut dyn Write>) -> Self {
        Self {
            // Objects have dates before the first event.
            now: Instant(1000 * SECOND),
            random: Random::new(seed),
            agenda: BinaryHeap::with_capacity(64),
            scheduled: 0,
            counts,
            digest: DefaultHasher::new(),
            log,
            violation: None,
        }
    }

    pub(crate) fn at(&mut self, at: Instant, event: Event) {
        self.agenda.push(Reverse((at.max(self.now), self.scheduled, event)));
        self.scheduled += 1;
    }

    pub(crate) fn after(&mut self, ns: u64, event: Event) {
        self.at(Instant(self.now.0.saturating_add(ns)), event);
    }

    /// Moves time to the next event.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.agenda.pop()?;
        self.now = at;
        self.count(Counter::Events);
        Some(event)
    }

    /// Events so far, those to come included.
    pub(crate) fn scheduled(&self) -> u64 {
        self.scheduled
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        self.counts.add(counter, 1);
    }

    pub(crate) fn note(&mut self, note: &Note<'_>) {
        if let Note::Fault { fault, .. } = note {
            self.counts.add_fault(*fault);
        }
        self.now.hash(&mut self.digest);
        note.hash(&mut self.digest);
        if let Some(log) = &mut self.log {
            let since = self.now.0 - 1000 * SECOND;
            // A log that cannot be written shows nothing; the run continues.
            writeln!(log, "{:>12}.{:06} ms  {note:?}", since / MS, since % MS).ok();
        }
    }

    /// Hash of the log.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// An invariant does not hold. The first one counts.
    pub(crate) fn violated(&mut self, what: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(what);
    }

    pub(crate) fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    /// True in `part` of `whole` cases.
    pub(crate) fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.random.below(whole) < part
    }

    /// A number from `least` to `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most.saturating_sub(least) + 1)
    }

    /// One of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.below(choices.len() as u64) as usize]
    }
}

/// Limits of one run. They are as different as the options of the stores allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) retry: RetryLimits,
    pub(crate) pace: PaceLimits,
    /// Share of small reads that may be hedged, in percent.
    pub(crate) hedge_percent: u32,
    /// Typical latency that the store's profile states, in nanoseconds.
    pub(crate) latency_ns: u64,
    pub(crate) idle_pages_max: u32,
    /// Time of one listing, in nanoseconds.
    pub(crate) listing_ns: u64,
}

/// Most entries of a listing. More than the honest server has.
pub(crate) const ENTRIES_MAX: u64 = 60;
/// Most bytes of a listing.
pub(crate) const LISTING_BYTES_MAX: u64 = 1 << 20;
/// Longer reads are not hedged.
pub(crate) const SMALL_MAX: u64 = 256 << 10;

impl Settings {
    pub(crate) fn draw(context: &mut Context<'_>) -> Self {
        let retry = RetryLimits {
            attempts_max: context.between(1, 7) as u32,
            budget_ns: context.pick(&[1, 3, 10, 45]) * SECOND,
            from_first_failure: false,
            jitter: true,
            pause_min_ns: 10 * MS,
            pause_max_ns: context.pick(&[100 * MS, 5 * SECOND]),
        };
        let pace = PaceLimits {
            silence_ns: context.pick(&[500, 2000, 10_000, 30_000]) * MS,
            least_rate: context.pick(&[0, 4096, 4096, 1 << 16]),
        };
        Self {
            retry,
            pace,
            hedge_percent: context.pick(&[0, 5, 34, 50, 100]),
            latency_ns: context.pick(&[5, 20, 30]) * MS,
            idle_pages_max: context.between(1, 5) as u32,
            listing_ns: context.pick(&[5, 60]) * SECOND,
        }
    }

    /// The limits of an upload.
    pub(crate) fn upload(&self) -> RetryLimits {
        RetryLimits { from_first_failure: true, ..self.retry }
    }
}

/// A request.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Request {
    Head { object: u32 },
    Get { object: u32, start: u64, end: u64, precondition: Option<Precondition> },
    List { token: Option<String> },
    Put { upload: u32, bytes: u64 },
}

/// The condition of a request, as its header has it.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Precondition {
    Match(String),
    UnmodifiedSince(String),
}

/// What the client hears of one request.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Message {
    /// No connection.
    Refused,
    /// The connection broke.
    Reset,
    Head {
        response: Response,
        retry_after_ns: Option<u64>,
    },
    /// Bytes of the body. `last`: the body ends with them.
    Body {
        bytes: Bytes,
        last: bool,
    },
    /// The end of the body.
    End,
    /// The connection has accepted bytes of the request's body. `stores`: the server has all and
    /// stores them.
    Accepted {
        bytes: u64,
        stores: bool,
    },
    /// A page of a listing, as parsed.
    Page(Listed),
}

/// Bytes of a body. Nothing has contents here: bytes are where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bytes {
    /// Version of the object.
    pub(crate) version: u32,
    /// Offset in that version.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// One page of a listing.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Listed {
    pub(crate) names: Vec<u32>,
    pub(crate) bytes: u64,
    pub(crate) truncated: Option<bool>,
    pub(crate) next: Option<String>,
    /// Whether the page leaves out names. Only the checks know.
    pub(crate) omits: bool,
}
