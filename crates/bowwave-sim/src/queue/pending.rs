//! Waiting requests, by address and by age, and the parts each was merged from.

use std::collections::BTreeSet;

use bowwave_core::Urgency;
use bowwave_core::schedule::{self, Dispatch, DispatchId};
use bowwave_core::slab::{NONE, Slab};

use crate::device::{Direction, Request, RequestId};

/// A request to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) direction: Direction,
    pub(super) object: u32,
    pub(super) owner: u32,
    pub(super) urgency: Urgency,
    /// Its parts, in address order without gaps.
    pub(super) first: u32,
    last: u32,
    /// Neighbours in age order.
    older: u32,
    newer: u32,
    /// Whether it still waits for the device.
    pub(super) waits: bool,
    /// Its identifier in the core's scheduler, if that is used.
    pub(super) dispatch: Option<DispatchId>,
    /// Whether it was dispatched past its deadline.
    pub(super) expired: bool,
}

/// A submitted request, or a part of one that was too long for the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) id: RequestId,
    pub(super) request: Request,
    /// Its item; [`NONE`] while it waits for a place in the queue.
    pub(super) item: u32,
    /// The next part of the item.
    pub(super) next: u32,
    /// The next part of the same submitted request.
    pub(super) sibling: u32,
    /// Its identifier in the core's scheduler, while it waits there.
    pub(super) scheduled: Option<schedule::RequestId>,
}

/// What remains of an item after it lost a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    One,
    Two,
}

