//! What can be set.

use crate::config::ConfigError;

/// The finer points of [`Policy::Stream`](crate::Policy::Stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Streams of a file that are told apart at a time; of the one used least recently only its mark is remembered.
    /// 1 to 1024, 32 by default (ZFS has 8 at most, by file size).
    pub streams: u32,
    /// The promise: pages read ahead in a file that nobody uses are at most so many percent of the pages that were used, two
    /// windows for each stream, and sixteen. At most 1000; 25 by default, as Seastar has it.
    pub waste_percent: u32,
    /// Most pages ahead of a stream, if its readers wait often enough. 65536 by default, 256 MiB in pages of 4 KiB.
    pub distance_pages_max: u64,
    /// Pages that the readers themselves read ahead, as a kernel does on a mount: of what is asked for in one piece so many at
    /// the end are wanted by nobody, and nobody waits for them. 0, the default, if readers ask for what they want.
    pub reader_ahead_pages: u64,
    /// Where requests cost little but time, as at an object store: windows of a reader who is longer than a second at one are of no
    /// more pages than he reads in that, and of so many at least. 0, the default, for windows that are of one length however slow their
    /// reader is, as suits a disk, which pays each with a seek.
    pub slow_window_pages: u64,
}

impl StreamConfig {
    /// Of so many pages of a request at the begin of a file, those that somebody wants: a kernel asks for the next power of two, twice,
    /// but for no more than its largest window, which may be none.
    pub(super) fn asked_of(&self, pages: u64) -> u64 {
        if self.reader_ahead_pages == 0 || pages == 0 {
            return pages;
        }
        ((1 << pages.ilog2()) / 2).max(1)
    }

    /// Checks every field.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let &Self { streams, waste_percent, distance_pages_max, .. } = self;
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
        Self {
            streams: 32,
            waste_percent: 25,
            distance_pages_max: 1 << 16,
            reader_ahead_pages: 0,
            slow_window_pages: 0,
        }
    }
}
