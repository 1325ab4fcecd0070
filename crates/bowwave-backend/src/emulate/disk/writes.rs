//! Writes of a disk: to the medium at once, or into a cache that follows as fast as the medium takes it.
//!
//! ```text
//!   write | command | bus |                        ends: it is in the cache, if there was room
//!                         `--- seek | turn | track   on the medium, behind the writes before it; a flush waits for that
//! ```
//!
//! A write that goes on where the cache ends loses no turn. A read that the buffer does not have waits until the cache is
//! empty, which is longer than in real drives.

use std::collections::VecDeque;

use super::{Drive, MS, SECTOR};

/// Writes that were taken and are not on the medium.
#[derive(Debug, Default)]
pub(super) struct Cached {
    /// When each will be, and its sectors.
    writes: VecDeque<(f64, u64)>,
    sectors: u64,
    /// When the last one will be, and the sector behind it.
    pub(super) until: f64,
    end: u64,
}

impl Drive {
    /// When a write of `count` sectors that begins at `at` ends.
    pub(super) fn write(&mut self, at: f64, sector: u64, count: u64) -> f64 {
        let bus = (count * SECTOR) as f64 / self.disk.bus as f64 * 1e9;
        let end = if self.disk.write_cache >= SECTOR {
            self.write_cached(at, sector, count, bus)
        } else {
            let media = self.write_through(at, sector, count);
            // The bytes come over the bus while the head moves, and no faster than that.
            media.max(at + self.disk.overhead_ms * MS + bus)
        };
        // What the buffer had of these sectors is not what they hold now.
        self.segments.retain(|segment| segment.limit <= sector || sector + count <= segment.start);
        end
    }

    /// When a flush that begins at `at` ends.
    pub(super) fn flush(&self, at: f64) -> f64 {
        (at + self.disk.buffer_ms * MS).max(self.cached.until)
    }

    /// When the head, sent at `at`, has written `count` sectors.
    fn write_through(&mut self, at: f64, sector: u64, count: u64) -> f64 {
        self.stop_look_ahead(at);
        let (_, first, _) = self.go_to(at, sector);
        let end = self.stream(first, sector, sector + count);
        self.head.cylinder = self.place((sector + count).min(self.sectors - 1)).cylinder;
        end
    }

    /// When a write that begins at `at` is in the cache. The medium is as far behind as it takes.
    fn write_cached(&mut self, at: f64, sector: u64, count: u64, bus: f64) -> f64 {
        let room = self.disk.write_cache / SECTOR;
        let mut taken = at;
        while let Some(&(end, sectors)) = self.cached.writes.front()
            && (end <= taken || self.cached.sectors + count > room)
        {
            taken = taken.max(end);
            self.cached.sectors -= sectors;
            self.cached.writes.pop_front();
        }
        let mut arrived = taken + self.disk.buffer_ms * MS + bus;
        let goes_on = sector == self.cached.end && arrived <= self.cached.until;
        let end = if goes_on {
            self.head.cylinder = self.place((sector + count).min(self.sectors - 1)).cylinder;
            self.stream(self.cached.until, sector, sector + count)
        } else {
            self.write_through(self.cached.until.max(taken), sector, count)
        };
        if count > room {
            // It goes through the cache as the medium takes it; what is left at the end fits.
            let media = (end - taken) * (1.0 - room as f64 / count as f64);
            arrived = arrived.max(taken + media);
        }
        self.cached.writes.push_back((end, count));
        self.cached.sectors += count;
        (self.cached.until, self.cached.end) = (end, sector + count);
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hdd, run};
    use super::super::{Disk, Kind};
    use super::*;

    fn cached() -> Drive {
        Drive::new(&Disk { write_cache: 2 << 20, ..Disk::default() })
    }

    /// The end of one request, in milliseconds after `at`.
    fn one(drive: &mut Drive, at: u64, id: u64, kind: Kind, address: u64, len: u64) -> f64 {
        assert!(drive.arrive(at, id, kind, address, len));
        (run(drive)[0].1 - at) as f64 / 1e6
    }

    #[test]
    fn without_a_cache_a_write_ends_on_the_medium_and_a_flush_costs_a_command() {
        let mut drive = hdd();
        let took = one(&mut drive, 0, 0, Kind::Write, 80 << 30, 4096);
        // 0.67 ms of command, a seek over half the disk, up to a turn.
        assert!((8.0..25.0).contains(&took), "{took} ms");
        let at = 1_000_000_000;
        let flush = one(&mut drive, at, 1, Kind::Flush, 0, 0);
        assert!((0.09..0.11).contains(&flush), "{flush} ms");
        // One turn is lost between writes in order: the next sector has passed when the next command comes.
        let next = one(&mut drive, at * 2, 2, Kind::Write, (80 << 30) + 4096, 4096);
        assert!((0.6..9.5).contains(&next), "{next} ms");
    }

    #[test]
    fn a_cache_takes_writes_at_once_and_a_flush_waits_for_the_medium() {
        let mut drive = cached();
        let took = one(&mut drive, 0, 0, Kind::Write, 80 << 30, 4096);
        assert!(took < 0.2, "{took} ms");
        let flush = one(&mut drive, 1_000_000, 1, Kind::Flush, 0, 0);
        assert!((7.0..25.0).contains(&flush), "{flush} ms");
        let again = one(&mut drive, 1_000_000_000, 2, Kind::Flush, 0, 0);
        assert!(again < 0.2, "nothing is left: {again} ms");
    }

    #[test]
    fn a_full_cache_keeps_the_pace_of_the_medium() {
        let mut drive = cached();
        let (mut now, len) = (0, 64 << 10);
        let address = |id: u64| (15 << 30) + id * len;
        for id in 0..2000 {
            assert!(drive.arrive(now, id, Kind::Write, address(id), len));
            now = run(&mut drive)[0].1;
        }
        let rate = (2000 * len) as f64 / now as f64 * 1e3;
        // As fast as the same place is read.
        assert!((58.0..70.0).contains(&rate), "{rate} MB/s");
        let large = one(&mut drive, now, 5000, Kind::Write, address(2000), 16 << 20);
        assert!((180.0..300.0).contains(&large), "larger than the cache: {large} ms");
    }

    #[test]
    fn what_was_read_ahead_is_forgotten_when_it_is_written() {
        let mut drive = hdd();
        one(&mut drive, 0, 0, Kind::Read, 1 << 30, 4096);
        let at = 1_000_000_000;
        assert!(one(&mut drive, at, 1, Kind::Read, (1 << 30) + 4096, 4096) < 0.5, "read ahead");
        one(&mut drive, at * 2, 2, Kind::Write, (1 << 30) + 8192, 4096);
        let took = one(&mut drive, at * 3, 3, Kind::Read, (1 << 30) + 8192, 4096);
        assert!(took > 0.6, "{took} ms: from the medium");
    }
}
