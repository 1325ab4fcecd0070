//! The pager's reads and writes: allocates their buffers, queues them and reports their ends.
#![allow(unsafe_code, reason = "reads buffers")]

use std::collections::{HashMap, VecDeque};
use std::ptr;

use bowwave_backend::{ErrorKind, Result};
use bowwave_core::schedule::Direction;
use bowwave_core::swap::pager::{PageId, PagerEvent, ReadId, RegionId, SwapIn, SwapOut, WriteError, WriteId};
use bowwave_core::{PageCount, PageIndex, PageRange, Urgency};

use super::buffers::{Lease, RUN_MAX};
use super::memory::Pages;
use super::queue::{Ends, Transfer};
use super::swap::{Shared, State, retry_forever};
use crate::uffd::SYSTEM_PAGE;

/// Transfers in flight or waiting for buffers.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    reads: HashMap<u64, SwapIn>,
    writes: HashMap<u64, Writing>,
    /// Transfers without buffers: demand, and others.
    starved: [VecDeque<Starved>; 2],
}

#[derive(Debug)]
enum Starved {
    Read(u64),
    Write(u64),
}

/// A write of the pager, split into transfers at pages of zeros.
#[derive(Debug)]
struct Writing {
    write: SwapOut,
    /// Pages loaded and sent.
    loaded: usize,
    /// Indices of pages of zeros.
    zeroes: Vec<usize>,
    /// Transfers in flight.
    pending: usize,
    error: Option<WriteError>,
}

/// Pages of a write, in buffers.
pub(super) struct Loaded {
    pages: usize,
    /// Parts that are not all zeros, with their index.
    parts: Vec<(usize, Lease)>,
    /// Indices of pages of zeros.
    zeroes: Vec<usize>,
}

/// Pages in buffers that are not resident yet.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// Sorted by page; null once resident or no longer needed.
    pages: Vec<(u64, *const u8)>,
}

// SAFETY: addresses in buffers; each use justifies its own safety.
unsafe impl Send for Staged {}

impl Staged {
    /// The first of these pages that lie in adjacent buffers, or in none: their number and address.
    pub(super) fn take(&mut self, range: &Pages) -> (u64, Option<*const u8>) {
        let at = self.pages.partition_point(|&(page, _)| page < range.start);
        let from = &mut self.pages[at..];
        let here = |entry: &(u64, *const u8)| range.contains(&entry.0) && !entry.1.is_null();
        let first = from.iter().position(here).filter(|&index| from[index].0 == range.start);
        let Some(first) = first else {
            let next = from.iter().find(|entry| here(entry)).map(|entry| entry.0);
            return (next.unwrap_or(range.end) - range.start, None);
        };
        let source = from[first].1;
        let mut count = 0;
        for (page, address) in &mut from[first..] {
            let follows = *page == range.start + count && range.contains(page);
            if !follows || *address != source.wrapping_add(count as usize * SYSTEM_PAGE) {
                break;
            }
            *address = ptr::null();
            count += 1;
        }
        (count, Some(source))
    }

    /// These pages are no longer needed.
    pub(super) fn forget(&mut self, range: &Pages) {
        for (page, address) in &mut self.pages {
            if range.contains(page) {
                *address = ptr::null();
            }
        }
    }
}

impl State {
    pub(super) fn start_read(&mut self, shared: &Shared, read: SwapIn) {
        let (ReadId(name), demand) = (read.id, read.urgency == Urgency::Demand);
        self.transfers.reads.insert(name, read);
        if !self.send_read(shared, name) {
            self.transfers.starved[usize::from(!demand)].push_back(Starved::Read(name));
        }
    }

    /// Sends a read, if buffers are available.
    fn send_read(&mut self, shared: &Shared, name: u64) -> bool {
        let Some(read) = self.transfers.reads.get(&name) else { return true };
        let (mut missing, mut buffers) = (read.pages.len(), Vec::new());
        while missing > 0 {
            let Some(lease) = shared.buffers.lend(missing, read.urgency == Urgency::Demand) else {
                return false;
            };
            missing -= lease.pages();
            buffers.push(lease);
        }
        let (direction, urgency, slot) = (Direction::Read, read.urgency, read.slot.0);
        shared.queue.add(Transfer::new(name, direction, urgency, slot, buffers));
        true
    }

