//! One shard: a cache under a lock, its memory, and the effects to carry out outside the lock.
#![allow(unsafe_code, reason = "reads and writes page frames")]

mod mapped;
mod write;

use std::collections::HashMap;
use std::hint;
use std::sync::Arc;

use bowwave_core::explain::ReadaheadLine;
use bowwave_core::schedule::Priority;
use bowwave_core::{
    Action, Advice, Cache, Config, Event, FileId, Fill, FillId, FrameId, HandleId, Instant, PageAccess,
    PageCount, PageRange, Pins, Policy, RangeConfig, ReadOutcome, Request, Target, TooManyRanges, Urgency,
    Waiter, WindowTuning, WriteBackConfig, WriteOutId,
};

use crate::Journal;
use crate::ahead::Drawn;
use crate::arena::Arena;
use crate::clock;
use crate::decisions::{ActingFor, DecisionLog};
use crate::entry::FileEntry;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::queue::{Demand, Id, IoRequest, Key};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::wait::{Outcome, Slot};
pub(crate) use mapped::Touch;
pub(crate) use write::Written;

/// A shard of the cache.
#[derive(Debug)]
pub(crate) struct Shard {
    number: usize,
    pub(crate) arena: Arc<Arena>,
    state: Mutex<State>,
    /// Accesses at the last comparison of shards, minus half of the recent ones then.
    accesses_seen: AtomicU64,
}

/// A fill in flight.
#[derive(Debug)]
struct InFlight {
    entry: Arc<FileEntry>,
    range: PageRange,
    demanded: Arc<Demand>,
}

impl InFlight {
    fn holds(&self, entry: &Arc<FileEntry>, range: PageRange) -> bool {
        Arc::ptr_eq(&self.entry, entry) && self.range.start <= range.start && range.end <= self.range.end
    }
}

/// State under the lock.
#[derive(Debug)]
pub(crate) struct State {
    cache: Cache,
    now: Instant,
    /// Congestion of the current store, as last reported to the cache.
    congested: bool,
    waiting: HashMap<Waiter, Arc<Slot>>,
    next_waiter: u64,
    files: Vec<Option<Arc<FileEntry>>>,
    /// Fills in flight, with their file, and whether a reader waits.
    fills: HashMap<FillId, InFlight>,
    /// The fill that has just failed; its readers' pages may be requested again.
    failed: Option<InFlight>,
    /// Write-outs in flight, with their file, and whether a sync waits.
    write_outs: HashMap<WriteOutId, (Arc<FileEntry>, Arc<Demand>)>,
    free_files: Vec<FileId>,
    free_handles: Vec<HandleId>,
    next_handle: u32,
    /// Its share of the budget of readahead in flight, if there is one.
    ahead: Option<Drawn>,
    journal: Option<Journal>,
    log: Option<DecisionLog>,
    actions: Vec<Action>,
    /// Frames of a read that is copied under the lock.
    frames: Vec<FrameId>,
    /// Target frames of a write.
    targets: Vec<Target>,
}

/// An effect to carry out outside the lock.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a read or a write to the store.
    Send(IoRequest),
    /// A request now has a waiter.
    Promote(Arc<FileEntry>, Key),
    /// A request is no longer needed.
    Cancel(Arc<FileEntry>, Key),
    /// Wake a read, a write or a sync.
    Wake(Arc<Slot>, Outcome),
}

/// Result of a read.
#[derive(Debug)]
pub(crate) enum Found {
    /// The frames are in the lent buffer, pinned.
    Hit,
    /// The frames arrive through the slot.
    Later(Arc<Slot>),
}

impl Shard {
    pub(crate) fn new(number: usize, config: &Config, frames_max: u32, options: &Options) -> Result<Self> {
        let cache = Cache::new(config.clone()).map_err(|error| Error::Options(error.to_string()))?;
        let events = options.journal_events;
        let journal = (events > 0).then(|| Journal::new(config.clone(), events));
        let ahead = options
            .ahead_max
            .clone()
            .map(|budget| Drawn::new(budget, config.page_size.bytes(), config.ra_pages));
        let shard = Self {
            number,
            arena: Arc::new(Arena::new(frames_max, config.page_size)?),
            state: Mutex::new(State {
                cache,
                now: Instant(0),
                congested: false,
                waiting: HashMap::new(),
                next_waiter: 0,
                files: Vec::new(),
                free_files: Vec::new(),
                fills: HashMap::new(),
                failed: None,
                write_outs: HashMap::new(),
                free_handles: Vec::new(),
                next_handle: 0,
                ahead,
                journal,
                log: options.decisions.clone(),
                actions: Vec::new(),
                frames: Vec::new(),
                targets: Vec::new(),
            }),
            accesses_seen: AtomicU64::new(0),
        };
        // No readahead until it has drawn from the budget.
        let mut state = shard.lock();
        if state.ahead.is_some() {
            state.step(Event::Allowed { pages: 0 });
        }
        drop(state);
        Ok(shard)
    }

