//! Reclaim: unmaps pages, writes them out, and frees their memory.
//!
//! Reclaim is demand work only when memory is exhausted, and it comes in bulk: the pager evicts a
//! thousandth of memory or more at a time. So a separate thread does it in small batches, with slow
//! steps outside the lock: no other thread uses a page that is being evicted. The same thread sends
//! transfers again when their pause is over.
//!
//! A page may be read back before its memory is freed. The thread that reads it frees the memory
//! first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowwave_core::swap::pager::{PagerAction, PagerEvent, RegionId, SwapOut};
use bowwave_core::{PageIndex, PageRange, RangeSet};

use super::memory::Pages;
use super::swap::{ACTIONS_KEPT, Aborts, Shared, State, retry_forever};
use crate::error::{Error, Result};

/// Queued reclaim work.
#[derive(Debug, Default)]
pub(super) struct Reclaim {
    /// In order: [`PagerAction::Unmap`], [`PagerAction::Write`], [`PagerAction::Retired`].
    todo: VecDeque<PagerAction>,
    /// Pages to be freed.
    drops: RangeSet,
    /// Actions ever added to `todo`, and completed ones.
    added: u64,
    done: u64,
    /// Threads that wait for completion.
    waiters: u32,
    /// Whether the thread is idle.
    idle: bool,
    stopping: bool,
}

impl Reclaim {
    /// Queues an action.
    pub(super) fn push(&mut self, action: PagerAction) {
        self.added += 1;
        self.todo.push_back(action);
    }

    /// Queues pages to be freed.
    pub(super) fn add_drops(&mut self, pages: Pages) {
        let count = pages.end - pages.start;
        let new = self.drops.insert(pages);
        debug_assert_eq!(new, count, "what is given back is there");
    }

    /// Frees the excess over the limit here: the thread may not be scheduled for long.
    pub(super) fn free_excess(&mut self, free: impl FnMut(Pages)) {
        self.free(self.drops.count().saturating_sub(DROPS_MAX), free);
    }

    /// Frees up to `pages` queued pages.
    pub(super) fn free(&mut self, mut pages: u64, mut free: impl FnMut(Pages)) {
        while pages > 0 {
            let Some(mut run) = self.drops.ranges().next() else { break };
            run.end = run.end.min(run.start + pages);
            pages -= self.drops.remove(&run);
            free(run);
        }
    }

    /// Frees those of `pages` that are queued.
    pub(super) fn free_of(&mut self, pages: &Pages, mut free: impl FnMut(Pages)) {
        while let Some(run) = self.drops.remove_last(pages) {
            free(run);
        }
    }

    /// Whether the idle thread has work; marks it as busy then.
    pub(super) fn begins(&mut self) -> bool {
        let begins = self.idle && (!self.todo.is_empty() || self.drops.count() >= DROPS);
        self.idle &= !begins;
        begins
    }

    /// Records completed actions. Returns whether threads wait for them.
    fn complete(&mut self, count: u64) -> bool {
        self.done += count;
        self.waiters > 0
    }
}

/// A batch of work that runs outside the lock.
enum Batch {
    /// Pages to unmap, and their places.
    Unmap(Vec<(RegionId, PageRange)>, Vec<Pages>),
    /// Pages to write, and the place of each.
    Write(SwapOut, Vec<u64>),
    /// Memory was freed.
    Nothing,
    Stop,
}

impl State {
    /// The next batch; frees memory immediately. `None` if there is no work.
    fn next_batch(&mut self, shared: &Shared) -> Option<Batch> {
        if self.reclaim.stopping {
            return Some(Batch::Stop);
        }
        let drops = self.reclaim.drops.count();
        if drops > 0 && (drops >= DROPS || self.reclaim.todo.is_empty()) {
            self.reclaim.free(DROPS, |run| retry_forever(|| shared.memory.free(&run)));
            return Some(Batch::Nothing);
        }
        let Some(action) = self.reclaim.todo.pop_front() else {
            // Release the memory that the actions of a removed region took.
            self.reclaim.todo.shrink_to(ACTIONS_KEPT);
            return None;
        };
        match action {
            PagerAction::Unmap { region, pages } => {
                let mut count = pages.count().0;
                let (mut ranges, mut places) = (vec![(region, pages)], vec![self.pages(region, pages)]);
                while count < UNMAPS
                    && let Some(&PagerAction::Unmap { region, pages }) = self.reclaim.todo.front()
                {
                    self.reclaim.todo.pop_front();
                    count += pages.count().0;
                    ranges.push((region, pages));
                    places.push(self.pages(region, pages));
                }
                Some(Batch::Unmap(ranges, places))
            }
            PagerAction::Write(write) => {
                let places = write.pages.iter().map(|&id| self.place(id)).collect();
                Some(Batch::Write(write, places))
            }
            PagerAction::Retired { region } => {
                self.retired(shared, region);
                if self.reclaim.complete(1) {
                    shared.wakeup.notify_all();
                }
                Some(Batch::Nothing)
            }
            action => unreachable!("{action:?} is done at once"),
        }
    }

