//! The shortest read: all is there, and the driver is done with it before it lets go of the cache.

use alloc::vec::Vec;

use super::{Cache, Part};
use crate::id::{FrameId, HandleId};
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
        let request = request.into();
        let pages = self.file(entry.file).pages;
        if request.range.count().0 == 1 && request.range.end.0 <= pages.0 {
            return self.hit_one(handle, request, frames);
        }
        self.hit_unpinned(Part::whole(handle, request), frames)
    }

    /// One page within the file: the same as for many without the loops around it, which would take longer than what is
    /// in them.
    #[inline]
    fn hit_one(&mut self, handle: HandleId, request: Request, frames: &mut Vec<FrameId>) -> bool {
        frames.clear();
        let page = request.range.start;
        let entry = self.handle(handle);
        let (file, no_reuse) = (entry.file, entry.no_reuse);
        let Some(frame) = self.table.get(file, page).frame() else { return false };
        let found = self.frames.get(frame);
        if !found.is_plain_hit() {
            return false;
        }
        let settled = !found.would_touch();
        frames.push(frame);
        let part = Part::whole(handle, request);
        self.count_hits(part, file, request.range);
        if !settled && self.touches(handle, request.range, request.range).contains(page) {
            self.touch(frame);
        }
        if no_reuse {
            self.walked(part, request.range);
        } else {
            self.handle_mut(handle).prev = Some(request);
        }
        true
    }
}
