//! `--set KEY=VALUE`: every setting that `ctl set` changes, and settings for experiments that only
//! the start takes. `ctl list` and the manual list them.

use bowwave_control::Setting;
use bowwave_core::Policy;
use bowwave_engine::{Engine, LIVE_SETTINGS, SETTINGS, Settings, Tuning};
use bowwave_fuse::KernelCache;

use crate::{Failure, logging, values};

/// The option that sets tunables.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SetArgs {
    /// Set a tunable, such as range_clusters=learned; 'bowwave man mount' lists them all
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse, hide_short_help = true)]
    set: Vec<(String, String)>,
}

/// Settings of [`SETTINGS`] without an option of their own that only the start takes.
const START: [&str; 2] = ["scheduler", "device_depth"];

/// Options of a mount that can be changed while it runs; also names of `--set` and `ctl set`.
pub(crate) const OPTIONS: [&str; 6] =
    ["ra_pages", "dirty_limit", "dirty_background", "dirty_expire", "log", "policy"];

/// Settings of the kernel in front of a mount: key, default, meaning.
const KERNEL: [(&str, &str, &str); 2] = [
    (
        "kernel_cache",
        "auto",
        "Mount: whether the kernel's page cache keeps pages, too: on, off or auto. off: each read reaches \
         bowwave with the offset and length that the program gave, and costs a request. auto: on, but off \
         with the policy none",
    ),
    (
        "kernel_readahead",
        "256KiB",
        "Mount: largest window of the kernel's own readahead, which joins small sequential reads into larger \
         requests, from 0 to 1MiB; more than 128KiB needs root",
    ),
];

impl SetArgs {
    /// The engine's settings at its start; the last value of a key counts.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for (key, value) in self.set.iter().filter(|(key, _)| of_start(key)) {
            settings.set(key, value).expect("parsed before");
        }
        settings
    }

    /// Changes the other settings of a started engine.
    pub(crate) fn apply(&self, engine: &Engine) -> Result<(), Failure> {
        let later = self.set.iter().filter(|(key, _)| !of_start(key) && !of_kernel(key));
        for (key, value) in later {
            set_live(engine, key, value).map_err(Failure::usage)?;
        }
        Ok(())
    }

    /// The readahead policy, if one is set.
    pub(crate) fn policy(&self) -> Option<Policy> {
        let (_, name) = self.set.iter().rev().find(|(key, _)| key == "policy")?;
        bowwave_baselines::policy(name)
    }

    /// Whether the kernel's page cache keeps pages, too.
    pub(crate) fn kernel_cache(&self, policy: Policy) -> KernelCache {
        match self.kernel("kernel_cache") {
            "off" => KernelCache::Off,
            "auto" if policy == Policy::None => KernelCache::Off,
            _ => KernelCache::On,
        }
    }

    /// Largest window of the kernel's own readahead.
    pub(crate) fn kernel_readahead_bytes(&self) -> u32 {
        let bytes = values::size(self.kernel("kernel_readahead")).expect("parsed before");
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Refuses settings of a mount, for commands that mount nothing.
    pub(crate) fn refuse_of_mounts(&self) -> Result<(), Failure> {
        self.refuse(|key| of_kernel(key) || OPTIONS.contains(&key), "'bowwave mount' has it")
    }

    /// Refuses settings that another process does not get, too.
    pub(crate) fn refuse_later(&self) -> Result<(), Failure> {
        self.refuse(|key| !of_start(key), "'bowwave mount' and 'bowwave read' have it")
    }

    fn refuse(&self, is_refused: impl Fn(&str) -> bool, by: &str) -> Result<(), Failure> {
        match self.set.iter().find(|(key, _)| is_refused(key)) {
            Some((key, value)) => Err(usage!("--set {key}={value}: only {by}")),
            None => Ok(()),
        }
    }

    /// Each tunable without an option of its own, with its value at the start.
    pub(crate) fn values(&self) -> Vec<Setting> {
        let auto = |value: Option<String>| value.unwrap_or_else(|| "auto".to_owned());
        let (settings, default) = (self.settings(), Settings::default());
        let of = |key: &'static str, meaning: &str| {
            let row = SETTINGS.iter().find(|row| row.key == key);
            Setting {
                key: key.to_owned(),
                value: auto(row.and_then(|row| row.value(&settings))),
                default: auto(row.and_then(|row| row.value(&default))),
                live: false,
                meaning: row.map_or(meaning, |row| row.meaning).to_owned(),
            }
        };
        let live = LIVE_SETTINGS.iter().filter(|row| !OPTIONS.contains(&row.key));
        let of_engine =
            START.map(|key| of(key, "")).into_iter().chain(live.map(|row| of(row.key, row.meaning)));
        let of_kernel = KERNEL.iter().map(|(key, default, meaning)| Setting {
            key: (*key).to_owned(),
            value: self.kernel(key).to_owned(),
            default: (*default).to_owned(),
            live: false,
            meaning: (*meaning).to_owned(),
        });
        of_engine.chain(of_kernel).collect()
    }

    /// The value of a setting of the kernel.
    fn kernel(&self, key: &str) -> &str {
        let default = KERNEL.iter().find(|row| row.0 == key).map_or("", |row| row.1);
        self.set.iter().rev().find(|(known, _)| known == key).map_or(default, |(_, value)| value)
    }
}

