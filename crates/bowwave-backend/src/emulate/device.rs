//! What an emulated device is made of: profiles and their parameters.

use std::time::Duration;

use bowwave_core::schedule::Algorithm;
use bowwave_device::DeviceSpec;

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
/// `hdd` is the device `hdd` of `bowwave-device`, with a queue of `slots` commands.
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
    /// The model of a disk. It then rules instead of latency and bandwidth.
    pub disk: Option<DeviceSpec>,
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
            "hdd" => {
                let disk =
                    DeviceSpec::open("hdd", &Algorithm::ALL).map_err(|error| invalid(error.to_string()))?;
                Ok(Self { slots: 32, disk: Some(disk), ..base })
            }
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
            ("rpm", Some(disk)) => {
                let rpm = number(60.0, 1e5)?;
                // A skew must be shorter than a turn.
                if rpm > 30_000.0 {
                    replace(disk, "head_skew_ms", 30_000.0 / rpm)?;
                    replace(disk, "cylinder_skew_ms", 30_000.0 / rpm)?;
                }
                replace(disk, "rpm", rpm)?;
            }
            ("seek", Some(disk)) => replace(disk, "seek_base_ms", milliseconds(time()?))?,
            ("seek_full", Some(disk)) => replace(disk, "seek_full_ms", milliseconds(time()?))?,
            ("overhead", Some(disk)) => replace(disk, "command_media_ms", milliseconds(time()?))?,
            ("deadline", Some(disk)) => {
                let age = Some(milliseconds(time()?)).filter(|age| *age > 0.0);
                replace(disk, "command_age_ms", age.map_or(AGE_MS_MAX, |age| age.min(AGE_MS_MAX)))?;
            }
            ("look_ahead", Some(disk)) => replace(disk, "look_ahead_kb", kib(size()?))?,
            ("write_cache", Some(disk)) => replace(disk, "write_cache_kb", kib(size()?))?,
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

    /// A fresh model of the device, if `bowwave-device` has one.
    pub(super) fn model(&self) -> Result<Option<Box<dyn bowwave_device::Device>>> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let disk = disk.with_depth(self.slots.min(DISK_SLOTS_MAX));
        Ok(Some(disk.map_err(|error| invalid(error.to_string()))?.build(self.seed)))
    }

    /// Bytes a second that one request can reach; an average for a disk.
    pub(super) fn rate_of_one(&self) -> u64 {
        match self.typical_read() {
            Some((_, rate)) => (rate * 1e9) as u64,
            None => self.bandwidth.unwrap_or(u64::MAX).min(self.total.unwrap_or(u64::MAX)),
        }
    }

    /// Typical time to the first byte.
    pub(super) fn first_byte(&self) -> Duration {
        self.typical_read().map_or(self.latency, |(first_byte, _)| Duration::from_nanos(first_byte as u64))
    }

    fn typical_read(&self) -> Option<(f64, f64)> {
        self.disk.as_ref()?.typical_read()
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidUrl, message)
}

fn replace(disk: &mut DeviceSpec, key: &str, value: f64) -> Result<()> {
    *disk = disk.with(key, value).map_err(|error| invalid(error.to_string()))?;
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn kib(bytes: u64) -> f64 {
    bytes.div_ceil(1024) as f64
}

fn optional(value: &str, rate: impl Fn() -> Result<u64>) -> Result<Option<u64>> {
    if value == "none" { Ok(None) } else { rate().map(Some) }
}

const PAGE_BYTES: u128 = 4096;
/// Most commands that the model of a disk holds.
const DISK_SLOTS_MAX: u32 = 1024;
/// The largest age that the model of a disk knows, in milliseconds: as good as never.
const AGE_MS_MAX: f64 = 1e6;
/// What the size of a part may be.
const PARTS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
const KEYS: &str = "bandwidth, flush, jitter, latency, metadata, page, part, seed, slots, tail, tail_latency, total, \
                    write_latency, write_total";
const KEYS_DISK: &str =
    "deadline, look_ahead, metadata, overhead, rpm, seed, seek, seek_full, slots, write_cache";
