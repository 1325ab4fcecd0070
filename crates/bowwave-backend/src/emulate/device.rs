//! What an emulated device is made of: profiles and their parameters.

use std::time::Duration;

use crate::{Error, ErrorKind, Result, parse_duration, parse_rate, parse_size};

/// Parameters of an emulated device.
///
/// | profile | first byte | a write | a request | reads, writes in total | flush | slots | metadata |
/// |---|---|---|---|---|---|---|---|
/// | `s3` | 30 ms | 60 ms | 90 MB/s | 1.25 GB/s each (10 Gbit/s) | – | 64 | 30 ms |
/// | `lustre` | 450 µs | 450 µs | 256 MB/s (16 µs a page) | – | 450 µs | 8 | 450 µs |
/// | `nvme` | 80 µs | 16 µs | – | 3.2 GB/s, 2 GB/s | 16 µs | 256 | – |
/// | `ssd` | 110 µs | 40 µs | – | 540 MB/s, 500 MB/s | 1 ms | 31 | – |
/// | `hdd` | seek, rotation | the same | 76 to 37 MB/s by zone | one head | one head | 32 | – |
///
/// What writes of `nvme` and `ssd` reach is assumed: drives differ in it more than in anything else.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Name of the profile.
    pub name: String,
    /// Median time to the first byte of a request.
    pub latency: Duration,
    /// Spread of that time: the deviation of its logarithm (0: always the median).
    pub jitter: f64,
    /// Share of requests whose first byte comes later by `tail_latency`.
    pub tail: f64,
    /// How much later those come.
    pub tail_latency: Duration,
    /// Bytes a second of one request, read or write; `None` for no bound.
    pub bandwidth: Option<u64>,
    /// Bytes a second of all reads together; `None` for no bound.
    pub total: Option<u64>,
    /// Requests served at once; more wait in order of arrival.
    pub slots: u32,
    /// Median time of a write besides that of its bytes.
    pub write_latency: Duration,
    /// Bytes a second of all writes together; `None` for no bound. Reads and writes do not slow each other down.
    pub write_total: Option<u64>,
    /// Time that a flush takes.
    pub flush: Duration,
    /// Objects are written as a whole, in parts of this size, a power of two, and are seen when finished; `None` for a
    /// device that is written anywhere. Over a store that is written as a whole itself, that store's parts rule.
    pub part: Option<u64>,
    /// Time that `stat`, `list`, `open` and what changes names take.
    pub metadata: Duration,
    /// Seed of jitter and tail.
    pub seed: u64,
    /// The mechanics of a disk, which then rule instead of latency and bandwidth.
    pub disk: Option<Disk>,
}

/// Mechanics of a disk: one head, requests one at a time in C-LOOK order, late ones before.
#[derive(Debug, Clone, PartialEq)]
pub struct Disk {
    /// Revolutions a minute.
    pub rpm: f64,
    /// Surfaces.
    pub heads: u64,
    /// Cylinders.
    pub cylinders: u64,
    /// Zones of equal cylinder counts.
    pub zones: u64,
    /// Sectors of 512 bytes on an outermost and an innermost track; linear between.
    pub track_sectors: (u64, u64),
    /// Seek over `d` cylinders in ms: `base + root * sqrt(d)` …
    pub seek_base_ms: f64,
    /// … the root's factor …
    pub seek_root_ms: f64,
    /// … and from a third of the disk on, linear to this at full stroke.
    pub seek_full_ms: f64,
    /// Switch to the next surface, in ms.
    pub head_skew_ms: f64,
    /// Switch to the next cylinder, in ms.
    pub cylinder_skew_ms: f64,
    /// Command overhead of an access to the media, in ms.
    pub overhead_ms: f64,
    /// Command overhead of an access that the buffer answers, in ms.
    pub buffer_ms: f64,
    /// Bytes a second between buffer and host.
    pub bus: u64,
    /// Buffer segments.
    pub segments: usize,
    /// Bytes read ahead into the buffer behind a request.
    pub look_ahead: u64,
    /// A request that has waited this many ms goes before those nearer to the head; 0: never.
    pub deadline_ms: f64,
    /// Most bytes kept that passed under the head before a request's first.
    pub on_arrival: u64,
    /// Bytes of writes that are taken before they are on the medium; 0 as with `hdparm -W0`.
    pub write_cache: u64,
}