    /// Copies the bytes of `request`, from `skip` bytes into its first page, to all of `part`. Does
    /// so only if every page is a hit of the fast path and the copy is short enough for the lock;
    /// returns whether it did. Otherwise `part` is unchanged.
    #[inline]
    pub(crate) fn copy_hit(&self, handle: HandleId, request: Request, skip: usize, part: &mut [u8]) -> bool {
        if part.len() > COPY_BYTES_MAX {
            return false;
        }
        let mut state = self.lock();
        let State { cache, journal, frames, .. } = &mut *state;
        // A journal has the hit and the unpin as two events.
        if journal.is_some() || !cache.try_hit(PageAccess::read(handle, request), Pins::Skipped, frames) {
            return false;
        }
        // The file was truncated since its size was read.
        if frames.len() < self.arena.frames_for(skip + part.len()) {
            return false;
        }
        // SAFETY: these frames are up to date now, and frames of this shard change only under its
        // lock, which we hold.
        unsafe { self.arena.copy_out(frames, skip, part) };
        true
    }

    /// Reads pages through a handle; `congested` is the state of the file's store. After a hit, the
    /// frames are in `frames`; unpin them after use.
    pub(crate) fn read(
        &self,
        handle: HandleId,
        request: Request,
        congested: bool,
        frames: &mut Vec<FrameId>,
        effects: &mut Vec<Effect>,
    ) -> Found {
        let mut state = self.lock();
        let state = &mut *state;
        let access = PageAccess::read(handle, request);
        // Most reads end here: no clock, no waiter.
        if state.journal.is_none() && state.cache.try_hit(access, Pins::Held, frames) {
            return Found::Hit;
        }
        state.note_congestion(congested);
        state.draw_ahead(false);
        let now = state.tick();
        let waiter = Waiter(state.next_waiter);
        let outcome = state.cache.access(now, waiter, access, frames, &mut state.actions);
        if let Some(journal) = &mut state.journal {
            if outcome == ReadOutcome::Hit {
                // The same actions as `step` returns.
                state.actions.push(Action::Wake { waiter, result: Ok(frames.clone()) });
            }
            journal.record(now, Event::Access { waiter, access }, &state.actions);
            if outcome == ReadOutcome::Hit {
                state.actions.pop();
            }
            state.next_waiter += 1;
        }
        if outcome == ReadOutcome::Hit {
            // A policy that runs on every access may read ahead even at a hit.
            if state.actions.is_empty() {
                state.settle_ahead();
            } else {
                self.collect(state, effects);
            }
            return Found::Hit;
        }
        state.next_waiter = waiter.0 + 1;
        let slot = Arc::new(Slot::default());
        state.waiting.insert(waiter, Arc::clone(&slot));
        self.collect(state, effects);
        Found::Later(slot)
    }

    /// Unpins frames.
    pub(crate) fn unpin(&self, frames: &[FrameId], effects: &mut Vec<Effect>) {
        let mut state = self.lock();
        let state = &mut *state;
        let now = state.now;
        state.cache.unpin(now, frames, &mut state.actions);
        if let Some(journal) = &mut state.journal {
            journal.record(now, Event::Unpin { frames: frames.to_vec() }, &state.actions);
        }
        if !state.actions.is_empty() {
            self.collect(state, effects);
        }
    }

    /// Completes fills.
    pub(crate) fn filled(
        &self,
        answers: impl IntoIterator<Item = (FillId, std::result::Result<(), bowwave_core::FillError>)>,
        effects: &mut Vec<Effect>,
    ) {
        let mut state = self.lock();
        for (fill, result) in answers {
            let ended = state.fills.remove(&fill);
            state.failed = ended.filter(|_| result.is_err());
            state.step(Event::Filled { fill, result });
            self.collect(&mut state, effects);
            state.failed = None;
        }
    }

    pub(crate) fn advise(
        &self,
        handle: HandleId,
        range: PageRange,
        advice: Advice,
        effects: &mut Vec<Effect>,
    ) {
        let mut state = self.lock();
        if advice == Advice::WillNeed {
            state.draw_ahead(true);
        }
        state.step(Event::Advise { handle, range, advice });
        self.collect(&mut state, effects);
    }

