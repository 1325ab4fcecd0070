//! Options of an engine, checked once.

use std::time::Duration;

use bowwave_core::schedule::{Algorithm, KnobError, SchedulerConfig};
use bowwave_core::{Config, PageSize, Policy, RangeConfig, StreamConfig, WriteBackConfig};

use crate::ahead::AheadBudget;
use crate::error::{Error, Result};
use crate::memory::available_memory;

/// How an [`Engine`](crate::Engine) is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory for pages and their bookkeeping; a quarter of the memory there is if `None`.
    pub cache_bytes: Option<u64>,
    /// Bytes of a page: a power of two from 4 KiB to 2 MiB.
    pub page_bytes: u64,
    /// Most pages of a readahead window. 32 pages (128 KiB) is Linux's default; slow stores want far more.
    pub ra_pages: u32,
    /// The readahead policy.
    pub policy: Policy,
    /// The finer points of [`Policy::Range`].
    pub range: RangeConfig,
    /// The finer points of [`Policy::Stream`].
    pub stream: StreamConfig,
    /// How much may be on its way ahead of readers, for this engine or for several together; as much as memory has room for if
    /// `None`.
    pub ahead_max: Option<AheadBudget>,
    /// Shards of the cache, each with its own lock; one for each processor, but no more than 16, if `None`. Small caches
    /// get fewer.
    pub shards: Option<usize>,
    /// In which order a store is asked.
    pub scheduler: Algorithm,
    /// Its [knobs](bowwave_core::schedule::KNOBS) that are not to be as the store has them, such as `starved=4,promotion=0`.
    pub scheduler_knobs: Option<String>,
    /// Requests kept at a store at once, the others wait where they can still be put in order; what suits the store
    /// ([`Profile::slots`](bowwave_backend::Profile::slots)) if `None`. A store that is given more than that lets them
    /// wait, too, in its own order.
    pub device_depth: Option<u32>,
    /// Bytes that may be dirty or on their way to a store, before writers wait; a fifth of the cache if `None`, and never
    /// more than half of it. Shared out evenly among the shards, as files are.
    pub dirty_bytes: Option<u64>,
    /// Dirty bytes from which on the engine writes back; half of [`dirty_bytes`](Self::dirty_bytes) if `None`.
    pub dirty_background_bytes: Option<u64>,
    /// How long bytes may be dirty before they are written back, however few.
    pub dirty_expire: Duration,
    /// Whether the cache's memory is of huge pages where the system offers them: warm random reads of 4 KiB in this process
    /// are then some tenth faster. Memory is taken 2 MiB at a time; where that takes long, because the system has no such memory at hand, pages are small.
    pub huge_pages: bool,
    /// How often a failed request is tried again, where that may help.
    pub retries: u32,
    /// Of hundred reads that somebody waits for, how many at most may be asked for a second time because they are late; 0 for
    /// none. For stores whose requests now and then take very much longer than others and cost nothing: the second try counts
    /// as a request. Reads of up to 256 KiB of stores a millisecond away and more; writes never.
    pub hedge_percent: u32,
    /// Seed of the jitter in the pauses between tries.
    pub seed: u64,
    /// How the stores are reached.
    pub store: bowwave_backend::Options,
    /// Keep a journal of every event for up to this many events a shard; 0 for none.
    pub journal_events: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: None,
            page_bytes: 4096,
            ra_pages: 32,
            policy: Policy::Stream,
            range: RangeConfig::default(),
            stream: StreamConfig::default(),
            ahead_max: None,
            shards: None,
            scheduler: Algorithm::Deadline,
            scheduler_knobs: None,
            device_depth: None,
            dirty_bytes: None,
            dirty_background_bytes: None,
            dirty_expire: Duration::from_secs(30),
            huge_pages: true,
            retries: 6,
            hedge_percent: 0,
            seed: 0,
            store: bowwave_backend::Options::default(),
            journal_events: 0,
        }
    }
}

/// What follows from the options.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) page_size: PageSize,
    pub(crate) frames: u32,
    /// Bytes of the cache as the options or the machine have it.
    pub(crate) cache_bytes: u64,
    pub(crate) shards: usize,
    /// Of each shard; `frames` is what it gets at first.
    pub(crate) config: Config,
}

