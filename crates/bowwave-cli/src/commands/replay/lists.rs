//! Parses lists and choices of `replay` options.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Eviction, Policy};
use bowwave_sim::device::DeviceSpec;
use bowwave_sim::oracle::Bound;
use bowwave_sim::queue::QueueConfig;

use crate::values;

/// Some policies, and perhaps the oracle.
#[derive(Clone, Debug)]
pub(super) struct Policies {
    pub(super) policies: Vec<Policy>,
    pub(super) oracle: Oracle,
}

/// Whether the lower bound is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Oracle {
    No,
    /// Where one exists.
    IfItCan,
    Yes,
}

/// Devices, as [`DeviceSpec::open`] takes them.
#[derive(Clone, Debug)]
pub(super) struct Devices(pub(super) Vec<String>);

/// Schedulers, as [`QueueConfig::with_scheduler`] takes them.
#[derive(Clone, Debug)]
pub(super) struct Schedulers(pub(super) Vec<String>);

/// Bytes; `None` is unlimited.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheSize(pub(super) Option<u64>);

pub(super) fn policies(text: &str) -> Result<Policies, String> {
    if text == "all" {
        return Ok(Policies { policies: bowwave_baselines::ALL.to_vec(), oracle: Oracle::IfItCan });
    }
    if text == Bound::ORACLE {
        return Ok(Policies { policies: Vec::new(), oracle: Oracle::Yes });
    }
    let known = bowwave_baselines::names().join(", ");
    bowwave_baselines::policy(text)
        .map(|policy| Policies { policies: vec![policy], oracle: Oracle::No })
        .ok_or_else(|| format!("not a policy; there are all, {known}, oracle"))
}

pub(super) fn eviction(text: &str) -> Result<Eviction, &'static str> {
    text.parse()
}

/// Devices separated by commas, which may also separate the overrides of one.
pub(super) fn devices(text: &str) -> Result<Devices, String> {
    let devices = listed(text);
    for device in &devices {
        DeviceSpec::open(device, &ALGORITHMS).map_err(|error| error.to_string())?;
    }
    Ok(Devices(devices))
}

/// Schedulers separated by commas, which may also separate the settings of one.
pub(super) fn schedulers(text: &str) -> Result<Schedulers, String> {
    let schedulers = listed(text);
    for scheduler in &schedulers {
        QueueConfig::default().with_scheduler(scheduler, &ALGORITHMS)?;
    }
    Ok(Schedulers(schedulers))
}

/// Texts separated by commas, each optionally with settings after a colon, which use commas, too.
fn listed(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in text.split(',') {
        match all.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') => *last = format!("{last},{part}"),
            _ => all.push(part.to_owned()),
        }
    }
    all
}

pub(super) fn cache(text: &str) -> Result<CacheSize, String> {
    if text == "unlimited" {
        return Ok(CacheSize(None));
    }
    match values::size(text)? {
        bytes if bytes < 4096 => {
            Err("less than a page of 4096 bytes; write 'unlimited' for no limit".to_owned())
        }
        bytes => Ok(CacheSize(Some(bytes))),
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("not a share from 0 to 1".to_owned()),
    }
}
