//! A server and a network with faults.
//!
//! The server responds to each request with a script: messages and the pauses between them. A fault
//! changes the script.
//!
//! The server lies about versions in one way a run: it ignores conditions, or a cache in front of
//! it sends validators of an earlier version. A server that does both returns bytes of one version
//! under the strong tag of another, and no client can detect it. Two more lies cannot be detected:
//! bytes that change within one body, and bytes of another range than `Content-Range` says. This
//! server does none of the three.

mod fault;
mod responses;
mod state;

pub(crate) use fault::Fault;
pub(crate) use state::{Names, Object, Version, date, seconds};

use bowwave_core::Instant;

use crate::counts::Counter;
use crate::run::{Context, Event, Message, Note, Request};
use responses::Script;

/// How the server behaves in one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Requests of 64 that meet a fault.
    pub(crate) faulty: u64,
    /// Requests of 64 for which their object is replaced.
    pub(crate) replacing: u64,
    /// Conditions are not looked at.
    pub(crate) ignores_conditions: bool,
    /// Heads tell validators of earlier versions.
    pub(crate) stale: bool,
    /// `If-Match` compares weakly, against RFC 9110.
    pub(crate) matches_weakly: bool,
    /// The body of a replaced object breaks off, instead of continuing with the old version.
    pub(crate) breaks_off: bool,
    /// Says `IsTruncated`.
    pub(crate) says_truncated: bool,
    /// Entries of a page.
    pub(crate) page_entries: u32,
    /// Names come and go.
    pub(crate) renames: bool,
    /// What the client calls silence, to have faults near its limits.
    pub(crate) silence_ns: u64,
}

/// The server, its objects and what it still has to send.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) behaviour: Behaviour,
    pub(crate) objects: Vec<Object>,
    pub(crate) names: Names,
    /// Uploads that are stored in full.
    pub(crate) stored: Vec<u32>,
    /// By attempt.
    exchanges: Vec<Exchange>,
    /// Ranges that were requested, for responses to earlier requests.
    requested: Vec<(u64, u64)>,
    /// Faults so far.
    pub(crate) faults: u32,
    /// No fault and no change any more.
    calm: bool,
}

/// One request and its response.
#[derive(Debug)]
struct Exchange {
    request: Request,
    script: Script,
    /// The client no longer listens.
    closed: bool,
}

impl Server {
    pub(crate) fn new(context: &mut Context<'_>, silence_ns: u64) -> Self {
        let lie = context.random.below(4);
        let behaviour = Behaviour {
            faulty: context.pick(&[0, 8, 24, 48]),
            replacing: context.pick(&[0, 2, 8, 20]),
            ignores_conditions: lie == 0,
            stale: lie == 1,
            matches_weakly: context.chance(1, 2),
            breaks_off: context.chance(1, 2),
            says_truncated: context.chance(3, 4),
            page_entries: context.between(3, 20) as u32,
            renames: context.chance(1, 3),
            silence_ns,
        };
        let objects = (0..2).map(|_| Object::draw(context)).collect();
        let names = Names::draw(context);
        let (stored, exchanges, requested) = (Vec::new(), Vec::new(), Vec::new());
        Self { behaviour, objects, names, stored, exchanges, requested, faults: 0, calm: false }
    }

    /// A request leaves the client. Returns the number of the attempt.
    pub(crate) fn send(&mut self, context: &mut Context<'_>, request: Request) -> u32 {
        let attempt = self.exchanges.len() as u32;
        self.exchanges.push(Exchange { request, script: Script::default(), closed: false });
        let delay = self.delay(context);
        context.after(delay, Event::Arrive(attempt));
        attempt
    }

    /// The client abandons an attempt. What is already in flight may still arrive.
    pub(crate) fn close(&mut self, attempt: u32) {
        let exchange = &mut self.exchanges[attempt as usize];
        exchange.closed = true;
        if !exchange.script.outlives {
            exchange.script.messages.clear();
        }
    }