/// Bookkeeping of a frame, in the worst case of single pages far apart: its entry, its leaf in the page table, the shadow of
/// a page that it held before. Counted against the cache, so that it stays within its bytes.
const METADATA_BYTES: u64 = 320;
/// Bytes of a write-out; the queue joins neighbours.
const WRITE_OUT_BYTES: u64 = 1 << 20;
/// Bytes that each shard has on their way to stores for write-back: as many as the queue of a disk in Linux holds, 128
/// requests of 512 KiB.
const WRITE_BACK_BYTES: u64 = 64 << 20;
/// Bytes of a fill: readers wake when theirs is done, and the queue joins neighbours again.
pub(crate) const FILL_BYTES: u64 = 256 << 10;

impl Options {
    /// Checks the options and works out what follows.
    ///
    /// # Errors
    /// `Error::Options` names the option, its value and its bound.
    pub(crate) fn plan(&self) -> Result<Plan> {
        if self.device_depth == Some(0) {
            return Err(Error::Options("device_depth is 0, but must be at least 1".into()));
        }
        if self.hedge_percent > 100 {
            let message = format!("hedge_percent is {}, but must be at most 100", self.hedge_percent);
            return Err(Error::Options(message));
        }
        turn(&mut SchedulerConfig::of(self.scheduler), self.scheduler_knobs.as_deref())
            .map_err(|error| Error::Options(format!("scheduler: {error}")))?;
        let page_size = PageSize::new(self.page_bytes).map_err(|error| Error::Options(error.to_string()))?;
        let cache_bytes = self.cache_bytes.unwrap_or_else(|| available_memory() / 4);
        let frames = cache_bytes / (page_size.bytes() + METADATA_BYTES);
        let frames = u32::try_from(frames).unwrap_or(u32::MAX).min(Config::UNLIMITED);
        let window = u64::from(self.ra_pages) * page_size.bytes();
        let config = |frames: u32| Config {
            page_size,
            frames,
            reserve_frames: reserve(frames),
            ra_pages: self.ra_pages,
            fill_pages_max: u32::try_from((FILL_BYTES / page_size.bytes()).max(1)).expect("at most 64"),
            policy: self.policy,
            range: self.range,
            stream: self.stream,
            ..Config::default()
        };
        if self.ra_pages > 0 && u64::from(frames) < u64::from(self.ra_pages) + u64::from(reserve(frames)) + 1
        {
            return Err(Error::Options(format!(
                "a cache of {} is smaller than one readahead window of {} ({} pages of {}) \
                 with its bookkeeping and a reserve for demand; give a larger cache or fewer ra_pages",
                bowwave_backend::size_text(cache_bytes),
                bowwave_backend::size_text(window),
                self.ra_pages,
                page_size.bytes()
            )));
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from).min(16);
        // Each shard must hold a few windows at the least, or sharding would cost more than it gains.
        let roomy = (frames / self.ra_pages.max(1) / 8).max(1) as usize;
        let shards = match self.shards {
            Some(0) => return Err(Error::Options("shards is 0, but must be at least 1".into())),
            shards => shards.unwrap_or(processors).min(roomy),
        };
        let mut config = config(frames);
        config.write_back = self.write_back(cache_bytes, page_size, shards)?;
        let plan = Plan { page_size, frames, cache_bytes, shards, config };
        plan.config.validate().map_err(|error| Error::Options(error.to_string()))?;
        Ok(plan)
    }
}

/// What can be changed while an engine runs: [`Engine::tune`](crate::Engine::tune).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// As [`Options::ra_pages`].
    pub ra_pages: u32,
    /// As [`Options::dirty_bytes`].
    pub dirty_bytes: u64,
    /// As [`Options::dirty_background_bytes`].
    pub dirty_background_bytes: u64,
    /// As [`Options::dirty_expire`].
    pub dirty_expire: Duration,
}

impl Tuning {
    /// What the options say, for a cache of `cache_bytes`.
    pub(crate) fn of(options: &Options, cache_bytes: u64) -> Self {
        let dirty_bytes = options.dirty_bytes.unwrap_or(cache_bytes / 5);
        Self {
            ra_pages: options.ra_pages,
            dirty_bytes,
            dirty_background_bytes: options.dirty_background_bytes.unwrap_or(dirty_bytes / 2),
            dirty_expire: options.dirty_expire,
        }
    }

