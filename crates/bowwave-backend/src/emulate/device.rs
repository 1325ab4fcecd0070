//! Profiles of emulated devices and their parameters.

use std::time::Duration;

use bowwave_core::schedule::Algorithm;
use bowwave_device::DeviceSpec;

use crate::{Error, ErrorKind, Result, parse_duration, parse_rate, parse_size};

/// An emulated device: a model of `bowwave-device`, and what an emulation adds to it.
///
/// | profile | model | first byte | a write | a request | slots | flush | metadata |
/// |---|---|---|---|---|---|---|---|
/// | `s3` | `s3-steady` | 30 ms | 60 ms | 90 MB/s | 64 | – | 30 ms |
/// | `lustre` | `lustre` | 450 µs | 450 µs | 8 to 35 µs a page | 8 | 450 µs | 450 µs |
/// | `nvme` | `nvme` | 84 µs | 12 to 20 µs | 2.7 GB/s in total | 256 | 16 µs | – |
/// | `ssd` | `ssd` | 105 µs | 30 to 50 µs | 540 MB/s in total | 31 | 1 ms | – |
/// | `hdd` | `hdd` | seek, rotation | the same | 76 to 37 MB/s by zone | 32 | – | – |
///
/// `s3` reads and writes at most 1.25 GB/s each (10 Gbit/s).
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Name of the profile.
    pub name: String,
    /// Requests served at once. The model orders them; more wait.
    pub slots: u32,
    /// Objects are written whole, in parts of this size, a power of two, and are visible when
    /// finished. `None`: any bytes can be written. Over a store of whole objects, that store's part
    /// size applies.
    pub part: Option<u64>,
    /// Time of `stat`, `list`, `open` and of name changes.
    pub metadata: Duration,
    /// Seed of the model's random numbers.
    pub seed: u64,
    spec: DeviceSpec,
}

impl Device {
    /// The device of a profile.
    ///
    /// # Errors
    /// `InvalidUrl` if there is no such profile.
    pub fn named(profile: &str) -> Result<Self> {
        let (spec, slots, metadata) = match profile {
            "s3" => (S3, 64, Duration::from_millis(30)),
            "lustre" => ("lustre", 8, Duration::from_micros(450)),
            "nvme" => ("nvme", 256, Duration::ZERO),
            "ssd" => ("ssd", 31, Duration::ZERO),
            "hdd" => ("hdd", 32, Duration::ZERO),
            _ => {
                let message =
                    format!("unknown device profile `{profile}`; known: hdd, lustre, nvme, s3, ssd");
                return Err(invalid(message));
            }
        };
        let part = (profile == "s3").then_some(8 << 20);
        let spec = DeviceSpec::open(spec, &Algorithm::ALL).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { name: profile.to_owned(), slots, part, metadata, seed: 1, spec })
    }

    /// A link without costs or limits, as a start for others.
    ///
    /// # Errors
    /// None.
    pub(crate) fn free(name: &str) -> Result<Self> {
        let device =
            Self { name: name.to_owned(), part: None, metadata: Duration::ZERO, ..Self::named("s3")? };
        device.with(&[("first_byte_ms", 0.0), ("put_first_byte_ms", 0.0)])?.with_rate(None)
    }

    /// The same link with a limit in bytes per second for reads, and one for writes.
    pub(crate) fn with_rate(self, rate: Option<u64>) -> Result<Self> {
        let total = rate.map_or(0.0, mb_s);
        let changes = [
            ("bandwidth_mb_s", MB_S_MAX),
            ("bandwidth_mb_s_max", MB_S_MAX),
            ("total_mb_s", total),
            ("put_total_mb_s", total),
        ];
        self.with(&changes)
    }

    /// The same link with this latency.
    pub(crate) fn with_latency(self, latency: Duration) -> Result<Self> {
        let ms = milliseconds(latency);
        self.with(&[("first_byte_ms", ms), ("put_first_byte_ms", ms)])
    }

    fn with(self, changes: &[(&str, f64)]) -> Result<Self> {
        let spec = self.spec.with(changes).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { spec, ..self })
    }

    /// Sets a parameter by its name in a URL.
    ///
    /// # Errors
    /// `InvalidUrl` if the parameter is unknown, not of this device, or its value out of bounds.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let name = self.name.clone();
        let given = Given { device: &name, key, value };
        match key {
            "slots" => {
                let slots = value.parse().ok().filter(|slots| (1..=SLOTS_MAX).contains(slots));
                self.slots = slots.ok_or_else(|| given.bad("a number from 1 to 65536"))?;
            }
            "metadata" => self.metadata = given.time()?,
            "seed" => self.seed = value.parse().map_err(|_| given.bad("a number"))?,
            "part" if !self.seeks() => {
                let part = || parse_size(value).filter(|size| PARTS.contains(size) && size.is_power_of_two());
                self.part = match value {
                    "none" => None,
                    _ => {
                        Some(part().ok_or_else(|| given.bad("a power of two from 4KiB to 1GiB, or `none`"))?)
                    }
                };
            }
            _ => {
                let changes = match self.spec.model() {
                    "s3" => given.of_s3(),
                    "lustre" => given.of_lustre(),
                    "flash" => given.of_flash(),
                    _ => given.of_hdd(),
                };
                *self = self.clone().with(&changes?)?;
            }
        }
        Ok(())
    }

    /// A fresh model of the device.
    pub(super) fn model(&self) -> Result<Box<dyn bowwave_device::Device>> {
        let depth_max = if self.seeks() { DISK_SLOTS_MAX } else { SLOTS_MAX };
        let spec = self.spec.with_depth(self.slots.min(depth_max));
        Ok(spec.map_err(|error| invalid(error.to_string()))?.build(self.seed))
    }

    /// Whether it has a head.
    pub(super) fn seeks(&self) -> bool {
        self.spec.model() == "hdd"
    }

    /// Bytes per second of a typical request.
    pub(super) fn rate_of_one(&self) -> u64 {
        (self.spec.typical_read().1 * 1e9) as u64
    }

    /// Typical time to first byte.
    pub(super) fn first_byte(&self) -> Duration {
        Duration::from_nanos(self.spec.typical_read().0 as u64)
    }
}

