//! Tunables: settings of experiments, which `--set KEY=VALUE` changes and `bowwave ctl DIR list` lists.
//!
//! Each tunable is an argument of a command line of its own, so that clap holds its name, meaning, default and bounds.

use bowwave_core::Clusters;
use bowwave_engine::RangeConfig;
use clap::builder::TypedValueParser;
use clap::{CommandFactory as _, Parser, ValueEnum};

use crate::{Failure, values};

/// The option that sets tunables.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SetArgs {
    /// Set a tunable, such as range_clusters=learned; 'bowwave man mount' lists them all
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting, hide_short_help = true)]
    set: Vec<String>,
}

impl SetArgs {
    /// The tunables: the last setting of a key counts.
    pub(crate) fn tunables(&self) -> Tunables {
        Tunables::of(&self.set).expect("each setting was parsed alone before")
    }

    /// Refuses tunables of the kernel in front of a mount, for commands that mount nothing.
    pub(crate) fn refuse_kernel(&self) -> Result<(), Failure> {
        match self.set.iter().find(|setting| setting.starts_with("kernel")) {
            Some(setting) => Err(usage!("--set {setting}: only 'bowwave mount' has it")),
            None => Ok(()),
        }
    }
}

/// The tunables and their values.
#[derive(Debug, Clone, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, args_override_self = true)]
pub(crate) struct Tunables {
    /// Policy range: largest distance between page faults of one cluster, and the largest window around a fault; 0 for no clusters. Lustre's read_ahead_range_kb. From 64KiB to range_max
    #[arg(long = "range_bytes", value_name = "SIZE", default_value = "1MiB", value_parser = values::size)]
    range_bytes: u64,

    /// Policy range: files up to this size are read whole at the second read; 0 for never. Lustre's max_read_ahead_whole_mb. At most range_max
    #[arg(long = "range_whole", value_name = "SIZE", default_value = "4MiB", value_parser = values::size)]
    range_whole: u64,

    /// Policy range: the largest window, from 64KiB to 1TiB. Lustre's max_read_ahead_per_file_mb
    #[arg(long = "range_max", value_name = "SIZE", default_value = "256MiB", value_parser = values::size)]
    range_max: u64,

    /// Policy range: how clusters of page faults are read. literal: document 003 to the letter. mended: with its first page fetched and page 0 no sentinel. learned: also reads at the first fault of a cluster what the last clusters had. before: Lustre before document 003. suited: learned in files that are mapped into memory without a mount, else mended
    #[arg(long = "range_clusters", value_name = "HOW", default_value = "suited", value_parser = clusters())]
    range_clusters: Clusters,

    /// Order of requests to the store. deadline: demand reads before speculative ones, which have a deadline of their own. deadline-literal: the patch of 2009 to the letter. deadline-rw: reads before writes, as Linux 2.6.29. noop: in order of arrival. Knobs follow a colon, as in deadline:starved=4,promotion=0
    #[arg(long = "scheduler", value_name = "NAME[:KNOBS]", default_value = "deadline", value_parser = values::scheduler)]
    pub(crate) scheduler: values::Scheduler,

    /// Requests kept at the store at once, from 1 to 4096; by default as many as it serves
    #[arg(long = "device_depth", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) device_depth: Option<u32>,

    /// Mount: whether the kernel's page cache keeps pages, too. off: each read reaches bowwave with the offset and length that the program gave, and costs a request. auto: on, but off with the policy none
    #[arg(long = "kernel_cache", value_enum, value_name = "HOW", default_value_t = Keep::Auto)]
    pub(crate) kernel_cache: Keep,

    /// Mount: largest window of the kernel's own readahead, which joins small sequential reads into larger requests, from 0 to 1MiB; more than 128KiB needs root
    #[arg(long = "kernel_readahead", value_name = "SIZE", default_value = "256KiB", value_parser = values::size)]
    pub(crate) kernel_readahead: u64,
}

/// A tunable as `ctl list` and the manual show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tunable {
    /// Its key.
    pub(crate) key: String,
    /// The value that it has without `--set`.
    pub(crate) default: String,
    /// What it changes.
    pub(crate) meaning: String,
}

