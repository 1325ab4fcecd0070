//! The schedule of a disk: seek, rotation, zones and a small buffer, in nanoseconds, without a clock.
//!
//! ```text
//!   command | seek | wait for the sector | track | skew | track …   then the head reads ahead into the buffer
//! ```
//!
//! One request at a time; of those that wait, the next above the head goes first, and from the highest back to the
//! lowest (C-LOOK). A request that has waited past the deadline goes before, and a batch of those above it with it, or
//! one reader in order would keep the head as long as it likes.

mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::writes::Cached;
use super::station::Kind;
use super::{Device, Disk, Release};

/// The drive: its queue, its head, its buffer.
#[derive(Debug)]
pub(super) struct Drive {
    disk: Disk,
    sectors: u64,
    /// Requests that wait, by first sector and number.
    queue: BTreeMap<(u64, u64), Waiting>,
    /// The same by arrival and number, with their first sectors.
    oldest: BTreeSet<(u64, u64, u64)>,
    /// Requests to serve in order of place before deadlines count again.
    batch_left: u32,
    current: Option<Current>,
    free_at: f64,
    head: Head,
    /// Oldest first; the last one is what the head is reading ahead.
    segments: Vec<Segment>,
    cached: Cached,
    /// Flushes that wait, by number and arrival: they go before all else.
    flushes: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Waiting {
    kind: Kind,
    arrival: u64,
    len: u64,
    sectors: u64,
}

#[derive(Debug)]
struct Current {
    id: u64,
    len: u64,
    released: u64,
    first: f64,
    end: f64,
}

/// Where the head is, and the sector that it was last asked for (for C-LOOK).
#[derive(Debug, Default)]
struct Head {
    cylinder: u64,
    sector: u64,
}

/// Sectors `start..media_end` are in the buffer as of `media_time`; look-ahead goes on to `limit`.
#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u64,
    media_end: u64,
    media_time: f64,
    limit: u64,
}

/// A sector's place.
#[derive(Debug)]
struct Place {
    cylinder: u64,
    sector: u64,
    track_sectors: u64,
    /// Angle of its start, in revolutions.
    angle: f64,
}

impl Drive {
    pub(super) fn new(disk: &Disk) -> Self {
        let mut drive = Self {
            disk: disk.clone(),
            sectors: 0,
            queue: BTreeMap::new(),
            oldest: BTreeSet::new(),
            batch_left: 0,
            current: None,
            free_at: 0.0,
            head: Head::default(),
            segments: Vec::new(),
            cached: Cached::default(),
            flushes: VecDeque::new(),
        };
        drive.sectors = (0..disk.zones).map(|zone| drive.zone_sectors(zone)).sum();
        drive
    }

