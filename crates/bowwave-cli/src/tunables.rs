//! `--set KEY=VALUE`: settings for experiments, which `ctl list` and the manual list.

use bowwave_core::Policy;
use bowwave_engine::{SETTINGS, Settings};
use bowwave_fuse::KernelCache;

use crate::control::Setting;
use crate::{Failure, values};

/// The option that sets tunables.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SetArgs {
    /// Set a tunable, such as range_clusters=learned; 'bowwave man mount' lists them all
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse, hide_short_help = true)]
    set: Vec<(String, String)>,
}

/// Settings of the engine without an option of their own.
const ENGINE: [&str; 6] =
    ["range_bytes", "range_whole", "range_max", "range_clusters", "scheduler", "device_depth"];

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
    /// The engine's settings; the last value of a key counts.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for (key, value) in self.set.iter().filter(|(key, _)| ENGINE.contains(&key.as_str())) {
            settings.set(key, value).expect("parsed before");
        }
        settings
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

    /// Refuses settings of the kernel, for commands that mount nothing.
    pub(crate) fn refuse_kernel(&self) -> Result<(), Failure> {
        match self.set.iter().find(|(key, _)| key.starts_with("kernel")) {
            Some((key, value)) => Err(usage!("--set {key}={value}: only 'bowwave mount' has it")),
            None => Ok(()),
        }
    }

    /// Each tunable with its value.
    pub(crate) fn values(&self) -> Vec<Setting> {
        let auto = |value: Option<String>| value.unwrap_or_else(|| "auto".to_owned());
        let (settings, default) = (self.settings(), Settings::default());
        let of_engine = SETTINGS.iter().filter(|row| ENGINE.contains(&row.key)).map(|row| Setting {
            key: row.key.to_owned(),
            value: auto(row.value(&settings)),
            default: auto(row.value(&default)),
            live: false,
            meaning: row.meaning.to_owned(),
        });
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
    ENGINE.into_iter().chain(KERNEL.map(|row| row.0))
}

/// `KEY=VALUE` with a known key and a valid value; keys may be written with `-`.
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
        _ => Settings::default().set(&key, value).map_err(|error| {
            let text = error.to_string();
            text.strip_prefix(&format!("{key}={value}: ")).map_or_else(|| text.clone(), str::to_owned)
        })?,
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
            ("fifo=3", "there are range_bytes, "),
            ("cache=1GiB", "there are range_bytes, "),
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
        for Setting { key, value, default, meaning, .. } in SetArgs::default().values() {
            assert!(!meaning.is_empty() && value == default, "{key}");
            assert!(default == "auto" || parse(&format!("{key}={default}")).is_ok(), "{key}={default}");
        }
        assert_eq!(SetArgs::default().values().len(), keys().count());
    }
}
