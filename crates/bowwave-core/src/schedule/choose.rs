//! Which request goes next: the rules of the algorithms.
//!
//! All but `noop` are one algorithm with different eyes: a batch goes on in disk order as long as it may; then a group is
//! chosen, favoured first; then a batch begins, where the last one ended or at the group's earliest deadline.

use super::config::Algorithm;
use super::items::{Item, NONE};
use super::request::{Class, Direction, Priority, Reason, Request};
use super::{AtDevice, Dispatch, DispatchId, Scheduler, State};
use crate::time::Instant;

/// Of which lane, which item, why, and the group of the batch that begins with it.
pub(super) struct Choice {
    lane: usize,
    pub(super) item: u32,
    reason: Reason,
    /// None if the batch goes on.
    batch: Option<usize>,
}

impl Scheduler {
    /// What the algorithm tells apart: 0 is favoured, 1 is not.
    pub(super) fn group(&self, request: &Request) -> usize {
        match self.config.algorithm {
            Algorithm::Noop => 0,
            Algorithm::DeadlineRw => request.direction as usize,
            Algorithm::Deadline | Algorithm::Literal => self.class(request) as usize,
        }
    }

    /// The class as the algorithm sees it. Linux 2.6.30 took every read as sync, readahead, too.
    pub(super) fn class(&self, request: &Request) -> Class {
        match (self.config.algorithm, request.direction) {
            (Algorithm::Literal, Direction::Read) => Class::Sync,
            _ => request.class(),
        }
    }

    /// Priorities are mq-deadline's: strict, also against what a higher one has at the device, but for those that have
    /// waited too long.
    pub(super) fn choose(&mut self, now: Instant) -> Option<Choice> {
        let may_async = self.depth.may_dispatch(now, self.async_at_device);
        if !may_async && self.lanes.iter().any(|lane| lane.head(1).is_some()) {
            self.depth.refused();
        }
        if let Some(choice) = self.aged(now, may_async) {
            return Some(choice);
        }
        for lane in 0..Priority::ALL.len() {
            if !self.lanes[lane].is_empty() {
                return self.choose_in(lane, now, may_async);
            }
            if self.config.algorithm == Algorithm::Deadline && self.at_device[lane] > 0 {
                return None;
            }
        }
        None
    }

    fn aged(&self, now: Instant, may_async: bool) -> Option<Choice> {
        // Alone, a priority is never behind another.
        let busy = |lane: &usize| !self.lanes[*lane].is_empty() || self.at_device[*lane] > 0;
        if self.config.algorithm != Algorithm::Deadline || (0..Priority::ALL.len()).filter(busy).count() < 2 {
            return None;
        }
        for lane in 1..Priority::ALL.len() {
            for group in if may_async { 0..2 } else { 0..1 } {
                if let Some(item) = self.lanes[lane].head(group)
                    && now.0.saturating_sub(self.items[item].added.0) >= self.config.aging_ns
                {
                    return Some(Choice { lane, item, reason: Reason::Aged, batch: Some(group) });
                }
            }
        }
        None
    }

    fn choose_in(&mut self, index: usize, now: Instant, may_async: bool) -> Option<Choice> {
        let algorithm = self.config.algorithm;
        let lane = &self.lanes[index];
        let head = |group: usize| lane.head(group).filter(|_| group == 0 || may_async);
        if algorithm == Algorithm::Noop {
            let item = lane.head(0)?;
            return Some(Choice { lane: index, item, reason: Reason::Arrival, batch: Some(0) });
        }
        let next = lane.next.filter(|&(item, _)| {
            let request = &self.items[item].request;
            (may_async && !self.is_crowded(request)) || self.group(request) == 0
        });
        if let Some((item, reason)) = next
            && lane.batched < self.config.batch_requests
            && !(self.config.batch_contiguous && self.items[item].request.start != lane.position)
        {
            return Some(Choice { lane: index, item, reason, batch: None });
        }
        let both = head(0).is_some() && head(1).is_some();
        let floor = both && lane.starved >= self.config.starved_max;
        let group = usize::from(head(0).is_none() || floor);
        let first = head(group)?;
        let crowded = group == 1 && self.is_crowded(&self.items[first].request);
        if crowded && !floor && self.items[first].deadline >= now {
            return None;
        }
        let expired = self.items[first].deadline < now;
        let goes_on = next.filter(|&(item, _)| {
            let of_group = match algorithm {
                // The letter: unless the batch was of a lower class than is wanted now, whatever the next one is.
                Algorithm::Literal => lane.batch_group <= group,
                _ => self.group(&self.items[item].request) == group,
            };
            of_group && !expired
        });
        let starved = if group == 1 { 0 } else { lane.starved + u32::from(both) };
        self.lanes[index].starved = starved;
        let (item, reason) = match goes_on {
            Some((item, _)) if floor && self.group(&self.items[item].request) == 1 => (item, Reason::Floor),
            Some((item, _)) => (item, Reason::Onward),
            None if expired => (first, Reason::Expired),
            None if floor => (first, Reason::Floor),
            None => (first, Reason::Oldest),
        };
        Some(Choice { lane: index, item, reason, batch: Some(group) })
    }

