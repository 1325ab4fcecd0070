//! Requests in memory: what goes to the device as one (an item), and the added requests that it was merged from (parts).

use alloc::vec::Vec;

use super::request::{Request, RequestId};
use crate::time::Instant;

/// No index.
pub(super) const NONE: u32 = u32::MAX;

/// What goes to the device as one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) request: Request,
    /// When its oldest part was added.
    pub(super) added: Instant,
    pub(super) deadline: Instant,
    /// Its parts, in order of address without gaps.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Neighbours in its FIFO.
    pub(super) older: u32,
    pub(super) newer: u32,
    pub(super) state: State,
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    AtDevice(AtDevice),
}

/// What is remembered of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtDevice {
    pub(super) since: Instant,
    /// Whether it went there as an async request.
    pub(super) counts_async: bool,
    /// Whether at most one async request was there then.
    pub(super) alone: bool,
}

/// An added request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) item: u32,
    /// The next part of the item.
    pub(super) next: u32,
}

/// Things with small numbers that are used again, each time with a new generation.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<(u32, T)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize].1 = value;
            return index;
        }
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 requests at once");
        assert!(index != NONE, "fewer than 2^32 - 1 requests at once");
        self.entries.push((0, value));
        index
    }

    pub(super) fn release(&mut self, index: u32) {
        let generation = &mut self.entries[index as usize].0;
        *generation = generation.wrapping_add(1);
        self.free.push(index);
    }

    pub(super) fn generation(&self, index: u32) -> u32 {
        self.entries[index as usize].0
    }

    /// Whether this is in use under this generation.
    pub(super) fn is_current(&self, index: u32, generation: u32) -> bool {
        self.entries.get(index as usize).is_some_and(|entry| entry.0 == generation)
    }

    /// How many are in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl Slab<Part> {
    pub(super) fn id(&self, index: u32) -> RequestId {
        RequestId { index, generation: self.generation(index) }
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize].1
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize].1
    }
}
