//! Frames: memory of one page each, with a state and a list.
//!
//! ```text
//!             alloc             filled                       evict
//!   Free ──────────► InFlight ──────────► Inactive ─────────────────► Free
//!    ▲                  │ invalidated        │  ▲
//!    │                  ▼       second touch ▼  │ balance
//!    └─── unpinned ── Doomed ◄───────────── Active
//! ```

use alloc::vec::Vec;

use crate::id::{FileId, FrameId};
use crate::page::PageIndex;

pub(crate) const NONE: u32 = u32::MAX;

/// One frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) index: PageIndex,
    pub(crate) file: FileId,
    /// Neighbours on the list of its state; in flight, `next` is the next frame of the fill.
    prev: u32,
    next: u32,
    /// While in flight, its fill; afterwards, the reclaim clock at the end of the fill.
    fill: u64,
    /// Reads that use it or wait for it.
    pub(crate) pins: u32,
    pub(crate) state: State,
    flags: u16,
}

/// State of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Empty.
    Free,
    /// Being read into; on its fill's list.
    InFlight,
    /// Up to date, on the inactive list.
    Inactive,
    /// Up to date, on the active list.
    Active,
    /// Removed from the page table; freed when its fill has ended and it is unpinned.
    Doomed,
}

/// Flags of a frame, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// Touched once since its fill, or since reclaim last checked it.
    Referenced = 1,
    /// Has the lookahead mark.
    Mark = 2,
    /// Read ahead and unused.
    Unused = 4,
    /// Activated when its fill ends.
    Activate = 8,
    /// Evicted unused before; counts as thrashed when it is used.
    Thrashed = 16,
    /// Filled by a plan that was made at another page. Cleared when a policy that runs on every
    /// access is called for this page.
    Fresh = 32,
    /// Offset-mapped; see [`Cache::map_by_offset`](super::Cache::map_by_offset).
    OffsetMapped = 64,
    /// Mapped by a program, so its touches are not seen.
    Mapped = 128,
    /// The store does not have its bytes. The cache pins it.
    Dirty = 256,
    /// In flight to the store; must not change. The cache pins it.
    Writing = 512,
    /// Drop-behind: when the reader reaches it, the page before it becomes the next to be evicted.
    Once = 1024,
    /// On its last unpin: moved to the cold end, or freed if it is doomed.
    Spent = 2048,
    /// Read ahead for a reader's plan, and unused.
    Planned = 4096,
    /// Retained: unread readahead of a reader that uses its readahead. Used pages are evicted
    /// first.
    Retained = 8192,
    /// Retained, and passed over at the cold end once.
    PassedOver = 16384,
}

/// All frames, and the two lists of page reclaim, as in Linux.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// Returned to the driver. When it grants frames again, they are reused before new ones are
    /// added.
    retired: Vec<u32>,
    inactive: List,
    active: List,
    /// Pinned frames that are up to date.
    pinned: u32,
    /// Unused readahead frames, including those in flight.
    unused: u32,
    /// Offset-mapped pages that frames have released since the driver was last told.
    pub(crate) released: Vec<(FileId, PageIndex, FrameId)>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };
}

/// Several flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags(u16);

impl Flags {
    /// None of them.
    pub(crate) const NONE: Self = Self(0);

    /// Whether the flag is set.
    pub(crate) const fn has(self, flag: Flag) -> bool {
        self.0 & flag as u16 != 0
    }

    /// With the flag added if it `holds`.
    #[inline]
    pub(crate) const fn with(self, flag: Flag, holds: bool) -> Self {
        Self(self.0 | if holds { flag as u16 } else { 0 })
    }
}

impl Frame {
    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u16 != 0
    }

    pub(crate) fn set(&mut self, flag: Flag) {
        self.flags |= flag as u16;
    }

    /// Clears the flag; returns whether it was set.
    pub(crate) fn take(&mut self, flag: Flag) -> bool {
        let had = self.has(flag);
        self.flags &= !(flag as u16);
        had
    }

    /// Clears several flags; returns those that were set.
    pub(crate) fn take_all(&mut self, flags: Flags) -> Flags {
        let had = self.flags & flags.0;
        self.flags &= !flags.0;
        Flags(had)
    }

    /// Records the time of the fill's end.
    pub(crate) fn set_born(&mut self, clock: u32) {
        self.fill = clock.into();
    }

    /// Whether its first use does more than set [`Flag::Referenced`].
    pub(crate) fn is_new(&self) -> bool {
        self.flags & (Flag::Unused as u16 | Flag::Thrashed as u16 | Flag::Once as u16) != 0
    }

    /// Whether the store lacks its bytes.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.flags & (Flag::Dirty as u16 | Flag::Writing as u16) != 0
    }

    /// Whether a touch would change an up-to-date frame.
    pub(crate) fn would_touch(&self) -> bool {
        let settled = Flag::Referenced as u16;
        self.state != State::Active || self.flags & (settled | Flag::Unused as u16) != settled
    }

    /// Whether a read can use it without a decision or a wait.
    pub(crate) fn is_plain_hit(&self) -> bool {
        matches!(self.state, State::Inactive | State::Active) && !self.has(Flag::Mark)
    }
}