    /// Raises a read to demand priority, wherever it is.
    pub(super) fn promote(&mut self, shared: &Shared, name: u64) {
        if let Some(read) = self.transfers.reads.get_mut(&name) {
            read.urgency = Urgency::Demand;
        }
        let [demand, ahead] = &mut self.transfers.starved;
        let waits = ahead.iter().position(|job| matches!(job, Starved::Read(other) if *other == name));
        match waits.and_then(|at| ahead.remove(at)) {
            Some(job) => demand.push_back(job),
            None => shared.queue.promote(name),
        }
    }

    /// Starts a write; `loaded` are its first pages.
    pub(super) fn start_write(&mut self, shared: &Shared, write: SwapOut, loaded: Option<Loaded>) {
        let (WriteId(name), demand) = (write.id, write.urgency == Urgency::Demand);
        let writing = Writing { write, loaded: 0, zeroes: Vec::new(), pending: 0, error: None };
        self.transfers.writes.insert(name, writing);
        if let Some(loaded) = loaded {
            self.send_loaded(shared, name, loaded);
        }
        if !self.send_write(shared, name) {
            self.transfers.starved[usize::from(!demand)].push_back(Starved::Write(name));
        }
        self.finish_write(name);
    }

    /// Loads pages of a write into buffers and sends them. Returns whether all are sent.
    fn send_write(&mut self, shared: &Shared, name: u64) -> bool {
        loop {
            let Some(writing) = self.transfers.writes.get(&name) else { return true };
            let missing = &writing.write.pages[writing.loaded..];
            if missing.is_empty() {
                return true;
            }
            let places: Vec<u64> = missing.iter().take(RUN_MAX).map(|&id| self.place(id)).collect();
            let Some(loaded) = shared.load(&writing.write, &places) else { return false };
            self.send_loaded(shared, name, loaded);
        }
    }

    /// Sends the next pages of a write.
    fn send_loaded(&mut self, shared: &Shared, name: u64, loaded: Loaded) {
        let writing = self.transfers.writes.get_mut(&name).expect("a write that is loaded is in the table");
        let (first, urgency) = (writing.loaded, writing.write.urgency);
        writing.loaded += loaded.pages;
        writing.zeroes.extend(loaded.zeroes.iter().map(|at| first + at));
        for (at, buffer) in loaded.parts {
            writing.pending += 1;
            let slot = writing.write.slot.0 + (first + at) as u64;
            shared.queue.add(Transfer::new(name, Direction::Write, urgency, slot, vec![buffer]));
        }
    }

    /// Reports a write to the pager if it has ended.
    fn finish_write(&mut self, name: u64) {
        let Some(writing) = self.transfers.writes.get(&name) else { return };
        let all = writing.loaded == writing.write.pages.len() || writing.error.is_some();
        if writing.pending > 0 || !all {
            return;
        }
        let Some(Writing { write, zeroes, error, .. }) = self.transfers.writes.remove(&name) else { return };
        let result = error.map_or(Ok(()), Err);
        self.apply(PagerEvent::Written { id: write.id, result, zeroes });
    }

    /// Sends waiting transfers while buffers are available.
    pub(super) fn start_starved(&mut self, shared: &Shared) {
        for class in 0..self.transfers.starved.len() {
            while let Some(job) = self.transfers.starved[class].pop_front() {
                let sent = match job {
                    Starved::Read(name) => self.send_read(shared, name),
                    Starved::Write(name) => {
                        let sent = self.send_write(shared, name);
                        self.finish_write(name);
                        sent
                    }
                };
                if !sent {
                    self.transfers.starved[class].push_front(job);
                    break;
                }
            }
        }
    }

    /// Maps pages from buffers or already resident ones, write-protected if they equal the store.
    pub(super) fn map(&mut self, shared: &Shared, region: RegionId, pages: PageRange) {
        let (mut at, end) = (pages.start, pages.end);
        while at < end {
            let protected = self.is_stored(region, at);
            let mut next = at + PageCount(1);
            while next < end && self.is_stored(region, next) == protected {
                next = next + PageCount(1);
            }
            let mut range = self.pages(region, PageRange { start: at, end: next });
            while range.start < range.end {
                let (count, source) = self.staged.take(&range);
                let part = range.start..range.start + count;
                match source {
                    // SAFETY: in the buffers of the completed read, which holds them until then.
                    Some(source) => retry_forever(|| unsafe { shared.memory.fill(&part, source, protected) }),
                    None => retry_forever(|| shared.memory.map(&part, protected)),
                }
                range.start += count;
            }
            at = next;
        }
    }

