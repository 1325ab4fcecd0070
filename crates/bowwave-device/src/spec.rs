//! Devices by name, file and override: `hdd`, `hdd:rpm=5400,depth=4`, `my.toml`, `my.toml:depth=4`.

use bowwave_core::StreamConfig;
use bowwave_core::schedule::{Algorithm, KNOBS, SchedulerConfig};

use super::flash::{Flash, FlashParameters};
use super::hdd::{Hdd, HddParameters};
use super::lustre::{Lustre, LustreParameters};
use super::parameters::{DeviceError, Parameters};
use super::s3::{S3, S3Parameters};
use super::{Device, InstantDevice};
use crate::DeviceLimits;
use crate::queue::{Elevator, QueueConfig};

/// A device with validated parameters, and its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    name: String,
    model: Model,
    queue: QueueConfig,
    schedulers: &'static [Algorithm],
}

/// Parameters by model.
#[derive(Clone, Debug, PartialEq)]
enum Model {
    Instant,
    Hdd(Box<HddParameters>),
    Flash(FlashParameters),
    S3(S3Parameters),
    Lustre(LustreParameters),
}

impl DeviceSpec {
    /// Names of the built-in devices.
    pub fn names() -> Vec<&'static str> {
        EMBEDDED.iter().map(|&(name, _)| name).collect()
    }

    /// The text of a built-in device file, as documentation or as a start for your own.
    pub fn file(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|&&(known, _)| known == name).map(|&(_, text)| text)
    }

    /// Opens one of [`names`](Self::names) or a TOML file, optionally followed by `:` and overrides
    /// (`key=value`, separated by commas).
    ///
    /// A file names the device it is based on with `base = "hdd"` and sets the keys that differ.
    /// The queue of a device may use one of `schedulers`.
    ///
    /// # Errors
    ///
    /// An unknown name or key, an unreadable file, or a value out of bounds: one line with place
    /// and cause.
    pub fn open(text: &str, schedulers: &'static [Algorithm]) -> Result<Self, DeviceError> {
        let (name, overrides) = split(text);
        let mut parameters = if is_file(name) {
            let content = std::fs::read_to_string(name);
            based(
                name,
                &content.map_err(|error| DeviceError(format!("{name}: cannot read it: {error}")))?,
                0,
            )?
        } else if let Some(content) = Self::file(name) {
            based(&format!("{name}.toml"), content, 0)?
        } else {
            let known = Self::names().join(", ");
            return Err(DeviceError(format!("unknown device `{name}`; known: {known}; or a file FILE.toml")));
        };
        if let Some(overrides) = overrides {
            parameters.add_overrides(text, overrides)?;
        }
        Self::read(text, parameters, schedulers)
    }

    /// Parses the text of a device file; errors call it `name`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn parse(name: &str, text: &str, schedulers: &'static [Algorithm]) -> Result<Self, DeviceError> {
        Self::read(name, based(name, text, 0)?, schedulers)
    }

    fn read(
        name: &str,
        mut parameters: Parameters,
        schedulers: &'static [Algorithm],
    ) -> Result<Self, DeviceError> {
        let p = &mut parameters;
        let model = p.choice("model", |text| match text {
            "hdd" | "flash" | "s3" | "lustre" | "instant" => Ok(text.to_owned()),
            _ => Err("known models: flash, hdd, instant, lustre, s3".to_owned()),
        })?;
        let model = match &*model {
            "hdd" => Model::Hdd(Box::new(HddParameters::read(p)?)),
            "flash" => Model::Flash(FlashParameters::read(p)?),
            "s3" => Model::S3(S3Parameters::read(p)?),
            "lustre" => Model::Lustre(LustreParameters::read(p)?),
            _ => Model::Instant,
        };
        let queue = queue(p, schedulers)?;
        parameters.finish()?;
        Ok(Self { name: name.to_owned(), model, queue, schedulers })
    }

    /// The text it was opened with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A new device. The same seed gives the same times; the disk uses no random numbers.
    pub fn build(&self, seed: u64) -> Box<dyn Device> {
        match &self.model {
            Model::Instant => Box::new(InstantDevice::default()),
            Model::Hdd(parameters) => Box::new(Hdd::new(parameters)),
            Model::Flash(parameters) => Box::new(Flash::new(parameters, seed)),
            Model::S3(parameters) => Box::new(S3::new(parameters, seed)),
            Model::Lustre(parameters) => Box::new(Lustre::new(parameters, seed)),
        }
    }

    /// Upper bounds of the device for every pattern; `None` if it takes no time.
    pub fn limits(&self) -> Option<DeviceLimits> {
        match &self.model {
            Model::Instant => None,
            Model::Hdd(parameters) => Some(parameters.limits()),
            Model::Flash(parameters) => Some(parameters.limits()),
            Model::S3(parameters) => Some(parameters.limits()),
            Model::Lustre(parameters) => Some(parameters.limits()),
        }
    }

    /// The settings of `stream` that follow from the device, for pages of 4 KiB, as the engine
    /// derives them for such a store.
    pub fn stream_config(&self) -> StreamConfig {
        StreamConfig {
            slow_window_pages: if matches!(self.model, Model::S3(_)) { 64 } else { 0 },
            seeks: matches!(self.model, Model::Hdd(_)),
            ..StreamConfig::default()
        }
    }

    /// The same device with this queue depth.
    ///
    /// # Errors
    ///
    /// A depth the device does not support: the instant device has no limit, a disk's queue ends at
    /// 1024.
    pub fn with_depth(&self, depth: u32) -> Result<Self, DeviceError> {
        let key = match &self.model {
            Model::Instant => {
                let text =
                    format!("device `{}`: holds any number of requests, for each ends at once", self.name);
                return Err(DeviceError(text));
            }
            Model::Hdd(_) | Model::Flash(_) | Model::Lustre(_) => "depth",
            Model::S3(_) => "slots",
        };
        self.with(&[(key, f64::from(depth))])
    }

    /// The same device with other values of some parameters.
    ///
    /// # Errors
    /// An unknown key or a value out of bounds.
    pub fn with(&self, changes: &[(&str, f64)]) -> Result<Self, DeviceError> {
        let mut name = self.name.clone();
        for (key, value) in changes {
            name.push(if split(&name).1.is_some() { ',' } else { ':' });
            name.push_str(&format!("{key}={value}"));
        }
        Self::open(&name, self.schedulers)
    }

    /// Name of the model, as in a device file.
    pub fn model(&self) -> &'static str {
        match &self.model {
            Model::Instant => "instant",
            Model::Hdd(_) => "hdd",
            Model::Flash(_) => "flash",
            Model::S3(_) => "s3",
            Model::Lustre(_) => "lustre",
        }
    }

    /// Time to first byte of a typical read in nanoseconds, and bytes per nanosecond from then on.
    pub fn typical_read(&self) -> (f64, f64) {
        match &self.model {
            Model::Instant => (0.0, f64::INFINITY),
            Model::Hdd(parameters) => parameters.typical_read(),
            Model::Flash(parameters) => parameters.typical_read(),
            Model::S3(parameters) => parameters.typical_read(),
            Model::Lustre(parameters) => parameters.typical_read(),
        }
    }

    /// The queue in front of it.
    pub fn queue(&self) -> &QueueConfig {
        &self.queue
    }
}

