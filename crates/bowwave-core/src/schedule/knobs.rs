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
    get: fn(&SchedulerConfig) -> f64,
    set: fn(&mut SchedulerConfig, f64),
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
    Knob {
        name: "sync_expire_ms",
        low: 0.0,
        high: HOUR_MS,
        get: |config| config.favoured_expire_ns as f64 / MS,
        set: |config, value| config.favoured_expire_ns = (value * MS) as u64,
    },
    Knob {
        name: "async_expire_ms",
        low: 0.0,
        high: HOUR_MS,
        get: |config| config.other_expire_ns as f64 / MS,
        set: |config, value| config.other_expire_ns = (value * MS) as u64,
    },
    Knob {
        name: "batch",
        low: 1.0,
        high: 65_536.0,
        get: |config| f64::from(config.batch_requests),
        set: |config, value| config.batch_requests = value as u32,
    },
    Knob {
        name: "starved",
        low: 0.0,
        high: 65_536.0,
        get: |config| f64::from(config.starved_max),
        set: |config, value| config.starved_max = value as u32,
    },
    Knob {
        name: "contiguous",
        low: 0.0,
        high: 1.0,
        get: |config| f64::from(u8::from(config.batch_contiguous)),
        set: |config, value| config.batch_contiguous = value != 0.0,
    },
    Knob {
        name: "front_merges",
        low: 0.0,
        high: 1.0,
        get: |config| f64::from(u8::from(config.merge_front)),
        set: |config, value| config.merge_front = value != 0.0,
    },
    Knob {
        name: "seeks",
        low: 0.0,
        high: 1.0,
        get: |config| f64::from(u8::from(config.seeks)),
        set: |config, value| config.seeks = value != 0.0,
    },
    Knob {
        name: "promotion",
        low: 0.0,
        high: 1.0,
        get: |config| f64::from(u8::from(config.promotion)),
        set: |config, value| config.promotion = value != 0.0,
    },
    Knob {
        name: "aging_ms",
        low: 0.0,
        high: HOUR_MS,
        get: |config| config.aging_ns as f64 / MS,
        set: |config, value| config.aging_ns = (value * MS) as u64,
    },
    Knob {
        name: "async_depth",
        low: 1.0,
        high: 65_536.0,
        get: |config| f64::from(config.async_depth_max),
        set: |config, value| config.async_depth_max = value as u32,
    },
    Knob {
        name: "async_depth_start",
        low: 0.0,
        high: 65_536.0,
        get: |config| {
            if config.async_depth_start == u32::MAX { 0.0 } else { f64::from(config.async_depth_start) }
        },
        set: |config, value| config.async_depth_start = if value == 0.0 { u32::MAX } else { value as u32 },
    },
    Knob {
        name: "sync_slowdown",
        low: 0.0,
        high: 65_536.0,
        get: |config| {
            if config.sync_slowdown_max == u32::MAX { 0.0 } else { f64::from(config.sync_slowdown_max) }
        },
        set: |config, value| config.sync_slowdown_max = if value == 0.0 { u32::MAX } else { value as u32 },
    },
    Knob {
        name: "sync_fast_ms",
        low: 0.0,
        high: HOUR_MS,
        get: |config| config.sync_fast_ns as f64 / MS,
        set: |config, value| config.sync_fast_ns = (value * MS) as u64,
    },
    Knob {
        name: "sync_sample_kb",
        low: 0.0,
        high: 4_194_304.0,
        get: |config| {
            if config.sync_sample_bytes_max == u64::MAX {
                0.0
            } else {
                config.sync_sample_bytes_max as f64 / 1024.0
            }
        },
        set: |config, value| {
            config.sync_sample_bytes_max = if value == 0.0 { u64::MAX } else { value as u64 * 1024 };
        },
    },
];

impl Knob {
    /// Its value.
    #[must_use]
    pub fn of(&self, config: &SchedulerConfig) -> f64 {
        (self.get)(config)
    }

    /// Whether it is a whole number.
    #[must_use]
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
        (self.set)(config, value);
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
