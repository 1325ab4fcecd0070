//! A touch of a mapped page: a read of one page that policies may tell from others.

use alloc::vec::Vec;

use super::{Cache, StarvedRead};
use crate::event::Action;
use crate::id::{HandleId, Waiter};
use crate::page::{PageCount, PageRange};
use crate::request::{Fault, Part};
use crate::time::Instant;

impl Cache {
    /// A mapped page was touched and must be there: exactly one [`Action::Wake`] follows, perhaps among this call's
    /// actions, with the page pinned.
    ///
    /// Call it for every touch that the hardware cannot serve, also if the page is cached (it was not mapped yet): how
    /// often mapped pages are found tells a policy whether reading around them pays. A page past the end of the file
    /// wakes without a frame. Reads and faults of a handle do not count as neighbours of each other.
    ///
    /// # Panics
    /// If `handle` is not open.
    pub fn fault(
        &mut self,
        now: Instant,
        waiter: Waiter,
        handle: HandleId,
        fault: Fault,
        out: &mut Vec<Action>,
    ) {
        self.tick(now);
        let part = Part::whole(handle, PageRange::from_start(fault.page, PageCount(1)).into());
        self.read_or_queue(StarvedRead { waiter, part, mapped: Some(fault.pattern) }, out);
    }
}