/// Splits name and overrides: at the first `:`; for a file, whose name may contain one, at the
/// first `:` before a `=`.
fn split(text: &str) -> (&str, Option<&str>) {
    if let Some((name, overrides)) = text.split_once(':').filter(|(name, _)| DeviceSpec::file(name).is_some())
    {
        return (name, Some(overrides));
    }
    let place = text.match_indices(':').map(|(at, _)| at).find(|&at| text[at..].contains('='));
    place.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..])))
}

fn is_file(name: &str) -> bool {
    name.contains(['/', '\\'])
        || std::path::Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

/// The parameters of a text on top of its base and the base's base.
fn based(name: &str, text: &str, depth: usize) -> Result<Parameters, DeviceError> {
    let mut own = Parameters::default();
    own.add_file(name, text)?;
    let mut parameters = Parameters::default();
    if let Some(base) = own.clone().take_text("base")? {
        let known = DeviceSpec::names().join(", ");
        let content = DeviceSpec::file(&base).filter(|_| depth < BASES_MAX);
        let content = content.ok_or_else(|| own.wrong("base", &format!("must be one of {known}")))?;
        if own.has("model") {
            return Err(own.wrong("model", "a device with a base has its model from there"));
        }
        parameters = based(&format!("{base}.toml"), content, depth + 1)?;
    } else if !own.has("model") {
        return Err(DeviceError(format!(
            "{name}:1: says neither `base = \"hdd\"` (what it varies) nor `model = …`"
        )));
    }
    parameters.add_file(name, text)?;
    parameters.take_text("base")?;
    Ok(parameters)
}

fn queue(p: &mut Parameters, schedulers: &[Algorithm]) -> Result<QueueConfig, DeviceError> {
    let requests_max = p.count("queue_requests_max", 1, 1 << 32)?;
    let congested_on = p.number("queue_congested_share", 0.0, 1.0)?;
    let mut scheduler = SchedulerConfig::default();
    for knob in &KNOBS {
        let key = format!("queue_{}", knob.name);
        let value = p.optional(&key, knob.of(&scheduler), (knob.low, knob.high), knob.is_whole())?;
        knob.set(&mut scheduler, value).map_err(|error| DeviceError(error.to_string()))?;
    }
    let config = QueueConfig {
        elevator: p.choice("queue_elevator", |name| Elevator::parse(name, schedulers))?,
        scheduler,
        requests_max: requests_max as usize,
        congested_on: ((requests_max as f64 * congested_on) as usize).max(1),
        congested_off: ((requests_max as f64 * congested_on) as usize).max(1),
        merge: p.count("queue_merge", 0, 1)? == 1,
        fill_bytes_max: kib(p, "queue_fill_kb", u64::MAX)?,
        spread_bytes_min: kib(p, "queue_spread_kb", 0)?,
        ..QueueConfig::default()
    };
    Ok(config)
}

/// An optional size, in KiB in the file. Returns bytes; `unsaid` if it is absent or 0.
fn kib(p: &mut Parameters, key: &'static str, unsaid: u64) -> Result<u64, DeviceError> {
    let said = p.optional(key, 0.0, (0.0, f64::from(1 << 20)), true)? as u64;
    Ok(if said == 0 { unsaid } else { said << 10 })
}

/// Maximum depth of `base`: a device file, its base and the base's base.
const BASES_MAX: usize = 2;

const EMBEDDED: &[(&str, &str)] = &[
    ("hdd", include_str!("../devices/hdd.toml")),
    ("instant", include_str!("../devices/instant.toml")),
    ("lustre", include_str!("../devices/lustre.toml")),
    ("nvme", include_str!("../devices/nvme.toml")),
    ("s3", include_str!("../devices/s3.toml")),
    ("s3-steady", include_str!("../devices/s3-steady.toml")),
    ("ssd", include_str!("../devices/ssd.toml")),
];

#[cfg(test)]
mod published_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        DeviceSpec::open(text, &Algorithm::ALL).unwrap_err().to_string()
    }

    #[test]
    fn every_embedded_device_opens() {
        for name in DeviceSpec::names() {
            let spec = DeviceSpec::open(name, &Algorithm::ALL).unwrap();
            assert!(spec.queue().validate().is_ok(), "{name}");
            assert!(spec.build(1).depth() >= 1, "{name}");
        }
    }

    #[test]
    fn overrides_change_single_parameters() {
        assert_eq!(DeviceSpec::open("hdd:depth=4", &Algorithm::ALL).unwrap().build(0).depth(), 4);
        let spec =
            DeviceSpec::open("hdd:queue_elevator=anticipatory, queue_requests_max=64", &Algorithm::ALL)
                .unwrap();
        assert_eq!((spec.queue().elevator, spec.queue().congested_on), (Elevator::Anticipatory, 56));
        assert_eq!(spec.name(), "hdd:queue_elevator=anticipatory, queue_requests_max=64");
    }

    #[test]
    fn the_depth_of_a_device_can_be_given() {
        let depth = |name, depth| DeviceSpec::open(name, &Algorithm::ALL).unwrap().with_depth(depth);
        for name in ["hdd", "hdd:rpm=5400", "nvme", "s3:slots=3", "lustre"] {
            assert_eq!(depth(name, 7).unwrap().build(0).depth(), 7, "{name}");
        }
        assert!(
            depth("hdd", 2000)
                .unwrap_err()
                .to_string()
                .contains("depth = 2000: must be a number from 1 to 1024")
        );
        assert!(depth("instant", 2).unwrap_err().to_string().contains("any number of requests"));
    }

    #[test]
    fn knobs_of_the_scheduler_are_keys_and_slots_have_no_head() {
        let spec =
            DeviceSpec::open("hdd:queue_starved=4,queue_async_expire_ms=0.5", &Algorithm::ALL).unwrap();
        let expected =
            SchedulerConfig { starved_max: 4, other_expire_ns: 500_000, ..SchedulerConfig::default() };
        assert_eq!(spec.queue().scheduler, expected);
        let seeks = |name| DeviceSpec::open(name, &Algorithm::ALL).unwrap().queue().scheduler.seeks;
        assert_eq!(["hdd", "nvme", "ssd", "s3", "lustre"].map(seeks), [true, false, false, false, false]);
    }

    #[test]
    fn impossible_devices_are_refused_with_place_key_and_bound() {
        let cases = [
            ("floppy", "unknown device `floppy`; known: hdd, instant"),
            ("hdd:rpm=0", "device `hdd:rpm=0`: rpm = 0: must be a number from 60 to 100000"),
            ("hdd:rpm=-3", "must be a number from 60"),
            ("hdd:rpm=NaN", "must be a number from 60"),
            ("hdd:rpm=fast", "rpm = \"fast\": must be a number"),
            ("hdd:heads=1.5", "heads = 1.5: must be a whole number from 1 to 64"),
            ("hdd:rmp=7200", "unknown key `rmp`; known: base, buffer_segment_kb"),
            ("hdd:rpm", "`rpm` is not of the form key=value"),
            ("hdd:rpm=", "`rpm=` is not of the form key=value"),
            ("hdd:seek_full_ms=5", "seek_full_ms = 5: must be at least 8.497"),
            ("hdd:zones=200,cylinders=100", "zones = 200: must be at most the cylinders, 100"),
            ("hdd:track_sectors_inner=2000", "must be at most track_sectors_outer, 1240"),
            ("hdd:head_skew_ms=9", "head_skew_ms = 9: must be below a revolution, 8.333"),
            ("hdd:sector_bytes=600", "must be a power of two"),
            ("hdd:queue_elevator=cfq", "unknown elevator `cfq`; known: noop, clook, anticipatory, deadline"),
            ("hdd:queue_batch=0", "queue_batch = 0: must be a number from 1 to 65536"),
            ("hdd:queue_starved=1.5", "queue_starved = 1.5: must be a whole number from 0 to 65536"),
            ("hdd:queue_aging_ms=-1", "queue_aging_ms = -1: must be a number from 0 to 3600000"),
            ("hdd:queue_fifo=3", "unknown key `queue_fifo`"),
            ("hdd:queue_requests_max=0", "queue_requests_max = 0: must be a number from 1"),
            ("nvme:command_us_max=1", "command_us_max = 1: must be at least command_us_min, 8"),
            ("nvme:write_buffer_kb=8", "write_buffer_kb = 8: must be at least 1032"),
            ("s3:bandwidth_mb_s=200", "bandwidth_mb_s = 200: must be at most bandwidth_mb_s_max, 95"),
            ("lustre:slow_share=2", "slow_share = 2: must be a number from 0 to 1"),
            ("instant:rpm=3", "unknown key `rpm`"),
            ("missing.toml", "missing.toml: cannot read it: "),
        ];
        for (text, expected) in cases {
            let message = error(text);
            assert!(message.contains(expected) && !message.contains('\n'), "{text}: {message}");
        }
        assert!(DeviceSpec::open("hdd:", &Algorithm::ALL).is_err());
    }

    #[test]
    fn files_vary_a_base_and_errors_name_their_lines() {
        let read = |text: &str| DeviceSpec::read("my", based("my.toml", text, 0)?, &Algorithm::ALL);
        assert_eq!(read("base = \"hdd\"\ndepth = 31 # NCQ\n").unwrap().build(0).depth(), 31);
        assert_eq!(read("base = \"s3-steady\"\nslots = 0x10").unwrap().build(0).depth(), 16);
        let cases = [
            ("base = \"hdd\"\n\nrpm = -1", "my.toml:3: rpm = -1: must be"),
            ("base = \"hdd\"\nrpm = nan", "my.toml:2: rpm = NaN: must be"),
            ("base = \"hdd\"\nrpm = [1]", "my.toml:2: rpm is a list, not a number or a text"),
            ("base = \"hdd\"\nrpm = 1\nrpm = 2", "my.toml:3: "),
            ("base = \"hdd\"\nrpm 7200", "my.toml:2: "),
            ("base = \"hdd\"\nfoo = 1", "my.toml:2: unknown key `foo`"),
            ("base = \"tape\"", "my.toml:1: base = \"tape\": must be one of hdd, "),
            ("base = \"hdd\"\nmodel = \"s3\"", "my.toml:2: model = \"s3\": a device with a base"),
            ("rpm = 7200", "my.toml:1: says neither `base = \"hdd\"`"),
            ("model = \"hdd\"", "sector_bytes is missing"),
            ("base = 3", "my.toml:1: base = 3: must be a text"),
            ("base = \"hdd\"\nrpm = 99999999999999999999", "my.toml:2: rpm is an integer past 2^63"),
        ];
        for (text, expected) in cases {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{text}: {message}");
        }
    }

    #[test]
    fn writes_have_costs_of_their_own_and_flushes_take_time() {
        use crate::{Direction, Request, RequestId};
        use bowwave_core::{Instant, Urgency};
        // Ends of a read and a write of 90 kB, submitted at once, in microseconds.
        let ends = |text: &str| {
            let mut device = DeviceSpec::open(text, &Algorithm::ALL).unwrap().build(1);
            for (id, direction) in [(0, Direction::Read), (1, Direction::Write)] {
                let (id, urgency) = (RequestId(id), Urgency::Demand);
                let request =
                    Request { id, direction, start: 0, bytes: 90_000, urgency, owner: 0, object: 0 };
                device.submit(Instant(0), &request);
            }
            let mut ended = Vec::new();
            while let Some(next) = device.next_event() {
                device.advance(next, &mut ended);
            }
            ended.sort_unstable_by_key(|done| done.id);
            ended.iter().map(|done| done.ended.0 / 1000).collect::<Vec<_>>()
        };
        assert_eq!(ends("s3-steady:total_mb_s=45"), [34_000, 34_000]);
        assert_eq!(ends("s3-steady:total_mb_s=45,put_total_mb_s=30"), [32_000, 33_000]);
        let lustre = "lustre:page_us_min=0,page_us_max=0,slow_share=0";
        assert_eq!(ends(lustre), [450, 450]);
        assert_eq!(ends(&format!("{lustre},write_rpc_us=1000")), [450, 1000]);
        let link = "nvme:write_link_mb_s=10,write_us_min=1000,write_us_max=1000";
        // After the gap between two commands, 2 us.
        assert_eq!(ends(link)[1], 2 + 1000 + 9000);
        let flush = |text: &str| {
            DeviceSpec::open(text, &Algorithm::ALL).unwrap().build(1).flush_end(Instant(5)).0 - 5
        };
        let devices = ["nvme", "ssd", "lustre", "s3", "s3:flush_ms=2"];
        assert_eq!(devices.map(flush), [16_000, 1_000_000, 450_000, 0, 2_000_000]);
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        use crate::{Direction, Request, RequestId};
        use bowwave_core::{Instant, Urgency};
        for name in ["s3", "lustre", "nvme"] {
            let ends = |seed| {
                let mut device = DeviceSpec::open(name, &Algorithm::ALL).unwrap().build(seed);
                let mut ended = Vec::new();
                for id in 0..8 {
                    let (id, direction, urgency) = (RequestId(id), Direction::Read, Urgency::Demand);
                    let (start, bytes) = (id.0 << 30, 1 << 20);
                    let request = Request { id, direction, start, bytes, urgency, owner: 0, object: 0 };
                    device.submit(Instant(0), &request);
                }
                while let Some(next) = device.next_event() {
                    device.advance(next, &mut ended);
                }
                ended
            };
            assert_eq!(ends(1), ends(1), "{name}");
            assert_ne!(ends(1), ends(2), "{name}");
        }
    }
}
