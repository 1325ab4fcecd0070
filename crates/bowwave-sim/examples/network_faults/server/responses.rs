//! The messages of a response.

use bowwave_core::network::{Response, Validators};

use super::{Context, Fault, Server};
use crate::counts::Counter;
use crate::run::{Bytes, MS, Message, Precondition, Request, SECOND};

/// What the client will hear.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Each with the pause before it, the last one first.
    pub(crate) messages: Vec<(u64, Message)>,
    /// Messages arrive even after the client has abandoned the attempt.
    pub(crate) outlives: bool,
}

/// What follows the head.
struct Body {
    version: u32,
    /// Range of that version.
    start: u64,
    end: u64,
    /// Whether the head has its length.
    has_length: bool,
}

impl Server {
    /// The response to a request.
    pub(crate) fn script(
        &mut self,
        context: &mut Context<'_>,
        request: &Request,
        fault: Option<Fault>,
    ) -> Script {
        let silence = self.behaviour.silence_ns;
        let pause = match fault {
            Some(Fault::Ghost) => silence + context.between(0, silence),
            Some(Fault::LateHead | Fault::ResetInHead) => context.between(silence / 4, silence + silence / 8),
            _ => self.delay(context),
        };
        let mut messages = match (fault, request) {
            (Some(Fault::RequestDropped), _) => Vec::new(),
            (Some(Fault::Refused), _) => vec![(pause, Message::Refused)],
            (Some(Fault::ResetBeforeHead | Fault::ResetInHead), _) => vec![(pause, Message::Reset)],
            (Some(Fault::Unavailable), _) => vec![(pause, busy(context, 503))],
            (Some(Fault::TooMany), _) => vec![(pause, busy(context, 429))],
            (Some(Fault::Internal), _) => vec![(pause, busy(context, 500))],
            (Some(Fault::Forbidden), _) => vec![(pause, status(403))],
            (_, &Request::Head { object }) => vec![(pause, self.head(context, object, fault))],
            (_, &Request::Get { object, start, end, ref precondition }) => {
                self.get(context, object, (start, end), precondition.as_ref(), fault, pause)
            }
            (_, Request::List { token }) => self.list(context, token.as_deref(), fault, pause),
            (_, &Request::Put { bytes, .. }) => put(context, bytes, silence, fault, pause),
        };
        if fault == Some(Fault::Silent) {
            // The request took effect; only the response is missing.
            messages.retain(|(_, message)| matches!(message, Message::Accepted { .. }));
        }
        if fault == Some(Fault::Duplicate) {
            let mut again = messages.clone();
            if let Some((pause, _)) = again.first_mut() {
                *pause = context.between(1, 3000) * MS;
            }
            messages.append(&mut again);
        }
        messages.reverse();
        Script { messages, outlives: matches!(fault, Some(Fault::Duplicate | Fault::Ghost | Fault::Resumed)) }
    }

    fn validators(&self, context: &mut Context<'_>, object: u32, fault: Option<Fault>) -> Validators {
        let size = Some(self.objects[object as usize].version().size);
        let sent = self.objects[object as usize].validators();
        self.note_stale(context, object);
        match fault {
            // Without a tag the size is all there is, and a stale one would be a second lie.
            Some(Fault::Unversioned) => Validators { size, ..Validators::default() },
            Some(Fault::Unsized) => Validators { size: None, ..sent },
            _ => sent,
        }
    }

    fn head(&mut self, context: &mut Context<'_>, object: u32, fault: Option<Fault>) -> Message {
        if !self.behaviour.stale || self.calm || context.chance(1, 4) {
            self.objects[object as usize].refresh();
        }
        if self.objects[object as usize].version().removed {
            return status(404);
        }
        let version = self.validators(context, object, fault);
        let response = Response { status: 200, length: version.size, version, ..Response::default() };
        Message::Head { response, retry_after_ns: None }
    }

