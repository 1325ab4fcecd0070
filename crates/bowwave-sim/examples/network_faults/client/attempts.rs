//! Attempts: what is sent, and what comes back.

use bowwave_core::network::{Condition, PaceLimits};

use super::*;
use crate::run::{Message, Precondition, Request, SECOND};
use crate::server::{date, seconds};

impl Client {
    /// Sends the request of a task.
    pub(crate) fn attempt(&mut self, net: &mut Net<'_>, number: u32, hedge: bool) {
        let task = &mut self.tasks[number as usize];
        let now = net.context.now;
        if !hedge {
            task.sent += 1;
            if task.sent > 1 {
                net.context.count(Counter::Retried);
            }
            if now < task.earliest {
                net.context.violated(|| format!("task {number}: a retry begins before {:?}", task.earliest));
            }
        }
        if task.sent > task.limits.attempts_max {
            net.context.violated(|| format!("task {number}: {} attempts", task.sent));
        }
        if task.must_end().is_some_and(|end| now >= end) {
            net.context.violated(|| format!("task {number}: an attempt begins at or after the deadline"));
        }
        let expected = match &task.goal {
            // The hedge has a buffer of its own, so it needs all bytes.
            Goal::Part(part) => Some(Expected {
                version: part.version.clone(),
                start: part.start + if hedge { 0 } else { part.done },
                end: part.end,
            }),
            _ => None,
        };
        let request = request(&task.goal, task.call, expected.as_ref(), self.defect);
        let attempt = net.server.send(&mut net.context, request.clone());
        self.attempts.push(number);
        net.context.count(Counter::Requests);
        net.context.note(&Note::Sent { attempt, task: number, hedge, request: &request });
        let deadline = if self.defect == Some(Defect::NoDeadlineCut) { None } else { task.retry.deadline() };
        let mut pace = Pace::new(self.settings.pace, now);
        if matches!(task.goal, Goal::Put { .. }) {
            // The request's body is watched first: it begins now.
            pace.head(now);
        }
        let task = &self.tasks[number as usize];
        let this = Attempt {
            attempt,
            begun: now,
            pace,
            deadline,
            expected,
            head_at: matches!(task.goal, Goal::Put { .. }).then_some(now),
            heard: now,
            history: Vec::new(),
            provisional: false,
            got: 0,
            arrived: Vec::new(),
        };
        if let Some(at) = self.due(&this) {
            net.context.at(at, Event::Timer(attempt));
        }
        let task = &mut self.tasks[number as usize];
        *(if hedge { &mut task.hedge } else { &mut task.main }) = Some(this);
    }

    /// When an attempt is due for a check.
    fn due(&self, this: &Attempt) -> Option<Instant> {
        let pace = (!self.has(Defect::NoPace)).then(|| this.pace.due());
        [pace, this.deadline].into_iter().flatten().min()
    }

    /// The task of an attempt and whether it is its hedge; `None` if the attempt is over.
    fn running(&self, attempt: u32) -> Option<(u32, bool)> {
        let number = self.attempts[attempt as usize];
        let task = &self.tasks[number as usize];
        let is = |this: &Option<Attempt>| this.as_ref().is_some_and(|this| this.attempt == attempt);
        match (is(&task.main), is(&task.hedge)) {
            (true, _) => Some((number, false)),
            (_, true) => Some((number, true)),
            _ if self.has(Defect::LateAccepted) && task.main.is_some() => Some((number, false)),
            _ => None,
        }
    }

    fn this(&mut self, (task, hedge): (u32, bool)) -> &mut Attempt {
        let task = &mut self.tasks[task as usize];
        let this = if hedge { &mut task.hedge } else { &mut task.main };
        this.as_mut().expect("the attempt runs")
    }

    /// Pace or deadline of an attempt are due.
    pub(crate) fn timer(&mut self, net: &mut Net<'_>, attempt: u32) {
        let Some(which) = self.running(attempt).filter(|&which| self.this(which).attempt == attempt) else {
            return;
        };
        let now = net.context.now;
        let watched = !self.has(Defect::NoPace);
        self.check_pace(&mut net.context, which);
        let this = self.this(which);
        if this.deadline.is_some_and(|deadline| now >= deadline) {
            net.context.count(Counter::Cut);
            return self.failed(net, which, Failed::Deadline);
        }
        if let Err(slow) = this.pace.check(now)
            && watched
        {
            return self.slow(net, which, slow);
        }
        let this = &self.tasks[which.0 as usize];
        if let Some(at) =
            (if which.1 { &this.hedge } else { &this.main }).as_ref().and_then(|this| self.due(this))
        {
            net.context.at(at, Event::Timer(attempt));
        }
    }