    /// The options with these values.
    pub(crate) fn apply(self, options: Options) -> Options {
        Options {
            ra_pages: self.ra_pages,
            dirty_bytes: Some(self.dirty_bytes),
            dirty_background_bytes: Some(self.dirty_background_bytes),
            dirty_expire: self.dirty_expire,
            ..options
        }
    }
}

/// Sets knobs, if there are any.
pub(crate) fn turn(config: &mut SchedulerConfig, knobs: Option<&str>) -> std::result::Result<(), KnobError> {
    knobs.map_or(Ok(()), |knobs| config.turn(knobs))
}

impl Options {
    /// How much each shard may have dirty.
    pub(crate) fn write_back(
        &self,
        cache_bytes: u64,
        page_size: PageSize,
        shards: usize,
    ) -> Result<WriteBackConfig> {
        let pages = |bytes: u64| u32::try_from(bytes / page_size.bytes() / shards as u64).unwrap_or(u32::MAX);
        let dirty_bytes = self.dirty_bytes.unwrap_or(cache_bytes / 5);
        let background_bytes = self.dirty_background_bytes.unwrap_or(dirty_bytes / 2);
        if self.dirty_bytes == Some(0) {
            return Err(Error::Options("dirty_bytes is 0, but must be at least 1".into()));
        }
        if background_bytes >= dirty_bytes && background_bytes > 0 {
            return Err(Error::Options(format!(
                "dirty_background_bytes is {background_bytes}, but must be below dirty_bytes, which is {dirty_bytes}"
            )));
        }
        let dirty_max = pages(dirty_bytes).max(1);
        let at_least_one = |bytes: u64| u32::try_from(bytes / page_size.bytes()).unwrap_or(u32::MAX).max(1);
        Ok(WriteBackConfig {
            dirty_max,
            background: pages(background_bytes).min(dirty_max - 1),
            expire_ns: u64::try_from(self.dirty_expire.as_nanos()).unwrap_or(u64::MAX),
            out_pages_max: at_least_one(WRITE_OUT_BYTES),
            in_flight_max: at_least_one(WRITE_BACK_BYTES),
        })
    }
}

/// Frames set aside for demand: a sixteenth, at most 1024.
fn reserve(frames: u32) -> u32 {
    (frames / 16).clamp(u32::from(frames > 1), 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: Options) -> String {
        options.plan().expect_err("out of bounds").to_string()
    }

    #[test]
    fn bad_options_name_the_option_and_the_bound() {
        assert!(
            refusal(Options { page_bytes: 0, ..Options::default() })
                .starts_with("page_size is 0, but must be")
        );
        assert!(
            refusal(Options { ra_pages: 0, ..Options::default() }).starts_with("ra_pages is 0, but must be")
        );
        assert!(refusal(Options { shards: Some(0), ..Options::default() }).starts_with("shards is 0"));
        assert!(
            refusal(Options { device_depth: Some(0), ..Options::default() }).starts_with("device_depth is 0")
        );
        let hedge = refusal(Options { hedge_percent: 101, ..Options::default() });
        assert!(hedge.starts_with("hedge_percent is 101"), "{hedge}");
        let knobs =
            |knobs: &str| refusal(Options { scheduler_knobs: Some(knobs.into()), ..Options::default() });
        assert!(knobs("fifo=3").starts_with("scheduler: there is no knob `fifo`; there are"));
        assert!(knobs("batch=0").starts_with("scheduler: batch = 0: must be"));
        let small = Options { cache_bytes: Some(64 << 10), ..Options::default() };
        assert!(refusal(small).starts_with("a cache of 64KiB is smaller than one readahead window"));
    }

    #[test]
    fn small_caches_have_one_shard() {
        let plan = Options { cache_bytes: Some(1 << 20), shards: Some(16), ..Options::default() }
            .plan()
            .expect("valid");
        assert_eq!(plan.shards, 1);
        assert!(u64::from(plan.frames) * (4096 + METADATA_BYTES) <= 1 << 20);
    }
}
