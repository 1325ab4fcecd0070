//! Slots of the store: which are in use, and which come next.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::config::CLUSTER;
use super::event::PageId;
use super::table::NONE;

/// The current position of an allocator: the rest of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    next: u64,
    end: u64,
}

/// State of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All free, and on the free list.
    Free,
    /// An allocator's head is in it.
    Open,
    /// Allocated.
    Closed,
}

/// The slots of a store.
#[derive(Debug)]
pub(super) struct Slots {
    count: u64,
    used: u64,
    /// A bit a slot.
    bits: Vec<u64>,
    /// Slots in use, for each cluster.
    live: Vec<u16>,
    state: Vec<State>,
    /// The first cluster that was never allocated.
    fresh: u64,
    /// Clusters that became free again.
    freed: VecDeque<u32>,
    /// Where the search for single slots continues when no cluster is free.
    hand: u64,
    /// Owner of each slot, for policies of other crates, which may plan by slots.
    owners: Option<Vec<u64>>,
}

impl Slots {
    /// `count` slots, including the header.
    pub(super) fn new(count: u64, owners: bool) -> Self {
        let clusters = count.div_ceil(CLUSTER) as usize;
        let mut slots = Self {
            count,
            used: 0,
            bits: vec![0; count.div_ceil(64) as usize],
            live: vec![0; clusters],
            state: vec![State::Free; clusters],
            fresh: 0,
            freed: VecDeque::new(),
            hand: 1,
            owners: owners.then(|| vec![NONE; count as usize]),
        };
        slots.bits[0] = 1;
        slots
    }

    /// Starts or stops tracking owners. New owners are unknown until [`Self::set_owner`].
    pub(super) fn track_owners(&mut self, owners: bool) {
        self.owners = owners.then(|| vec![NONE; self.count as usize]);
    }

    /// Number of slots, including the header.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of memory used.
    pub(super) const fn bytes(&self) -> u64 {
        let clusters = self.count.div_ceil(CLUSTER) * (size_of::<u16>() + size_of::<State>()) as u64;
        let owners = if self.owners.is_some() { size_of::<u64>() as u64 * self.count } else { 0 };
        self.count.div_ceil(8) + clusters + owners
    }

    pub(super) fn is_used(&self, slot: u64) -> bool {
        self.bits[(slot / 64) as usize] >> (slot % 64) & 1 == 1
    }

    /// The owner of a slot; none if it is free or owners are not tracked.
    pub(super) fn owner(&self, slot: u64) -> Option<PageId> {
        let owner = *self.owners.as_ref()?.get(slot as usize)?;
        (owner != NONE).then(|| PageId::unpack(owner))
    }

    pub(super) fn set_owner(&mut self, slot: u64, id: PageId) {
        if let Some(owners) = &mut self.owners {
            owners[slot as usize] = id.pack();
        }
    }

    /// Allocates up to `wanted` adjacent slots; returns the first and their number, or none.
    pub(super) fn take(&mut self, head: &mut Head, wanted: u64) -> Option<(u64, u64)> {
        loop {
            while head.next < head.end && self.is_used(head.next) {
                head.next += 1;
            }
            if head.next < head.end {
                let start = head.next;
                let taken = self.take_run(start, wanted, head.end);
                head.next += taken;
                return Some((start, taken));
            }
            if !self.open(head) {
                return self.take_any(wanted);
            }
        }
    }

    /// Frees a slot.
    pub(super) fn release(&mut self, slot: u64) {
        self.bits[(slot / 64) as usize] &= !(1 << (slot % 64));
        self.used -= 1;
        if let Some(owners) = &mut self.owners {
            owners[slot as usize] = NONE;
        }
        let cluster = (slot / CLUSTER) as usize;
        self.live[cluster] -= 1;
        if self.live[cluster] == 0 && self.state[cluster] == State::Closed {
            self.set_free(cluster);
        }
    }