impl Device {
    /// The device of a profile.
    ///
    /// # Errors
    /// `InvalidUrl` if there is no such profile.
    pub fn named(profile: &str) -> Result<Self> {
        let base = Self::free(profile);
        let ms = Duration::from_millis;
        let us = Duration::from_micros;
        match profile {
            "s3" => Ok(Self {
                latency: ms(30),
                bandwidth: Some(90_000_000),
                total: Some(1_250_000_000),
                write_latency: ms(60),
                write_total: Some(1_250_000_000),
                part: Some(8 << 20),
                metadata: ms(30),
                ..base
            }),
            "lustre" => Ok(Self {
                latency: us(450),
                bandwidth: Some(256_000_000),
                slots: 8,
                write_latency: us(450),
                flush: us(450),
                metadata: us(450),
                ..base
            }),
            "nvme" => Ok(Self {
                latency: us(80),
                total: Some(3_200_000_000),
                slots: 256,
                write_latency: us(16),
                write_total: Some(2_000_000_000),
                flush: us(16),
                ..base
            }),
            "ssd" => Ok(Self {
                latency: us(110),
                total: Some(540_000_000),
                slots: 31,
                write_latency: us(40),
                write_total: Some(500_000_000),
                flush: ms(1),
                ..base
            }),
            "hdd" => Ok(Self { slots: 32, disk: Some(Disk::default()), ..base }),
            _ => {
                Err(invalid(format!("unknown device profile `{profile}`; known: hdd, lustre, nvme, s3, ssd")))
            }
        }
    }

