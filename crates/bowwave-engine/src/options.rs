//! Options of an engine, checked once.

use std::time::Duration;

use bowwave_core::schedule::{Algorithm, KnobError, SchedulerConfig, SchedulerTuning};
use bowwave_core::{Config, PageSize, Policy, RangeConfig, StreamConfig, WindowTuning, WriteBackConfig};

use crate::ahead::AheadBudget;
use crate::decisions::DecisionLog;
use crate::error::{Error, Result};
use crate::memory::available_memory;

/// Settings of an [`Engine`](crate::Engine).
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory for pages and bookkeeping; `None` for a quarter of the memory.
    pub cache_bytes: Option<u64>,
    /// Bytes of a page: a power of two from 4 KiB to 2 MiB.
    pub page_bytes: u64,
    /// Largest readahead window, in pages; 0 for no readahead. Linux's default is 32 pages (128
    /// KiB); high-latency stores need far more.
    pub ra_pages: u32,
    /// As [`Config::la_size`].
    pub la_size: u32,
    /// As [`Config::persist`].
    pub persist: bool,
    /// The readahead policy.
    pub policy: Policy,
    /// Settings of [`Policy::Range`].
    pub range: RangeConfig,
    /// Settings of [`Policy::Stream`].
    pub stream: StreamConfig,
    /// Limit of readahead in flight, for this engine or several together; `None` for as much as
    /// memory holds.
    pub ahead_max: Option<AheadBudget>,
    /// Shards of the cache, each with its own lock; `None` for one per processor, at most 16. Small
    /// caches get fewer.
    pub shards: Option<usize>,
    /// Scheduler of requests to a store.
    pub scheduler: Algorithm,
    /// [Knobs](bowwave_core::schedule::KNOBS) that override the store's defaults, such as
    /// `starved=4,promotion=0`.
    pub scheduler_knobs: Option<String>,
    /// Requests in flight at a store; the others wait where they can be reordered. `None` for the
    /// store's own number ([`Profile::slots`](bowwave_backend::Profile::slots)). With a larger
    /// number, the excess waits in the store, in its order.
    pub device_depth: Option<u32>,
    /// Bytes that are dirty or being written out, beyond which writers wait. `None` for a fifth of
    /// the cache; at most half of the cache applies. Divided evenly among the shards.
    pub dirty_bytes: Option<u64>,
    /// Dirty bytes at which write-back begins; `None` for half of
    /// [`dirty_bytes`](Self::dirty_bytes).
    pub dirty_background_bytes: Option<u64>,
    /// Age at which dirty bytes are written back, however few.
    pub dirty_expire: Duration,
    /// Give memory of the cache back, down to an eighth of it, while tasks wait for memory. The
    /// system or the control group reports that (Linux's pressure stall information). The memory is
    /// used again after five calm seconds. For long-lived processes such as mounts.
    pub yields_memory: bool,
    /// Retries of a failed request, where a retry may help.
    pub retries: u32,
    /// Maximum share of demand reads that may be hedged, in percent; 0 for none. For stores whose
    /// requests occasionally take much longer than others and cost nothing, since a hedge is a
    /// second request. Applies to reads of up to 256 KiB from stores with a latency of 1 ms or
    /// more; never to writes.
    pub hedge_percent: u32,
    /// Seed of the jitter in the pauses between retries.
    pub seed: u64,
    /// Options of the stores.
    pub store: bowwave_backend::Options,
    /// Maximum events in each shard's journal; 0 for no journal.
    pub journal_events: usize,
    /// Where the decisions of readahead are written as they are made; `None` for nowhere.
    pub decisions: Option<DecisionLog>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: None,
            page_bytes: 4096,
            ra_pages: 32,
            la_size: u32::MAX,
            persist: false,
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
            yields_memory: false,
            retries: 6,
            hedge_percent: 0,
            seed: 0,
            store: bowwave_backend::Options::default(),
            journal_events: 0,
            decisions: None,
        }
    }
}

/// Values derived from the options.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) page_size: PageSize,
    pub(crate) frames: u32,
    /// Bytes of the cache, from the options or the machine.
    pub(crate) cache_bytes: u64,
    pub(crate) shards: usize,
    /// Settings of each shard; `frames` is its initial number.
    pub(crate) config: Config,
}

