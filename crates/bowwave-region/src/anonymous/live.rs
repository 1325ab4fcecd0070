//! Settings of a running swap as text, under the names of Linux where Linux has them.

use bowwave_core::swap::pager::SwapTuning;

use super::region::Swap;
use crate::error::{Error, Result};

/// A setting that can be changed at run time: the one definition of its name, meaning and values.
#[derive(Clone, Copy, Debug)]
pub struct SwapSetting {
    /// Its name.
    pub key: &'static str,
    /// What it changes.
    pub meaning: &'static str,
    /// Also gets whether the spill is on a rotating disk. An error names the valid values.
    set: fn(&mut SwapTuning, bool, &str) -> std::result::Result<(), String>,
    get: fn(&SwapTuning) -> String,
}

/// Every setting of a running swap.
pub const SWAP_SETTINGS: &[SwapSetting] = &[
    SwapSetting {
        key: "swap.policy",
        meaning: "Readahead policy of swapped memory: none, cluster, vma, adaptive, or linux, which is \
                  cluster on rotating disks and vma elsewhere. Regions get a fresh state",
        set: |tuning, rotating, text| {
            let named = bowwave_baselines::SWAP.into_iter().find(|policy| policy.name() == text);
            let linux = (text == "linux").then(|| bowwave_baselines::swap_for_store(rotating));
            tuning.policy =
                named.or(linux).ok_or("not a policy; known: none, cluster, vma, adaptive, linux")?;
            Ok(())
        },
        get: |tuning| tuning.policy.name().to_owned(),
    },
    SwapSetting {
        key: "swap.ra_pages",
        meaning: "Largest readahead window of the policy adaptive, in pages; at least 8",
        set: |tuning, _, text| number(text).map(|pages| tuning.ahead_max = pages),
        get: |tuning| tuning.ahead_max.to_string(),
    },
    SwapSetting {
        key: "swap.page_cluster",
        meaning: "Largest window of the policies vma and cluster as a power of two: Linux's \
                  vm.page-cluster; 0 for no readahead, at most 31",
        set: |tuning, _, text| {
            let cluster = u32::try_from(number(text)?).map_err(|_| "too large")?;
            tuning.window.page_cluster = cluster;
            Ok(())
        },
        get: |tuning| tuning.window.page_cluster.to_string(),
    },
];

impl Swap {
    /// The value of a key of [`SWAP_SETTINGS`].
    ///
    /// # Errors
    /// [`Error::Range`] if there is no such key.
    pub fn setting(&self, key: &str) -> Result<String> {
        find(key).map(|setting| (setting.get)(&self.shared().tuning()))
    }

    /// Changes the value of a key of [`SWAP_SETTINGS`], for all regions of the swap.
    ///
    /// # Errors
    /// [`Error::Range`] if there is no such key, or if the value does not fit it. Then nothing
    /// changes.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        let (setting, shared) = (find(key)?, self.shared());
        let changed = shared.tune(|tuning| (setting.set)(tuning, shared.seeks(), value));
        changed.map_err(|why| Error::Range(format!("{key}={value}: {why}")))
    }
}

fn find(key: &str) -> Result<&'static SwapSetting> {
    SWAP_SETTINGS.iter().find(|setting| setting.key == key).ok_or_else(|| {
        let keys: Vec<_> = SWAP_SETTINGS.iter().map(|setting| setting.key).collect();
        Error::Range(format!("{key}: no such setting of a swap; known: {}", keys.join(", ")))
    })
}

fn number(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| "not a whole number".to_owned())
}
