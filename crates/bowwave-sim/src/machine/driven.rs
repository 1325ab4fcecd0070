//! The cache of a machine, with or without a checker.

use bowwave_core::check::Checker;
use bowwave_core::{
    Action, Cache, Config, ConfigError, Event, FileId, FrameId, Instant, PageAccess, PageRange, ReadOutcome,
    SyncFor, Target, Violation, Waiter, Write, WriteOutcome,
};

/// A cache, and optionally a checker that sees every event and action.
#[derive(Debug)]
pub(super) struct Driven {
    cache: Cache,
    checker: Option<Checker>,
    /// The first violated invariant.
    violation: Option<Violation>,
}

impl Driven {
    pub(super) fn new(config: Config, check: bool) -> Result<Self, ConfigError> {
        Ok(Self { cache: Cache::new(config)?, checker: check.then(Checker::default), violation: None })
    }

    /// Borrows the cache.
    pub(super) fn get(&self) -> &Cache {
        &self.cache
    }

    /// Returns the first violated invariant.
    pub(super) fn violation(&mut self) -> Result<(), Violation> {
        self.violation.take().map_or(Ok(()), Err)
    }

    /// An event that causes no actions.
    pub(super) fn note(&mut self, now: Instant, event: Event) {
        self.step(now, event, &mut Vec::new());
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
        let accepted = out[before..].iter().position(|action| matches!(action, Action::Accepted { .. }));
        match accepted.map(|place| out.remove(before + place)) {
            Some(Action::Accepted { outcome, targets: accepted, .. }) => {
                *targets = accepted;
                outcome
            }
            _ => unreachable!("the cache reports the outcome of a write"),
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

    pub(super) fn unpin(&mut self, now: Instant, frames: &[FrameId], out: &mut Vec<Action>) {
        if self.checker.is_some() {
            return self.step(now, Event::Unpin { frames: frames.to_vec() }, out);
        }
        self.cache.unpin(now, frames, out);
    }

    pub(super) fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        let Some(checker) = &mut self.checker else { return self.cache.step(now, event, out) };
        let before = out.len();
        self.cache.step(now, event.clone(), out);
        if let Err(violation) = checker.check(now, &event, &out[before..], &self.cache) {
            self.violation.get_or_insert(violation);
        }
    }
}
