//! Which request goes next: the rules of the algorithms.
//!
//! All but `noop` share one algorithm. A batch continues in disk order as long as it may. Then a
//! group is chosen, favoured first. Its batch begins where the last one ended, or at the group's
//! earliest deadline.

use super::config::{Algorithm, Group};
use super::items::{Item, NONE};
use super::request::{Class, Direction, Priority, Reason, Request};
use super::{AtDevice, Dispatch, DispatchId, Scheduler, State};
use crate::time::Instant;

/// The next item, and why.
pub(super) struct Choice {
    level: usize,
    pub(super) item: u32,
    reason: Reason,
    /// The group of the batch that begins; none if the batch continues.
    batch: Option<Group>,
}

impl Scheduler {
    pub(super) fn group(&self, request: &Request) -> Group {
        match (self.config.algorithm, request.class()) {
            (Algorithm::Noop, _) | (Algorithm::Deadline, Class::Sync) => Group::Favoured,
            (Algorithm::Deadline, Class::Async) => Group::Other,
            (Algorithm::Other(kind), _) => kind.group(request),
        }
    }

    /// The class as the algorithm sees it.
    fn class(&self, request: &Request) -> Class {
        match self.config.algorithm {
            Algorithm::Noop | Algorithm::Deadline => request.class(),
            Algorithm::Other(kind) => kind.class(request),
        }
    }

    /// Priorities are strict, as in mq-deadline: a lower one also waits for what a higher one has
    /// at the device. Requests that have waited for the aging time go first.
    pub(super) fn choose(&mut self, now: Instant) -> Option<Choice> {
        let may_async = self.depth.may_dispatch(now, self.async_at_device);
        if !may_async && self.levels.iter().any(|level| level.head(Group::Other).is_some()) {
            self.depth.refused();
        }
        if let Some(choice) = self.aged(now, may_async) {
            return Some(choice);
        }
        for level in 0..Priority::ALL.len() {
            if !self.levels[level].is_empty() {
                return self.choose_in(level, now, may_async);
            }
            if self.config.algorithm.is_deadline() && self.at_device[level] > 0 {
                return None;
            }
        }
        None
    }

    fn aged(&self, now: Instant, may_async: bool) -> Option<Choice> {
        // A single priority waits for no other.
        let busy = |level: &usize| !self.levels[*level].is_empty() || self.at_device[*level] > 0;
        if !self.config.algorithm.is_deadline() || (0..Priority::ALL.len()).filter(busy).count() < 2 {
            return None;
        }
        for level in 1..Priority::ALL.len() {
            for &group in &Group::ALL[..if may_async { 2 } else { 1 }] {
                if let Some(item) = self.levels[level].head(group)
                    && now.0.saturating_sub(self.items[item].added.0) >= self.config.aging_ns
                {
                    return Some(Choice { level, item, reason: Reason::Aged, batch: Some(group) });
                }
            }
        }
        None
    }

    fn choose_in(&mut self, index: usize, now: Instant, may_async: bool) -> Option<Choice> {
        let algorithm = self.config.algorithm;
        let level = &self.levels[index];
        let head = |group| level.head(group).filter(|_| group == Group::Favoured || may_async);
        if matches!(algorithm, Algorithm::Noop) {
            let item = level.head(Group::Favoured)?;
            return Some(Choice {
                level: index,
                item,
                reason: Reason::Arrival,
                batch: Some(Group::Favoured),
            });
        }
        let next = level.next.filter(|&(item, _)| {
            let request = &self.items[item].request;
            (may_async && !self.is_crowded(request)) || self.group(request) == Group::Favoured
        });
        if let Some((item, reason)) = next
            && level.batched < self.config.batch_requests
            && !(self.config.batch_contiguous && self.items[item].request.start != level.position)
        {
            return Some(Choice { level: index, item, reason, batch: None });
        }
        let favoured = head(Group::Favoured);
        let both = favoured.is_some() && head(Group::Other).is_some();
        let floor = both && level.starved >= self.config.starved_max;
        let group = if favoured.is_none() || floor { Group::Other } else { Group::Favoured };
        let first = head(group)?;
        let crowded = group == Group::Other && self.is_crowded(&self.items[first].request);
        if crowded && !floor && self.items[first].deadline >= now {
            return None;
        }
        let expired = self.items[first].deadline < now;
        let continues = next.filter(|&(item, _)| {
            let next = self.group(&self.items[item].request);
            let in_disk_order = match algorithm {
                Algorithm::Noop | Algorithm::Deadline => next == group,
                Algorithm::Other(kind) => kind.begins_in_disk_order(group, next, level.batch_group),
            };
            in_disk_order && !expired
        });
        let starved = if group == Group::Other { 0 } else { level.starved + u32::from(both) };
        self.levels[index].starved = starved;
        let (item, reason) = match continues {
            Some((item, _)) if floor && self.group(&self.items[item].request) == Group::Other => {
                (item, Reason::Floor)
            }
            Some((item, _)) => (item, Reason::Onward),
            None if expired => (first, Reason::Expired),
            None if floor => (first, Reason::Floor),
            None => (first, Reason::Oldest),
        };
        Some(Choice { level: index, item, reason, batch: Some(group) })
    }

