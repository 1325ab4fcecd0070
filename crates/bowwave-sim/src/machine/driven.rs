//! The cache of a machine, with or without a checker.

use bowwave_core::check::Checker;
use bowwave_core::{
    Action, Advice, Cache, Config, ConfigError, Event, FileId, FillError, FillId, FrameId, HandleId, Instant,
    PageAccess, PageCount, PageRange, ReadOutcome, SyncFor, Target, Violation, Waiter, Write, WriteOutId,
    WriteOutcome,
};

/// A cache, and optionally a checker that sees every event and action.
#[derive(Debug)]
pub(super) struct Driven {
    cache: Cache,
    checker: Option<Checker>,
    /// The first violated invariant.
    broken: Option<Violation>,
}

impl Driven {
    pub(super) fn new(config: Config, check: bool) -> Result<Self, ConfigError> {
        Ok(Self { cache: Cache::new(config)?, checker: check.then(Checker::default), broken: None })
    }

    /// Borrows the cache.
    pub(super) fn get(&self) -> &Cache {
        &self.cache
    }

    /// Returns the first violated invariant.
    pub(super) fn broken(&mut self) -> Result<(), Violation> {
        self.broken.take().map_or(Ok(()), Err)
    }

    pub(super) fn open_file(&mut self, now: Instant, file: FileId, pages: PageCount) {
        self.step(now, Event::OpenFile { file, pages }, &mut Vec::new());
    }

    pub(super) fn open_handle(&mut self, now: Instant, handle: HandleId, file: FileId) {
        self.step(now, Event::OpenHandle { handle, file }, &mut Vec::new());
    }

    pub(super) fn copy_handle(&mut self, now: Instant, from: HandleId, to: HandleId) {
        self.step(now, Event::CopyHandle { from, to }, &mut Vec::new());
    }

    pub(super) fn close_handle(&mut self, now: Instant, handle: HandleId, out: &mut Vec<Action>) {
        self.step(now, Event::CloseHandle { handle }, out);
    }

    pub(super) fn set_congested(&mut self, now: Instant, congested: bool) {
        self.step(now, Event::Congestion { congested }, &mut Vec::new());
    }

    pub(super) fn advise(
        &mut self,
        now: Instant,
        handle: HandleId,
        range: PageRange,
        advice: Advice,
        out: &mut Vec<Action>,
    ) {
        self.step(now, Event::Advise { handle, range, advice }, out);
    }

    /// Announces ranges to read; an empty list ends the plan. Ranges beyond the maximum of a plan
    /// are not announced.
    pub(super) fn set_read_plan(
        &mut self,
        now: Instant,
        handle: HandleId,
        ranges: Vec<PageRange>,
        out: &mut Vec<Action>,
    ) {
        self.step(now, Event::SetReadPlan { handle, ranges }, out);
    }

    pub(super) fn invalidate(&mut self, now: Instant, file: FileId, range: PageRange) {
        self.step(now, Event::Invalidate { file, range }, &mut Vec::new());
    }

    /// An access. With a checker, a hit is reported like a wait, with a wake among the actions.
    pub(super) fn access(
        &mut self,
        now: Instant,
        waiter: Waiter,
        access: PageAccess,
        frames: &mut Vec<FrameId>,
        out: &mut Vec<Action>,
    ) -> ReadOutcome {
        if self.checker.is_some() {
            self.step(now, Event::Access { waiter, access }, out);
            return ReadOutcome::Wait;
        }
        self.cache.access(now, waiter, access, frames, out)
    }

    pub(super) fn filled(
        &mut self,
        now: Instant,
        fill: FillId,
        result: Result<(), FillError>,
        out: &mut Vec<Action>,
    ) {
        if self.checker.is_some() {
            return self.step(now, Event::Filled { fill, result }, out);
        }
        self.cache.filled(now, fill, result, out);
    }

    /// A write; see [`Cache::write`].
    pub(super) fn write(
        &mut self,
        now: Instant,
        waiter: Waiter,
        write: Write,
        targets: &mut Vec<Target>,
        out: &mut Vec<Action>,
    ) -> WriteOutcome {
        if self.checker.is_none() {
            return self.cache.write(now, waiter, write, targets, out);
        }
        let before = out.len();
        self.step(now, Event::Write { waiter, write }, out);
        let took = out[before..].iter().position(|action| matches!(action, Action::Accepted { .. }));
        match took.map(|place| out.remove(before + place)) {
            Some(Action::Accepted { outcome, targets: those, .. }) => {
                *targets = those;
                outcome
            }
            _ => unreachable!("the cache says what became of a write"),
        }
    }

    /// With a checker, an immediate result is reported like a wait, with a wake among the actions.
    pub(super) fn sync(
        &mut self,
        now: Instant,
        waiter: Waiter,
        file: FileId,
        range: PageRange,
        out: &mut Vec<Action>,
    ) -> ReadOutcome {
        if self.checker.is_none() {
            return self.cache.sync(now, waiter, file, range, SyncFor::Safety, out);
        }
        self.step(now, Event::Sync { waiter, file, range, why: SyncFor::Safety }, out);
        ReadOutcome::Wait
    }

    pub(super) fn written_out(
        &mut self,
        now: Instant,
        id: WriteOutId,
        result: Result<(), FillError>,
        out: &mut Vec<Action>,
    ) {
        self.step(now, Event::WrittenOut { id, result }, out);
    }

    pub(super) fn expire(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.step(now, Event::Expire, out);
    }

    pub(super) fn unpin(&mut self, now: Instant, frames: &[FrameId], out: &mut Vec<Action>) {
        if self.checker.is_some() {
            return self.step(now, Event::Unpin { frames: frames.to_vec() }, out);
        }
        self.cache.unpin(now, frames, out);
    }

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        let Some(checker) = &mut self.checker else { return self.cache.step(now, event, out) };
        let before = out.len();
        self.cache.step(now, event.clone(), out);
        if let Err(violation) = checker.check(now, &event, &out[before..], &self.cache) {
            self.broken.get_or_insert(violation);
        }
    }
}