    /// Adds to the read plan of a handle; `congested` is the state of the file's store.
    pub(crate) fn set_read_plan(
        &self,
        handle: HandleId,
        ranges: Vec<PageRange>,
        congested: bool,
        effects: &mut Vec<Effect>,
    ) -> std::result::Result<(), TooManyRanges> {
        let mut state = self.lock();
        let state = &mut *state;
        state.note_congestion(congested);
        state.draw_ahead(true);
        let now = state.tick();
        let taken = state.cache.set_read_plan(now, handle, &ranges, &mut state.actions);
        if taken.is_err() {
            state.settle_ahead();
            return taken;
        }
        if let Some(journal) = &mut state.journal {
            journal.record(now, Event::SetReadPlan { handle, ranges }, &state.actions);
        }
        self.collect(state, effects);
        Ok(())
    }

    /// Ends a handle's read plan.
    pub(crate) fn end_plan(&self, handle: HandleId, effects: &mut Vec<Effect>) {
        let mut state = self.lock();
        state.step(Event::SetReadPlan { handle, ranges: Vec::new() });
        self.collect(&mut state, effects);
    }

    /// Drops all pages of a file, if it is still known.
    pub(crate) fn invalidate(&self, entry: &FileEntry) {
        let mut state = self.lock();
        let known = state.files.get(entry.file.0 as usize).and_then(Option::as_ref);
        // The number may have been reused for another file.
        if known.is_some_and(|known| known.uid == entry.uid) {
            state.step(Event::Invalidate { file: entry.file, range: PageRange::new(0, u64::MAX) });
            self.collect_places(&mut state);
        }
    }

    /// Sets a file's length.
    pub(crate) fn set_pages(&self, file: FileId, pages: PageCount) {
        self.lock().step(Event::Extended { file, pages });
    }

    /// Drops some pages of a file.
    pub(crate) fn invalidate_pages(&self, file: FileId, range: PageRange) {
        self.lock().step(Event::Invalidate { file, range });
    }

    /// Enters a file, which `make` builds from its number.
    pub(crate) fn open_file(
        &self,
        pages: PageCount,
        make: impl FnOnce(FileId) -> FileEntry,
    ) -> Arc<FileEntry> {
        let mut state = self.lock();
        let file = state.free_files.pop().unwrap_or_else(|| {
            state.files.push(None);
            FileId(u32::try_from(state.files.len() - 1).expect("fewer than 2^32 files"))
        });
        let entry = Arc::new(make(file));
        state.files[file.0 as usize] = Some(Arc::clone(&entry));
        state.step(Event::OpenFile { file, pages });
        entry
    }

    /// Forgets a file, unless it has requests in flight; returns whether it did.
    pub(crate) fn close_file(&self, file: FileId) -> bool {
        let mut state = self.lock();
        let mut in_flight = (state.fills.values().map(|fill| &fill.entry))
            .chain(state.write_outs.values().map(|(entry, _)| entry));
        if in_flight.any(|entry| entry.file == file) {
            return false;
        }
        state.step(Event::CloseFile { file });
        self.collect_places(&mut state);
        state.files[file.0 as usize] = None;
        state.free_files.push(file);
        true
    }

    pub(crate) fn open_handle(&self, file: FileId) -> HandleId {
        let mut state = self.lock();
        let handle = state.free_handles.pop().unwrap_or_else(|| {
            state.next_handle += 1;
            HandleId(state.next_handle - 1)
        });
        state.step(Event::OpenHandle { handle, file });
        handle
    }

    /// Gives a new handle the advice of another one of its file.
    pub(crate) fn copy_handle(&self, from: HandleId, to: HandleId) {
        self.lock().step(Event::CopyHandle { from, to });
    }

    pub(crate) fn close_handle(&self, handle: HandleId, effects: &mut Vec<Effect>) {
        let mut state = self.lock();
        state.step(Event::CloseHandle { handle });
        state.free_handles.push(handle);
        self.collect(&mut state, effects);
    }

    /// A reader waits for pages of a file: fills of these pages in flight get the reader's priority
    /// if it is higher. The cache knows no priorities, and promotes only readahead.
    pub(crate) fn promote(&self, entry: &Arc<FileEntry>, pages: PageRange, effects: &mut Vec<Effect>) {
        let state = self.lock();
        let awaited = state
            .fills
            .iter()
            .filter(|(_, fill)| Arc::ptr_eq(&fill.entry, entry) && !fill.range.intersect(pages).is_empty());
        effects
            .extend(awaited.map(|(&fill, _)| Effect::Promote(Arc::clone(entry), self.key(Id::Fill(fill)))));
    }

