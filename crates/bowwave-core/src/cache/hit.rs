//! The shortest read: all is there, and the driver is done with it before it lets go of the cache.

use alloc::vec::Vec;

use super::read::clip_to_file;
use super::{Cache, Part};
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
        if entry.walks || !self.starved.is_empty() {
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

    /// One page within the file: the same as for many without the loops around it, which would take longer than what is
    /// in them, and without a buffer.
    #[inline(always)]
    pub(super) fn hit_one(&mut self, part: Part) -> Option<FrameId> {
        let entry = self.handle(part.handle);
        let (file, walks) = (entry.file, entry.walks);
        let range = part.pages;
        if walks || range.count() != PageCount(1) || range.end.0 > self.file(file).pages.0 {
            return None;
        }
        let frame = self.table.get(file, range.start).frame()?;
        if !self.frames.get(frame).is_plain_hit() {
            return None;
        }
        self.use_hits(part, range, &[frame]);
        Some(frame)
    }

    /// As [`hit`](Self::hit), but nobody uses the frames, so they need no pins.
    pub(super) fn hit_unpinned(&mut self, part: Part, frames: &mut Vec<FrameId>) -> bool {
        let entry = self.handle(part.handle);
        let (file, walks) = (entry.file, entry.walks);
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
