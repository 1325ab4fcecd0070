//! Requests in memory: items, which go to the device, and their parts, the added requests that were
//! merged.

use super::request::{Request, RequestId};
pub(super) use crate::slab::{NONE, Slab};
use crate::time::Instant;

/// A request for the device.
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

/// An item at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtDevice {
    pub(super) since: Instant,
    /// Whether it counts as an async request there.
    pub(super) counts_async: bool,
    /// Whether at most one async request was there when it was dispatched.
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

impl Slab<Part> {
    pub(super) fn id(&self, index: u32) -> RequestId {
        RequestId { index, generation: self.generation(index) }
    }
}