/// The keys of all tunables.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    let live = LIVE_SETTINGS.iter().map(|row| row.key).filter(|key| !OPTIONS.contains(key));
    START.into_iter().chain(live).chain(OPTIONS).chain(KERNEL.map(|row| row.0))
}

/// Whether the start takes a key: those of [`SETTINGS`] that are no options.
fn of_start(key: &str) -> bool {
    !OPTIONS.contains(&key) && SETTINGS.iter().any(|row| row.key == key)
}

fn of_kernel(key: &str) -> bool {
    KERNEL.iter().any(|row| row.0 == key)
}

/// Changes a setting of a running engine, or the log: the names and values of [`OPTIONS`], and
/// [`LIVE_SETTINGS`].
pub(crate) fn set_live(engine: &Engine, key: &str, value: &str) -> Result<(), String> {
    let wrong = |why: String| format!("{key}={value}: {why}");
    let tuning = engine.tuning();
    let tuning = match key {
        "log" => return logging::set_levels(value).map_err(wrong),
        "dirty_limit" => {
            let dirty_bytes = values::positive_size(value).map_err(wrong)?;
            // As without --dirty-background, if the current value no longer fits.
            let dirty_background_bytes = match tuning.dirty_background_bytes {
                bytes if bytes < dirty_bytes => bytes,
                _ => dirty_bytes / 2,
            };
            Tuning { dirty_bytes, dirty_background_bytes, ..tuning }
        }
        "dirty_background" => {
            Tuning { dirty_background_bytes: values::size(value).map_err(wrong)?, ..tuning }
        }
        "dirty_expire" => Tuning { dirty_expire: values::duration(value).map_err(wrong)?, ..tuning },
        _ => return engine.set(key, value).map_err(|error| error.to_string()),
    };
    engine.tune(tuning).map_err(|error| wrong(error.to_string()))
}

