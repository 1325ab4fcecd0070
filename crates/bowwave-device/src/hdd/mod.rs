//! A disk: seeks, rotation, zones, skews, and a buffer that reads ahead and on arrival.
//!
//! ```text
//! command | seek | wait for the sector | track | skew | track …   and then on, into the buffer
//!                └─ sectors passing meanwhile are buffered: read on arrival
//! ```
//!
//! With a command queue (NCQ), the disk serves the command whose first sector it can reach soonest,
//! unless one has waited too long. Writes go to the medium at once, as with `hdparm -W0`, unless
//! there is a write cache. With a cache, a write completes when the cache has space. It reaches the
//! medium after earlier writes, without losing a revolution if it continues them.
//!
//! Two simplifications: a read that misses the buffer waits until the write cache is empty, which
//! is longer than in real drives; and medium time is accounted when a write is accepted.

mod buffer;
mod geometry;
mod parameters;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bowwave_core::Instant;

use super::{Device, Direction, Done, Request, RequestId, Service};
use buffer::{Buffer, Found};
use geometry::{Geometry, Place};
pub(super) use parameters::HddParameters;

/// The disk model.
#[derive(Debug)]
pub(super) struct Hdd {
    p: HddParameters,
    geometry: Geometry,
    buffer: Buffer,
    /// Waiting commands, in order of arrival.
    held: Vec<Command>,
    current: Option<Done>,
    /// Position of the head at rest.
    cylinder: u64,
    cached: Cached,
    service: Service,
}

/// Writes that were accepted but are not on the medium.
#[derive(Debug, Default)]
struct Cached {
    /// When each reaches the medium, and its sectors.
    writes: VecDeque<(f64, u64)>,
    sectors: u64,
    /// When the last one reaches the medium, and the sector behind it.
    until: f64,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    id: RequestId,
    arrived: Instant,
    direction: Direction,
    sector: u64,
    count: u64,
    bytes: u64,
}

/// A head movement to some sectors and over them.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// Place of the first sector.
    place: Place,
    /// Rotational wait before it.
    wait: f64,
    /// When the head reached it.
    first: f64,
    /// When the last sector had passed.
    media: f64,
}

impl Hdd {
    pub(super) fn new(p: &HddParameters) -> Self {
        Self {
            p: p.clone(),
            geometry: Geometry::new(p),
            buffer: Buffer::new(p.buffer_segments, p.buffer_segment),
            held: Vec::with_capacity(p.depth),
            current: None,
            cylinder: 0,
            cached: Cached::default(),
            service: Service::default(),
        }
    }

    fn start_next(&mut self, at: Instant) {
        let Some(index) = self.choose(at) else { return };
        let command = self.held.remove(index);
        self.service.requests += 1;
        self.service.bytes += command.bytes;
        let end = match command.direction {
            Direction::Read => self.read(at.0 as f64, &command),
            Direction::Write => self.write(at.0 as f64, &command),
        };
        self.current = Some(Done { id: command.id, started: at, ended: Instant(end.ceil() as u64), left: 0 });
    }