    fn get(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        (start, end): (u64, u64),
        precondition: Option<&Precondition>,
        fault: Option<Fault>,
        pause: u64,
    ) -> Vec<(u64, Message)> {
        if !self.behaviour.stale || self.calm {
            self.objects[number as usize].refresh();
        }
        let object = &self.objects[number as usize];
        let (size, current) = (object.version().size, object.current());
        if object.version().removed {
            return vec![(pause, status(404))];
        }
        if !object.meets(precondition, self.behaviour.matches_weakly) {
            if !self.behaviour.ignores_conditions || self.calm {
                context.count(Counter::ConditionFailed);
                return vec![(pause, status(412))];
            }
            context.count(Counter::ConditionIgnored);
        }
        // The size is that of Content-Range, which comes from where the bytes come from.
        let sent = self.validators(context, number, fault);
        let version = Validators { size: sent.size.map(|_| size), ..sent };
        if start >= size {
            let response = Response {
                status: 416,
                version: Validators { size: Some(size), ..version },
                has_range: true,
                ..Response::default()
            };
            return vec![(pause, Message::Head { response, retry_after_ns: None })];
        }
        let (start, end) = self.range(context, (start, end.min(size)), size, fault);
        let has_length = match fault {
            Some(Fault::TruncatedUnseen | Fault::TooLong | Fault::NoEnd) => false,
            Some(Fault::Truncated | Fault::OtherLength) => true,
            _ => context.chance(3, 4),
        };
        let whole = fault == Some(Fault::Whole);
        let unplaced = whole || fault == Some(Fault::Unplaced);
        let mut body = Body { version: current, start, end, has_length };
        if fault == Some(Fault::OtherLength) {
            body.end = if end - start > 1 && context.chance(1, 2) { end - 1 } else { end + 1 };
        }
        let response = Response {
            status: if whole { 200 } else { 206 },
            version: if whole { Validators { size: None, ..version } } else { version },
            range: (!unplaced).then_some((start, end)),
            has_range: !unplaced,
            length: has_length.then_some(body.end - start),
            encoded: fault == Some(Fault::Encoded),
        };
        let mut messages = vec![(pause, Message::Head { response, retry_after_ns: None })];
        self.body(context, &body, fault, &mut messages);
        messages
    }

    /// The range that is sent instead of the requested one.
    fn range(
        &mut self,
        context: &mut Context<'_>,
        (start, end): (u64, u64),
        size: u64,
        fault: Option<Fault>,
    ) -> (u64, u64) {
        match fault {
            Some(Fault::Whole) => (0, size),
            Some(Fault::WrongRange) => match context.random.below(3) {
                0 if end < size => (start + 1, end + 1),
                1 if start > 0 => (start - 1, end - 1),
                _ if end - start > 1 => (start, end - 1),
                _ => (0, size),
            },
            Some(Fault::Desync) if !self.requested.is_empty() => {
                let (start, end) = context.pick(&self.requested);
                if end <= size { (start, end) } else { (0, size) }
            }
            _ => {
                self.requested.push((start, end));
                (start, end)
            }
        }
    }