    /// Reports unmapped pages in order, and whether each was written.
    fn unmapped(&mut self, ranges: &[(RegionId, PageRange)], written: &[bool]) {
        let mut written = written.iter();
        for &(region, pages) in ranges {
            let mut dirty = Vec::new();
            for page in pages.start.0..pages.end.0 {
                if written.next() == Some(&true) {
                    dirty.push(PageIndex(page));
                }
            }
            self.apply(PagerEvent::Unmapped { region, pages, written: Some(dirty) });
        }
    }
}

impl Shared {
    /// Waits until all work queued so far is done.
    pub(super) fn wait_for_reclaim(&self) {
        let mut state = self.lock();
        let all = state.reclaim.added;
        state.reclaim.waiters += 1;
        while state.reclaim.done < all {
            state = self.wakeup.wait(state);
        }
        state.reclaim.waiters -= 1;
    }

    /// Runs reclaim until it is stopped.
    fn run_reclaim(&self) {
        let _aborts = Aborts;
        let mut written = Vec::new();
        loop {
            let mut state = self.lock();
            let batch = loop {
                if let Some(batch) = state.next_batch(self) {
                    break batch;
                }
                state.reclaim.idle = true;
                state = match self.queue.patience() {
                    Some(Duration::ZERO) => {
                        drop(state);
                        self.queue.run();
                        self.lock()
                    }
                    Some(patience) => self.wakeup.wait_timeout(state, patience),
                    None => self.wakeup.wait(state),
                };
                state.reclaim.idle = false;
            };
            drop(state);
            let waiters = match batch {
                Batch::Stop => return,
                Batch::Nothing => false,
                Batch::Unmap(ranges, places) => {
                    retry_forever(|| self.memory.unmap(&places, &mut written));
                    self.step(|state| {
                        state.unmapped(&ranges, &written);
                        state.reclaim.complete(ranges.len() as u64)
                    })
                }
                Batch::Write(write, places) => {
                    let loaded = self.load(&write, &places);
                    self.step(|state| {
                        state.start_write(self, write, loaded);
                        state.reclaim.complete(1)
                    })
                }
            };
            if waiters {
                self.wakeup.notify_all();
            }
            self.yield_lock();
        }
    }
}

/// The reclaim thread; stopped on drop.
#[derive(Debug)]
pub(super) struct ReclaimThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ReclaimThread {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let theirs = Arc::clone(shared);
        let thread = thread::Builder::new()
            .name("bowwave-swap-room".to_owned())
            .spawn(move || theirs.run_reclaim())
            .map_err(|error| Error::System { wanted: "start a thread", error, hint: "" })?;
        Ok(Self { shared: Arc::clone(shared), thread: Some(thread) })
    }
}

impl Drop for ReclaimThread {
    fn drop(&mut self) {
        self.shared.lock().reclaim.stopping = true;
        self.shared.wakeup.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread aborts the process.
            let _ended = thread.join();
        }
    }
}

/// Pages freed at a time, under the lock. Fewer wait until the thread is otherwise idle or pages
/// come in.
const DROPS: u64 = 16;
/// Maximum pages that wait to be freed: they use memory beyond the budget.
pub(super) const DROPS_MAX: u64 = 4 * DROPS;
/// Pages unmapped at a time.
const UNMAPS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_runs_merge_split_and_are_freed_once() {
        let mut reclaim = Reclaim::default();
        for pages in [10..12, 14..20, 12..14, 30..31] {
            reclaim.add_drops(pages);
        }
        assert_eq!((reclaim.drops.ranges().count(), reclaim.drops.count()), (2, 11));
        let mut freed = Vec::new();
        reclaim.free_of(&(13..15), |run| freed.push(run));
        reclaim.free_of(&(13..15), |run| freed.push(run));
        reclaim.free_of(&(19..31), |run| freed.push(run));
        assert_eq!(freed, [13..15, 30..31, 19..20]);
        freed.clear();
        reclaim.free(5, |run| freed.push(run));
        reclaim.free(100, |run| freed.push(run));
        assert_eq!(freed, [10..13, 15..17, 17..19]);
        assert_eq!((reclaim.drops.ranges().count(), reclaim.drops.count()), (0, 0));
    }
}
