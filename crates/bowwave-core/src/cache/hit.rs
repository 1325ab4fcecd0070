//! The shortest read: all is there, and the driver is done with it before it lets go of the cache.

use alloc::vec::Vec;

use super::read::clip_to_file;
use super::{Cache, FILES, HANDLES, Part, open_in};
use crate::config::Eviction;
use crate::id::{FrameId, HandleId};
use crate::page::{PageCount, PageRange};
use crate::request::Request;

impl Cache {
    /// As [`hit`](Self::hit) and [`unpin`](Self::unpin) of its frames at once, for drivers that are done with the frames
    /// before they let go of the cache. `false` also if reads wait for frames: an unpin lets them try again.
    ///
    /// # Panics
    /// If `handle` is not open.
    #[inline]
    pub fn hit_at_once(
        &mut self,
        handle: HandleId,
        request: impl Into<Request>,
        frames: &mut Vec<FrameId>,
    ) -> bool {
        let entry = self.handle(handle);
        if entry.asked.every_access || !self.starved.is_empty() {
            return false;
        }
        let part = Part::whole(handle, request.into());
        if let Some(frame) = self.hit_one(part) {
            frames.clear();
            frames.push(frame);
            return true;
        }
        self.hit_unpinned(part, frames)
    }

    /// One page within the file, which is a request of its own: the same as for many without the loops around it, which would
    /// take longer than what is in them, and without a buffer; who reads is looked up once.
    #[inline(always)]
    pub(super) fn hit_one(&mut self, part: Part) -> Option<FrameId> {
        let entry = open_in(&mut self.handles, part.handle.0, HANDLES);
        let file = open_in(&mut self.files, entry.file.0, FILES);
        let range = part.pages;
        if entry.asked.every_access || range.count() != PageCount(1) || range.end.0 > file.pages.0 {
            return None;
        }
        let id = self.table.get(entry.file, range.start).frame()?;
        let frame = self.frames.get(id);
        if !frame.is_plain_hit() {
            return None;
        }
        if entry.no_reuse {
            self.use_hits(part, range, &[id]);
            return Some(id);
        }
        let again = self.config.eviction != Eviction::Lru && entry.was_last_at(range.start);
        let touches = !again && frame.would_touch();
        file.stats.count_hits(1, 1);
        self.accesses += 1;
        entry.prev = Some(part.request);
        if touches {
            self.touch(id);
        }
        Some(id)
    }

    /// As [`hit`](Self::hit), but nobody uses the frames, so they need no pins.
    pub(super) fn hit_unpinned(&mut self, part: Part, frames: &mut Vec<FrameId>) -> bool {
        let entry = self.handle(part.handle);
        let (file, walks) = (entry.file, entry.asked.every_access);
        let range = clip_to_file(part.pages, self.file(file).pages);
        frames.clear();
        // A page that is a request of its own was looked up already.
        let known = range == part.pages && range.count() == PageCount(1);
        if walks || known || !self.collect_hits(file, range, frames) {
            return false;
        }
        self.use_hits(part, range, frames);
        true
    }

    /// Counts and touches the pages `range` of a part, cut at the end of the file, that are all in `hits`.
    #[inline(always)]
    fn use_hits(&mut self, part: Part, range: PageRange, hits: &[FrameId]) {
        self.count_hits(part, self.handle(part.handle).file, range);
        let touches = self.touches(part.handle, part.request.range.start, range);
        for &frame in &hits[(touches.start.0 - range.start.0) as usize..] {
            if self.frames.get(frame).would_touch() {
                self.touch(frame);
            }
        }
        self.walked(part, range);
    }
}
