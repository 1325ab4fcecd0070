//! Schedulers once more, from their descriptions alone, slow and plain: everything that waits is
//! one list.

use bowwave_baselines::DEADLINE_LITERAL;
use bowwave_core::schedule::{Algorithm, Direction, Priority, Reason, Request, RequestId, SchedulerConfig};
use bowwave_core::{Instant, Urgency};

/// What waits, or was dispatched.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: u64,
    pub(crate) request: Request,
    pub(crate) parts: Vec<(RequestId, u64, u64)>,
    pub(crate) added: u64,
    pub(crate) deadline: u64,
    /// Order among equal deadlines.
    pub(crate) stamp: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Lane {
    next: Option<u64>,
    /// How the next was found.
    demoted: bool,
    batch_group: usize,
    batched: u32,
    starved: u32,
    position: u64,
}

#[derive(Debug)]
pub(crate) struct Model {
    config: SchedulerConfig,
    pub(crate) waiting: Vec<Item>,
    pub(crate) at_device: Vec<Item>,
    pub(crate) lanes: [Lane; 3],
    names: u64,
    /// At how many bytes a dispatch ends.
    bytes: u64,
}

impl Model {
    pub(crate) fn new(config: SchedulerConfig) -> Self {
        let mut lanes = <[Lane; 3]>::default();
        lanes.iter_mut().for_each(|lane| lane.batch_group = 1);
        Self { config, waiting: Vec::new(), at_device: Vec::new(), lanes, names: 0, bytes: 0 }
    }

    pub(crate) fn group(&self, request: &Request) -> usize {
        let waits = request.urgency == Urgency::Demand;
        match self.config.algorithm.name() {
            "noop" => 0,
            "deadline-rw" => usize::from(request.direction == Direction::Write),
            "deadline" => usize::from(!waits),
            _ => usize::from(!waits && request.direction == Direction::Write),
        }
    }

    pub(crate) fn lane(&self, request: &Request) -> usize {
        if self.config.algorithm == Algorithm::Deadline {
            Priority::ALL.iter().position(|&priority| priority == request.priority).unwrap()
        } else {
            0
        }
    }

    fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    pub(crate) fn add(&mut self, now: Instant, request: Request, id: RequestId) {
        let part = (id, request.start, request.end);
        let fits = |model: &Self, item: &Item, back: bool| {
            let other = &item.request;
            let touches = if back { other.end == request.start } else { other.start == request.end };
            let same = (other.direction, other.object) == (request.direction, request.object);
            let alike = model.config.algorithm != Algorithm::Deadline
                || (other.urgency, other.priority) == (request.urgency, request.priority);
            touches && same && alike && other.bytes() + request.bytes() <= model.config.request_bytes_max
        };
        let below = self.waiting.iter().position(|item| self.config.merge_back && fits(self, item, true));
        let above = self.waiting.iter().position(|item| self.config.merge_front && fits(self, item, false));
        let place = match (below, above) {
            (Some(below), _) => below,
            (None, Some(above)) => above,
            (None, None) => {
                let stamp = self.name();
                let after = match self.group(&request) {
                    _ if self.config.algorithm == Algorithm::Noop => 0,
                    0 => self.config.favoured_expire_ns,
                    _ => self.config.other_expire_ns,
                };
                let (added, deadline) = (now.0, now.0 + after);
                self.waiting.push(Item { name: stamp, request, parts: vec![part], added, deadline, stamp });
                return;
            }
        };
        let item = &mut self.waiting[place];
        item.parts.push(part);
        item.parts.sort_by_key(|part| part.1);
        item.request.start = item.request.start.min(request.start);
        item.request.end = item.request.end.max(request.end);
        if self.config.algorithm != DEADLINE_LITERAL && request.urgency == Urgency::Demand {
            item.request.urgency = Urgency::Demand;
        }
        if let (Some(below), Some(above)) = (below, above) {
            self.close(below, above);
        }
    }

    fn close(&mut self, below: usize, above: usize) {
        let (lower, upper) = (self.waiting[below].clone(), self.waiting[above].clone());
        let groups = (self.group(&lower.request), self.group(&upper.request));
        if lower.request.bytes() + upper.request.bytes() > self.config.request_bytes_max
            || groups.0 != groups.1
        {
            return;
        }
        self.forget(upper.name);
        let stamp = self.name();
        let lower = self.waiting.iter_mut().find(|item| item.name == lower.name).unwrap();
        lower.request.end = upper.request.end;
        lower.parts.extend(upper.parts);
        lower.added = lower.added.min(upper.added);
        if upper.deadline < lower.deadline {
            (lower.deadline, lower.stamp) = (upper.deadline, stamp);
        }
    }