    /// Takes a request of `len > 0` bytes at byte `address` of the disk (wrapped to its size), or a flush; `false` if too
    /// many wait.
    pub(super) fn arrive(&mut self, now: u64, id: u64, kind: Kind, address: u64, len: u64) -> bool {
        if self.queue.len() + self.flushes.len() >= WAITING_MAX {
            return false;
        }
        if kind == Kind::Flush {
            self.flushes.push_back((id, now));
            self.start_next();
            return true;
        }
        let first = address / SECTOR % self.sectors;
        let sectors = (address % SECTOR + len).div_ceil(SECTOR).min(self.sectors - first).max(1);
        self.queue.insert((first, id), Waiting { kind, arrival: now, len, sectors });
        self.oldest.insert((now, id, first));
        self.start_next();
        true
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<u64> {
        self.current.as_ref().map(|current| self.step(current).0)
    }

    /// Lets everything happen that is due by `now`, each at its own time.
    pub(super) fn advance(&mut self, now: u64, out: &mut Vec<Release>) {
        while let Some(current) = &self.current {
            let (time, bytes) = self.step(current);
            if time > now {
                return;
            }
            let over = bytes == current.len;
            out.push(Release { id: current.id, bytes, over });
            if over {
                self.current = None;
                self.start_next();
            } else if let Some(current) = &mut self.current {
                current.released = bytes;
            }
        }
    }

    /// Time and total of the current request's next step.
    fn step(&self, current: &Current) -> (u64, u64) {
        let bytes = current.len.min(current.released + STEP_BYTES);
        let share = if current.len == 0 { 1.0 } else { bytes as f64 / current.len as f64 };
        ((current.first + (current.end - current.first) * share) as u64, bytes)
    }

    fn start_next(&mut self) {
        if self.current.is_some() {
            return;
        }
        if let Some((id, arrival)) = self.flushes.pop_front() {
            let end = self.flush(self.free_at.max(arrival as f64));
            self.free_at = end;
            self.current = Some(Current { id, len: 0, released: 0, first: end, end });
            return;
        }
        let Some(key) = self.pick() else { return };
        let Some(Waiting { kind, arrival, len, sectors }) = self.queue.remove(&key) else { return };
        let (sector, id) = key;
        self.oldest.remove(&(arrival, id, sector));
        let at = self.free_at.max(arrival as f64);
        let (first, end) = match kind {
            // Of a write nobody hears before its end.
            Kind::Write => {
                let end = self.write(at, sector, sectors);
                (end, end)
            }
            Kind::Read | Kind::Flush => self.serve(at, sector, sectors),
        };
        self.free_at = end;
        self.head.sector = sector + sectors;
        self.current = Some(Current { id, len, released: 0, first, end });
    }

    /// The request that goes next.
    fn pick(&mut self) -> Option<(u64, u64)> {
        if self.batch_left > 0 {
            self.batch_left -= 1;
        } else if self.disk.deadline_ms > 0.0
            && let Some(&(arrival, id, sector)) = self.oldest.first()
            && self.free_at >= arrival as f64 + self.disk.deadline_ms * MS
        {
            self.batch_left = BATCH - 1;
            return Some((sector, id));
        }
        let above = self.queue.range((self.head.sector, 0)..).next().map(|(key, _)| *key);
        above.or_else(|| self.queue.keys().next().copied())
    }

    /// First byte and end of reading `count` sectors from `sector`, if begun at `at`.
    fn serve(&mut self, at: f64, sector: u64, count: u64) -> (f64, f64) {
        let bus = (count * SECTOR) as f64 / self.disk.bus as f64 * 1e9;
        let begun = at + self.disk.buffer_ms * MS;
        let found = self.segments.iter().rposition(|s| s.start <= sector && sector < s.limit);
        if let Some(index) = found {
            let live = index + 1 == self.segments.len();
            let segment = self.segments[index];
            let reached = if live { self.reached(&segment, at) } else { segment.media_end };
            if sector + count <= reached {
                let used = self.segments.remove(index);
                // The head goes on with what it was doing, so the segment that it fills stays last.
                let place = if live { self.segments.len() } else { self.segments.len().saturating_sub(1) };
                self.segments.insert(place, used);
                return (begun, begun + bus);
            }
            if live && reached < segment.limit {
                // The head is on its way: it just goes on.
                let media = self.stream(segment.media_time, segment.media_end, (sector + count).max(reached));
                let end = media.max(begun + bus);
                self.extend(sector + count, media);
                return (begun.max(segment.media_time), end);
            }
        }
        self.access(at, sector, count)
    }

    /// The same, from the media: command, seek, rotation, transfer; then the head reads ahead.
    fn access(&mut self, at: f64, sector: u64, count: u64) -> (f64, f64) {
        let at = at.max(self.cached.until);
        self.stop_look_ahead(at);
        let (settled, first, place) = self.go_to(at, sector);
        let end = self.stream(first, sector, sector + count);
        let passed = ((first - settled) / self.revolution() * place.track_sectors as f64) as u64;
        let kept = passed.min(place.sector).min(self.disk.on_arrival / SECTOR);
        if self.segments.len() >= self.disk.segments.max(1) {
            self.segments.remove(0);
        }
        let start = sector - kept;
        self.segments.push(Segment { start, media_end: start, media_time: end, limit: start });
        self.extend(sector + count, end);
        (first, end)
    }

    /// What the head was reading ahead ends where it has come to.
    fn stop_look_ahead(&mut self, at: f64) {
        if let Some(last) = self.segments.len().checked_sub(1) {
            let reached = self.reached(&self.segments[last], at);
            (self.segments[last].media_end, self.segments[last].limit) = (reached, reached);
        }
    }

    /// Sends the head to a sector: when it has settled there, and when the sector comes.
    fn go_to(&self, at: f64, sector: u64) -> (f64, f64, Place) {
        let place = self.place(sector);
        let settled =
            at + self.disk.overhead_ms * MS + self.seek(self.head.cylinder.abs_diff(place.cylinder)) * MS;
        (settled, settled + self.wait(settled, place.angle), place)
    }

    /// Moves the end of the last segment to `media_end`, reached at `time`.
    fn extend(&mut self, media_end: u64, time: f64) {
        self.head.cylinder = self.place(media_end.min(self.sectors - 1)).cylinder;
        let limit = (media_end + self.disk.look_ahead / SECTOR).min(self.sectors);
        if let Some(segment) = self.segments.last_mut() {
            (segment.media_end, segment.media_time, segment.limit) = (media_end, time, limit);
        }
    }

    /// How far the look-ahead of `segment` has come by `now`.
    fn reached(&self, segment: &Segment, now: f64) -> u64 {
        if segment.limit <= segment.media_end {
            return segment.media_end;
        }
        let whole = self.stream(segment.media_time, segment.media_end, segment.limit) - segment.media_time;
        let share = ((now - segment.media_time) / whole).clamp(0.0, 1.0);
        segment.media_end + ((segment.limit - segment.media_end) as f64 * share) as u64
    }

    /// When the head, over `from` at `time`, has passed `to`, track by track with their skews.
    fn stream(&self, time: f64, from: u64, to: u64) -> f64 {
        let (mut time, mut from) = (time, from);
        let to = to.min(self.sectors);
        while from < to {
            let place = self.place(from);
            if place.sector == 0 {
                time += self.wait(time, place.angle);
            }
            let count = (place.track_sectors - place.sector).min(to - from);
            time += count as f64 / place.track_sectors as f64 * self.revolution();
            from += count;
        }
        time
    }

    /// Time until `angle` is under the head.
    fn wait(&self, now: f64, angle: f64) -> f64 {
        let turn = (angle - now / self.revolution()).rem_euclid(1.0);
        // A hair before the sector is rounding, not a missed revolution.
        if turn > 1.0 - 1e-6 { 0.0 } else { turn * self.revolution() }
    }

    /// Seek time in ms.
    fn seek(&self, distance: u64) -> f64 {
        let disk = &self.disk;
        let curve = |d: f64| disk.seek_base_ms + disk.seek_root_ms * d.sqrt();
        let (d, third) = (distance as f64, disk.cylinders as f64 / 3.0);
        if distance == 0 {
            0.0
        } else if d <= third {
            curve(d)
        } else {
            let start = curve(third);
            start + (disk.seek_full_ms - start).max(0.0) * (d - third) / (disk.cylinders as f64 - third)
        }
    }

    fn revolution(&self) -> f64 {
        60e9 / self.disk.rpm
    }

    fn zone_cylinders(&self) -> u64 {
        (self.disk.cylinders / self.disk.zones).max(1)
    }

    fn zone_track(&self, zone: u64) -> u64 {
        let (outer, inner) = self.disk.track_sectors;
        outer - (outer - inner) * zone / (self.disk.zones - 1).max(1)
    }

    fn zone_sectors(&self, zone: u64) -> u64 {
        self.zone_cylinders() * self.disk.heads * self.zone_track(zone)
    }

    fn place(&self, sector: u64) -> Place {
        let (mut zone, mut rest) = (0, sector);
        while zone + 1 < self.disk.zones && rest >= self.zone_sectors(zone) {
            rest -= self.zone_sectors(zone);
            zone += 1;
        }
        let track_sectors = self.zone_track(zone);
        let (track, sector) = (rest / track_sectors, rest % track_sectors);
        let cylinder = zone * self.zone_cylinders() + track / self.disk.heads;
        let head_skew = self.disk.head_skew_ms * MS;
        let cylinder_skew = (self.disk.heads - 1) as f64 * head_skew + self.disk.cylinder_skew_ms * MS;
        let skew = cylinder as f64 * cylinder_skew + (track % self.disk.heads) as f64 * head_skew;
        let angle = (skew / self.revolution() + sector as f64 / track_sectors as f64).rem_euclid(1.0);
        Place { cylinder, sector, track_sectors, angle }
    }
}

/// The drive of a device, if it is a disk.
pub(super) fn drive(device: &Device) -> Option<Drive> {
    device.disk.as_ref().map(Drive::new)
}

const SECTOR: u64 = 512;
/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;
const STEP_BYTES: u64 = 256 << 10;
/// Requests that one past its deadline takes with it, as Linux's deadline scheduler does (`fifo_batch`).
const BATCH: u32 = 16;
/// Most requests that may wait; only a caller that ignores the profile meets it.
const WAITING_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance;