    /// No attempt continues in silence, nor after a period of too few bytes.
    fn check_pace(&mut self, context: &mut Context<'_>, which: (u32, bool)) {
        let PaceLimits { silence_ns, least_rate } = self.settings.pace;
        let (this, now) = (self.this(which), context.now.0);
        if now - this.heard.0 > silence_ns {
            context.violated(|| format!("attempt {}: runs on in silence", this.attempt));
        }
        // Twice a period holds one in full, wherever it begins.
        let since = now.saturating_sub(2 * silence_ns);
        if this.head_at.is_some_and(|head| head.0 <= since) {
            let before = this.history.iter().rev().find(|(at, _)| at.0 <= since).map_or(0, |&(_, got)| got);
            let got = this.got - before;
            let least = u128::from(least_rate) * u128::from(silence_ns) / u128::from(SECOND);
            if u128::from(got) < least {
                context.violated(|| format!("attempt {}: runs on with {got} bytes of {least}", this.attempt));
            }
        }
    }

    fn slow(&mut self, net: &mut Net<'_>, which: (u32, bool), slow: TooSlow) {
        let silent = slow == TooSlow::Silent;
        net.context.count(if silent { Counter::TimedOut } else { Counter::TooSlow });
        self.failed(net, which, Failed::Slow { silent });
    }

    /// A message for an attempt.
    pub(crate) fn receive(&mut self, net: &mut Net<'_>, attempt: u32, message: Message) {
        let Some(which) = self.running(attempt) else {
            net.context.count(Counter::Late);
            return net.context.note(&Note::Ignored { attempt });
        };
        net.context.note(&Note::Received { attempt, message: &message });
        self.check_pace(&mut net.context, which);
        self.this(which).heard = net.context.now;
        match message {
            Message::Refused => self.failed(net, which, Failed::Refused),
            Message::Reset => self.failed(net, which, Failed::Reset),
            Message::Head { response, retry_after_ns } => {
                self.head(net, which, &response, retry_after_ns);
            }
            Message::Body { bytes, last } => self.body(net, which, bytes, last),
            Message::End => self.end(net, which),
            Message::Accepted { bytes, .. } => {
                let Goal::Put { bytes: all } = self.tasks[which.0 as usize].goal else { return };
                let (watched, limits) = (!self.has(Defect::NoPace), self.settings.pace);
                let this = self.this(which);
                this.got += bytes;
                this.history.push((net.context.now, this.got));
                let pace = this.pace.bytes(net.context.now, bytes);
                if this.got >= all {
                    // From here on the head of the response is due.
                    this.pace = Pace::new(limits, net.context.now);
                    this.head_at = None;
                }
                if let Err(slow) = pace
                    && watched
                {
                    self.slow(net, which, slow);
                }
            }
            Message::Page(page) => {
                let pace = self.this(which).pace.bytes(net.context.now, page.bytes);
                match pace {
                    Err(slow) if !self.has(Defect::NoPace) => self.slow(net, which, slow),
                    _ => self.done(net, which, Done::Page(page)),
                }
            }
        }
    }

    fn head(
        &mut self,
        net: &mut Net<'_>,
        which: (u32, bool),
        response: &Response,
        retry_after_ns: Option<u64>,
    ) {
        let defect = self.defect;
        let this = self.this(which);
        if let Some(expected) = &this.expected {
            match checked(expected, response, defect) {
                Ok(()) => {
                    this.pace.head(net.context.now);
                    this.head_at = Some(net.context.now);
                    this.provisional = response.status == 200 && response.length.is_none();
                }
                Err(fault) => {
                    let why = why(fault, response.status, retry_after_ns);
                    self.failed(net, which, why);
                }
            }
            return;
        }
        if response.status != 200 {
            let why = why(Fault::Status, response.status, retry_after_ns);
            return self.failed(net, which, why);
        }
        let got = this.got;
        match self.tasks[which.0 as usize].goal {
            Goal::Head { .. } if response.version.size.is_none() => {
                self.failed(net, which, Failed::Fatal(Error::Protocol("no size")));
            }
            Goal::Head { .. } => self.done(net, which, Done::Head(response.version.clone())),
            Goal::Put { bytes } if got < bytes && defect != Some(Defect::EarlySuccess) => {
                let error = Error::Protocol("success before the end of the body");
                self.failed(net, which, Failed::Fatal(error));
            }
            Goal::Put { .. } => self.done(net, which, Done::Stored),
            _ => self.this(which).pace.head(net.context.now),
        }
    }