    /// Takes an item out; a batch goes on with the one behind.
    fn forget(&mut self, name: u64) -> Item {
        let place = self.waiting.iter().position(|item| item.name == name).unwrap();
        let lane = self.lane(&self.waiting[place].request);
        if self.lanes[lane].next == Some(name) {
            self.lanes[lane].next = self.behind(name).first().copied();
        }
        self.waiting.remove(place)
    }

    fn item(&self, name: u64) -> &Item {
        self.waiting.iter().find(|item| item.name == name).unwrap()
    }

    fn behind(&self, name: u64) -> Vec<u64> {
        let from = self.item(name);
        let lane = self.lane(&from.request);
        let mut behind: Vec<_> = self
            .waiting
            .iter()
            .filter(|item| {
                self.lane(&item.request) == lane && item.request.direction == from.request.direction
            })
            .filter(|item| item.request.start > from.request.start)
            .map(|item| (item.request.start, item.name))
            .collect();
        behind.sort_unstable();
        behind.into_iter().map(|(_, name)| name).collect()
    }

    pub(crate) fn head(&self, lane: usize, group: usize) -> Option<&Item> {
        let of = |item: &&Item| self.lane(&item.request) == lane && self.group(&item.request) == group;
        self.waiting.iter().filter(of).min_by_key(|item| (item.deadline, item.stamp))
    }

    pub(crate) fn promote(&mut self, now: Instant, id: RequestId) -> bool {
        let Some(place) = self.waiting.iter().position(|item| item.parts.iter().any(|part| part.0 == id))
        else {
            return false;
        };
        let before = self.group(&self.waiting[place].request);
        self.waiting[place].request.urgency = Urgency::Demand;
        if self.group(&self.waiting[place].request) != before {
            let stamp = self.name();
            let soon = now.0 + self.config.favoured_expire_ns;
            let item = &mut self.waiting[place];
            (item.deadline, item.stamp) = (item.deadline.min(soon), stamp);
        }
        true
    }

    /// `renamed` is the name that the request got for its new life.
    pub(crate) fn promote_alone(&mut self, now: Instant, id: RequestId, renamed: Option<RequestId>) -> bool {
        let Some(item) = self.waiting.iter().find(|item| item.parts.iter().any(|part| part.0 == id)).cloned()
        else {
            return false;
        };
        let &(_, start, end) = item.parts.iter().find(|part| part.0 == id).unwrap();
        let request = Request { start, end, urgency: Urgency::Demand, ..item.request };
        if self.group(&request) == self.group(&item.request) {
            return self.promote(now, id);
        }
        self.cancel(id);
        let renamed = renamed.expect("it waits");
        self.add(now, request, renamed);
        let place = self.waiting.iter().position(|item| item.parts.iter().any(|part| part.0 == renamed));
        if item.deadline < self.waiting[place.unwrap()].deadline {
            let stamp = self.name();
            let merged = &mut self.waiting[place.unwrap()];
            (merged.deadline, merged.stamp) = (item.deadline, stamp);
        }
        true
    }

    pub(crate) fn cancel(&mut self, id: RequestId) -> bool {
        let Some(place) = self.waiting.iter().position(|item| item.parts.iter().any(|part| part.0 == id))
        else {
            return false;
        };
        let item = self.waiting[place].clone();
        let at = item.parts.iter().position(|part| part.0 == id).unwrap();
        let (lower, upper) = (item.parts[..at].to_vec(), item.parts[at + 1..].to_vec());
        let bytes = |parts: &[(RequestId, u64, u64)]| Request {
            start: parts[0].1,
            end: parts[parts.len() - 1].2,
            ..item.request
        };
        match (lower.is_empty(), upper.is_empty()) {
            (true, true) => {
                self.forget(item.name);
            }
            (true, false) => {
                self.waiting[place].request = bytes(&upper);
                self.waiting[place].parts = upper;
            }
            (false, _) => {
                self.waiting[place].request = bytes(&lower);
                self.waiting[place].parts = lower;
                if !upper.is_empty() {
                    let stamp = self.name();
                    let request = bytes(&upper);
                    self.waiting.push(Item { name: stamp, request, parts: upper, stamp, ..item });
                }
            }
        }
        true
    }