impl Frames {
    /// No frames.
    pub(crate) const fn new() -> Self {
        Self {
            frames: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
            inactive: List::EMPTY,
            active: List::EMPTY,
            pinned: 0,
            unused: 0,
            released: Vec::new(),
        }
    }

    pub(crate) fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id.0 as usize]
    }

    /// Whether a read can use a frame without a decision or a wait; false if the frame does not
    /// exist.
    pub(crate) fn is_plain_hit(&self, id: FrameId) -> bool {
        self.frames.get(id.0 as usize).is_some_and(Frame::is_plain_hit)
    }

    /// Frames that hold a page.
    pub(crate) fn used(&self) -> u32 {
        // Frames never exceed 2^30, so the difference fits.
        (self.frames.len() - self.free.len() - self.retired.len()) as u32
    }

    /// Unpinned frames that are up to date: those that reclaim can take.
    pub(crate) fn reclaimable(&self) -> u32 {
        self.inactive.len + self.active.len - self.pinned
    }

    /// Free frames that have memory already.
    pub(crate) fn free_len(&self) -> u32 {
        self.free.len() as u32
    }

    pub(crate) fn inactive_len(&self) -> u32 {
        self.inactive.len
    }

    pub(crate) fn active_len(&self) -> u32 {
        self.active.len
    }

    pub(crate) fn pinned(&self) -> u32 {
        self.pinned
    }

    /// Unused readahead frames, including those in flight.
    pub(crate) fn unused(&self) -> u32 {
        self.unused
    }

    /// The frame is used or dropped: returns whether it was unread readahead.
    pub(crate) fn take_unused(&mut self, id: FrameId) -> bool {
        let had = self.get_mut(id).take(Flag::Unused);
        self.unused -= u32::from(had);
        had
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = FrameId> {
        // Frames never exceed 2^30.
        (0..self.frames.len() as u32).map(FrameId)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.frames.capacity() * size_of::<Frame>()
            + (self.free.capacity() + self.retired.capacity()) * size_of::<u32>()
    }

    /// Allocates a frame for a page about to be read; `None` if `limit` frames are in use. Prefers
    /// free frames, then retired ones, then new ones. `flags` describe the page.
    #[inline]
    pub(crate) fn alloc(
        &mut self,
        limit: u32,
        file: FileId,
        index: PageIndex,
        Flags(flags): Flags,
    ) -> Option<FrameId> {
        if self.used() >= limit {
            return None;
        }
        let frame =
            Frame { index, file, prev: NONE, next: NONE, fill: 0, pins: 0, state: State::InFlight, flags };
        self.unused += u32::from(frame.has(Flag::Unused));
        if let Some(id) = self.free.pop().or_else(|| self.retired.pop()) {
            self.frames[id as usize] = frame;
            Some(FrameId(id))
        } else {
            // Grows by an eighth, not twofold: the driver reserves memory for it.
            if self.frames.len() == self.frames.capacity() {
                self.frames.reserve_exact(64.max(self.frames.len() / 8));
            }
            self.frames.push(frame);
            Some(FrameId((self.frames.len() - 1) as u32))
        }
    }

    /// Dooms a frame that is on no list and in no page table slot: it will be freed.
    pub(crate) fn doom(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        frame.state = State::Doomed;
        frame.set(Flag::Spent);
    }

    /// Frees a frame that is unpinned and on no list.
    pub(crate) fn free(&mut self, id: FrameId) {
        let frame = &mut self.frames[id.0 as usize];
        self.unused -= u32::from(frame.has(Flag::Unused));
        debug_assert!(frame.pins == 0 && matches!(frame.state, State::InFlight | State::Doomed));
        frame.state = State::Free;
        let placed = frame.has(Flag::OffsetMapped).then_some((frame.file, frame.index, id));
        frame.flags = 0;
        self.released.extend(placed);
        self.free.push(id.0);
    }

    /// Retires up to `count` free frames and appends them to `out`.
    pub(crate) fn retire(&mut self, count: usize, out: &mut Vec<FrameId>) {
        let keep = self.free.len().saturating_sub(count);
        for id in self.free.drain(keep..) {
            self.retired.push(id);
            out.push(FrameId(id));
        }
    }

    pub(crate) fn pin(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        frame.pins += 1;
        if frame.pins == 1 && matches!(frame.state, State::Inactive | State::Active) {
            self.pinned += 1;
        }
    }

    /// Pins an up-to-date frame; returns whether a touch would change it. Called for each page of a
    /// hit: the hottest loop of the cache.
    pub(crate) fn pin_hit(&mut self, id: FrameId) -> bool {
        let frame = &mut self.frames[id.0 as usize];
        frame.pins += 1;
        self.pinned += u32::from(frame.pins == 1);
        frame.would_touch()
    }

    /// Drops one pin; returns whether it was the last one of a frame that is [`Flag::Spent`].
    #[inline(always)]
    pub(crate) fn unpin(&mut self, id: FrameId) -> bool {
        let frame = &mut self.frames[id.0 as usize];
        assert!(frame.pins > 0, "frame {} is unpinned more often than it was pinned", id.0);
        frame.pins -= 1;
        if frame.pins > 0 {
            return false;
        }
        self.pinned -= u32::from(matches!(frame.state, State::Inactive | State::Active));
        frame.has(Flag::Spent)
    }

    /// Adds a frame to the head of the list of `state` (`Inactive` or `Active`).
    pub(crate) fn list_add(&mut self, id: FrameId, state: State) {
        let pinned = self.get(id).pins > 0;
        self.pinned += u32::from(pinned);
        let head = self.list(state).head;
        let frame = self.get_mut(id);
        (frame.state, frame.prev, frame.next) = (state, NONE, head);
        if head != NONE {
            self.frames[head as usize].prev = id.0;
        }
        let list = self.list(state);
        list.head = id.0;
        if list.tail == NONE {
            list.tail = id.0;
        }
        list.len += 1;
    }

    /// Removes a frame from its list. The caller frees, dooms or adds it next.
    pub(crate) fn list_del(&mut self, id: FrameId) {
        let &Frame { prev, next, state, pins, .. } = self.get(id);
        if prev == NONE {
            self.list(state).head = next;
        } else {
            self.frames[prev as usize].next = next;
        }
        if next == NONE {
            self.list(state).tail = prev;
        } else {
            self.frames[next as usize].prev = prev;
        }
        self.list(state).len -= 1;
        self.pinned -= u32::from(pins > 0);
        let frame = self.get_mut(id);
        (frame.state, frame.prev, frame.next) = (State::InFlight, NONE, NONE);
    }

    /// Moves an inactive frame to the head of its list.
    pub(crate) fn move_to_head(&mut self, id: FrameId) {
        if self.inactive.head != id.0 {
            self.list_del(id);
            self.list_add(id, State::Inactive);
        }
    }

    /// Moves an inactive frame to the tail of its list: it is evicted next.
    pub(crate) fn move_to_tail(&mut self, id: FrameId) {
        if self.inactive.tail == id.0 {
            return;
        }
        self.list_del(id);
        let tail = self.inactive.tail;
        let pinned = self.get(id).pins > 0;
        self.pinned += u32::from(pinned);
        let frame = self.get_mut(id);
        (frame.state, frame.prev, frame.next) = (State::Inactive, tail, NONE);
        // The list has another frame, or this one would have been the tail.
        self.frames[tail as usize].next = id.0;
        self.inactive.tail = id.0;
        self.inactive.len += 1;
    }

    /// The coldest frame of a list.
    pub(crate) fn tail(&self, state: State) -> Option<FrameId> {
        let list = if state == State::Active { self.active } else { self.inactive };
        (list.tail != NONE).then_some(FrameId(list.tail))
    }

    /// Sets the fill of a frame in flight.
    pub(crate) fn set_fill(&mut self, id: FrameId, fill: u64) {
        self.get_mut(id).fill = fill;
    }

    /// For a retained, unread page: the reclaim clock at the end of its fill.
    pub(crate) fn retained_since(&self, id: FrameId) -> Option<u32> {
        let frame = self.get(id);
        let retained = frame.state == State::Inactive && frame.has(Flag::Retained) && frame.has(Flag::Unused);
        // The clock is a u32.
        retained.then_some(frame.fill as u32)
    }

    /// The fill of a frame in flight.
    pub(crate) fn fill_of(&self, id: FrameId) -> u64 {
        self.get(id).fill
    }

    /// Links a frame in flight after `after` on its fill's list.
    pub(crate) fn chain(&mut self, after: Option<FrameId>, id: FrameId) {
        if let Some(after) = after {
            self.get_mut(after).next = id.0;
        }
        self.get_mut(id).next = NONE;
    }

    /// Links a chain of frames in flight, starting at `first`, after `last`.
    pub(crate) fn link(&mut self, last: FrameId, first: FrameId) {
        self.get_mut(last).next = first.0;
    }

    /// The next frame on its fill's list.
    pub(crate) fn chained(&self, id: FrameId) -> Option<FrameId> {
        let next = self.get(id).next;
        (next != NONE).then_some(FrameId(next))
    }

    fn list(&mut self, state: State) -> &mut List {
        match state {
            State::Inactive => &mut self.inactive,
            State::Active => &mut self.active,
            State::Free | State::InFlight | State::Doomed => {
                unreachable!("only up-to-date frames are on a list")
            }
        }
    }
}