    /// The command that can start soonest, or one that has waited too long.
    fn choose(&self, at: Instant) -> Option<usize> {
        if self.held.len() <= 1 || at.0 - self.held[0].arrived.0 >= self.p.command_age_ns {
            return (!self.held.is_empty()).then_some(0);
        }
        let cost = |command: &Command| match self.find(at.0 as f64, command) {
            Found::Whole | Found::Coming(..) => 0.0,
            Found::Beginning(_) | Found::Nothing => {
                let place = self.geometry.place(command.sector);
                let settled =
                    self.p.seek_ns(self.cylinder.abs_diff(place.cylinder)) + self.p.command_media_ns;
                settled + self.geometry.wait_ns(at.0 as f64 + settled, &place)
            }
        };
        let costs = self.held.iter().map(cost).enumerate();
        costs.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(index, _)| index)
    }

    fn find(&self, at: f64, command: &Command) -> Found {
        match command.direction {
            Direction::Read => self.buffer.find(&self.geometry, at, command.sector, command.count),
            Direction::Write => Found::Nothing,
        }
    }

    /// Completion time of a read that starts at `at`.
    fn read(&mut self, at: f64, command: &Command) -> f64 {
        let &Command { sector, count, .. } = command;
        let wanted = sector + count;
        let limit = (wanted + self.p.look_ahead).min(self.geometry.sectors);
        let bus = (count * self.p.sector_bytes) as f64 * self.p.bus_ns_per_byte;
        let found = self.find(at, command);
        let at = if matches!(found, Found::Whole) { at } else { at.max(self.cached.until) };
        match found {
            Found::Whole => {
                self.buffer.used(&self.geometry, at, sector, count, limit);
                self.service.buffer_hits += 1;
                self.add(self.p.command_buffer_ns, 0.0, 0.0, 0.0, bus);
                at + self.p.command_buffer_ns + bus
            }
            Found::Coming(from, time) => {
                let media = self.geometry.pass(time, from, wanted);
                let end = media.max(at + self.p.command_buffer_ns + bus);
                self.settle(wanted, media, limit);
                self.service.continued += 1;
                let media_ns = (media - at - self.p.command_buffer_ns).max(0.0);
                self.add(
                    self.p.command_buffer_ns,
                    0.0,
                    0.0,
                    media_ns,
                    end - at - self.p.command_buffer_ns - media_ns,
                );
                end
            }
            Found::Beginning(reached) => {
                let settled = at + self.p.command_media_ns;
                let wait = self.geometry.wait_ns(settled, &self.geometry.place(reached));
                let media = self.geometry.pass(settled + wait, reached, wanted);
                let end = media.max(settled + bus);
                self.settle(wanted, media, limit);
                self.add(self.p.command_media_ns, 0.0, wait, media - settled - wait, end - media);
                end
            }
            Found::Nothing => {
                let Access { place, wait, first, media } = self.access(at, sector, count);
                let kept = self.geometry.passed_before(&place, wait).min(self.p.on_arrival);
                self.buffer.begin(sector - kept, wanted, media, limit);
                let end = media.max(first + bus);
                self.service.bus_ns += (end - media) as u64;
                end
            }
        }
    }

    /// Completion time of a write that starts at `at`: when it is on the medium, or in the write
    /// cache if there is one.
    fn write(&mut self, at: f64, command: &Command) -> f64 {
        if self.p.write_cache > 0 {
            return self.write_cached(at, command);
        }
        let Access { media, .. } = self.access(at, command.sector, command.count);
        self.buffer.forget(command.sector, command.sector + command.count);
        // The bus transfers while the head moves; the write ends when both have ended.
        let bus = at + self.p.command_media_ns + command.bytes as f64 * self.p.bus_ns_per_byte;
        self.service.bus_ns += (bus - media).max(0.0) as u64;
        media.max(bus)
    }

    /// When a write that starts at `at` is in the cache. It waits while the cache is full; the
    /// medium follows later.
    fn write_cached(&mut self, at: f64, command: &Command) -> f64 {
        let &Command { sector, count, bytes, .. } = command;
        let mut taken = at;
        while let Some(&(end, sectors)) = self.cached.writes.front()
            && (end <= taken || self.cached.sectors + count > self.p.write_cache)
        {
            taken = taken.max(end);
            self.cached.sectors -= sectors;
            self.cached.writes.pop_front();
        }
        let bus = bytes as f64 * self.p.bus_ns_per_byte;
        let arrived = taken + self.p.command_buffer_ns + bus;
        let goes_on = sector == self.cached.end && arrived <= self.cached.until;
        let end = if goes_on {
            let end = self.geometry.pass(self.cached.until, sector, sector + count);
            self.cylinder = self.geometry.place(sector + count - 1).cylinder;
            self.add(0.0, 0.0, 0.0, end - self.cached.until, 0.0);
            end
        } else {
            self.access(self.cached.until.max(taken), sector, count).media
        };
        self.buffer.forget(sector, sector + count);
        self.cached.writes.push_back((end, count));
        self.cached.sectors += count;
        (self.cached.until, self.cached.end) = (end, sector + count);
        arrived
    }

    /// Moves to a sector and over `count` of them.
    fn access(&mut self, at: f64, sector: u64, count: u64) -> Access {
        self.buffer.stop(&self.geometry, at);
        let place = self.geometry.place(sector);
        let seek = self.p.seek_ns(self.cylinder.abs_diff(place.cylinder));
        let settled = at + self.p.command_media_ns + seek;
        let wait = self.geometry.wait_ns(settled, &place);
        let (media, cylinder) = self.geometry.pass_on(settled + wait, place, count);
        self.cylinder = cylinder;
        self.add(self.p.command_media_ns, seek, wait, media - settled - wait, 0.0);
        Access { place, wait, first: settled + wait, media }
    }

    /// The head reached `end` at `time` and continues to `limit`.
    fn settle(&mut self, end: u64, time: f64, limit: u64) {
        self.cylinder = self.geometry.place(end - 1).cylinder;
        self.buffer.extend(end, time, limit);
    }

    fn add(&mut self, overhead: f64, seek: f64, rotation: f64, media: f64, bus: f64) {
        self.service.overhead_ns += overhead as u64;
        self.service.seek_ns += seek as u64;
        self.service.rotation_ns += rotation as u64;
        self.service.media_ns += media as u64;
        self.service.bus_ns += bus as u64;
    }
}

impl Device for Hdd {
    fn depth(&self) -> usize {
        self.p.depth
    }

    fn request_bytes_max(&self) -> u64 {
        self.p.request_bytes_max
    }

    fn capacity_bytes(&self) -> Option<u64> {
        Some(self.geometry.sectors * self.p.sector_bytes)
    }

    fn submit(&mut self, now: Instant, request: &Request) {
        let sector_bytes = self.p.sector_bytes;
        let sector = request.start / sector_bytes % self.geometry.sectors;
        let count = (request.start % sector_bytes + request.bytes).div_ceil(sector_bytes);
        self.held.push(Command {
            id: request.id,
            arrived: now,
            direction: request.direction,
            sector,
            count: count.min(self.geometry.sectors - sector),
            bytes: request.bytes,
        });
        if self.current.is_none() {
            self.start_next(now);
        }
    }

    fn next_event(&self) -> Option<Instant> {
        self.current.map(|current| current.ended)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Done>) {
        while let Some(current) = self.current.take_if(|current| current.ended <= now) {
            ended.push(current);
            self.start_next(current.ended);
        }
    }

    fn flush_end(&self, now: Instant) -> Instant {
        let command = now.0 as f64 + self.p.command_buffer_ns;
        Instant(command.max(self.cached.until).ceil() as u64)
    }

    fn service(&self) -> Service {
        self.service
    }
}
