//! Writing to pages: which frames the bytes go to, and who waits.
//!
//! ```text
//!   absent, behind the end            a new frame, zeros                     ┐
//!   absent, or on its way from        a new frame, if all of the page is     │
//!   the store                         written; else it is read before        ├──► dirty
//!   there, and nobody uses it         its own frame                          │
//!   there, read or being written out  a new frame; the old one goes when     │
//!                                     nobody uses it any more                ┘
//! ```
//!
//! So a page that somebody reads outside the lock, and one on its way to the store, never changes, and a writer waits for
//! neither: only for room.

use alloc::vec::Vec;

use super::Cache;
use super::frames::{Flag, Flags, State};
use super::table::Slot;
use crate::event::Action;
use crate::id::{FileId, FrameId, Waiter};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::time::Instant;
use crate::write::{Base, Target, Write, WriteOutcome};

/// Pages that a writer who is woken is expected to write at once: so many are not woken for more than there is room for.
const PAGES_EACH: u64 = 32;

/// A write that waits for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct StalledWrite {
    pub(super) waiter: Waiter,
    pub(super) file: FileId,
}

/// Why a page cannot be written to now.
enum Hurdle {
    /// It must be read before.
    Absent,
    /// No frame can be had.
    NoFrame,
}

impl Cache {
    /// Someone wants to write: makes as many of the first pages dirty as there is room for, and says where their bytes go
    /// (`targets`, in order). The driver copies them before it calls anything else, and asks again for the rest.
    ///
    /// A file that is written past its end becomes longer by what was taken. Too many dirty pages make writers wait, first
    /// come, first served, rather than memory grow ([`WriteBackConfig`](crate::WriteBackConfig)).
    ///
    /// # Panics
    /// If the file is not open or has places, or the range is empty.
    pub fn write(
        &mut self,
        now: Instant,
        waiter: Waiter,
        write: Write,
        targets: &mut Vec<Target>,
        out: &mut Vec<Action>,
    ) -> WriteOutcome {
        assert!(!write.range.is_empty(), "nothing is written");
        assert!(!self.file(write.file).memory.placed, "file {} has places", write.file.0);
        self.tick(now);
        targets.clear();
        let stalled = StalledWrite { waiter, file: write.file };
        if !write.woken && !self.write_back.stalled.is_empty() {
            return self.stall(stalled, false, out);
        }
        let room = self.dirty_limit().saturating_sub(self.write_back.unwritten());
        if room == 0 {
            return self.stall(stalled, write.woken, out);
        }
        let PageRange { start, end } = write.range;
        let last = PageIndex(end.0 - 1);
        for page in (start.0..end.0.min(start.0.saturating_add(room))).map(PageIndex) {
            let partial = page == start && write.keeps_head || page == last && write.keeps_tail;
            match self.target(write.file, page, partial) {
                Ok(target) => targets.push(target),
                Err(_) if !targets.is_empty() => break,
                Err(Hurdle::Absent) => return WriteOutcome::Read(page),
                Err(Hurdle::NoFrame) => return self.stall(stalled, write.woken, out),
            }
        }
        let taken = targets.len() as u64;
        let file = self.file_mut(write.file);
        file.pages = file.pages.max(PageCount(start.0 + taken));
        self.write_back(out);
        WriteOutcome::Taken(taken)
    }

    /// Lets writers that wait try again, first come, first served; with an error, if waiting would be in vain.
    pub(super) fn wake_writers(&mut self, out: &mut Vec<Action>) {
        if self.write_back.stalled.is_empty() {
            return;
        }
        let room = self.dirty_limit().saturating_sub(self.write_back.unwritten());
        let mut left = room.min(self.available());
        while left > 0
            && let Some(write) = self.write_back.stalled.pop_front()
        {
            left = left.saturating_sub(PAGES_EACH);
            out.push(Action::Wake { waiter: write.waiter, result: Ok(Vec::new()) });
        }
        if room == 0 && !self.can_write_back() {
            while let Some(write) = self.write_back.stalled.pop_front() {
                let error = self.why_not(write.file);
                out.push(Action::Wake { waiter: write.waiter, result: Err(error) });
            }
        }
    }

    /// Dirty pages, and pages on their way to the store, that there may be.
    pub(super) fn dirty_limit(&self) -> u64 {
        u64::from(self.config.write_back.dirty_max.min(self.limit / 2).max(1))
    }

    /// Has a write wait.
    fn stall(&mut self, write: StalledWrite, first: bool, out: &mut Vec<Action>) -> WriteOutcome {
        let full = self.write_back.unwritten() >= self.dirty_limit();
        if full && !self.can_write_back() {
            return WriteOutcome::Failed(self.why_not(write.file));
        }
        self.stats_mut(write.file).writes_throttled += 1;
        if first {
            self.write_back.stalled.push_front(write);
        } else {
            self.write_back.stalled.push_back(write);
        }
        self.write_back(out);
        WriteOutcome::Wait
    }

    /// Finds the frame for the new bytes of a page, and makes the page dirty.
    fn target(&mut self, file: FileId, page: PageIndex, partial: bool) -> Result<Target, Hurdle> {
        let old = self.table.get(file, page).frame();
        let target = match old {
            Some(frame) if self.may_change(frame) => {
                self.touch(frame);
                Target { frame, base: Base::Page }
            }
            Some(old) if self.frames.get(old).state == State::InFlight => {
                if partial {
                    return Err(Hurdle::Absent);
                }
                Target { frame: self.replace(file, page, Some(old))?, base: Base::Zeros }
            }
            Some(old) => Target { frame: self.replace(file, page, Some(old))?, base: Base::Copy(old) },
            None if partial && page.0 < self.file(file).pages.0 => return Err(Hurdle::Absent),
            None => Target { frame: self.replace(file, page, None)?, base: Base::Zeros },
        };
        self.make_dirty(file, page, target.frame);
        Ok(target)
    }

    /// Whether the frame of a page may be written to: nobody has it but, if it is dirty, the cache itself.
    fn may_change(&self, frame: FrameId) -> bool {
        let frame = self.frames.get(frame);
        matches!(frame.state, State::Inactive | State::Active)
            && frame.pins == u32::from(frame.has(Flag::Dirty))
    }

    /// A new frame for a page; the one that it had goes when nobody uses it any more.
    fn replace(&mut self, file: FileId, page: PageIndex, old: Option<FrameId>) -> Result<FrameId, Hurdle> {
        if self.available() == 0 {
            return Err(Hurdle::NoFrame);
        }
        self.make_room();
        let frame = self.frames.alloc(self.limit, file, page, Flags::NONE).ok_or(Hurdle::NoFrame)?;
        if let Some(old) = old {
            let was_marked = self.frames.get_mut(old).take(Flag::Mark);
            if was_marked {
                self.frames.get_mut(frame).set(Flag::Mark);
            }
            let was_dirty = self.frames.get_mut(old).take(Flag::Dirty);
            self.doom(old);
            if was_dirty {
                self.drop_pins([old]);
            }
        }
        if let Some(shadow) = self.table.set(file, page, Slot::of_frame(frame)).shadow() {
            self.refault(frame, shadow, true);
        }
        let active = self.frames.get_mut(frame).take(Flag::Activate);
        self.frames.list_add(frame, if active { State::Active } else { State::Inactive });
        Ok(frame)
    }
}