    /// A request arrives.
    pub(crate) fn arrive(&mut self, context: &mut Context<'_>, attempt: u32) {
        if self.exchanges[attempt as usize].closed {
            return;
        }
        let request = self.exchanges[attempt as usize].request.clone();
        self.change_before(context, &request);
        let fault = self.draw_fault(context, &request);
        if let Some(fault) = fault {
            self.faults += 1;
            context.note(&Note::Fault { attempt, fault });
        }
        let script = self.script(context, &request, fault);
        if let Some((pause, _)) = script.messages.last() {
            context.after(*pause, Event::Serve(attempt));
        }
        self.exchanges[attempt as usize].script = script;
    }

    /// The next message of a response.
    pub(crate) fn serve(&mut self, context: &mut Context<'_>, attempt: u32) -> Option<Message> {
        let breaks_off = self.behaviour.breaks_off;
        let Exchange { request, script, .. } = &mut self.exchanges[attempt as usize];
        let (_, mut message) = script.messages.pop()?;
        if let (Request::Get { object, .. }, Message::Body { bytes, .. }) = (&*request, &message)
            && breaks_off
            && bytes.version != self.objects[*object as usize].current()
        {
            script.messages.clear();
            message = Message::Reset;
        }
        if let (Request::Put { upload, .. }, Message::Accepted { stores: true, .. }) = (&*request, &message) {
            self.stored.push(*upload);
        }
        if let Some((pause, _)) = script.messages.last() {
            context.after(*pause, Event::Serve(attempt));
        }
        Some(message)
    }

    /// Replaces or removes an object.
    pub(crate) fn replace(&mut self, context: &mut Context<'_>, object: u32) {
        if !self.calm {
            let backwards = !self.behaviour.stale;
            self.objects[object as usize].replace(context, object, backwards);
        }
    }

    /// Faults end; what was removed is there again.
    pub(crate) fn calm_down(&mut self, context: &mut Context<'_>) {
        context.note(&Note::Calm);
        for object in 0..self.objects.len() as u32 {
            if self.objects[object as usize].version().removed {
                self.objects[object as usize].replace(context, object, false);
            }
            self.objects[object as usize].refresh();
        }
        self.calm = true;
    }

    fn delay(&self, context: &mut Context<'_>) -> u64 {
        // One in 16 takes long enough to be overtaken by others.
        let slow = !self.calm && context.chance(1, 16);
        context.between(1, if slow { 400 } else { 10 }) * 1_000_000
    }

    fn change_before(&mut self, context: &mut Context<'_>, request: &Request) {
        if self.calm {
            return;
        }
        match *request {
            Request::Head { object } | Request::Get { object, .. } => {
                if context.chance(self.behaviour.replacing, 64) {
                    self.replace(context, object);
                }
                // And perhaps while the body is sent.
                if context.chance(self.behaviour.replacing, 128) {
                    let ns = context.between(1, 200) * 1_000_000;
                    context.after(ns, Event::Replace(object));
                }
            }
            Request::List { .. } if self.behaviour.renames && context.chance(1, 4) => {
                self.names.change(context)
            }
            Request::List { .. } | Request::Put { .. } => {}
        }
    }

    fn draw_fault(&self, context: &mut Context<'_>, request: &Request) -> Option<Fault> {
        let faulty = !self.calm && context.chance(self.behaviour.faulty, 64);
        faulty.then(|| {
            let own = match request {
                Request::Head { .. } => fault::OF_HEADS,
                Request::Get { .. } => fault::OF_BODIES,
                Request::List { .. } => fault::OF_PAGES,
                Request::Put { .. } => fault::OF_UPLOADS,
            };
            let choices = if context.chance(1, 3) { fault::OF_ALL } else { own };
            context.pick(choices)
        })
    }

    fn note_stale(&self, context: &mut Context<'_>, object: u32) {
        if self.objects[object as usize].is_stale() {
            context.count(Counter::StaleHead);
        }
    }

    /// Names that a listing from `begun` to now must have, and those that it may have.
    pub(crate) fn listed(&self, begun: Instant) -> (Vec<u32>, Vec<u32>) {
        self.names.between(begun)
    }
}