/// Bookkeeping bytes of a frame in the worst case of scattered single pages: its entry, its leaf in
/// the page table, and the shadow of an earlier page. Counted in the cache's size.
const METADATA_BYTES: u64 = 320;
/// Maximum bytes of a write-out; the queue merges adjacent ones.
const WRITE_OUT_BYTES: u64 = 1 << 20;
/// Maximum bytes that each shard has in flight to stores for write-back: as Linux's disk queue, 128
/// requests of 512 KiB. Smaller: idle disks. Larger: longer waits for syncs.
const WRITE_BACK_BYTES: u64 = 64 << 20;
/// Maximum bytes of a fill: readers wake when their own fill ends, and the queue merges adjacent
/// ones.
pub(crate) const FILL_BYTES: u64 = 256 << 10;

impl Options {
    /// Checks the options and derives values.
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
            la_size: self.la_size,
            persist: self.persist,
            fill_pages_max: u32::try_from((FILL_BYTES / page_size.bytes()).max(1)).expect("at most 64"),
            policy: self.policy,
            range: self.range,
            stream: self.stream,
            explain: self.decisions.is_some(),
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
        // Each shard must hold several windows, or sharding costs more than it gains.
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

/// Settings that can be changed at run time: [`Engine::tune`](crate::Engine::tune).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// As [`Options::ra_pages`].
    pub ra_pages: u32,
    /// As [`Options::la_size`].
    pub la_size: u32,
    /// As [`Options::persist`].
    pub persist: bool,
    /// As [`Options::dirty_bytes`].
    pub dirty_bytes: u64,
    /// As [`Options::dirty_background_bytes`].
    pub dirty_background_bytes: u64,
    /// As [`Options::dirty_expire`].
    pub dirty_expire: Duration,
    /// As [`Options::policy`]. Files and handles that are open get a fresh state.
    pub policy: Policy,
    /// As [`Options::range`].
    pub range: RangeConfig,
    /// Knobs of the schedulers of all stores.
    pub scheduler: SchedulerTuning,
}

/// What bounds readahead of a file by the policy `stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBudget {
    /// Size of the largest window, in bytes.
    pub window_bytes: u64,
    /// As [`StreamConfig::waste_percent`].
    pub waste_percent: u32,
    /// Size of the cache, in bytes.
    pub cache_bytes: u64,
}

impl Tuning {
    /// The options' values, for a cache of `cache_bytes`.
    pub(crate) fn of(options: &Options, cache_bytes: u64) -> Self {
        let dirty_bytes = options.dirty_bytes.unwrap_or(cache_bytes / 5);
        Self {
            ra_pages: options.ra_pages,
            la_size: options.la_size,
            persist: options.persist,
            dirty_bytes,
            dirty_background_bytes: options.dirty_background_bytes.unwrap_or(dirty_bytes / 2),
            dirty_expire: options.dirty_expire,
            policy: options.policy,
            range: options.range,
            scheduler: SchedulerTuning::default(),
        }
    }

    /// The sizes of readahead windows.
    pub(crate) const fn windows(&self) -> WindowTuning {
        let Self { ra_pages, la_size, persist, .. } = *self;
        WindowTuning { ra_pages, la_size, persist }
    }

    /// The options with these values.
    pub(crate) fn apply(self, options: Options) -> Options {
        Options {
            ra_pages: self.ra_pages,
            la_size: self.la_size,
            persist: self.persist,
            dirty_bytes: Some(self.dirty_bytes),
            dirty_background_bytes: Some(self.dirty_background_bytes),
            dirty_expire: self.dirty_expire,
            policy: self.policy,
            range: self.range,
            ..options
        }
    }
}

/// Sets knobs, if any.
pub(crate) fn turn(config: &mut SchedulerConfig, knobs: Option<&str>) -> std::result::Result<(), KnobError> {
    knobs.map_or(Ok(()), |knobs| config.turn(knobs))
}

impl Options {
    /// Each shard's limits of dirty pages.
    pub(crate) fn write_back(
        &self,
        cache_bytes: u64,
        page_size: PageSize,
        shards: usize,
    ) -> Result<WriteBackConfig> {
        let pages = |bytes: u64| u32::try_from(bytes / page_size.bytes() / shards as u64).unwrap_or(u32::MAX);
        let Tuning { dirty_bytes, dirty_background_bytes: background_bytes, .. } =
            Tuning::of(self, cache_bytes);
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

/// Frames reserved for demand: one in 16, at most 1024.
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
    fn bad_options_are_named_with_their_bound() {
        assert!(
            refusal(Options { page_bytes: 0, ..Options::default() })
                .starts_with("page_size is 0, but must be")
        );
        assert!(refusal(Options { ra_pages: 1 << 30, ..Options::default() }).contains("fewer ra_pages"));
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