    /// Whether the device has so much that an async request is to wait.
    fn is_crowded(&self, request: &Request) -> bool {
        let config = &self.config;
        if config.algorithm != Algorithm::Deadline {
            return false;
        }
        let waits = config.write_back_waits
            && request.direction == Direction::Write
            && self.at_device() > self.async_at_device as usize
            && self.sync_in_a_row < config.starved_max.max(1);
        waits || self.at_device() >= config.async_beside_max as usize
    }

    /// Hands an item to the device and finds out what its batch goes on with.
    pub(super) fn take(&mut self, now: Instant, choice: &Choice, bytes: u64) -> Dispatch {
        let &Choice { lane: index, item: whole, reason, batch } = choice;
        let item = self.cut(index, whole, bytes);
        let lane = &mut self.lanes[index];
        match batch {
            Some(group) => (lane.batch_group, lane.batched) = (group, 1),
            None => lane.batched += 1,
        }
        lane.position = self.items[item].request.end;
        let next = self.next_of_batch(index, item);
        let request = self.items[item].request;
        let (group, class) = (self.group(&request), self.class(&request));
        let lane = &mut self.lanes[index];
        if item == whole {
            lane.next = None;
            lane.remove(&mut self.items, item, group, self.config.seeks);
            self.waiting -= 1;
        }
        lane.next = next;
        let counts_async = self.config.algorithm == Algorithm::Deadline && class == Class::Async;
        self.at_device[index] += 1;
        // Where one async request is enough to be slow beside, nearly alone is not alone.
        let alone = if self.config.async_bytes_min == u64::MAX {
            self.async_at_device <= 1
        } else {
            self.at_device.iter().sum::<usize>() == 1
        };
        self.async_at_device += u32::from(counts_async);
        if class == Class::Sync {
            self.sync_in_a_row = self.sync_in_a_row.saturating_add(1);
        } else if request.direction == Direction::Write {
            self.sync_in_a_row = 0;
        }
        let taken = &mut self.items[item];
        taken.state = State::AtDevice(AtDevice { since: now, counts_async, alone });
        let deadline = (self.config.algorithm != Algorithm::Noop).then_some(taken.deadline);
        let added = taken.added;
        self.stats.dispatched[reason as usize] += 1;
        self.stats.late += u64::from(deadline.is_some_and(|deadline| deadline < now));
        let id = DispatchId { index: item, generation: self.items.generation(item) };
        Dispatch { id, request, class, added, deadline, reason }
    }

    /// The first parts of a waiting item, as many as it takes to have `bytes`, as an item of their own that stands in no
    /// line; the item itself if that takes all of them.
    fn cut(&mut self, lane: usize, whole: u32, bytes: u64) -> u32 {
        let item = self.items[whole];
        let Request { start, end, .. } = item.request;
        let mut last = item.first;
        while self.parts[last].end - start < bytes && last != item.last {
            last = self.parts[last].next;
        }
        if last == item.last {
            return whole;
        }
        let middle = self.parts[last].end;
        let request = Request { end: middle, ..item.request };
        let front = self.items.insert(Item { request, last, ..item });
        let mut part = item.first;
        while part != self.parts[last].next {
            self.parts[part].item = front;
            part = self.parts[part].next;
        }
        self.items[whole].first = core::mem::replace(&mut self.parts[last].next, NONE);
        self.lanes[lane].resize(&mut self.items, whole, middle, end, self.config.seeks);
        front
    }

    /// What a batch goes on with behind an item, which need not stand in the tree.
    fn next_of_batch(&mut self, index: usize, item: u32) -> Option<(u32, Reason)> {
        if !self.config.seeks {
            return None;
        }
        let lane = &self.lanes[index];
        let behind = || lane.behind(&self.items, item, true);
        let nearest = behind().next()?;
        let search = self.config.batch_requests as usize;
        let found = behind()
            .take(search)
            .enumerate()
            .find(|&(_, item)| self.group(&self.items[item].request) <= lane.batch_group);
        let next = match (self.config.algorithm, found) {
            (Algorithm::Noop, _) => return None,
            (Algorithm::DeadlineRw, _) => Some(nearest),
            // Intended: the batch is demoted if, and only if, none of its class is found within the search.
            (Algorithm::Deadline, found) => found.map(|(_, item)| item),
            // The letter: one found by the very last step is thrown away, and if all steps find lower ones, the last of
            // those is taken without a demotion.
            (Algorithm::Literal, Some((step, item))) => (step + 1 < search).then_some(item),
            (Algorithm::Literal, None) => behind().nth(search - 1),
        };
        if let Some(next) = next {
            return Some((next, Reason::Batch));
        }
        let group = self.group(&self.items[nearest].request);
        self.lanes[index].batch_group = group;
        Some((nearest, Reason::Demoted))
    }
}