    fn body(
        &self,
        context: &mut Context<'_>,
        body: &Body,
        fault: Option<Fault>,
        messages: &mut Vec<(u64, Message)>,
    ) {
        let Body { version, start, end, has_length } = *body;
        let len = end - start;
        // Where the body is disturbed; perhaps before its first byte.
        let cut = match fault {
            Some(Fault::ResetInBody | Fault::Truncated | Fault::TruncatedUnseen | Fault::SilentBody) => {
                start + context.random.below(len)
            }
            Some(Fault::TooLong) => end + context.between(1, 1000),
            _ => end,
        };
        let (chunks, least) = match fault {
            Some(Fault::Drip) => (60, 1),
            Some(Fault::Slow) => (6, len.div_ceil(6)),
            _ => (6, len.div_ceil(context.between(1, 6))),
        };
        let stall = context.random.below(4);
        let silence = self.behaviour.silence_ns;
        let starts_well = context.chance(1, 2);
        let mut offset = start;
        for chunk in 0..chunks {
            if offset >= cut {
                break;
            }
            let len = match fault {
                Some(Fault::Drip) if chunk == 0 && starts_well => len.div_ceil(2),
                Some(Fault::Drip) => context.between(1, 100),
                _ => least,
            };
            let len = len.min(cut - offset);
            let pause = match fault {
                Some(Fault::Drip) => context.between(silence / 3, silence - silence / 16),
                Some(Fault::Slow) => context.between(silence / 16, silence / 4),
                Some(Fault::Resumed) if chunk == stall => silence + context.between(0, 200) * MS,
                _ => context.between(0, if self.calm { 5 } else { 60 }) * MS,
            };
            let last = has_length && offset + len == end;
            // Encoded bytes are no bytes of the object.
            let from = if fault == Some(Fault::Encoded) { u64::MAX } else { offset };
            messages.push((pause, Message::Body { bytes: Bytes { version, offset: from, len }, last }));
            offset += len;
        }
        let pause = context.between(0, 20) * MS;
        match fault {
            Some(Fault::ResetInBody) => messages.push((pause, Message::Reset)),
            Some(Fault::SilentBody | Fault::NoEnd) => {}
            // The client cannot see that nothing more follows.
            Some(Fault::Drip) if offset < cut => {}
            _ if has_length && offset == end => {}
            _ => messages.push((pause, Message::End)),
        }
    }

    fn list(
        &mut self,
        context: &mut Context<'_>,
        token: Option<&str>,
        fault: Option<Fault>,
        pause: u64,
    ) -> Vec<(u64, Message)> {
        let page = self.names.page(context, &self.behaviour, token, fault);
        let response = Response { status: 200, ..Response::default() };
        let then = match fault {
            Some(Fault::ResetInBody) => Some(Message::Reset),
            // Half a document parses as nothing.
            Some(Fault::Truncated) => Some(Message::End),
            Some(Fault::SilentBody) => None,
            _ => Some(Message::Page(page)),
        };
        let head = (pause, Message::Head { response, retry_after_ns: None });
        let pause = context.between(0, 20) * MS;
        [Some(head), then.map(|message| (pause, message))].into_iter().flatten().collect()
    }
}

/// The part of an upload is accepted in chunks and then stored.
fn put(
    context: &mut Context<'_>,
    bytes: u64,
    silence: u64,
    fault: Option<Fault>,
    pause: u64,
) -> Vec<(u64, Message)> {
    let chunks = if fault == Some(Fault::Drip) { 60 } else { 8 };
    let early = matches!(
        fault,
        Some(Fault::ResetInBody | Fault::SilentBody | Fault::EarlySuccess | Fault::EarlyError)
    );
    let whole = if early { context.random.below(bytes) } else { bytes };
    let mut messages = Vec::new();
    let mut sent = 0;
    for _ in 0..chunks {
        if sent >= whole {
            break;
        }
        let dripping = fault == Some(Fault::Drip);
        let len = if dripping { context.between(1, 100) } else { bytes.div_ceil(8) }.min(whole - sent);
        sent += len;
        let gap = match fault {
            Some(Fault::Drip) => context.between(silence / 3, silence - silence / 16),
            Some(Fault::Slow) => context.between(silence / 16, silence / 4),
            _ => context.between(1, 20) * MS,
        };
        messages.push((gap, Message::Accepted { bytes: len, stores: sent == bytes }));
    }
    match fault {
        Some(Fault::ResetInBody) => messages.push((pause, Message::Reset)),
        Some(Fault::SilentBody) => {}
        Some(Fault::EarlyError) => messages.push((pause, status(503))),
        _ if sent < whole => {}
        _ => messages.push((pause, status(200))),
    }
    messages
}

fn status(status: u16) -> Message {
    Message::Head { response: Response { status, ..Response::default() }, retry_after_ns: None }
}

/// An error that may pass.
fn busy(context: &mut Context<'_>, status: u16) -> Message {
    let none = None;
    let waits =
        [none, Some(0), Some(50 * MS), Some(SECOND), Some(2 * SECOND), Some(10 * SECOND), Some(u64::MAX)];
    let retry_after_ns = context.pick(&waits);
    Message::Head { response: Response { status, ..Response::default() }, retry_after_ns }
}
