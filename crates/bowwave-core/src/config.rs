//! Configuration of a cache, checked once.

use core::fmt;
use core::str::FromStr;

use crate::page::PageSize;
use crate::readahead::{Policy, RangeConfig, StreamConfig};
use crate::write::WriteBackConfig;

/// Settings of a [`Cache`](crate::Cache), checked by [`Cache::new`](crate::Cache::new).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a page. The core uses it only to size the inactive list; everything else counts
    /// pages.
    pub page_size: PageSize,
    /// Initial number of frames; [`Event::Granted`](crate::Event::Granted) adds more. 1 to 2^30, or
    /// [`Config::UNLIMITED`].
    pub frames: u32,
    /// Frames that readahead never takes, so that a demand read finds one at once. Below `frames`.
    pub reserve_frames: u32,
    /// Largest readahead window, in pages, at most 2^20. Linux's default is 32 (128 KiB). 0 for no
    /// readahead: `none`, `range` and `stream` then read the rest of the request, other policies
    /// page by page, as Linux.
    pub ra_pages: u32,
    /// Most pages of a window of `ondemand` and `ondemand-patch` beyond its lookahead mark: the
    /// paper's lookahead size. 0 reads the next window at the end of the last one; more overlaps
    /// the reader with the device.
    pub la_size: u32,
    /// Whether a cached page also gets the lookahead mark of a window. Readahead then persists on
    /// cache hits, which costs lookups in cached files: for readers that must never wait.
    pub persist: bool,
    /// Most pages of one fill, at least 1. Longer runs become several fills, each of which wakes
    /// its own readers.
    pub fill_pages_max: u32,
    /// The readahead policy of handles opened from now on.
    pub policy: Policy,
    /// Settings of [`Policy::Range`].
    pub range: RangeConfig,
    /// Settings of [`Policy::Stream`].
    pub stream: StreamConfig,
    /// Which page is evicted when no frame is free.
    pub eviction: Eviction,
    /// Limits of dirty pages.
    pub write_back: WriteBackConfig,
    /// Whether actions include what policies weighed ([`Action::Weighed`](crate::Action::Weighed)).
    pub explain: bool,
}

/// The settings of readahead windows that can be changed at run time
/// ([`Cache::tune`](crate::Cache::tune)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowTuning {
    /// As [`Config::ra_pages`].
    pub ra_pages: u32,
    /// As [`Config::la_size`].
    pub la_size: u32,
    /// As [`Config::persist`].
    pub persist: bool,
}

named_enum! {
    /// Which page is evicted when no frame is free.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Eviction {
        /// As Linux: an inactive list, an active list for pages touched twice, and shadows that
        /// activate at once pages evicted too early.
        #[default]
        TwoList = "linux",
        /// As Linux 2.6.20: two lists without shadows. With each reclaimed page it deactivates
        /// pages in proportion to the lists' lengths, so pages touched twice are protected only for
        /// a while. The readahead documents of 2007 were measured with it.
        Scan = "linux-2.6",
        /// The least recently used page. For comparison: one scan of a file evicts everything else.
        Lru = "lru",
    }
}

/// A field of a configuration that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The allowed values.
    pub bound: &'static str,
}

impl Config {
    /// Unlimited frames: nothing is ever evicted.
    pub const UNLIMITED: u32 = 1 << 30;

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (range, write_back) = (&self.range, &self.write_back);
        ConfigError::check([
            ("frames", self.frames.into(), (1..=Self::UNLIMITED).contains(&self.frames), "from 1 to 2^30"),
            ("reserve_frames", self.reserve_frames.into(), self.reserve_frames < self.frames, "below frames"),
            ("ra_pages", self.ra_pages.into(), self.ra_pages <= 1 << 20, "at most 1048576 pages"),
            at_least_1("fill_pages_max", self.fill_pages_max),
            (
                "range.file_bytes_max",
                range.file_bytes_max,
                (1 << 16..=1 << 40).contains(&range.file_bytes_max),
                "from 64 KiB to 1 TiB",
            ),
            (
                "range.range_bytes",
                range.range_bytes,
                range.range_bytes == 0 || (1 << 16..=range.file_bytes_max).contains(&range.range_bytes),
                "0, or from 64 KiB to range.file_bytes_max",
            ),
            (
                "range.whole_bytes",
                range.whole_bytes,
                range.whole_bytes <= range.file_bytes_max,
                "at most range.file_bytes_max",
            ),
            at_least_1("write_back.dirty_max", write_back.dirty_max),
            (
                "write_back.background",
                write_back.background.into(),
                write_back.background < write_back.dirty_max,
                "below write_back.dirty_max",
            ),
            at_least_1("write_back.out_pages_max", write_back.out_pages_max),
            at_least_1("write_back.in_flight_max", write_back.in_flight_max),
        ])?;
        self.stream.validate()
    }
}

/// A field, its value, whether it is within its bound, and the bound.
type Check = (&'static str, u64, bool, &'static str);

fn at_least_1(field: &'static str, pages: u32) -> Check {
    (field, pages.into(), pages >= 1, "at least 1 page")
}

impl ConfigError {
    /// The first of these fields that is out of bounds.
    pub(crate) fn check<const N: usize>(checks: [Check; N]) -> Result<(), Self> {
        match checks.into_iter().find(|&(_, _, holds, _)| !holds) {
            Some((field, value, _, bound)) => Err(Self { field, value, bound }),
            None => Ok(()),
        }
    }
}

/// 4 KiB pages, no limit on frames, Linux's 32 pages of readahead with the on-demand policy, fills
/// of any length.
impl Default for Config {
    fn default() -> Self {
        Self {
            page_size: PageSize::KIB_4,
            frames: Self::UNLIMITED,
            reserve_frames: 0,
            ra_pages: 32,
            la_size: u32::MAX,
            persist: false,
            fill_pages_max: u32::MAX,
            policy: Policy::OnDemand,
            range: RangeConfig::default(),
            stream: StreamConfig::default(),
            eviction: Eviction::TwoList,
            write_back: WriteBackConfig::default(),
            explain: false,
        }
    }
}

/// Parses the name on the command line; the error lists all names.
impl FromStr for Eviction {
    type Err = &'static str;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|eviction| eviction.name() == name)
            .ok_or("no such eviction; there are linux, linux-2.6, lru")
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.field, self.value, self.bound)
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_field_value_and_bound() {
        let ra_pages = (1 << 20) + 1;
        let error = Config { ra_pages, ..Config::default() }.validate().expect_err("it is out of bounds");
        assert_eq!((error.field, error.value), ("ra_pages", ra_pages.into()));
        let error = Config { frames: 4, reserve_frames: 4, ..Config::default() }
            .validate()
            .expect_err("no frame left");
        assert_eq!((error.field, error.value), ("reserve_frames", 4));
        assert_eq!(Config { frames: 0, ..Config::default() }.validate().expect_err("none").field, "frames");
        assert_eq!(
            Config { fill_pages_max: 0, ..Config::default() }.validate().expect_err("none").field,
            "fill_pages_max"
        );
        assert_eq!(Config::default().validate(), Ok(()));
    }
}
