//! Settings of a scheduler by name, as in device files, experiments and on command lines:
//! `deadline:starved=4,aging_ms=2000`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::config::{Algorithm, SchedulerConfig};

/// A setting of a scheduler: a field of [`SchedulerConfig`].
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its name. One that ends in `_ms` is a time in milliseconds; the others are whole numbers.
    pub name: &'static str,
    /// Minimum.
    pub low: f64,
    /// Maximum.
    pub high: f64,
    field: Field,
}

/// A field by the form of its value.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// Nanoseconds, set in milliseconds.
    Time(fn(&mut SchedulerConfig) -> &mut u64),
    Count(fn(&mut SchedulerConfig) -> &mut u32),
    /// 0 is [`u32::MAX`]: no limit.
    Limit(fn(&mut SchedulerConfig) -> &mut u32),
    /// 0 is [`u64::MAX`]: no limit. In bytes, set in KiB.
    Size(fn(&mut SchedulerConfig) -> &mut u64),
    /// 0 or 1.
    Flag(fn(&mut SchedulerConfig) -> &mut bool),
}

/// An unknown setting or a value out of bounds, in one line with the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobError(String);

/// Longest time; a longer deadline has no effect.
const HOUR_MS: f64 = 3_600_000.0;
/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;

/// Every setting.
pub const KNOBS: [Knob; 14] = [
    Knob::new("sync_expire_ms", 0.0, HOUR_MS, Field::Time(|config| &mut config.favoured_expire_ns)),
    Knob::new("async_expire_ms", 0.0, HOUR_MS, Field::Time(|config| &mut config.other_expire_ns)),
    Knob::new("batch", 1.0, 65_536.0, Field::Count(|config| &mut config.batch_requests)),
    Knob::new("starved", 0.0, 65_536.0, Field::Count(|config| &mut config.starved_max)),
    Knob::new("contiguous", 0.0, 1.0, Field::Flag(|config| &mut config.batch_contiguous)),
    Knob::new("front_merges", 0.0, 1.0, Field::Flag(|config| &mut config.merge_front)),
    Knob::new("seeks", 0.0, 1.0, Field::Flag(|config| &mut config.seeks)),
    Knob::new("promotion", 0.0, 1.0, Field::Flag(|config| &mut config.promotion)),
    Knob::new("aging_ms", 0.0, HOUR_MS, Field::Time(|config| &mut config.aging_ns)),
    Knob::new("async_depth", 1.0, 65_536.0, Field::Count(|config| &mut config.async_depth_max)),
    Knob::new("async_depth_start", 0.0, 65_536.0, Field::Limit(|config| &mut config.async_depth_start)),
    Knob::new("sync_slowdown", 0.0, 65_536.0, Field::Limit(|config| &mut config.sync_slowdown_max)),
    Knob::new("sync_fast_ms", 0.0, HOUR_MS, Field::Time(|config| &mut config.sync_fast_ns)),
    Knob::new("sync_sample_kb", 0.0, 4_194_304.0, Field::Size(|config| &mut config.sync_sample_bytes_max)),
];

/// Knobs that can change while requests wait.
const LIVE: [&str; 5] = ["sync_expire_ms", "async_expire_ms", "batch", "starved", "front_merges"];

/// Values of knobs that change at run time, in the order of `LIVE`. `None` keeps the value from
/// creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerTuning([Option<u32>; LIVE.len()]);

impl SchedulerTuning {
    /// The value of a knob.
    pub fn get(&self, name: &str) -> Option<u32> {
        LIVE.iter().zip(self.0).find(|(live, _)| **live == name).and_then(|(_, value)| value)
    }

    /// Sets the value of a knob.
    ///
    /// # Errors
    /// A knob that does not change at run time, or a value out of bounds. Then nothing changes.
    pub fn set(&mut self, name: &str, value: Option<u32>) -> Result<(), KnobError> {
        let Some(place) = LIVE.iter().position(|live| *live == name) else {
            return Err(KnobError(format!("{name} does not change at run time: {} do", LIVE.join(", "))));
        };
        if let Some(value) = value {
            knob(name).set(&mut SchedulerConfig::default(), value.into())?;
        }
        self.0[place] = value;
        Ok(())
    }

    /// The configuration with these values.
    pub(super) fn apply(self, mut config: SchedulerConfig) -> SchedulerConfig {
        for (name, value) in LIVE.iter().zip(self.0) {
            if let Some(value) = value {
                knob(name).set(&mut config, value.into()).expect("checked by `set`");
            }
        }
        config
    }
}

fn knob(name: &str) -> &'static Knob {
    KNOBS.iter().find(|knob| knob.name == name).expect("each of `LIVE` is a knob")
}

impl Knob {
    const fn new(name: &'static str, low: f64, high: f64, field: Field) -> Self {
        Self { name, low, high, field }
    }

    /// Its value.
    pub fn of(&self, config: &SchedulerConfig) -> f64 {
        let config = &mut config.clone();
        match self.field {
            Field::Time(field) => *field(config) as f64 / MS,
            Field::Count(field) => f64::from(*field(config)),
            Field::Limit(field) => match *field(config) {
                u32::MAX => 0.0,
                limit => f64::from(limit),
            },
            Field::Size(field) => match *field(config) {
                u64::MAX => 0.0,
                bytes => bytes as f64 / 1024.0,
            },
            Field::Flag(field) => f64::from(u8::from(*field(config))),
        }
    }

    /// Whether it is a whole number.
    pub fn is_whole(&self) -> bool {
        !self.name.ends_with("_ms")
    }

