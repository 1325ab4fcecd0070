//! What can be set.

use crate::config::ConfigError;

/// The finer points of [`Policy::Stream`](crate::Policy::Stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Streams of a file that are told apart at a time; of the one used least recently only its mark is remembered.
    /// 1 to 1024, 32 by default (ZFS has 8 at most, by file size).
    pub streams: u32,
    /// The promise: pages read ahead of a stream that nobody uses are at most so many percent of the pages that it has used,
    /// and two windows. At most 1000; 25 by default, as Seastar has it.
    pub waste_percent: u32,
    /// Most pages ahead of a stream, if its readers wait often enough. 65536 by default, 256 MiB in pages of 4 KiB.
    pub distance_pages_max: u64,
}

impl StreamConfig {
    /// Checks every field.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let &Self { streams, waste_percent, distance_pages_max } = self;
        let refused = |field, value, bound| Err(ConfigError { field, value, bound });
        if !(1..=1024).contains(&streams) {
            return refused("stream.streams", streams.into(), "from 1 to 1024");
        }
        if waste_percent > 1000 {
            return refused("stream.waste_percent", waste_percent.into(), "at most 1000 %");
        }
        if distance_pages_max == 0 {
            return refused("stream.distance_pages_max", distance_pages_max, "at least 1 page");
        }
        Ok(())
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { streams: 32, waste_percent: 25, distance_pages_max: 1 << 16 }
    }
}