    fn body(&mut self, net: &mut Net<'_>, which: (u32, bool), bytes: Bytes, last: bool) {
        if let Err(slow) = self.this(which).pace.bytes(net.context.now, bytes.len)
            && !self.has(Defect::NoPace)
        {
            return self.slow(net, which, slow);
        }
        // Planted: the hedge writes to the buffer of the first try, behind its bytes.
        let mixed = self.has(Defect::HedgeMixed) && which.1 && self.tasks[which.0 as usize].main.is_some();
        let into = if mixed { (which.0, false) } else { which };
        let this = self.this(into);
        let Some(&Expected { start, end, .. }) = this.expected.as_ref() else { return };
        if this.got + bytes.len > end - start {
            let error = Error::Protocol("body too long");
            return self.failed(net, which, Failed::Fatal(error));
        }
        this.arrived.push(Placed { at: start + this.got, bytes });
        this.got += bytes.len;
        this.history.push((net.context.now, this.got));
        if last {
            self.end(net, into);
        }
    }

    fn end(&mut self, net: &mut Net<'_>, which: (u32, bool)) {
        let unchecked = self.has(Defect::LengthUnchecked);
        let this = self.this(which);
        match &this.expected {
            Some(expected) if this.got == expected.bytes() || unchecked => {
                let arrived = std::mem::take(&mut this.arrived);
                self.done(net, which, Done::Bytes(arrived));
            }
            // Half of a page, too, ends here.
            _ => self.failed(net, which, Failed::Truncated),
        }
    }
}

fn request(goal: &Goal, call: u32, expected: Option<&Expected>, defect: Option<Defect>) -> Request {
    match (goal, expected) {
        (Goal::Part(part), Some(Expected { version, start, end })) => {
            let precondition = match version.condition() {
                _ if defect == Some(Defect::NoCondition) => None,
                _ if defect == Some(Defect::WeakIsStrong) && version.etag.is_some() => {
                    version.etag.clone().map(Precondition::Match)
                }
                Some(Condition::IfMatch(tag)) => Some(Precondition::Match(tag.to_owned())),
                Some(Condition::IfUnmodifiedSinceNext(then)) => {
                    seconds(then).map(|then| Precondition::UnmodifiedSince(date(then + 1)))
                }
                None => None,
            };
            Request::Get { object: part.object, start: *start, end: *end, precondition }
        }
        (Goal::Part(_), None) => unreachable!("a part expects a range"),
        (Goal::Head { object }, _) => Request::Head { object: *object },
        (Goal::Page { token }, _) => Request::List { token: token.clone() },
        (Goal::Put { bytes }, _) => Request::Put { upload: call, bytes: *bytes },
    }
}

/// Checks a head, or not, as a planted defect demands.
fn checked(expected: &Expected, response: &Response, defect: Option<Defect>) -> Result<(), Fault> {
    let mut response = response.clone();
    match defect {
        Some(Defect::HeadUnchecked) if matches!(response.status, 200 | 206) => {
            response.version = expected.version.clone();
        }
        Some(Defect::WeakIsStrong | Defect::WeakAlone)
            if expected.version.etag.is_some()
                && expected.version.etag == response.version.etag
                && response.status == 206 =>
        {
            // The tag alone: as if nothing else had been sent.
            response.version = expected.version.clone();
        }
        Some(Defect::RangeUnchecked) if response.status == 206 => {
            response.range = Some((expected.start, expected.end));
            response.has_range = true;
            response.length = None;
        }
        _ => return expected.check(&response),
    }
    expected.check(&response)
}

/// What a refused head means for the task.
fn why(fault: Fault, status: u16, retry_after_ns: Option<u64>) -> Failed {
    let protocol = |what| Failed::Fatal(Error::Protocol(what));
    match fault {
        Fault::Changed => Failed::Fatal(Error::Changed),
        Fault::Unversioned => protocol("no validators"),
        Fault::NoRanges => protocol("no ranges"),
        Fault::Unplaced => protocol("no Content-Range"),
        Fault::OtherRange => protocol("another range"),
        Fault::Encoded => protocol("encoded"),
        Fault::Length(_) => protocol("another length"),
        Fault::Status => match status {
            412 => Failed::Fatal(Error::Changed),
            404 | 410 => Failed::Fatal(Error::Missing),
            429 | 500 | 502..=504 => Failed::Status { status, retry_after_ns },
            status => Failed::Fatal(Error::Denied(status)),
        },
    }
}