    /// Sets it.
    ///
    /// # Errors
    /// A value out of bounds.
    pub fn set(&self, config: &mut SchedulerConfig, value: f64) -> Result<(), KnobError> {
        let Self { low, high, .. } = *self;
        if !(low..=high).contains(&value) || (self.is_whole() && value % 1.0 != 0.0) {
            let number = if self.is_whole() { "a whole number" } else { "a number" };
            return Err(KnobError(format!("{} = {value}: must be {number} from {low} to {high}", self.name)));
        }
        match self.field {
            Field::Time(field) => *field(config) = (value * MS) as u64,
            Field::Count(field) => *field(config) = value as u32,
            Field::Limit(field) => *field(config) = if value == 0.0 { u32::MAX } else { value as u32 },
            Field::Size(field) => *field(config) = if value == 0.0 { u64::MAX } else { value as u64 * 1024 },
            Field::Flag(field) => *field(config) = value != 0.0,
        }
        Ok(())
    }
}

impl SchedulerConfig {
    /// Parses the name of one of `known` and, after a colon, settings:
    /// `deadline:starved=4,batch=8`.
    ///
    /// # Errors
    /// A name that is not among `known`, which the error lists; otherwise as [`turn`](Self::turn).
    pub fn parse(text: &str, known: &[Algorithm]) -> Result<Self, KnobError> {
        let (name, knobs) = text.split_once(':').map_or((text, None), |(name, knobs)| (name, Some(knobs)));
        let algorithm = known.iter().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|algorithm| algorithm.name()).collect();
            KnobError(format!("no such scheduler; there are {}", names.join(", ")))
        })?;
        let mut config = Self::of(*algorithm);
        if let Some(knobs) = knobs {
            config.turn(knobs)?;
        }
        Ok(config)
    }

    /// Changes settings: `starved=4,batch=8`.
    ///
    /// # Errors
    /// A text of another form, an unknown setting, or a value out of bounds.
    pub fn turn(&mut self, knobs: &str) -> Result<(), KnobError> {
        for text in knobs.split(',') {
            let not_so = || KnobError(format!("`{text}` is not of the form knob=number"));
            let (name, value) = text.split_once('=').ok_or_else(not_so)?;
            let name = name.trim();
            let value: f64 = value.trim().parse().map_err(|_| not_so())?;
            let knob = KNOBS.iter().find(|knob| knob.name == name).ok_or_else(|| {
                let known = KNOBS.map(|knob| knob.name).join(", ");
                KnobError(format!("there is no knob `{name}`; there are {known}"))
            })?;
            knob.set(self, value)?;
        }
        Ok(())
    }
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for KnobError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_knob_has_a_published_value_within_its_bounds_and_changes_one_thing() {
        let published = SchedulerConfig::default();
        for knob in &KNOBS {
            let value = knob.of(&published);
            let mut config = published.clone();
            knob.set(&mut config, value).unwrap();
            assert_eq!(config, published, "{}", knob.name);
            let other = if value == knob.high { knob.low } else { (value + 1.0).min(knob.high) };
            knob.set(&mut config, other).unwrap();
            assert!(config != published && knob.of(&config) == other, "{}", knob.name);
            assert_eq!(config.validate(), Ok(()));
            for rest in KNOBS.iter().filter(|rest| rest.name != knob.name) {
                assert_eq!(rest.of(&config), rest.of(&published), "{} changes {}", knob.name, rest.name);
            }
        }
    }

    #[test]
    fn a_tuning_changes_live_knobs_and_refuses_the_others() {
        let (mut tuning, config) = (SchedulerTuning::default(), SchedulerConfig::default());
        assert_eq!(tuning.apply(config.clone()), config);
        tuning.set("batch", Some(8)).unwrap();
        assert!(tuning.set("batch", Some(0)).is_err() && tuning.set("seeks", Some(0)).is_err());
        assert_eq!((tuning.get("batch"), tuning.get("starved")), (Some(8), None));
        assert_eq!(tuning.apply(config.clone()), SchedulerConfig { batch_requests: 8, ..config });
        tuning.set("batch", None).unwrap();
        assert_eq!(tuning, SchedulerTuning::default());
    }

    #[test]
    fn a_scheduler_is_a_name_and_knobs() {
        let parse = |text| SchedulerConfig::parse(text, &Algorithm::ALL);
        let config = parse("deadline:starved=4, sync_expire_ms=0.5,sync_slowdown=0").unwrap();
        let expected = SchedulerConfig {
            starved_max: 4,
            favoured_expire_ns: 500_000,
            sync_slowdown_max: u32::MAX,
            ..SchedulerConfig::default()
        };
        assert_eq!(config, expected);
        assert_eq!(parse("noop"), Ok(SchedulerConfig::of(Algorithm::Noop)));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_bound() {
        for (text, expected) in [
            ("cfq", "no such scheduler; there are noop"),
            ("deadline:", "`` is not of the form knob=number"),
            ("deadline:starved", "`starved` is not of the form knob=number"),
            ("deadline:starved=two", "`starved=two` is not of the form knob=number"),
            ("deadline:batch=0", "batch = 0: must be a whole number from 1 to 65536"),
            ("deadline:batch=1.5", "batch = 1.5: must be a whole number"),
            ("deadline:batch=nan", "batch = NaN: must be a whole number"),
            ("deadline:async_expire_ms=-1", "must be a number from 0 to 3600000"),
            ("deadline:async_expire_ms=1e300", "must be a number from 0 to 3600000"),
            ("deadline:fifo=3", "there is no knob `fifo`; there are sync_expire_ms, async_expire_ms"),
        ] {
            let error = SchedulerConfig::parse(text, &Algorithm::ALL).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