/// A parameter in a URL.
struct Given<'a> {
    device: &'a str,
    key: &'a str,
    value: &'a str,
}

/// Parameters of a model and their values.
type Changes = Vec<(&'static str, f64)>;

impl Given<'_> {
    fn of_s3(&self) -> Result<Changes> {
        Ok(match self.key {
            "latency" => vec![("first_byte_ms", self.ms()?)],
            "jitter" => vec![("first_byte_sigma", self.number(0.0, 5.0)?)],
            "tail" => vec![("tail_share", self.number(0.0, 1.0)?)],
            "tail_latency" => vec![("tail_ms_min", self.ms()?), ("tail_ms_max", self.ms()?)],
            "bandwidth" | "page" => {
                let rate = match self.key {
                    "page" => (PAGE_BYTES / self.us()?.max(1e-3)).min(MB_S_MAX),
                    _ => self.rate(MB_S_MAX)?,
                };
                vec![("bandwidth_mb_s", rate), ("bandwidth_mb_s_max", rate)]
            }
            "total" => vec![("total_mb_s", self.rate(0.0)?)],
            "write_latency" => vec![("put_first_byte_ms", self.ms()?)],
            "write_total" => vec![("put_total_mb_s", self.rate(0.0)?)],
            "flush" => vec![("flush_ms", self.ms()?)],
            _ => {
                return Err(self.unknown(
                    "bandwidth, flush, jitter, latency, metadata, page, part, seed, slots, tail, \
                     tail_latency, total, write_latency, write_total",
                ));
            }
        })
    }

    fn of_lustre(&self) -> Result<Changes> {
        Ok(match self.key {
            "latency" => vec![("rpc_us", self.us()?)],
            "tail" => vec![("slow_share", self.number(0.0, 1.0)?)],
            "bandwidth" | "page" => {
                let page = match self.key {
                    "page" => self.us()?,
                    _ => PAGE_BYTES / self.rate(f64::INFINITY)?,
                };
                vec![("page_us_min", page), ("page_us_max", page)]
            }
            "write_latency" => vec![("write_rpc_us", self.us()?)],
            "flush" => vec![("flush_us", self.us()?)],
            _ => {
                let known =
                    "bandwidth, flush, latency, metadata, page, part, seed, slots, tail, write_latency";
                return Err(self.unknown(known));
            }
        })
    }

    fn of_flash(&self) -> Result<Changes> {
        Ok(match self.key {
            "latency" => vec![("read_us", self.us()?), ("command_us_min", 0.0), ("command_us_max", 0.0)],
            // The channels must not be slower than the link.
            "total" => {
                let rate = self.rate(MB_S_MAX)?;
                vec![("link_mb_s", rate), ("channel_mb_s", rate.max(CHANNEL_MB_S))]
            }
            "write_latency" => vec![("write_us_min", self.us()?), ("write_us_max", self.us()?)],
            "write_total" => vec![("write_link_mb_s", self.rate(MB_S_MAX)?)],
            "flush" => vec![("flush_us", self.us()?)],
            _ => {
                let known = "flush, latency, metadata, part, seed, slots, total, write_latency, write_total";
                return Err(self.unknown(known));
            }
        })
    }

    fn of_hdd(&self) -> Result<Changes> {
        Ok(match self.key {
            "rpm" => {
                let rpm = self.number(60.0, 1e5)?;
                let mut changes = vec![("rpm", rpm)];
                // A skew must be shorter than a turn.
                if rpm > 30_000.0 {
                    let skew = 30_000.0 / rpm;
                    changes.extend([("head_skew_ms", skew), ("cylinder_skew_ms", skew)]);
                }
                changes
            }
            "seek" => vec![("seek_base_ms", self.ms()?)],
            "seek_full" => vec![("seek_full_ms", self.ms()?)],
            "overhead" => vec![("command_media_ms", self.ms()?)],
            "deadline" => {
                let age = Some(self.ms()?).filter(|age| *age > 0.0);
                vec![("command_age_ms", age.map_or(AGE_MS_MAX, |age| age.min(AGE_MS_MAX)))]
            }
            "look_ahead" => vec![("look_ahead_kb", self.kib()?)],
            "write_cache" => vec![("write_cache_kb", self.kib()?)],
            _ => {
                let known = "deadline, look_ahead, metadata, overhead, rpm, seed, seek, seek_full, slots, write_cache";
                return Err(self.unknown(known));
            }
        })
    }

    fn time(&self) -> Result<Duration> {
        parse_duration(self.value).ok_or_else(|| self.bad("a time of at most a day, such as 10ms"))
    }

    fn ms(&self) -> Result<f64> {
        self.time().map(milliseconds)
    }

    fn us(&self) -> Result<f64> {
        self.ms().map(|ms| ms * 1e3)
    }

    /// In MB/s; `none` for no limit.
    fn rate(&self, none: f64) -> Result<f64> {
        match self.value {
            "none" => Ok(none),
            value => parse_rate(value).map(mb_s).ok_or_else(|| self.bad("a rate such as 90MB/s, or `none`")),
        }
    }

    fn kib(&self) -> Result<f64> {
        let size = parse_size(self.value).ok_or_else(|| self.bad("a size such as 128KiB"));
        size.map(|size| size.div_ceil(1024) as f64)
    }

    fn number(&self, low: f64, high: f64) -> Result<f64> {
        let parsed = self.value.parse().ok().filter(|number| (low..=high).contains(number));
        parsed.ok_or_else(|| self.bad(&format!("a number from {low} to {high}")))
    }

    fn bad(&self, want: &str) -> Error {
        let Self { device, key, value } = self;
        invalid(format!("`{key}={value}` of device `{device}`: wants {want}"))
    }

    fn unknown(&self, known: &str) -> Error {
        let Self { device, key, .. } = self;
        invalid(format!("device `{device}` has no parameter `{key}`; known: {known}"))
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidUrl, message)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn mb_s(rate: u64) -> f64 {
    (rate as f64 / 1e6).min(MB_S_MAX)
}

/// An object store without noise. A read is one GET however long, and writes do not slow reads
/// down.
const S3: &str = "s3-steady:put_first_byte_ms=60,total_mb_s=1250,put_total_mb_s=1250,tail_ms_min=1000,\
                  tail_ms_max=1000,request_kb_max=1048576";
const PAGE_BYTES: f64 = 4096.0;
/// Most requests of a model.
const SLOTS_MAX: u32 = 65_536;
/// Most commands of the disk's queue.
const DISK_SLOTS_MAX: u32 = 1024;
/// The largest rate of a model: no limit.
const MB_S_MAX: f64 = 1e6;
/// Rate of a channel of `nvme` and `ssd`.
const CHANNEL_MB_S: f64 = 333.0;
/// The largest age of the disk's model: never.
const AGE_MS_MAX: f64 = 1e6;
/// Possible sizes of a part.
const PARTS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
