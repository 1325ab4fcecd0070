//! Faults of the network, in virtual time and from a seed.
//!
//! ```text
//!   client ──► core::network ──► client ──► requests ──► server: objects, versions, faults
//!     ▲                                                     │
//!     └──────────────── agenda, in order of time ◄──────────┘
//! ```
//!
//! The state machines of `bowwave_core::network` are those of the network backends; the client here composes them the same
//! way. The server resets, truncates, stalls, drips, lies and replaces objects. A run checks for each call:
//!
//! 1. Bytes that a read returns are complete, at their offsets, and of the version that was opened. Without a strong tag,
//!    versions of one size and one second may mix; without a date, too, versions of one size.
//! 2. A call ends within its budget. No attempt begins at or after the deadline, and none lasts beyond it. There are at most
//!    `attempts_max` requests, and one hedge within the share of hedged reads. Retries respect `Retry-After`. An attempt ends
//!    after a period of silence or of too few bytes.
//! 3. Everything ends, within bounds of steps and virtual time. An error has a cause, and comes no sooner than the limits say.
//! 4. A listing that succeeds has each entry once and all entries, unless the server has left out some.
//! 5. Once the server is honest and nothing fails any more, every call succeeds with its first attempt.
//! 6. The same seed gives the same run: [`run`] returns a hash of its log.
//!
//! [`Flaw`] plants faults in the client, to see that the checks find them.

mod client;
mod context;
mod flaw;
mod kinds;
mod met;
mod server;
mod settings;
mod wire;

use std::fmt::Write;

use bowwave_core::Instant;

pub use flaw::Flaw;
pub use met::{Counts, Met};
pub use server::Fault;

use client::Client;
use context::{Context, Event, SECOND};
use server::Server;
use settings::Settings;

/// Most events of a run. Runs have some hundred; one with more does not end.
const EVENTS_MAX: u64 = 20_000;
/// Most virtual time of a run, in nanoseconds.
const TIME_MAX: u64 = 2 * 3600 * SECOND;

/// Runs one seed and returns the hash of its log. `counts` receives what was met, `log` one line a step.
///
/// # Errors
/// The invariant that does not hold.
pub fn run<'a>(
    seed: u64,
    flaw: Option<Flaw>,
    counts: &'a mut Counts,
    log: Option<&'a mut dyn Write>,
) -> Result<u64, String> {
    let mut context = Context::new(seed, counts, log);
    let settings = Settings::draw(&mut context);
    let mut server = Server::new(&mut context, settings.pace.silence_ns);
    let mut client = Client::new(settings, flaw);
    let begun = context.now;
    for _ in 0..context.between(3, 8) {
        let at = Instant(begun.0 + context.between(0, 5000) * 1_000_000);
        client.plan(&mut context, at);
    }
    let mut calm = false;
    while let Some(event) = context.next() {
        step(&mut context, &mut client, &mut server, event);
        if let Some(broken) = context.take_broken() {
            return Err(broken);
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
    Ok(context.digest())
}

fn step(context: &mut Context<'_>, client: &mut Client, server: &mut Server, event: Event) {
    match event {
        Event::Begin(call) => client.begin(context, server, call),
        Event::Round(call) => client.round(context, server, call),
        Event::Arrive(attempt) => server.arrive(context, attempt),
        Event::Serve(attempt) => {
            if let Some(message) = server.serve(context, attempt) {
                client.receive(context, server, attempt, message);
            }
        }
        Event::Timer(attempt) => client.timer(context, server, attempt),
        Event::Resume(task) => client.resume(context, server, task),
        Event::Late(task) => client.late(context, server, task),
        Event::Replace(object) => server.replace(context, object),
        Event::Calm => {
            server.calm_down(context);
            client.plan_calm(context);
        }
    }
}