/// All items and parts, including those at the device; the orders hold only waiting ones.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) items: Slab<Item>,
    pub(super) parts: Slab<Part>,
    /// Waiting items by first byte.
    sorted: BTreeSet<(u64, u32)>,
    oldest: u32,
    newest: u32,
    pub(super) waiting: usize,
}

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            items: Slab::default(),
            parts: Slab::default(),
            sorted: BTreeSet::new(),
            oldest: NONE,
            newest: NONE,
            waiting: 0,
        }
    }

    /// Creates a waiting item of one part.
    pub(super) fn add(&mut self, part: u32) -> u32 {
        let Request { start, bytes, direction, object, owner, urgency, .. } = self.parts[part].request;
        let end = start + bytes;
        let (first, last) = (part, part);
        let (older, newer) = (NONE, NONE);
        let item = Item {
            start,
            end,
            direction,
            object,
            owner,
            urgency,
            first,
            last,
            older,
            newer,
            waits: true,
            dispatch: None,
            expired: false,
        };
        let index = self.items.insert(item);
        (self.parts[part].item, self.parts[part].next) = (index, NONE);
        self.link_after(index, self.newest);
        self.sorted.insert((start, index));
        index
    }

    /// Creates an item from a dispatch of the core's scheduler; the first part comes first.
    pub(super) fn dispatched(&mut self, dispatch: &Dispatch, parts: &[u32], expired: bool) -> u32 {
        let Part { request, .. } = self.parts[parts[0]];
        let schedule::Request { start, end, urgency, .. } = dispatch.request;
        let Request { direction, object, owner, .. } = request;
        let index = self.items.insert(Item {
            start,
            end,
            direction,
            object,
            owner,
            urgency,
            first: parts[0],
            last: parts[parts.len() - 1],
            older: NONE,
            newer: NONE,
            waits: false,
            dispatch: Some(dispatch.id),
            expired,
        });
        for (place, &part) in parts.iter().enumerate() {
            let next = parts.get(place + 1).copied().unwrap_or(NONE);
            let part = &mut self.parts[part];
            (part.item, part.next, part.scheduled) = (index, next, None);
        }
        index
    }

    /// Merges a part with an adjacent waiting item, if both fit in `bytes_max`; returns whether it
    /// did. If that closes a gap, the items on both sides become one; `closed` counts those.
    ///
    /// Checks only the nearest item below, so it may miss one of several overlapping items.
    pub(super) fn merge(&mut self, part: u32, bytes_max: u64, closed: &mut usize) -> bool {
        let request = self.parts[part].request;
        let below = self.sorted.range(..(request.start, 0)).next_back().map(|&(_, item)| item);
        let above = self.sorted.range((request.end(), 0)..).next().map(|&(_, item)| item);
        let fits = |item: &Item| {
            (item.direction, item.object) == (request.direction, request.object)
                && item.end - item.start + request.bytes <= bytes_max
        };
        let below = below.filter(|&item| self.items[item].end == request.start && fits(&self.items[item]));
        let above = above.filter(|&item| self.items[item].start == request.end() && fits(&self.items[item]));
        if let Some(item) = below {
            self.parts[part].next = NONE;
            let last = self.items[item].last;
            self.parts[last].next = part;
            self.items[item].last = part;
            self.items[item].end = request.end();
            self.settle(item, part);
            if let Some(above) = above
                && self.items[above].end - self.items[item].start <= bytes_max
            {
                self.join(item, above);
                *closed += 1;
            }
            return true;
        }
        let Some(item) = above else { return false };
        self.sorted.remove(&(self.items[item].start, item));
        self.parts[part].next = self.items[item].first;
        self.items[item].first = part;
        self.items[item].start = request.start;
        self.sorted.insert((request.start, item));
        self.settle(item, part);
        true
    }

    fn settle(&mut self, item: u32, part: u32) {
        self.parts[part].item = item;
        if self.parts[part].request.urgency == Urgency::Demand {
            self.items[item].urgency = Urgency::Demand;
        }
    }

    /// Appends `above` to `below`; keeps the older age.
    fn join(&mut self, below: u32, above: u32) {
        self.sorted.remove(&(self.items[above].start, above));
        let mut part = self.items[above].first;
        let last = self.items[below].last;
        self.parts[last].next = part;
        while part != NONE {
            self.settle(below, part);
            part = self.parts[part].next;
        }
        (self.items[below].last, self.items[below].end) = (self.items[above].last, self.items[above].end);
        self.unlink(above);
        self.items.release(above);
    }

    /// Removes a waiting item from the orders, to dispatch it.
    pub(super) fn take(&mut self, item: u32) {
        self.sorted.remove(&(self.items[item].start, item));
        self.unlink(item);
        self.items[item].waits = false;
    }

    /// Removes and frees a part of a waiting item, which may disappear or split in two.
    pub(super) fn remove(&mut self, part: u32) -> Rest {
        let (index, next) = (self.parts[part].item, self.parts[part].next);
        let item = self.items[index];
        let request = self.parts[part].request;
        self.parts.release(part);
        if item.first == item.last {
            self.take(index);
            self.items.release(index);
            return Rest::Nothing;
        }
        if item.first == part {
            self.sorted.remove(&(item.start, index));
            self.items[index].first = next;
            self.items[index].start = request.end();
            self.sorted.insert((request.end(), index));
            return Rest::One;
        }
        let mut before = item.first;
        while self.parts[before].next != part {
            before = self.parts[before].next;
        }
        self.parts[before].next = NONE;
        self.items[index].last = before;
        self.items[index].end = request.start;
        if next == NONE {
            return Rest::One;
        }
        let upper = self.items.insert(Item { start: request.end(), first: next, ..item });
        self.link_after(upper, index);
        self.sorted.insert((request.end(), upper));
        let mut part = next;
        while part != NONE {
            self.parts[part].item = upper;
            part = self.parts[part].next;
        }
        Rest::Two
    }

    /// The waiting item that starts next at or after `address`.
    pub(super) fn at_or_after(&self, address: u64) -> Option<u32> {
        self.sorted.range((address, 0)..).next().map(|&(_, item)| item)
    }

    /// The waiting item that starts lowest.
    pub(super) fn lowest(&self) -> Option<u32> {
        self.sorted.first().map(|&(_, item)| item)
    }

    /// Waiting items that start in `low..=high`, ascending.
    pub(super) fn within(&self, low: u64, high: u64) -> impl Iterator<Item = u32> {
        self.sorted.range((low, 0)..=(high, NONE)).map(|&(_, item)| item)
    }

    /// The oldest waiting item.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    fn link_after(&mut self, item: u32, older: u32) {
        let newer = if older == NONE { self.oldest } else { self.items[older].newer };
        (self.items[item].older, self.items[item].newer) = (older, newer);
        *(if older == NONE { &mut self.oldest } else { &mut self.items[older].newer }) = item;
        *(if newer == NONE { &mut self.newest } else { &mut self.items[newer].older }) = item;
        self.waiting += 1;
    }

    fn unlink(&mut self, item: u32) {
        let Item { older, newer, .. } = self.items[item];
        *(if older == NONE { &mut self.oldest } else { &mut self.items[older].newer }) = newer;
        *(if newer == NONE { &mut self.newest } else { &mut self.items[newer].older }) = older;
        self.waiting -= 1;
    }
}