    pub(super) fn hdd() -> Drive {
        Drive::new(&Disk::default())
    }

    /// Lets all that waits end; gives number and time of each.
    pub(super) fn run(drive: &mut Drive) -> Vec<(u64, u64)> {
        let mut ends = Vec::new();
        while let Some(time) = drive.next() {
            let mut out = Vec::new();
            drive.advance(time, &mut out);
            ends.extend(out.iter().filter(|release| release.over).map(|release| (release.id, time)));
        }
        ends
    }

    /// Reads one after the other, each asked for `think` ns after the end of the one before; MB/s.
    fn rate(drive: &mut Drive, requests: impl Iterator<Item = (u64, u64)>, think: u64) -> f64 {
        let (mut now, mut bytes) = (0, 0);
        for (id, (address, len)) in (0..).zip(requests) {
            assert!(drive.arrive(now, id, Kind::Read, address, len));
            now = run(drive)[0].1 + think;
            bytes += len;
        }
        bytes as f64 / now as f64 * 1e3
    }

    #[test]
    fn a_sequential_reader_gets_the_rate_of_the_media_and_loses_no_turn() {
        // The published figure for this disk is 62 MB/s, at 9.6 % of its space.
        let start = 15 << 30;
        let sequential = rate(&mut hdd(), (0..2000).map(|index| (start + (index << 16), 1 << 16)), 85_000);
        assert!((60.0..70.0).contains(&sequential), "{sequential} MB/s");
        let inner = rate(&mut hdd(), (0..2000).map(|index| ((140 << 30) + (index << 16), 1 << 16)), 85_000);
        assert!(inner < sequential * 0.6, "inner tracks are shorter: {inner} MB/s");
    }