    /// Lends frames.
    pub(crate) fn grant(&self, frames: u32, effects: &mut Vec<Effect>) {
        let mut state = self.lock();
        state.step(Event::Granted { frames });
        self.collect(&mut state, effects);
    }

    /// Changes the sizes of windows and the limits of dirty pages.
    pub(crate) fn tune(&self, windows: WindowTuning, write_back: WriteBackConfig, effects: &mut Vec<Effect>) {
        let mut state = self.lock();
        state.step(Event::Tuned { windows, write_back });
        self.collect(&mut state, effects);
    }

    /// Changes the readahead policy.
    pub(crate) fn set_policy(&self, policy: Policy, range: RangeConfig, effects: &mut Vec<Effect>) {
        let mut state = self.lock();
        state.step(Event::PolicySet { policy, range });
        self.collect(&mut state, effects);
    }

    /// Takes back up to `frames` frames, but leaves `floor`; returns how many it got.
    pub(crate) fn revoke(&self, frames: u32, floor: u32, effects: &mut Vec<Effect>) -> u32 {
        let mut state = self.lock();
        let before = state.cache.frame_limit();
        let frames = frames.min(before.saturating_sub(floor));
        state.step(Event::Revoked { frames });
        self.collect(&mut state, effects);
        before - state.cache.frame_limit()
    }

    /// Inspects the cache.
    pub(crate) fn with_cache<T>(&self, look: impl FnOnce(&Cache) -> T) -> T {
        look(&self.lock().cache)
    }

    pub(crate) fn journal(&self) -> Option<Journal> {
        self.lock().journal.clone()
    }

    /// Recent accesses for each lent frame: the benefit of memory here. Each call halves the
    /// earlier accesses.
    pub(crate) fn recent_accesses_per_frame(&self) -> f64 {
        let (accesses, frames) = self.with_cache(|cache| (cache.accesses(), cache.frame_limit()));
        let recent = accesses.saturating_sub(self.accesses_seen.load(Ordering::Relaxed));
        self.accesses_seen.store(accesses - recent / 2, Ordering::Relaxed);
        recent as f64 / f64::from(frames.max(1))
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is our own bug; counters may be wrong, but the table is never half
        // changed.
        self.state.try_lock().unwrap_or_else(|| self.lock_later())
    }

    /// Waits for the lock. Others hold it for less time than a sleep takes, so the thread first
    /// pauses, longer each time. Meanwhile the holder can take the lock again for its next reads.
    #[cold]
    fn lock_later(&self) -> MutexGuard<'_, State> {
        // In the model, no other thread runs during a pause.
        let pauses = if cfg!(feature = "model") { 0 } else { PAUSES };
        for round in 0..pauses {
            (0..16 << round).for_each(|_| hint::spin_loop());
            if let Some(state) = self.state.try_lock() {
                return state;
            }
        }
        self.state.lock()
    }

    /// Turns the pending actions into effects that need no lock.
    fn collect(&self, state: &mut State, effects: &mut Vec<Effect>) {
        state.cache.report_mappings(&mut state.actions);
        let mut actions = std::mem::take(&mut state.actions);
        self.settle_places(state, &mut actions);
        state.log_decisions(&actions);
        for action in actions.drain(..) {
            match action {
                Action::Decided(_) | Action::Weighed(_) => {}
                Action::Fill(fill) => effects.push(Effect::Send(self.queued(state, fill))),
                Action::Promote { fill } => {
                    if let Some(InFlight { entry, demanded, .. }) = state.fills.get(&fill) {
                        demanded.come(clock::precise());
                        effects.push(Effect::Promote(Arc::clone(entry), self.key(Id::Fill(fill))));
                    }
                }
                Action::Cancel { fill } => {
                    if let Some(InFlight { entry, .. }) = state.fills.get(&fill) {
                        effects.push(Effect::Cancel(Arc::clone(entry), self.key(Id::Fill(fill))));
                    }
                }
                Action::Wake { waiter, result } => {
                    let slot = state
                        .waiting
                        .remove(&waiter)
                        .expect("each read registers before its wake is looked at");
                    effects.push(Effect::Wake(slot, result));
                }
                // Under the lock: outside, the frames could be lent again and filled before their
                // memory is released.
                Action::Retired { frames } => self.arena.release(&frames),
                Action::Unmap { .. } | Action::Released { .. } => unreachable!("settled above"),
                Action::WriteOut(write) => {
                    effects.push(Effect::Send(self.queued_write(state, write)));
                }
                Action::PromoteWrite { id } => {
                    if let Some((entry, demanded)) = state.write_outs.get(&id) {
                        demanded.come(clock::precise());
                        effects.push(Effect::Promote(Arc::clone(entry), self.key(Id::Write(id))));
                    }
                }
                Action::Accepted { .. } => unreachable!("only `step` answers with it"),
            }
        }
        state.actions = actions;
        state.settle_ahead();
    }

    fn queued(&self, state: &mut State, fill: Fill) -> IoRequest {
        let entry = state.files[fill.file.0 as usize].as_ref().expect("fills are of open files");
        let entry = Arc::clone(entry);
        let demanded = Arc::new(Demand::default());
        if fill.urgency == Urgency::Demand {
            // Readers of a failed fill continue to wait, with the same deadline.
            let failed = state.failed.as_ref().filter(|failed| failed.holds(&entry, fill.range));
            let since = failed.and_then(|failed| failed.demanded.since());
            demanded.come(since.unwrap_or_else(clock::precise));
        }
        let in_flight =
            InFlight { entry: Arc::clone(&entry), range: fill.range, demanded: Arc::clone(&demanded) };
        state.fills.insert(fill.id, in_flight);
        let frames: Vec<FrameId> = state.cache.fill_frames(fill.id).collect();
        self.place(&entry, fill.range, &frames);
        IoRequest {
            key: self.key(Id::Fill(fill.id)),
            entry,
            range: fill.range,
            urgency: fill.urgency,
            priority: Priority::default(),
            demanded,
            frames,
            arena: Arc::clone(&self.arena),
            retry: None,
            have_bytes: 0,
        }
    }

    fn key(&self, id: Id) -> Key {
        Key { shard: self.number, id }
    }
}