/// `KEY=VALUE` with a known key; keys may be written with `-`. Values that depend on the engine,
/// such as its page size, are checked when it has started.
fn parse(text: &str) -> Result<(String, String), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("not KEY=VALUE".to_owned());
    };
    let key = key.replace('-', "_");
    if !keys().any(|known| known == key) {
        let known: Vec<_> = keys().collect();
        return Err(format!("there is no tunable '{key}'; there are {}", known.join(", ")));
    }
    match key.as_str() {
        "kernel_cache" if ["auto", "on", "off"].contains(&value) => {}
        "kernel_cache" => return Err(format!("'{value}' is not auto, on or off")),
        "kernel_readahead" => _ = values::size(value)?,
        "device_depth" if !value.parse().is_ok_and(|depth: u32| (1..=4096).contains(&depth)) => {
            return Err(format!("{value} is not in 1..=4096"));
        }
        key if of_start(key) => Settings::default().set(key, value).map_err(|error| {
            let text = error.to_string();
            text.strip_prefix(&format!("{key}={value}: ")).map_or_else(|| text.clone(), str::to_owned)
        })?,
        _ => {}
    }
    Ok((key, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_one_by_one_and_the_last_value_of_a_key_counts() {
        assert_eq!(parse("range-bytes=64KiB"), Ok(("range_bytes".to_owned(), "64KiB".to_owned())));
        for (text, part) in [
            ("range_bytes", "KEY=VALUE"),
            ("fifo=3", "there are scheduler, "),
            ("cache=1GiB", "there are scheduler, "),
            ("la_size=-1", "not a number of pages"),
            ("persist=maybe", "yes or no"),
            ("range_bytes=x", "1MiB"),
            ("device_depth=0", "1..=4096"),
            ("kernel_cache=maybe", "maybe"),
            ("scheduler=deadline:batch=0", "batch = 0: must be"),
        ] {
            let refusal = parse(text).expect_err(text);
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
        let pairs =
            ["device_depth=3", "device_depth=4", "kernel_cache=off"].map(|text| parse(text).expect(text));
        let set = SetArgs { set: pairs.to_vec() };
        assert_eq!(set.settings().options.device_depth, Some(4));
        assert_eq!(set.kernel_cache(Policy::Stream), KernelCache::Off);
    }

    #[test]
    fn every_tunable_has_a_meaning_and_a_valid_default() {
        let values = SetArgs::default().values();
        for Setting { key, value, default, meaning, .. } in &values {
            assert!(!meaning.is_empty() && value == default, "{key}");
            assert!(default == "auto" || parse(&format!("{key}={default}")).is_ok(), "{key}={default}");
        }
        assert_eq!(values.len() + OPTIONS.len(), keys().count());
    }

    #[test]
    fn every_live_setting_is_a_tunable_and_changes_the_engine_at_its_start() {
        let pairs = LIVE_SETTINGS.iter().map(|row| match row.key {
            "policy" => "policy=ondemand".to_owned(),
            "persist" => "persist=yes".to_owned(),
            "range_clusters" => "range_clusters=learned".to_owned(),
            "front_merges" => "front_merges=0".to_owned(),
            "range_bytes" | "range_whole" => format!("{}=128KiB", row.key),
            "range_max" => "range_max=64MiB".to_owned(),
            // Other names of settings before them.
            "read_ahead_range_kb" => "read_ahead_range_kb=128".to_owned(),
            "dirty_bytes" => "dirty_bytes=20000000".to_owned(),
            "dirty_background_bytes" => "dirty_background_bytes=10000000".to_owned(),
            key => format!("{key}=7"),
        });
        // Pages of 4 KiB: windows of 28 KiB are 7 pages.
        let pairs = pairs.map(|text| text.replace("read_ahead_kb=7", "read_ahead_kb=28"));
        let pairs: Vec<_> = pairs.map(|text| parse(&text).expect(&text)).collect();
        let set = SetArgs { set: pairs.clone() };
        let mut settings = set.settings();
        settings.options.cache_bytes = Some(64 << 20);
        let (engine, _store) = settings.open("pattern:/1MiB").expect("it opens");
        set.apply(&engine).expect("valid values");
        assert_eq!(set.policy(), Some(Policy::OnDemand));
        for (key, value) in pairs {
            let found = engine.setting(&key).expect("a known key");
            assert!(found == value || ["range_whole", "range_max"].contains(&&*key), "{key}: {found}");
        }
    }

    #[test]
    fn options_of_a_mount_are_tunables_with_the_values_of_the_options() {
        let settings: Settings = "cache=64MiB".parse().expect("valid");
        let (engine, _store) = settings.open("pattern:/1MiB").expect("it opens");
        let set =
            |pairs: &[&str]| SetArgs { set: pairs.iter().map(|text| parse(text).expect(text)).collect() };
        set(&["ra_pages=1MiB", "dirty-limit=2MiB", "dirty_expire=3s"]).apply(&engine).expect("valid values");
        let tuning = engine.tuning();
        assert_eq!((tuning.ra_pages, tuning.dirty_bytes, tuning.dirty_expire.as_secs()), (256, 2 << 20, 3));
        for (text, part) in
            [("dirty_limit=x", "1MiB"), ("read_ahead_kb=3", "page of 4 KiB"), ("policy=x", "known")]
        {
            let refusal = set(&[text]).apply(&engine).expect_err(text).to_string();
            assert!(refusal.starts_with(&text[..8]) && refusal.contains(part), "{text}: {refusal}");
        }
        let refused = set(&["fifo_batch=4"]);
        assert!(refused.refuse_of_mounts().is_ok() && refused.refuse_later().is_err());
        assert!(
            set(&["log=debug"]).refuse_of_mounts().is_err() && set(&["la_size=0"]).refuse_later().is_ok()
        );
    }
}
