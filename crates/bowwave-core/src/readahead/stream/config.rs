//! Settings of the policy.

use crate::config::ConfigError;

/// Settings of [`Policy::Stream`](crate::Policy::Stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Streams of a file in the table; up to four times as many if each has a reader. 1 to 1024; 32
    /// by default (ZFS has at most 8, by file size).
    pub streams: u32,
    /// The waste budget of readahead, in percent of the pages used. At most 1000; 25 by default, as
    /// in Seastar. Until pages were used, two windows of a stream and sixteen of a file may be
    /// wasted.
    pub waste_percent: u32,
    /// Maximum pages ahead of a stream whose readers wait. 65536 by default: 256 MiB in pages of 4
    /// KiB.
    pub distance_pages_max: u64,
    /// Largest window, in pages, of the reader's own readahead, as a kernel has on a mount. It may
    /// have added up to this many pages at the end of each request, and no program waits for those.
    /// 0, the default, if requests are what programs read.
    pub reader_ahead_pages: u64,
    /// Smallest window, in pages, for a reader that needs more than a second for a full one. 0, the
    /// default, keeps full windows: on a disk, shorter windows cost seeks. On an object store,
    /// requests cost only time. There, a stream that is alone may also use the whole waste budget
    /// of its file. A first read at page 0 that is as long as a window has two windows after it,
    /// unless it comes from a kernel ([`reader_ahead_pages`](Self::reader_ahead_pages)).
    pub slow_window_pages: u64,
    /// Whether the store has a head, as a disk does, so that the pages of one request delay all
    /// others. Its requests are then short if readahead mostly goes unused, and none are sent that
    /// would take longer than the requests that they save. False by default.
    pub seeks: bool,
}

impl StreamConfig {
    /// The pages of a first request that the program requested. A kernel rounds them up to a power
    /// of two, and doubles them, up to its largest window.
    pub(super) fn program_pages(&self, pages: u64) -> u64 {
        if self.reader_ahead_pages == 0 || pages == 0 {
            return pages;
        }
        ((1 << pages.ilog2()) / 2).max(1)
    }

    /// Whether a kernel cut a request of this length at its largest window.
    pub(super) fn is_clipped(&self, pages: u64) -> bool {
        self.reader_ahead_pages > 0 && pages >= self.reader_ahead_pages
    }

    /// Whether requests to the store cost only time, as to an object store.
    pub(super) fn costs_only_time(&self) -> bool {
        self.slow_window_pages > 0 && !self.seeks
    }

    /// Checks every field.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let &Self { streams, waste_percent, distance_pages_max, .. } = self;
        ConfigError::check([
            ("stream.streams", streams.into(), (1..=1024).contains(&streams), "from 1 to 1024"),
            ("stream.waste_percent", waste_percent.into(), waste_percent <= 1000, "at most 1000 %"),
            ("stream.distance_pages_max", distance_pages_max, distance_pages_max > 0, "at least 1 page"),
        ])
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
            seeks: false,
        }
    }
}