/// Maximum bytes copied under the lock. Up to here, pinning and unpinning costs more than the wait
/// of other threads.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Maximum number of pauses of a thread that waits for the lock; then it sleeps. The first pause
/// takes about half a microsecond, each further one twice as long. Fewer: threads that read one
/// file sleep and wake each other; more: processor time is lost while the holder has no processor.
const PAUSES: u32 = 5;

impl State {
    /// The time, which never runs backward under the lock.
    fn tick(&mut self) -> Instant {
        self.now = self.now.max(clock::now());
        self.now
    }

    /// Draws from the budget of readahead in flight, before a decision.
    fn draw_ahead(&mut self, all: bool) {
        if let Some(drawn) = &mut self.ahead {
            let pages = drawn.draw(all);
            self.step(Event::Allowed { pages });
        }
    }

    /// Returns the part of the budget that is not in flight. Call it when no action is pending.
    fn settle_ahead(&mut self) {
        let pages = self.cache.pages_ahead();
        if self.ahead.as_mut().is_some_and(|drawn| drawn.settle(pages)) {
            self.step(Event::Allowed { pages });
        }
    }

    /// Writes the decisions among these actions to the log, if there is one.
    fn log_decisions(&self, actions: &[Action]) {
        let Some(log) = &self.log else { return };
        let mut access = None;
        let mut rest = actions;
        while let Some(at) = rest.iter().position(|action| matches!(action, Action::Decided(_))) {
            let Action::Decided(decision) = rest[at] else { unreachable!("found above") };
            let weighed = rest[..at].last().and_then(|action| match action {
                Action::Weighed(weighed) => Some(weighed.clone()),
                _ => None,
            });
            rest = &rest[at + 1..];
            let Some(entry) = &self.files[decision.file.0 as usize] else { continue };
            let fills = rest.iter().take_while(|action| !matches!(action, Action::Decided(_)));
            let submitted = fills.filter_map(|action| match action {
                Action::Fill(fill) => Some(fill.range),
                _ => None,
            });
            let (submitted, file, pid): (Vec<PageRange>, _, _) =
                (submitted.collect(), entry.path_or_url(), ActingFor::current());
            let access = *access.get_or_insert_with(|| log.next_access());
            log.add(self.cache.policy().name(), Some(entry.queue.url().to_owned()), move || {
                let (submitted, weighed) = (&submitted, weighed.as_ref());
                ReadaheadLine { access, pid, file: &file, decision: &decision, submitted, weighed }
                    .to_string()
            });
        }
    }

    /// Reports the current store's congestion to the cache.
    fn note_congestion(&mut self, congested: bool) {
        if congested != self.congested {
            self.congested = congested;
            self.step(Event::Congestion { congested });
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.tick();
        match &mut self.journal {
            None => self.cache.step(now, event, &mut self.actions),
            Some(journal) => {
                self.cache.step(now, event.clone(), &mut self.actions);
                journal.record(now, event, &self.actions);
            }
        }
    }
}
