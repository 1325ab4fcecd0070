//! Maps sectors to places on the disk, and to the times they pass under the head.
//!
//! Tracks are filled one surface after the other, cylinders from outside to inside. Each track is
//! skewed against the one before by the switch time, so a sequential reader loses no revolution.

use super::parameters::HddParameters;

/// The layout of a disk.
#[derive(Debug)]
pub(super) struct Geometry {
    revolution_ns: f64,
    turns_per_ns: f64,
    heads: u64,
    head_skew_ns: f64,
    /// For a whole cylinder, including the switch to the next.
    cylinder_skew_ns: f64,
    zones: Vec<Zone>,
    pub(super) sectors: u64,
}

#[derive(Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    track_sectors: u64,
}

/// A sector's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// On the disk.
    address: u64,
    pub(super) cylinder: u64,
    /// Within its track.
    pub(super) sector: u64,
    pub(super) track_sectors: u64,
    /// Start within the revolution, in nanoseconds.
    pub(super) turn_ns: f64,
}

impl Geometry {
    pub(super) fn new(p: &HddParameters) -> Self {
        let per_zone = p.cylinders / p.zones;
        let mut zones = Vec::with_capacity(p.zones as usize);
        let mut first_sector = 0;
        for index in 0..p.zones {
            let fall = p.track_sectors_outer - p.track_sectors_inner;
            let track_sectors = p.track_sectors_outer - fall * index / (p.zones - 1).max(1);
            zones.push(Zone { first_sector, first_cylinder: index * per_zone, track_sectors });
            // The innermost zone gets the remainder.
            let cylinders = if index + 1 == p.zones { p.cylinders - index * per_zone } else { per_zone };
            first_sector += cylinders * p.heads * track_sectors;
        }
        Self {
            revolution_ns: p.revolution_ns,
            turns_per_ns: 1.0 / p.revolution_ns,
            heads: p.heads,
            head_skew_ns: p.head_skew_ns,
            cylinder_skew_ns: (p.heads - 1) as f64 * p.head_skew_ns + p.cylinder_skew_ns,
            zones,
            sectors: first_sector,
        }
    }

    pub(super) fn place(&self, address: u64) -> Place {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first_sector <= address) - 1];
        let track_sectors = zone.track_sectors;
        let rest = address - zone.first_sector;
        let (track, sector) = (rest / track_sectors, rest % track_sectors);
        let cylinder = zone.first_cylinder + track / self.heads;
        let skew = cylinder as f64 * self.cylinder_skew_ns + (track % self.heads) as f64 * self.head_skew_ns;
        let turn_ns = skew + sector as f64 / track_sectors as f64 * self.revolution_ns;
        Place { address, cylinder, sector, track_sectors, turn_ns: self.turn(turn_ns) }
    }

    /// A time modulo one revolution. The division is ten times as fast as the remainder of such
    /// unlike numbers; its error is below the rounding of the time itself.
    fn turn(&self, time: f64) -> f64 {
        time - (time * self.turns_per_ns).floor() * self.revolution_ns
    }

    /// Time until a place is under the head, in nanoseconds.
    pub(super) fn wait_ns(&self, now: f64, place: &Place) -> f64 {
        let wait = self.turn(place.turn_ns - now);
        // Just before the sector is rounding, not a missed revolution.
        if wait > self.revolution_ns - ROUNDING_NS { 0.0 } else { wait.max(0.0) }
    }

    /// When the head, over `from` at `time`, has passed everything below `to`, track by track with
    /// skews.
    pub(super) fn pass(&self, time: f64, from: u64, to: u64) -> f64 {
        if from >= to {
            return time;
        }
        let place = self.place(from);
        let waited = if place.sector == 0 { time + self.wait_ns(time, &place) } else { time };
        self.pass_on(waited, place, to - from).0
    }

    /// When the head, starting at `place` at `time`, has passed `count` sectors; and the cylinder
    /// it is then on.
    pub(super) fn pass_on(&self, time: f64, place: Place, count: u64) -> (f64, u64) {
        let (mut time, mut place, mut left) = (time, place, count);
        loop {
            let count = (place.track_sectors - place.sector).min(left);
            time += count as f64 / place.track_sectors as f64 * self.revolution_ns;
            left -= count;
            if left == 0 {
                return (time, place.cylinder);
            }
            place = self.place(place.address + count);
            time += self.wait_ns(time, &place);
        }
    }

    /// The first sector that the head, over `from` at `time`, has not passed by `now`; at most
    /// `to`.
    pub(super) fn reached(&self, time: f64, from: u64, to: u64, now: f64) -> u64 {
        let (mut time, mut from) = (time, from);
        while from < to {
            let place = self.place(from);
            if place.sector == 0 {
                time += self.wait_ns(time, &place);
            }
            let count = (place.track_sectors - place.sector).min(to - from);
            let whole = count as f64 / place.track_sectors as f64 * self.revolution_ns;
            if time + whole > now {
                let passed = ((now - time) / self.revolution_ns * place.track_sectors as f64).max(0.0);
                return from + (passed as u64).min(count);
            }
            time += whole;
            from += count;
        }
        to
    }

    /// Sectors of the same track that passed under the head within `wait` nanoseconds before it
    /// reached `place`.
    pub(super) fn passed_before(&self, place: &Place, wait: f64) -> u64 {
        ((wait / self.revolution_ns * place.track_sectors as f64) as u64).min(place.sector)
    }
}

/// Rounding error of a time up to 10^15 ns within its revolution, with a margin.
const ROUNDING_NS: f64 = 8.0;