    /// Whether an async request has to wait for others at the device.
    fn is_crowded(&self, request: &Request) -> bool {
        let config = &self.config;
        if !config.algorithm.is_deadline() {
            return false;
        }
        let waits = config.write_back_waits
            && request.direction == Direction::Write
            && self.at_device() > self.async_at_device as usize
            && self.sync_in_a_row < config.starved_max.max(1);
        waits || self.at_device() >= config.async_beside_max as usize
    }

    /// Dispatches an item and finds what its batch continues with.
    pub(super) fn take(&mut self, now: Instant, choice: &Choice, bytes: u64) -> Dispatch {
        let &Choice { level: index, item: whole, reason, batch } = choice;
        let item = self.cut(index, whole, bytes);
        let level = &mut self.levels[index];
        match batch {
            Some(group) => (level.batch_group, level.batched) = (group, 1),
            None => level.batched += 1,
        }
        level.position = self.items[item].request.end;
        let next = self.next_of_batch(index, item);
        let request = self.items[item].request;
        let (group, class) = (self.group(&request), self.class(&request));
        let level = &mut self.levels[index];
        if item == whole {
            level.next = None;
            level.remove(&mut self.items, item, group, self.config.seeks);
            self.waiting -= 1;
        }
        level.next = next;
        let counts_async = self.config.algorithm.is_deadline() && class == Class::Async;
        self.at_device[index] += 1;
        // Where one async request makes sync ones slow, `alone` means without it.
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
        let deadline = (!matches!(self.config.algorithm, Algorithm::Noop)).then_some(taken.deadline);
        let added = taken.added;
        self.stats.dispatched[reason as usize] += 1;
        self.stats.late += u64::from(deadline.is_some_and(|deadline| deadline < now));
        let id = DispatchId { index: item, generation: self.items.generation(item) };
        Dispatch { id, request, class, added, deadline, reason }
    }

    /// Splits off the first parts of a waiting item, until they have `bytes`, as an item in no FIFO
    /// and no tree. Returns the item itself if that takes all parts.
    fn cut(&mut self, level: usize, whole: u32, bytes: u64) -> u32 {
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
        self.levels[level].resize(&mut self.items, whole, middle, end, self.config.seeks);
        front
    }

    /// What a batch continues with after an item, which need not be in the tree.
    fn next_of_batch(&mut self, index: usize, item: u32) -> Option<(u32, Reason)> {
        if !self.config.seeks {
            return None;
        }
        let level = &self.levels[index];
        let mut behind = level.behind(&self.items, item, true);
        let nearest = behind.next()?;
        let behind = core::iter::once(nearest).chain(behind);
        let search = self.config.batch_requests as usize;
        let group = |item: u32| self.group(&self.items[item].request);
        let next = match self.config.algorithm {
            Algorithm::Noop => return None,
            Algorithm::Deadline => behind.take(search).find(|&item| group(item) <= level.batch_group),
            Algorithm::Other(kind) => match kind.next(level.batch_group, search, &mut behind.map(group)) {
                Some(0) => Some(nearest),
                Some(step) => level.behind(&self.items, item, true).nth(step),
                None => None,
            },
        };
        if let Some(next) = next {
            return Some((next, Reason::Batch));
        }
        self.levels[index].batch_group = group(nearest);
        Some((nearest, Reason::Demoted))
    }
}