    fn is_stored(&self, region: RegionId, page: PageIndex) -> bool {
        self.pager.slot(PageId { region, page }).is_some()
    }

    fn read_ended(&mut self, shared: &Shared, transfer: Transfer, result: Result<()>) {
        let Some(read) = self.transfers.reads.remove(&transfer.name) else { return };
        // Actions from before these pages arrived.
        self.take_in(shared);
        for &id in &read.pages {
            let page = self.place(id);
            self.free_frames_for(shared, &(page..page + 1));
        }
        match &result {
            Ok(()) => {
                let buffers = transfer.buffers.iter().flat_map(|lease| {
                    (0..lease.pages())
                        .map(|page| lease.as_ptr().wrapping_add(page * SYSTEM_PAGE).cast_const())
                });
                let staged = read.pages.iter().map(|&id| self.place(id)).zip(buffers).collect();
                self.staged.pages = staged;
                self.staged.pages.sort_unstable_by_key(|&(page, _)| page);
            }
            Err(error) => {
                let cause = error.to_string();
                read.pages.iter().for_each(|&id| shared.fail(self.place(id), &cause));
            }
        }
        self.apply(PagerEvent::ReadDone { id: read.id, result: result.map_err(|_| 0) });
        self.take_in(shared);
        for (page, source) in std::mem::take(&mut self.staged.pages) {
            if !source.is_null() {
                // SAFETY: in a buffer of the transfer, which is alive.
                let bytes = unsafe { std::slice::from_raw_parts(source, SYSTEM_PAGE) };
                retry_forever(|| shared.memory.store(page, bytes));
            }
        }
    }

    fn write_ended(&mut self, transfer: &Transfer, result: Result<()>) {
        let name = transfer.name;
        let Some(writing) = self.transfers.writes.get_mut(&name) else { return };
        writing.pending -= 1;
        if let Err(error) = result {
            let full = error.kind() == ErrorKind::NoSpace;
            writing.error = Some(if full { WriteError::Full } else { WriteError::Failed(0) });
        }
        self.finish_write(name);
    }
}

impl Shared {
    /// Copies pages at `places` into a buffer for a write, as many as fit; `None` without a free
    /// buffer. Needs no lock: the pages are not evicted before they are written.
    pub(super) fn load(&self, write: &SwapOut, places: &[u64]) -> Option<Loaded> {
        let mut lease = self.buffers.lend(places.len(), write.urgency == Urgency::Demand)?;
        let pages = lease.pages();
        let mut bytes = lease.bytes_mut();
        for run in places[..pages].chunk_by(|one, next| one + 1 == *next) {
            let (these, rest) = bytes.split_at_mut(run.len() * SYSTEM_PAGE);
            retry_forever(|| self.memory.load(run[0], these));
            bytes = rest;
        }
        let mut zeroes = Vec::new();
        let parts = split_at_zeroes(lease, &mut zeroes);
        Some(Loaded { pages, parts, zeroes })
    }
}

impl Ends for Shared {
    fn ended(&self, transfer: Transfer, result: Result<()>) {
        self.step(|state| match transfer.direction {
            Direction::Read => state.read_ended(self, transfer, result),
            Direction::Write => state.write_ended(&transfer, result),
        });
    }

    fn paused(&self) {
        // Under the lock, so that the reclaim thread either waits already or reads its patience
        // later.
        let _state = self.lock();
        self.wakeup.notify_all();
    }
}

/// Splits a buffer at its pages of zeros and records their indices. Returns the parts with their
/// indices.
fn split_at_zeroes(lease: Lease, zeroes: &mut Vec<usize>) -> Vec<(usize, Lease)> {
    let is_zero: Vec<bool> = lease.bytes().chunks_exact(SYSTEM_PAGE).map(is_zero).collect();
    zeroes.extend(is_zero.iter().enumerate().filter(|(_, zero)| **zero).map(|(at, _)| at));
    let (mut parts, mut at, mut rest) = (Vec::new(), 0, lease);
    for run in is_zero.chunk_by(|a, b| a == b) {
        let tail = rest.split_off(run.len());
        if !run[0] {
            parts.push((at, rest));
        }
        at += run.len();
        rest = tail;
    }
    parts
}

fn is_zero(page: &[u8]) -> bool {
    static ZEROES: [u8; SYSTEM_PAGE] = [0; SYSTEM_PAGE];
    page == ZEROES
}
