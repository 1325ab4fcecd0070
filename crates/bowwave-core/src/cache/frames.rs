//! Frames: what holds a page, in which state, on which list.
//!
//! ```text
//!             alloc             filled                        evict
//!   Free ──────────► InFlight ──────────► Inactive ──────────────────► Free
//!    ▲                  │ invalidated       │  ▲ balance
//!    │                  ▼                   ▼  │ second touch
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
    /// Its fill, while in flight; when it has come, the clock of reclaim at that time.
    fill: u64,
    /// Reads that use it or wait for it.
    pub(crate) pins: u32,
    pub(crate) state: State,
    flags: u16,
}

/// Where a frame is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Holds nothing.
    Free,
    /// Being read into; on its fill's list.
    InFlight,
    /// Up to date, on the inactive list.
    Inactive,
    /// Up to date, on the active list.
    Active,
    /// No longer in the page table; freed when its fill has ended and nobody pins it.
    Doomed,
}

/// Facts about a frame, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// Touched once since it came or was last looked at by reclaim.
    Referenced = 1,
    /// Bears the lookahead mark.
    Mark = 2,
    /// Read ahead and not used so far.
    Unused = 4,
    /// Goes to the active list when its fill ends.
    Activate = 8,
    /// Was evicted unused before; counts as thrashed when it is used.
    Thrashed = 16,
    /// Came by a plan at another page, and no walking policy was asked about it since.
    Fresh = 32,
    /// Its memory is a place of its page's own; see [`Cache::place_file`](super::Cache::place_file).
    Placed = 64,
    /// A program has it mapped, so that its touches are not seen.
    Mapped = 128,
    /// Holds bytes that the store has not. The cache pins it.
    Dirty = 256,
    /// Is on its way to the store and must not change. The cache pins it.
    Writing = 512,
    /// Is read once, by all one can tell: when its reader comes to it, the page before it becomes the next to go.
    Once = 1024,
    /// Is let go of as soon as nobody pins it: made the next to go, or, if it is doomed, freed.
    Spent = 2048,
    /// Was read ahead because a reader's plan leads to it, and not used so far.
    Planned = 4096,
    /// Was read ahead of a reader who has used as much as is ahead of it, and is not used so far: pages that were read go first.
    Kept = 8192,
    /// The same, and was at the cold end of its list before.
    PassedOver = 16384,
}

