//! The configurations to measure.

use std::str::FromStr;

/// One configuration of a mount.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) shipped: bool,
    pub(crate) direct: bool,
    pub(crate) ra_kib: u32,
    pub(crate) threads: usize,
    pub(crate) clone: bool,
    pub(crate) push: Push,
    pub(crate) push_kib: usize,
    pub(crate) slow: bool,
}

/// When to push the pages after a sequential request into the kernel's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    Never,
    Before,
    After,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut choice = Self {
            shipped: false,
            direct: false,
            ra_kib: 128,
            threads: 4,
            clone: false,
            push: Push::Never,
            push_kib: 1024,
            slow: false,
        };
        for word in text.split(',') {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u32>().map_err(|_| word.to_owned());
            match (name, value) {
                ("shipped", "") => choice.shipped = true,
                ("shipped-off", "") => (choice.shipped, choice.direct) = (true, true),
                ("direct", "") => choice.direct = true,
                ("clone", "") => choice.clone = true,
                ("slow", "") => choice.slow = true,
                ("ra", _) => choice.ra_kib = number()?,
                ("threads", _) => choice.threads = number()?.max(1) as usize,
                ("push_kib", _) => choice.push_kib = number()? as usize,
                ("push", "before") => choice.push = Push::Before,
                ("push", "after") => choice.push = Push::After,
                _ => return Err(word.to_owned()),
            }
        }
        Ok(choice)
    }
}
