//! Writes to pages and write-outs in a shard.

use std::sync::Arc;

use bowwave_core::schedule::Priority;
use bowwave_core::{
    Action, Base, Event, FileId, FillError, PageIndex, PageRange, ReadOutcome, SyncFor, Target, Waiter,
    Write, WriteOut, WriteOutId, WriteOutcome,
};

use super::{Effect, Shard, State};
use crate::entry::FileEntry;
use crate::queue::{Demand, Id, IoRequest};
use crate::wait::Slot;

/// Result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// This many bytes are in the cache.
    Bytes(usize),
    /// This page must be read first.
    Read(PageIndex),
    /// No memory; call again, as woken, after the slot's wake.
    Wait(Arc<Slot>),
    /// No memory, and none will become free.
    Failed(FillError),
}

impl Shard {
    /// Writes the first of `bytes`, which begin `skip` bytes into the first page, to pages of
    /// `entry`. The file's size is updated before other threads can see it.
    pub(crate) fn write(
        &self,
        entry: &FileEntry,
        write: Write,
        skip: usize,
        bytes: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Written {
        let mut state = self.lock();
        let state = &mut *state;
        let now = state.tick();
        let waiter = Waiter(state.next_waiter);
        state.next_waiter += 1;
        let mut targets = std::mem::take(&mut state.targets);
        let outcome = state.cache.write(now, waiter, write, &mut targets, &mut state.actions);
        if let Some(journal) = &mut state.journal {
            let took = Action::Accepted { waiter, outcome, targets: targets.clone() };
            let actions: Vec<Action> = std::iter::once(took).chain(state.actions.iter().cloned()).collect();
            journal.record(now, Event::Write { waiter, write }, &actions);
        }
        let written = match outcome {
            WriteOutcome::Accepted(_) => {
                let count = self.copy_in(&targets, skip, bytes);
                let end = write.range.start.0 * self.arena.page_bytes() + (skip + count) as u64;
                if end > entry.size() {
                    entry.set_size(end);
                }
                Written::Bytes(count)
            }
            WriteOutcome::Read(page) => Written::Read(page),
            WriteOutcome::Wait => {
                let slot = Arc::new(Slot::default());
                state.waiting.insert(waiter, Arc::clone(&slot));
                Written::Wait(slot)
            }
            WriteOutcome::Failed(error) => Written::Failed(error),
        };
        state.targets = targets;
        if !state.actions.is_empty() {
            self.collect(state, effects);
        }
        written
    }

    /// Completes write-outs.
    pub(crate) fn written_out(
        &self,
        answers: impl IntoIterator<Item = (WriteOutId, Result<(), FillError>)>,
        effects: &mut Vec<Effect>,
    ) {
        let mut state = self.lock();
        for (id, result) in answers {
            state.write_outs.remove(&id);
            state.step(Event::WrittenOut { id, result });
            self.collect(&mut state, effects);
        }
    }

    /// Requires that the store has written pages of a file; returns a slot to wait for if it does
    /// not.
    pub(crate) fn sync(
        &self,
        file: FileId,
        range: PageRange,
        why: SyncFor,
        effects: &mut Vec<Effect>,
    ) -> Option<Arc<Slot>> {
        let mut state = self.lock();
        let state = &mut *state;
        let (now, waiter) = (state.tick(), Waiter(state.next_waiter));
        let outcome = state.cache.sync(now, waiter, file, range, why, &mut state.actions);
        self.await_write(state, waiter, outcome, Event::Sync { waiter, file, range, why }, effects)
    }

    /// Discards written pages that are not in the store; returns a slot to wait for if some are in
    /// flight.
    pub(crate) fn discard(
        &self,
        file: FileId,
        range: PageRange,
        effects: &mut Vec<Effect>,
    ) -> Option<Arc<Slot>> {
        let mut state = self.lock();
        let state = &mut *state;
        let (now, waiter) = (state.tick(), Waiter(state.next_waiter));
        let outcome = state.cache.discard(now, waiter, file, range, &mut state.actions);
        self.await_write(state, waiter, outcome, Event::Discard { waiter, file, range }, effects)
    }

    /// Writes back old dirty pages; returns whether anything is dirty.
    pub(crate) fn expire(&self, effects: &mut Vec<Effect>) -> bool {
        let mut state = self.lock();
        if state.cache.pages_unwritten() == (0, 0) {
            return false;
        }
        state.step(Event::Expire);
        self.collect(&mut state, effects);
        true
    }

    /// Carries out the effects of a sync or a discard.
    fn await_write(
        &self,
        state: &mut State,
        waiter: Waiter,
        outcome: ReadOutcome,
        event: Event,
        effects: &mut Vec<Effect>,
    ) -> Option<Arc<Slot>> {
        let waits = outcome == ReadOutcome::Wait;
        if let Some(journal) = &mut state.journal {
            let wake = (!waits).then(|| Action::Wake { waiter, result: Ok(Vec::new()) });
            let actions: Vec<Action> = state.actions.iter().cloned().chain(wake).collect();
            journal.record(state.now, event, &actions);
        }
        state.next_waiter += 1;
        let slot = waits.then(Arc::<Slot>::default);
        if let Some(slot) = &slot {
            state.waiting.insert(waiter, Arc::clone(slot));
        }
        self.collect(state, effects);
        slot
    }

    /// Copies the first of `bytes` to a write's target frames; returns how many fit.
    fn copy_in(&self, targets: &[Target], skip: usize, bytes: &[u8]) -> usize {
        let (mut skip, mut rest) = (skip, bytes);
        for target in targets {
            let (base, page_bytes) = self.arena.segment(target.frame);
            let count = rest.len().min(page_bytes - skip);
            let (now, later) = rest.split_at(count);
            let is_whole = count == page_bytes;
            // SAFETY: the cache has just given these frames to this write: they are unpinned,
            // except by the cache, and frames of this shard change only under its lock, which we
            // hold. A frame to copy from is pinned, so it is none of them, and it is not written.
            // All lie within the arena.
            unsafe {
                match target.base {
                    Base::Copy(old) if !is_whole => {
                        std::ptr::copy_nonoverlapping(self.arena.segment(old).0, base, page_bytes);
                    }
                    Base::Zeros if !is_whole => std::ptr::write_bytes(base, 0, page_bytes),
                    _ => {}
                }
                std::ptr::copy_nonoverlapping(now.as_ptr(), base.add(skip), count);
            }
            (skip, rest) = (0, later);
        }
        bytes.len() - rest.len()
    }

    pub(super) fn queued_write(&self, state: &mut State, write: WriteOut) -> IoRequest {
        let entry = state.files[write.file.0 as usize].as_ref().expect("write-outs are of open files");
        let entry = Arc::clone(entry);
        let demanded = Arc::new(Demand::default());
        state.write_outs.insert(write.id, (Arc::clone(&entry), Arc::clone(&demanded)));
        IoRequest {
            key: self.key(Id::Write(write.id)),
            entry,
            range: write.range,
            urgency: write.urgency,
            priority: Priority::default(),
            demanded,
            frames: state.cache.write_out_frames(write.id).to_vec(),
            arena: Arc::clone(&self.arena),
            retry: None,
            have_bytes: 0,
        }
    }
}