/// All frames, and the two lists of Linux's page reclaim.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// Given back to the driver; used first when it grants frames again.
    retired: Vec<u32>,
    inactive: List,
    active: List,
    /// Up-to-date frames that somebody pins.
    pinned: u32,
    /// Frames that were read ahead, or are being read ahead, and were not used so far.
    unused: u32,
    /// Pages with places of their own that frames have let go of since the driver last heard.
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

    /// Whether the flag is one of them.
    pub(crate) const fn has(self, flag: Flag) -> bool {
        self.0 & flag as u16 != 0
    }

    /// The same, and the flag if it `holds`.
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

    /// Clears the flag and tells whether it was set.
    pub(crate) fn take(&mut self, flag: Flag) -> bool {
        let had = self.has(flag);
        self.flags &= !(flag as u16);
        had
    }

    /// Clears several flags and tells which of them were set.
    pub(crate) fn take_all(&mut self, flags: Flags) -> Flags {
        let had = self.flags & flags.0;
        self.flags &= !flags.0;
        Flags(had)
    }

    /// Notes when a page came.
    pub(crate) fn set_born(&mut self, clock: u32) {
        self.fill = clock.into();
    }

    /// Whether its first use says something.
    pub(crate) fn is_new(&self) -> bool {
        self.flags & (Flag::Unused as u16 | Flag::Thrashed as u16 | Flag::Once as u16) != 0
    }

    /// Whether the store has not what it holds.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.flags & (Flag::Dirty as u16 | Flag::Writing as u16) != 0
    }

    /// Whether a touch would change anything, of a frame that is up to date.
    pub(crate) fn would_touch(&self) -> bool {
        let settled = Flag::Referenced as u16;
        self.state != State::Active || self.flags & (settled | Flag::Unused as u16) != settled
    }

    /// Whether a read can be served from it with no decision and no wait.
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

    /// Whether a read can be served from a frame with no decision and no wait; not if there is none of this number.
    pub(crate) fn is_plain_hit(&self, id: FrameId) -> bool {
        self.frames.get(id.0 as usize).is_some_and(Frame::is_plain_hit)
    }

    /// Frames that hold something.
    pub(crate) fn used(&self) -> u32 {
        // Frames never exceed 2^30, so the difference fits.
        (self.frames.len() - self.free.len() - self.retired.len()) as u32
    }

    /// Up-to-date frames that nobody pins: those that reclaim can take.
    pub(crate) fn reclaimable(&self) -> u32 {
        self.inactive.len + self.active.len - self.pinned
    }

    /// Free frames that have an address already.
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

    /// Frames that were read ahead, or are being read ahead, and were not used so far.
    pub(crate) fn unused(&self) -> u32 {
        self.unused
    }

    /// The frame is used, or lost: tells whether it was read ahead and not used so far.
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

    /// Takes a free frame, or a new one if fewer than `limit` are used, for a page that is about to be read.
    /// The flags are what is known of the page.
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
            // As the leaves of the page table.
            if self.frames.len() == self.frames.capacity() {
                self.frames.reserve_exact(64.max(self.frames.len() / 8));
            }
            self.frames.push(frame);
            Some(FrameId((self.frames.len() - 1) as u32))
        }
    }

    /// No page has this frame any more, which is on no list: it will be freed.
    pub(crate) fn doom(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        frame.state = State::Doomed;
        frame.set(Flag::Spent);
    }

    /// Makes a frame free. It is on no list and has no pin.
    pub(crate) fn free(&mut self, id: FrameId) {
        let frame = &mut self.frames[id.0 as usize];
        self.unused -= u32::from(frame.has(Flag::Unused));
        debug_assert!(frame.pins == 0 && matches!(frame.state, State::InFlight | State::Doomed));
        frame.state = State::Free;
        let placed = frame.has(Flag::Placed).then_some((frame.file, frame.index, id));
        frame.flags = 0;
        self.released.extend(placed);
        self.free.push(id.0);
    }

    /// Takes up to `count` free frames out of use and appends them to `out`.
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

    /// Pins a frame that is up to date; returns whether a touch would change anything about it. The loop over the pages
    /// of a hit is the hottest there is.
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

    /// Puts a frame that is on no list at the head of the list of `state` (`Inactive` or `Active`).
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

    /// Takes a frame off its list; it is then in flight in name only, for the caller to free, doom or add again.
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

    /// Moves an inactive frame to the tail of its list, where it is the next to go.
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
        // There is another one, or this would have been the tail.
        self.frames[tail as usize].next = id.0;
        self.inactive.tail = id.0;
        self.inactive.len += 1;
    }

    /// The coldest frame of a list.
    pub(crate) fn tail(&self, state: State) -> Option<FrameId> {
        let list = if state == State::Active { self.active } else { self.inactive };
        (list.tail != NONE).then_some(FrameId(list.tail))
    }

    /// Says to which fill a frame in flight belongs.
    pub(crate) fn set_fill(&mut self, id: FrameId, fill: u64) {
        self.get_mut(id).fill = fill;
    }

    /// When a page came that is not used so far and is to be kept longer than those that were read.
    pub(crate) fn kept_since(&self, id: FrameId) -> Option<u32> {
        let frame = self.get(id);
        let kept = frame.state == State::Inactive && frame.has(Flag::Kept) && frame.has(Flag::Unused);
        // The clock is a u32.
        kept.then_some(frame.fill as u32)
    }

    /// The fill of a frame in flight.
    pub(crate) fn fill_of(&self, id: FrameId) -> u64 {
        self.get(id).fill
    }

    /// Links a frame in flight behind `after` on its fill's list.
    pub(crate) fn chain(&mut self, after: Option<FrameId>, id: FrameId) {
        if let Some(after) = after {
            self.get_mut(after).next = id.0;
        }
        self.get_mut(id).next = NONE;
    }

    /// Links a chain of frames in flight, from `first` on, behind `last`.
    pub(crate) fn link(&mut self, last: FrameId, first: FrameId) {
        self.get_mut(last).next = first.0;
    }

    /// The frame behind this one on its fill's list.
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
