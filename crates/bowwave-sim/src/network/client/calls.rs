//! Calls: their begin, their end, and what must hold then.

use super::*;
use crate::network::context::Note;

impl Client {
    /// Draws a call; it begins at `at`.
    pub(in crate::network) fn plan(&mut self, context: &mut Context<'_>, at: Instant) {
        let object = context.random.below(2) as u32;
        let (small, rounds) = (context.chance(1, 2), context.between(1, 3) as u32);
        let kind = match context.random.below(10) {
            0 => Kind::Status { object },
            1..=2 => Kind::List(Entries::new(&self.settings, self.flaw, at)),
            3 => Kind::Upload { bytes: context.between(1, 16 << 20) },
            _ => Kind::Read(Read::new(object, small, rounds)),
        };
        self.push(context, at, kind, false);
    }

    /// One call of each kind, which must succeed: the server is honest now, and nothing fails.
    pub(in crate::network) fn plan_calm(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let kinds = [
            Kind::Status { object: 0 },
            Kind::Read(Read::new(0, true, 2)),
            Kind::Read(Read::new(1, false, 1)),
            Kind::List(Entries::new(&self.settings, self.flaw, now)),
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
    pub(in crate::network) fn begin(&mut self, context: &mut Context<'_>, server: &mut Server, number: u32) {
        context.met(Met::Calls);
        let call = &self.calls[number as usize];
        let what = match &call.kind {
            Kind::Status { .. } => "status",
            Kind::Read(_) => "read",
            Kind::List(_) => "list",
            Kind::Upload { .. } => "upload",
        };
        context.note(&Note::Begin { call: number, what });
        let retry = self.settings.retry;
        match call.kind {
            Kind::Status { object } | Kind::Read(Read { object, .. }) => {
                self.task(context, server, number, Goal::Head { object }, retry);
            }
            Kind::List(_) => self.next_page(context, server, number, None),
            Kind::Upload { bytes } => {
                self.task(context, server, number, Goal::Put { bytes }, self.settings.upload());
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
    pub(super) fn over(
        &mut self,
        context: &mut Context<'_>,
        server: &mut Server,
        number: u32,
        result: Result<(), Error>,
    ) {
        context.note(&Note::Over { call: number, result: &result });
        let call = &mut self.calls[number as usize];
        if call.over {
            return context.broken(|| format!("call {number} ends twice"));
        }
        call.over = true;
        self.open -= 1;
        if let (true, Err(error)) = (call.must_succeed, result) {
            context.broken(|| format!("call {number}: {error:?} from a server without faults"));
        }
        if let Err(error) = result
            && !self.has_cause(server, number, error)
        {
            context.broken(|| format!("call {number}: {error:?}, and nothing was wrong"));
        }
        if self.listing_end(number).is_some_and(|end| context.now > end) {
            context.broken(|| format!("call {number}: the listing ends after its deadline"));
        }
        // Parts that are still read are of no use.
        for task in 0..self.tasks.len() as u32 {
            if self.tasks[task as usize].call == number {
                self.abandon(server, task);
            }
        }
        if result.is_ok() {
            self.check_listing(context, server, number);
            let is_upload = matches!(self.calls[number as usize].kind, Kind::Upload { .. });
            if is_upload && !server.stored.contains(&number) {
                context.broken(|| format!("call {number}: the server has not stored the part"));
            }
        }
        context.met(match (&self.calls[number as usize].kind, result) {
            (Kind::Status { .. }, Ok(())) => Met::StatDone,
            (Kind::Status { .. }, Err(_)) => Met::StatFailed,
            (Kind::Read(_), Ok(())) => return,
            (Kind::Read(_), Err(Error::Changed)) => Met::ReadChanged,
            (Kind::Read(_), Err(_)) => Met::ReadFailed,
            (Kind::List(_), Ok(())) => Met::ListDone,
            (Kind::List(_), Err(Error::Listing(_))) => Met::ListGivenUp,
            (Kind::List(_), Err(_)) => Met::ListFailed,
            (Kind::Upload { .. }, Ok(())) => Met::UploadDone,
            (Kind::Upload { .. }, Err(_)) => Met::UploadFailed,
        });
    }
}