    #[test]
    fn random_reads_cost_a_seek_and_half_a_turn_each() {
        let random = (0..500).map(|index| (chance::draw(1, index) % (150 << 30) / 4096 * 4096, 4096));
        let each = 4096.0 / rate(&mut hdd(), random, 0) / 1e3;
        // 0.67 ms of command, 8 to 9 of seek, 4.2 of rotation.
        assert!((12.0..15.0).contains(&each), "{each} ms");
    }

    #[test]
    fn requests_that_wait_are_served_upwards_and_then_from_the_lowest() {
        let mut drive = hdd();
        for (id, gib) in [(0, 50), (1, 10), (2, 90), (3, 60), (4, 20)] {
            assert!(drive.arrive(0, id, Kind::Read, gib << 30, 4096));
        }
        let order: Vec<_> = run(&mut drive).into_iter().map(|(id, _)| id).collect();
        assert_eq!(order, [0, 3, 2, 1, 4]);
    }

    /// One reader in order, with its next request always at hand, and one request elsewhere: without a deadline that one
    /// waits until the reader is done.
    #[test]
    fn a_reader_in_order_keeps_the_head_no_longer_than_the_deadline_and_a_batch() {
        let waited = |deadline_ms: f64| {
            let mut drive = Drive::new(&Disk { deadline_ms, ..Disk::default() });
            assert!(drive.arrive(0, 1000, Kind::Read, 10 << 30, 1 << 17));
            for id in 0..4 {
                assert!(drive.arrive(0, id, Kind::Read, (20 << 30) + (id << 17), 1 << 17));
            }
            assert!(drive.arrive(0, 1001, Kind::Read, 10 << 30, 4096));
            let mut asked = 4;
            while let Some(time) = drive.next() {
                let mut out = Vec::new();
                drive.advance(time, &mut out);
                for end in out.iter().filter(|release| release.over) {
                    if end.id == 1001 {
                        return (time as f64 / MS, asked);
                    }
                    if end.id < 1000 && asked < 1000 {
                        assert!(drive.arrive(time, asked, Kind::Read, (20 << 30) + (asked << 17), 1 << 17));
                        asked += 1;
                    }
                }
            }
            panic!("it is served at some time")
        };
        let (unbounded, asked) = waited(0.0);
        assert!(asked == 1000 && unbounded > 1500.0, "{unbounded} ms");
        let (bounded, _) = waited(300.0);
        assert!((300.0..400.0).contains(&bounded), "{bounded} ms");
    }

    #[test]
    fn what_was_read_ahead_comes_from_the_buffer() {
        let mut drive = hdd();
        assert!(drive.arrive(0, 0, Kind::Read, 1 << 30, 4096));
        let first = run(&mut drive)[0].1;
        let later = first + 50_000_000;
        assert!(drive.arrive(later, 1, Kind::Read, (1 << 30) + 4096, 65_536));
        let second = run(&mut drive)[0].1 - later;
        // 97 us of command and 262 us on the bus.
        assert!((355_000..365_000).contains(&second), "{second} ns");
        assert!(drive.arrive(later * 2, 2, Kind::Read, 100 << 30, 4096));
        assert!(run(&mut drive)[0].1 - later * 2 > 2_000_000, "a place elsewhere is not in the buffer");
    }

    #[test]
    fn any_requests_end_once_each_and_time_runs_forward() {
        for seed in 0..20 {
            let mut drive = hdd();
            let mut ended = Vec::new();
            let mut now = 0;
            for id in 0..200 {
                now += chance::draw(seed, id) % 10_000_000;
                let mut out = Vec::new();
                drive.advance(now, &mut out);
                ended.extend(out.iter().filter(|release| release.over).map(|release| release.id));
                let (address, len) = (chance::draw(!seed, id), chance::draw(seed + 100, id) % (4 << 20) + 1);
                assert!(drive.arrive(now, id, Kind::Read, address, len), "seed {seed}");
            }
            let rest = run(&mut drive);
            assert!(rest.is_sorted_by_key(|(_, time)| *time), "seed {seed}");
            ended.extend(rest.iter().map(|(id, _)| *id));
            ended.sort_unstable();
            assert_eq!(ended, (0..200).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