    /// Releases a head.
    pub(super) fn close(&mut self, head: &mut Head) {
        if head.end > 0 {
            let cluster = ((head.end - 1) / CLUSTER) as usize;
            self.state[cluster] = State::Closed;
            if self.live[cluster] == 0 {
                self.set_free(cluster);
            }
        }
        *head = Head::default();
    }

    fn set_free(&mut self, cluster: usize) {
        self.state[cluster] = State::Free;
        self.freed.push_back(cluster as u32);
    }

    /// Moves a head to a free cluster: never used ones in order, then freed ones, oldest first.
    fn open(&mut self, head: &mut Head) -> bool {
        self.close(head);
        let cluster = if self.fresh < self.live.len() as u64 {
            self.fresh += 1;
            self.fresh - 1
        } else if let Some(cluster) = self.freed.pop_front() {
            cluster.into()
        } else {
            return false;
        };
        self.state[cluster as usize] = State::Open;
        *head = Head { next: cluster * CLUSTER, end: ((cluster + 1) * CLUSTER).min(self.count) };
        true
    }

    /// No cluster is free: allocates the next run of any length.
    fn take_any(&mut self, wanted: u64) -> Option<(u64, u64)> {
        if self.used + 1 >= self.count {
            return None;
        }
        while self.is_used(self.hand) {
            let word = self.hand / 64;
            // Full words are skipped.
            let full = self.bits[word as usize] == u64::MAX;
            self.hand = if full { (word + 1) * 64 } else { self.hand + 1 };
            if self.hand >= self.count {
                self.hand = 1;
            }
        }
        let start = self.hand;
        let taken = self.take_run(start, wanted, self.count);
        Some((start, taken))
    }

    fn take_run(&mut self, start: u64, wanted: u64, end: u64) -> u64 {
        let mut slot = start;
        while slot < end && slot - start < wanted && !self.is_used(slot) {
            self.bits[(slot / 64) as usize] |= 1 << (slot % 64);
            self.live[(slot / CLUSTER) as usize] += 1;
            slot += 1;
        }
        self.used += slot - start;
        slot - start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_allocated_in_order_and_freed_clusters_are_reused() {
        let (mut slots, mut head) = (Slots::new(600, false), Head::default());
        assert_eq!(slots.take(&mut head, 100), Some((1, 100)));
        assert_eq!(slots.take(&mut head, 1000), Some((101, 155)));
        assert_eq!(slots.take(&mut head, 256), Some((256, 256)));
        assert_eq!(slots.take(&mut head, 256), Some((512, 88)));
        assert_eq!(slots.take(&mut head, 1), None, "full");
        slots.release(7);
        slots.release(9);
        assert_eq!(slots.take(&mut head, 2), Some((7, 1)), "a single slot where no cluster is free");
        (256..512).for_each(|slot| slots.release(slot));
        assert_eq!(slots.take(&mut head, 300), Some((256, 256)), "a whole cluster before the single slot 9");
        assert_eq!(slots.take(&mut head, 300), Some((9, 1)));
        assert_eq!((slots.take(&mut head, 1), slots.used()), (None, 599));
    }

    #[test]
    fn two_heads_have_clusters_of_their_own() {
        let (mut slots, mut one, mut other) = (Slots::new(2000, true), Head::default(), Head::default());
        assert_eq!(slots.take(&mut one, 10), Some((1, 10)));
        assert_eq!(slots.take(&mut other, 10), Some((256, 10)));
        assert_eq!(slots.take(&mut one, 10), Some((11, 10)));
        (256..266).for_each(|slot| slots.release(slot));
        slots.close(&mut other);
        // Never used clusters come first, then the freed one.
        let firsts: Vec<_> = (0..8).filter_map(|_| slots.take(&mut one, 256)).map(|run| run.0).collect();
        assert_eq!(firsts, [21, 512, 768, 1024, 1280, 1536, 1792, 256]);
    }
}
