//! Parameters of a disk.

use crate::DeviceLimits;
use crate::parameters::{DeviceError, Parameters};

/// Parameters of a disk; times in nanoseconds, sizes in sectors unless noted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HddParameters {
    pub(super) revolution_ns: f64,
    pub(super) heads: u64,
    pub(super) cylinders: u64,
    pub(super) zones: u64,
    pub(super) sector_bytes: u64,
    pub(super) track_sectors_outer: u64,
    pub(super) track_sectors_inner: u64,
    pub(super) head_skew_ns: f64,
    pub(super) cylinder_skew_ns: f64,
    pub(super) seek_base_ns: f64,
    pub(super) seek_root_ns: f64,
    pub(super) seek_root_share: f64,
    pub(super) seek_full_ns: f64,
    pub(super) command_media_ns: f64,
    pub(super) command_buffer_ns: f64,
    pub(super) bus_ns_per_byte: f64,
    pub(super) buffer_segments: usize,
    pub(super) buffer_segment: u64,
    pub(super) look_ahead: u64,
    pub(super) on_arrival: u64,
    pub(super) write_cache: u64,
    pub(super) request_bytes_max: u64,
    pub(super) depth: usize,
    pub(super) command_age_ns: u64,
}

impl HddParameters {
    pub(crate) fn read(p: &mut Parameters) -> Result<Self, DeviceError> {
        let sector_bytes = p.count("sector_bytes", 512, 4096)?;
        let kb = |p: &mut Parameters, key, low, high| Ok(p.count(key, low, high)? * KB / sector_bytes);
        let parameters = Self {
            revolution_ns: 60e9 / p.number("rpm", 60.0, 100_000.0)?,
            heads: p.count("heads", 1, 64)?,
            cylinders: p.count("cylinders", 1, 10_000_000)?,
            zones: p.count("zones", 1, 1000)?,
            sector_bytes,
            track_sectors_outer: p.count("track_sectors_outer", 1, 1_000_000)?,
            track_sectors_inner: p.count("track_sectors_inner", 1, 1_000_000)?,
            head_skew_ns: p.number("head_skew_ms", 0.0, 100.0)? * MS,
            cylinder_skew_ns: p.number("cylinder_skew_ms", 0.0, 100.0)? * MS,
            seek_base_ns: p.number("seek_base_ms", 0.0, 1000.0)? * MS,
            seek_root_ns: p.number("seek_root_ms", 0.0, 100.0)? * MS,
            seek_root_share: p.number("seek_root_share", 0.0, 1.0)?,
            seek_full_ns: p.number("seek_full_ms", 0.0, 1000.0)? * MS,
            command_media_ns: p.number("command_media_ms", 0.0, 1000.0)? * MS,
            command_buffer_ns: p.number("command_buffer_ms", 0.0, 1000.0)? * MS,
            bus_ns_per_byte: 1e3 / p.number("bus_mb_s", 0.001, 1e6)?,
            buffer_segments: p.count("buffer_segments", 1, 4096)? as usize,
            buffer_segment: kb(p, "buffer_segment_kb", 4, 1 << 20)?,
            look_ahead: kb(p, "look_ahead_kb", 0, 1 << 20)?,
            on_arrival: kb(p, "read_on_arrival_kb", 0, 1 << 20)?,
            write_cache: kb(p, "write_cache_kb", 0, 1 << 20)?,
            request_bytes_max: p.count("request_kb_max", 4, 1 << 20)? * KB,
            depth: p.count("depth", 1, 1024)? as usize,
            command_age_ns: (p.number("command_age_ms", 0.0, 1e6)? * MS) as u64,
        };
        parameters.check(p)?;
        Ok(parameters)
    }

    /// Upper bounds for every read pattern.
    pub(crate) fn limits(&self) -> DeviceLimits {
        let outer = (self.track_sectors_outer * self.sector_bytes) as f64;
        DeviceLimits {
            bytes_per_ns: 1.0 / self.bus_ns_per_byte,
            medium_bytes_per_ns: outer / self.revolution_ns,
            request_bytes_max: self.request_bytes_max,
            // A disk works on one command at a time, at any queue depth.
            depth: 1,
            request_ns_min: self.command_media_ns.min(self.command_buffer_ns) as u64,
        }
    }

    /// Rules between parameters.
    fn check(&self, p: &Parameters) -> Result<(), DeviceError> {
        if !self.sector_bytes.is_power_of_two() {
            return Err(p.wrong("sector_bytes", "must be a power of two"));
        }
        if self.zones > self.cylinders {
            return Err(p.wrong("zones", &format!("must be at most the cylinders, {}", self.cylinders)));
        }
        if self.track_sectors_inner > self.track_sectors_outer {
            let outer = self.track_sectors_outer;
            return Err(
                p.wrong("track_sectors_inner", &format!("must be at most track_sectors_outer, {outer}"))
            );
        }
        let knee =
            self.seek_base_ns + self.seek_root_ns * (self.cylinders as f64 * self.seek_root_share).sqrt();
        if self.seek_full_ns < knee {
            let knee = knee / MS;
            let rule = format!("must be at least {knee:.3}, where the root ends: a longer seek is no faster");
            return Err(p.wrong("seek_full_ms", &rule));
        }
        for (key, skew) in [("head_skew_ms", self.head_skew_ns), ("cylinder_skew_ms", self.cylinder_skew_ns)]
        {
            if skew >= self.revolution_ns {
                let turn = self.revolution_ns / MS;
                return Err(p.wrong(key, &format!("must be below a revolution, {turn:.3}")));
            }
        }
        Ok(())
    }

    /// Seek time over `distance` cylinders, in nanoseconds.
    pub(super) fn seek_ns(&self, distance: u64) -> f64 {
        let root = |d: f64| self.seek_base_ns + self.seek_root_ns * d.sqrt();
        let (d, knee) = (distance as f64, self.cylinders as f64 * self.seek_root_share);
        if distance == 0 {
            0.0
        } else if d <= knee {
            root(d)
        } else {
            let start = root(knee);
            start + (self.seek_full_ns - start) * (d - knee) / (self.cylinders as f64 - knee)
        }
    }

    /// Time to the first byte of a read after a seek over a third of the disk, in nanoseconds, and
    /// bytes per nanosecond of an average track.
    pub(crate) fn typical_read(&self) -> (f64, f64) {
        let first_byte = self.command_media_ns + self.seek_ns(self.cylinders / 3) + self.revolution_ns / 2.0;
        let track = (self.track_sectors_outer + self.track_sectors_inner) / 2 * self.sector_bytes;
        (first_byte, track as f64 / self.revolution_ns)
    }
}

const KB: u64 = 1024;
/// Nanoseconds per millisecond.
const MS: f64 = 1e6;