/// All tunables.
pub(crate) fn all() -> Vec<Tunable> {
    let command = Tunables::command();
    let of = |argument: &clap::Arg| Tunable {
        key: argument.get_id().to_string(),
        default: argument
            .get_default_values()
            .first()
            .map_or_else(|| "auto".to_owned(), |default| default.to_string_lossy().into_owned()),
        meaning: argument.get_help().map(ToString::to_string).unwrap_or_default(),
    };
    command.get_arguments().filter(|argument| argument.get_id() != "version").map(of).collect()
}

/// Whether `key` names a tunable.
pub(crate) fn is_key(key: &str) -> bool {
    all().iter().any(|tunable| tunable.key == key)
}

impl Tunables {
    fn of(settings: &[String]) -> Result<Self, clap::Error> {
        Self::try_parse_from(settings.iter().map(|setting| format!("--{setting}")))
    }

    /// The policy `range`.
    pub(crate) fn range(&self) -> RangeConfig {
        RangeConfig {
            range_bytes: self.range_bytes,
            whole_bytes: self.range_whole,
            file_bytes_max: self.range_max,
            clusters: self.range_clusters,
            ..RangeConfig::default()
        }
    }
}

impl SetArgs {
    /// Each tunable with its value.
    pub(crate) fn values(&self) -> Vec<(Tunable, String)> {
        let said = |key: &str| {
            let settings = self.set.iter().rev();
            settings.filter_map(|setting| setting.split_once('=')).find(|(said, _)| *said == key)
        };
        all()
            .into_iter()
            .map(|tunable| {
                let value =
                    said(&tunable.key).map_or_else(|| tunable.default.clone(), |(_, value)| value.to_owned());
                (tunable, value)
            })
            .collect()
    }
}

/// What the policy range does about clusters of page faults.
fn clusters() -> impl TypedValueParser<Value = Clusters> {
    values::one_of(bowwave_baselines::CLUSTERS)
}

/// What the kernel's page cache does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keep {
    /// On, but off without readahead.
    Auto,
    /// The kernel's page cache keeps pages.
    On,
    /// It does not.
    Off,
}

/// `KEY=VALUE` with a key that exists and a value that it takes; keys may be written with `-`.
fn setting(text: &str) -> Result<String, String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("not KEY=VALUE".to_owned());
    };
    let key = key.replace('-', "_");
    if !is_key(&key) {
        let known: Vec<_> = all().into_iter().map(|tunable| tunable.key).collect();
        return Err(format!("there is no tunable '{key}'; there are {}", known.join(", ")));
    }
    let setting = format!("{key}={value}");
    match Tunables::of(std::slice::from_ref(&setting)) {
        Ok(_) => Ok(setting),
        Err(error) => {
            // "error: invalid value 'x' for '--key <NAME>': why"
            let text = error.render().to_string();
            let line = text.lines().next().unwrap_or_default();
            Err(line.split_once(">': ").map_or(line, |(_, why)| why).trim_start_matches("error: ").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_one_by_one_and_the_last_of_a_key_counts() {
        assert_eq!(setting("range-bytes=64KiB"), Ok("range_bytes=64KiB".to_owned()));
        let refusal = |text: &str| setting(text).expect_err("it is wrong");
        assert!(refusal("range_bytes").contains("KEY=VALUE"));
        assert!(refusal("fifo=3").contains("there are range_bytes, "), "{}", refusal("fifo=3"));
        assert!(refusal("range_bytes=x").contains("1MiB"), "{}", refusal("range_bytes=x"));
        assert!(refusal("device_depth=0").contains("1..=4096"), "{}", refusal("device_depth=0"));
        assert!(refusal("kernel_cache=maybe").contains("maybe"), "{}", refusal("kernel_cache=maybe"));
        let set = SetArgs { set: ["device_depth=3", "device_depth=4"].map(str::to_owned).to_vec() };
        assert_eq!(set.tunables().device_depth, Some(4));
    }

    #[test]
    fn every_tunable_has_a_meaning_and_a_default_that_it_takes() {
        for Tunable { key, default, meaning } in all() {
            assert!(!meaning.is_empty(), "{key}");
            assert!(default == "auto" || setting(&format!("{key}={default}")).is_ok(), "{key}={default}");
        }
    }
}
