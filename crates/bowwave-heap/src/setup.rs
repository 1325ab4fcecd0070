//! Configuration from the environment, which children inherit.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use bowwave_interpose::say;
use bowwave_region::uffd::Scope;
use bowwave_region::{Spill, SwapOptions};

/// Configuration from `bowwave run`.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    pub(crate) swap: Option<SwapConfig>,
    /// File for decisions and its maximum size, as
    /// [`DecisionLog::text`](bowwave_region::engine::DecisionLog::text) writes them.
    pub(crate) journal: Option<OsString>,
    /// File for counters.
    pub(crate) report: Option<PathBuf>,
}

/// Configuration of the swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwapConfig {
    /// Size of the spill in bytes.
    pub(crate) spill_bytes: u64,
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
    /// Minimum size of served allocations in bytes.
    pub(crate) from_bytes: usize,
    /// Value of the swap's setting `swap.policy`.
    pub(crate) policy: String,
    pub(crate) path: PathBuf,
}

/// Environment variables.
pub(crate) const SWAP: &str = "BOWWAVE_RUN_SWAP";
pub(crate) const JOURNAL: &str = "BOWWAVE_RUN_JOURNAL";
pub(crate) const REPORT: &str = "BOWWAVE_RUN_REPORT";

/// The configuration, read from the environment once.
pub(crate) fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| {
        let swap = env::var_os(SWAP).and_then(|text| {
            let config = SwapConfig::parse(&text);
            if config.is_none() {
                say(&format_args!("{SWAP}={}: not understood; ignored", text.display()));
            }
            config
        });
        Setup { swap, journal: env::var_os(JOURNAL), report: env::var_os(REPORT).map(PathBuf::from) }
    })
}

impl SwapConfig {
    /// `spill=N memory=N from=N policy=NAME PATH`.
    fn parse(text: &OsStr) -> Option<Self> {
        let mut words = text.as_bytes().splitn(5, |&byte| byte == b' ');
        let mut value =
            |name: &str| std::str::from_utf8(words.next()?).ok()?.strip_prefix(name)?.strip_prefix('=');
        let mut number = |name: &str| value(name)?.parse::<u64>().ok();
        let (spill_bytes, memory_bytes, from) = (number("spill")?, number("memory")?, number("from")?);
        let policy = value("policy")?.to_owned();
        let path = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
        let from_bytes = usize::try_from(from).ok()?.max(1);
        Some(Self { spill_bytes, memory_bytes, from_bytes, policy, path })
    }

    pub(crate) fn spill(&self) -> Spill {
        Spill::file(&self.path, self.spill_bytes)
    }

    pub(crate) fn options(&self) -> SwapOptions {
        // The kernel's page faults must be served, too: a `read` into swapped-out memory has some.
        let scope = Some(Scope::All);
        SwapOptions { memory_bytes: Some(self.memory_bytes), scope, ..SwapOptions::default() }
    }

    /// Capacity in bytes, of memory and spill together.
    pub(crate) fn capacity(&self) -> usize {
        usize::try_from(self.spill_bytes.saturating_add(self.memory_bytes)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_has_sizes_and_any_path() {
        let parse = |text: &str| SwapConfig::parse(OsStr::new(text));
        let config = SwapConfig {
            spill_bytes: 1 << 33,
            memory_bytes: 5,
            from_bytes: 1,
            policy: "vma".to_owned(),
            path: "/a b/c=d".into(),
        };
        assert_eq!(parse("spill=8589934592 memory=5 from=0 policy=vma /a b/c=d"), Some(config));
        for bad in [
            "",
            "spill=1",
            "spill=1 memory=2 from=3 policy=vma",
            "spill=1 memory=2 from=3 /a",
            "spill=x memory=2 from=3 policy=vma /a",
            "memory=2 spill=1 from=3 policy=vma /a",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