    pub(crate) fn dispatch(&mut self, now: Instant, bytes: u64) -> Option<(Item, Reason)> {
        self.bytes = bytes;
        let own = self.config.algorithm == Algorithm::Deadline;
        let asyncs = self.at_device.iter().filter(|item| self.group(&item.request) == 1).count();
        let may_async = !own || asyncs < self.config.async_depth_max as usize;
        let waits = |lane| self.waiting.iter().any(|item| self.lane(&item.request) == lane);
        let there = |lane| self.at_device.iter().any(|item| self.lane(&item.request) == lane);
        if own && (0..3).filter(|&lane| waits(lane) || there(lane)).count() > 1 {
            for (lane, group) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                if let Some(head) = self.head(lane, group)
                    && head.added + self.config.aging_ns <= now.0
                    && (group == 0 || may_async)
                {
                    let name = head.name;
                    return Some(self.begin(lane, name, group, Reason::Aged));
                }
            }
        }
        let lane = (0..3).find(|&lane| waits(lane) || (own && there(lane)))?;
        self.choose(lane, now, may_async)
    }

    fn choose(&mut self, lane: usize, now: Instant, may_async: bool) -> Option<(Item, Reason)> {
        let head = |group: usize| self.head(lane, group).filter(|_| group == 0 || may_async);
        if self.config.algorithm == Algorithm::Noop {
            let name = head(0)?.name;
            return Some(self.begin(lane, name, 0, Reason::Arrival));
        }
        let group_of = |name: u64| self.group(&self.item(name).request);
        let state = &self.lanes[lane];
        let own = self.config.algorithm == Algorithm::Deadline;
        let crowded = own && self.at_device.len() >= self.config.async_beside_max as usize;
        let next = state.next.filter(|&next| (may_async && !crowded) || group_of(next) == 0);
        if let Some(next) = next {
            let contiguous = self.item(next).request.start == state.position;
            if state.batched < self.config.batch_requests && (contiguous || !self.config.batch_contiguous) {
                self.lanes[lane].batched += 1;
                let reason = if self.lanes[lane].demoted { Reason::Demoted } else { Reason::Batch };
                return Some((self.hand_over(lane, next), reason));
            }
        }
        let both = head(0).is_some() && head(1).is_some();
        let floor = both && state.starved >= self.config.starved_max;
        let group = if floor { 1 } else { usize::from(head(0).is_none()) };
        let first = head(group)?;
        let expired = first.deadline < now.0;
        if crowded && group == 1 && !floor && !expired {
            return None;
        }
        let onward = next.filter(|&next| {
            !expired
                && match self.config.algorithm {
                    algorithm if algorithm == DEADLINE_LITERAL => state.batch_group <= group,
                    _ => group_of(next) == group,
                }
        });
        let reason = match onward {
            Some(next) if floor && group_of(next) == 1 => Reason::Floor,
            Some(_) => Reason::Onward,
            None if expired => Reason::Expired,
            None if floor => Reason::Floor,
            None => Reason::Oldest,
        };
        let name = onward.unwrap_or(first.name);
        self.lanes[lane].starved = if group == 1 { 0 } else { self.lanes[lane].starved + u32::from(both) };
        Some(self.begin(lane, name, group, reason))
    }

    /// Makes two of what is too long, of which the second keeps name and place; the name of the
    /// first.
    fn cut(&mut self, name: u64) -> u64 {
        let place = self.waiting.iter().position(|item| item.name == name).unwrap();
        let mut rest = self.waiting[place].clone();
        let start = rest.request.start;
        let Some(last) = rest.parts.iter().position(|part| part.2 - start >= self.bytes) else { return name };
        let upper = rest.parts.split_off(last + 1);
        if upper.is_empty() {
            return name;
        }
        let mut front = rest;
        front.name = self.name();
        front.request.end = upper[0].1;
        self.waiting[place].request.start = upper[0].1;
        self.waiting[place].parts = upper;
        self.waiting.push(front.clone());
        front.name
    }

    fn begin(&mut self, lane: usize, name: u64, group: usize, reason: Reason) -> (Item, Reason) {
        (self.lanes[lane].batched, self.lanes[lane].batch_group) = (1, group);
        (self.hand_over(lane, name), reason)
    }

    fn hand_over(&mut self, lane: usize, name: u64) -> Item {
        let name = self.cut(name);
        let behind = self.behind(name);
        let search = self.config.batch_requests as usize;
        let batch = self.lanes[lane].batch_group;
        let suits = |name: &&u64| self.group(&self.item(**name).request) <= batch;
        let seen = &behind[..behind.len().min(search)];
        let found = seen.iter().find(suits).copied();
        let mut next = match self.config.algorithm.name() {
            "noop" => None,
            "deadline-rw" => behind.first().copied(),
            "deadline" => found,
            _ => match found {
                Some(name) if seen.len() == search && seen[search - 1] == name => None,
                Some(name) => Some(name),
                None if seen.len() == search => Some(seen[search - 1]),
                None => None,
            },
        };
        self.lanes[lane].demoted =
            !matches!(self.config.algorithm, Algorithm::Noop) && next.is_none() && !behind.is_empty();
        if self.lanes[lane].demoted {
            next = Some(behind[0]);
            self.lanes[lane].batch_group = self.group(&self.item(behind[0]).request);
        }
        self.lanes[lane].next = if self.config.seeks { next } else { None };
        if !self.config.seeks {
            self.lanes[lane].batch_group = batch;
        }
        self.lanes[lane].position = self.item(name).request.end;
        let place = self.waiting.iter().position(|item| item.name == name).unwrap();
        let item = self.waiting.remove(place);
        self.at_device.push(item.clone());
        item
    }
}
