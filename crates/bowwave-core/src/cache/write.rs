//! Writes to pages: which frames receive the bytes, and which writes wait.
//!
//! ```text
//!   absent, past the end              a new frame, zeros                     ┐
//!   absent, or in flight from         a new frame, if the whole page is      │
//!   the store                         written; else it is read first         ├──► dirty
//!   present, unpinned                 its own frame                          │
//!   present, read or being written    a new frame; the old one is freed      │
//!   out                               once it is unpinned                    ┘
//! ```
//!
//! So a page that is read outside the lock, or is in flight to the store, never changes. Writers
//! wait for memory, and for the fill of a page that they change in part.

use alloc::vec::Vec;

use super::Cache;
use super::frames::{Flag, Flags, State};
use super::table::Slot;
use crate::event::Action;
use crate::id::{FileId, FrameId, Waiter};
use crate::page::{PageCount, PageIndex, PageRange};
use crate::time::Instant;
use crate::write::{Base, Target, Write, WriteOutcome};

/// Pages that a woken writer is expected to write at once: bounds how many writers are woken for
/// the available space.
const PAGES_EACH: u64 = 32;

/// A stalled write.
#[derive(Clone, Copy, Debug)]
pub(super) struct StalledWrite {
    pub(super) waiter: Waiter,
    pub(super) file: FileId,
}

/// Why a page cannot be written now.
enum Hurdle {
    /// It must be read first.
    Absent,
    /// No frame is available.
    NoFrame,
}

impl Cache {
    /// Writes pages: makes as many of the first pages dirty as memory allows, and returns their
    /// target frames in order (`targets`). The driver copies the bytes before any other call, and
    /// calls again for the rest.
    ///
    /// A write past the end extends the file by the accepted pages. With too many dirty pages,
    /// writers wait in order of arrival ([`WriteBackConfig`](crate::WriteBackConfig)).
    ///
    /// # Panics
    /// If the file is not open or has offset-mapped frames, or the range is empty.
    pub fn write(
        &mut self,
        now: Instant,
        waiter: Waiter,
        write: Write,
        targets: &mut Vec<Target>,
        out: &mut Vec<Action>,
    ) -> WriteOutcome {
        assert!(!write.range.is_empty(), "nothing is written");
        assert!(!self.file(write.file).memory.offset_mapped, "file {} is offset-mapped", write.file.0);
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
        WriteOutcome::Accepted(taken)
    }

    /// Wakes stalled writers in order of arrival; with an error if waiting cannot help.
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

    /// Most dirty and in-flight pages.
    pub(super) fn dirty_limit(&self) -> u64 {
        u64::from(self.config.write_back.dirty_max.min(self.limit / 2).max(1))
    }

    /// Stalls a write.
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

    /// Finds the target frame of a page and makes the page dirty.
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

    /// Whether a page's frame may be changed: it is unpinned, except by the cache if it is dirty.
    fn may_change(&self, frame: FrameId) -> bool {
        let frame = self.frames.get(frame);
        matches!(frame.state, State::Inactive | State::Active)
            && frame.pins == u32::from(frame.has(Flag::Dirty))
    }

    /// A new frame for a page; the old one is freed once it is unpinned.
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