    /// A device that costs nothing, to build others on.
    #[must_use]
    pub fn free(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            latency: Duration::ZERO,
            jitter: 0.0,
            tail: 0.0,
            tail_latency: Duration::from_secs(1),
            bandwidth: None,
            total: None,
            slots: 64,
            write_latency: Duration::ZERO,
            write_total: None,
            flush: Duration::ZERO,
            part: None,
            metadata: Duration::ZERO,
            seed: 1,
            disk: None,
        }
    }

    /// Sets a parameter by its name in a URL.
    ///
    /// # Errors
    /// `InvalidUrl` if the parameter is unknown, not of this device, or its value out of bounds.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let bad = |want: &str| invalid(format!("`{key}={value}` of device `{}`: wants {want}", self.name));
        let time = || parse_duration(value).ok_or_else(|| bad("a time of at most a day, such as 10ms"));
        let rate = || parse_rate(value).ok_or_else(|| bad("a rate such as 90MB/s"));
        let size = || parse_size(value).ok_or_else(|| bad("a size such as 128KiB"));
        let number = |low: f64, high: f64| {
            let parsed = value.parse::<f64>().ok().filter(|number| (low..=high).contains(number));
            parsed.ok_or_else(|| bad(&format!("a number from {low} to {high}")))
        };
        match (key, &mut self.disk) {
            ("slots", _) => {
                let slots = value.parse().ok().filter(|slots| (1..=65_536).contains(slots));
                self.slots = slots.ok_or_else(|| bad("a number from 1 to 65536"))?;
            }
            ("metadata", _) => self.metadata = time()?,
            ("seed", _) => self.seed = value.parse().map_err(|_| bad("a number"))?,
            ("latency", None) => self.latency = time()?,
            ("jitter", None) => self.jitter = number(0.0, 5.0)?,
            ("tail", None) => self.tail = number(0.0, 1.0)?,
            ("tail_latency", None) => self.tail_latency = time()?,
            ("bandwidth", None) => self.bandwidth = optional(value, rate)?,
            ("total", None) => self.total = optional(value, rate)?,
            ("write_latency", None) => self.write_latency = time()?,
            ("write_total", None) => self.write_total = optional(value, rate)?,
            ("flush", None) => self.flush = time()?,
            ("part", None) => {
                let part = || parse_size(value).filter(|size| PARTS.contains(size) && size.is_power_of_two());
                self.part = match value {
                    "none" => None,
                    _ => Some(part().ok_or_else(|| bad("a power of two from 4KiB to 1GiB, or `none`"))?),
                };
            }
            ("page", None) => {
                let time = time()?.as_nanos().max(1);
                self.bandwidth =
                    Some(u64::try_from(PAGE_BYTES * 1_000_000_000 / time).unwrap_or(u64::MAX).max(1));
            }
            ("rpm", Some(disk)) => disk.rpm = number(1.0, 1e6)?,
            ("seek", Some(disk)) => disk.seek_base_ms = time()?.as_secs_f64() * 1e3,
            ("seek_full", Some(disk)) => disk.seek_full_ms = time()?.as_secs_f64() * 1e3,
            ("overhead", Some(disk)) => disk.overhead_ms = time()?.as_secs_f64() * 1e3,
            ("deadline", Some(disk)) => disk.deadline_ms = time()?.as_secs_f64() * 1e3,
            ("look_ahead", Some(disk)) => disk.look_ahead = size()?,
            ("write_cache", Some(disk)) => disk.write_cache = size()?,
            (_, disk) => {
                let known = if disk.is_some() { KEYS_DISK } else { KEYS };
                return Err(invalid(format!(
                    "device `{}` has no parameter `{key}`; known: {known}",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// Bytes a second that one request can reach; an average for a disk.
    pub(super) fn rate_of_one(&self) -> u64 {
        match &self.disk {
            Some(disk) => {
                let sectors = (disk.track_sectors.0 + disk.track_sectors.1) / 2;
                (sectors as f64 * 512.0 * disk.rpm / 60.0) as u64
            }
            None => self.bandwidth.unwrap_or(u64::MAX).min(self.total.unwrap_or(u64::MAX)),
        }
    }

    /// Typical time to the first byte.
    pub(super) fn first_byte(&self) -> Duration {
        self.disk.as_ref().map_or(self.latency, |disk| {
            let third = disk.seek_base_ms + disk.seek_root_ms * (disk.cylinders as f64 / 3.0).sqrt();
            Duration::from_secs_f64((disk.overhead_ms + third.min(8.5) + 30_000.0 / disk.rpm) / 1e3)
        })
    }
}

impl Default for Disk {
    /// A 160 GB desktop disk of 2007, whose measured throughput the source documents report.
    fn default() -> Self {
        Self {
            rpm: 7200.0,
            heads: 3,
            cylinders: 112_968,
            zones: 24,
            track_sectors: (1240, 604),
            seek_base_ms: 1.55,
            seek_root_ms: 0.0358,
            seek_full_ms: 16.0,
            head_skew_ms: 0.95,
            cylinder_skew_ms: 1.30,
            overhead_ms: 0.665,
            buffer_ms: 0.097,
            bus: 250_000_000,
            segments: 14,
            look_ahead: 128 << 10,
            // Of eight readers in order each waits half as long as without, for 2 % of what they get together.
            deadline_ms: 800.0,
            on_arrival: 448 << 10,
            write_cache: 0,
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidUrl, message)
}

fn optional(value: &str, rate: impl Fn() -> Result<u64>) -> Result<Option<u64>> {
    if value == "none" { Ok(None) } else { rate().map(Some) }
}

const PAGE_BYTES: u128 = 4096;
/// What the size of a part may be.
const PARTS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
const KEYS: &str = "bandwidth, flush, jitter, latency, metadata, page, part, seed, slots, tail, tail_latency, total, \
                    write_latency, write_total";
const KEYS_DISK: &str =
    "deadline, look_ahead, metadata, overhead, rpm, seed, seek, seek_full, slots, write_cache";
