//! The waiting requests of one priority, by address and by deadline, and the state of its batch.

use alloc::collections::BTreeSet;
use core::ops::Bound;

use super::config::Group;
use super::items::{Item, NONE, Slab};
use super::request::Reason;

/// Requests of one priority.
#[derive(Debug)]
pub(super) struct Level {
    /// By direction: object (0 on devices with addresses), first byte, item.
    trees: [BTreeSet<Key>; 2],
    /// By group, in order of deadlines.
    fifos: [Fifo; 2],
    /// What the batch continues with, and why.
    pub(super) next: Option<(u32, Reason)>,
    /// The group of the batch.
    pub(super) batch_group: Group,
    /// Requests dispatched of the batch.
    pub(super) batched: u32,
    /// How often in succession the favoured group was chosen while the other waited.
    pub(super) starved: u32,
    /// One past the last byte that was dispatched.
    pub(super) position: u64,
}

pub(super) type Key = (u64, u64, u32);

/// Ends of a list through [`Item::older`] and [`Item::newer`].
#[derive(Clone, Copy, Debug)]
struct Fifo {
    oldest: u32,
    newest: u32,
}

/// The items adjacent to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touching {
    pub(super) below: Option<u32>,
    pub(super) above: Option<u32>,
}

impl Level {
    pub(super) const fn new() -> Self {
        let empty = Fifo { oldest: NONE, newest: NONE };
        Self {
            trees: [BTreeSet::new(), BTreeSet::new()],
            fifos: [empty; 2],
            next: None,
            batch_group: Group::Other,
            batched: 0,
            starved: 0,
            position: 0,
        }
    }

    /// The item of a group with the earliest deadline.
    pub(super) fn head(&self, group: Group) -> Option<u32> {
        let oldest = self.fifos[group as usize].oldest;
        (oldest != NONE).then_some(oldest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fifos.iter().all(|fifo| fifo.oldest == NONE)
    }

    /// Adds a waiting item.
    pub(super) fn insert(&mut self, items: &mut Slab<Item>, item: u32, group: Group, seeks: bool) {
        self.trees[items[item].request.direction as usize].insert(key(items, item, seeks));
        self.line_up(items, item, group);
    }

    /// Removes an item. A batch that would continue with it continues with the next one.
    pub(super) fn remove(&mut self, items: &mut Slab<Item>, item: u32, group: Group, seeks: bool) {
        if let Some((next, reason)) = self.next
            && next == item
        {
            let behind = self.behind(items, item, seeks).next();
            self.next = behind.map(|behind| (behind, reason));
        }
        self.trees[items[item].request.direction as usize].remove(&key(items, item, seeks));
        self.step_out(items, item, group);
    }

    /// Changes the bytes of a waiting item.
    pub(super) fn resize(&mut self, items: &mut Slab<Item>, item: u32, start: u64, end: u64, seeks: bool) {
        let old = key(items, item, seeks);
        (items[item].request.start, items[item].request.end) = (start, end);
        let new = key(items, item, seeks);
        if old != new {
            let tree = &mut self.trees[items[item].request.direction as usize];
            tree.remove(&old);
            tree.insert(new);
        }
    }

    /// Adds an item to a group's FIFO, before items with later deadlines.
    pub(super) fn line_up(&mut self, items: &mut Slab<Item>, item: u32, group: Group) {
        let mut older = self.fifos[group as usize].newest;
        while older != NONE && items[older].deadline > items[item].deadline {
            older = items[older].older;
        }
        let fifo = &mut self.fifos[group as usize];
        let newer = if older == NONE { fifo.oldest } else { items[older].newer };
        (items[item].older, items[item].newer) = (older, newer);
        *(if older == NONE { &mut fifo.oldest } else { &mut items[older].newer }) = item;
        *(if newer == NONE { &mut fifo.newest } else { &mut items[newer].older }) = item;
    }

    /// Removes an item from a group's FIFO.
    pub(super) fn step_out(&mut self, items: &mut Slab<Item>, item: u32, group: Group) {
        let Item { older, newer, .. } = items[item];
        let fifo = &mut self.fifos[group as usize];
        *(if older == NONE { &mut fifo.oldest } else { &mut items[older].newer }) = newer;
        *(if newer == NONE { &mut fifo.newest } else { &mut items[newer].older }) = older;
    }

    /// Items of the same direction after this one, in order of address.
    pub(super) fn behind(
        &self,
        items: &Slab<Item>,
        item: u32,
        seeks: bool,
    ) -> impl Iterator<Item = u32> + use<'_> {
        let from = key(items, item, seeks);
        let tree = &self.trees[items[item].request.direction as usize];
        tree.range((Bound::Excluded(from), Bound::Unbounded)).map(|&(_, _, item)| item)
    }

    /// The items that end where these bytes begin, or begin where they end. May miss one of several
    /// overlapping items, which the cache never makes.
    pub(super) fn touching(
        &self,
        items: &Slab<Item>,
        direction: usize,
        (space, start, end): (u64, u64, u64),
    ) -> Touching {
        let tree = &self.trees[direction];
        let below = tree.range(..(space, start, 0)).next_back();
        let above = tree.range((space, end, 0)..).next();
        Touching {
            below: below.map(|&(.., item)| item).filter(|&item| items[item].request.end == start),
            above: above.map(|&(.., item)| item).filter(|&item| items[item].request.start == end),
        }
    }
}

fn key(items: &Slab<Item>, item: u32, seeks: bool) -> Key {
    let request = &items[item].request;
    (if seeks { 0 } else { request.object }, request.start, item)
}
