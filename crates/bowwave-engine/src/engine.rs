//! The engine: shards, memory budget, timer, and the effects of shards' decisions.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowwave_backend::{Backend, Error as StoreError, ErrorKind, open_url};
use bowwave_core::schedule::Priority;
use bowwave_core::{FillError, FillId, FrameId, MIX_STEP, PageSize, WriteOutId, mix};

use crate::Journal;
use crate::budget::Budget;
use crate::decisions::DecisionLog;
use crate::entry::FileEntry;
use crate::error::{Error, Result};
use crate::file::File;
use crate::object_upload::MemoryPool;
use crate::options::{Options, Tuning};
use crate::pressure::{LOOK_EVERY, Pressure, Step};
use crate::queue::{IoRequest, Queue};
use crate::shard::{Effect, Shard};
use crate::stats::{EngineStats, Latencies, StoreStats};
use crate::store::Store;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::timer::{Job, Timer};
use crate::wait::Delivery;

/// A page cache over any number of stores. Cheap to clone; clones share one cache.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// On whose behalf effects are carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    /// The priority of the requests.
    pub(crate) priority: Priority,
    /// Whether a full queue drops the readahead: a policy's guess, which no reader announced.
    pub(crate) drops: bool,
}

/// State shared by engine, stores, files and requests.
#[derive(Debug)]
pub(crate) struct Inner {
    options: Options,
    page_size: PageSize,
    shards: Vec<Shard>,
    budget: Budget,
    timer: Arc<Timer>,
    /// Memory for object uploads.
    memory_pool: MemoryPool,
    queues: Mutex<Vec<Arc<Queue>>>,
    /// Counters of closed stores.
    past_stores: Mutex<(StoreStats, Latencies)>,
    /// Files of closed stores with requests in flight.
    orphans: Mutex<Vec<Arc<FileEntry>>>,
    has_orphans: AtomicBool,
    /// Some handle has had another priority than the default.
    pub(crate) has_priorities: AtomicBool,
    /// The timer will check for old dirty pages.
    watches_dirty: AtomicBool,
    next_shard: AtomicUsize,
    next_uid: AtomicU64,
    chance: AtomicU64,
    /// Most pages requested by one pass of a read.
    chunk_pages: u64,
    /// Settings that [`Engine::tune`] changes.
    tuning: Mutex<Tuning>,
    /// A copy of [`Tuning::dirty_expire`], for holders of a shard's lock.
    dirty_expire_ns: AtomicU64,
    /// With [`Options::yields_memory`], where the system reports memory pressure.
    pressure: Mutex<Option<Pressure>>,
}

impl Engine {
    /// Creates a cache; memory is allocated on use.
    ///
    /// # Errors
    /// An option out of bounds, a cache smaller than one readahead window, no address space or no
    /// thread.
    pub fn new(options: Options) -> Result<Self> {
        let plan = options.plan()?;
        // Half of the frames are distributed at once, the rest on demand. A single shard gets all.
        let count = u32::try_from(plan.shards).expect("few shards");
        let share = if count == 1 { plan.frames } else { (plan.frames / 2 / count).max(1) };
        let mut config = plan.config.clone();
        config.frames = share;
        config.reserve_frames = config.reserve_frames.min(share / 4);
        let shards: Vec<Shard> = (0..plan.shards)
            .map(|number| Shard::new(number, &config, plan.frames, &options))
            .collect::<Result<_>>()?;
        let lot = (plan.frames / 64).clamp(16, 4096);
        // Reads hold their frames while they wait: at most a quarter of a shard's initial frames.
        let chunk_pages = u64::from(share / 4).clamp(1, (8 << 20) / plan.page_size.bytes());
        // A shard that lends frames to others must keep enough for such a read, or large reads
        // would fail.
        let floor = share.min(u32::try_from(chunk_pages).unwrap_or(u32::MAX) + config.reserve_frames + 1);
        let inner = Arc::new(Inner {
            page_size: plan.page_size,
            shards,
            budget: Budget::new(plan.frames, plan.frames - share * count, lot, floor),
            orphans: Mutex::default(),
            has_orphans: AtomicBool::new(false),
            has_priorities: AtomicBool::new(false),
            watches_dirty: AtomicBool::new(false),
            past_stores: Mutex::default(),
            timer: Arc::default(),
            memory_pool: MemoryPool::new(u64::from(plan.frames) * plan.page_size.bytes() / 2),
            queues: Mutex::default(),
            next_shard: AtomicUsize::new(0),
            next_uid: AtomicU64::new(0),
            chance: AtomicU64::new(options.seed),
            chunk_pages,
            tuning: Mutex::new(Tuning::of(&options, plan.cache_bytes)),
            dirty_expire_ns: AtomicU64::new(nanos(options.dirty_expire)),
            pressure: Mutex::new(options.yields_memory.then(|| Pressure::new(plan.frames)).flatten()),
            options: Options { cache_bytes: Some(plan.cache_bytes), ..options },
        });
        inner.timer.start(Arc::downgrade(&inner)).map_err(|error| {
            Error::Store(StoreError::new(ErrorKind::Io, format!("cannot start a thread: {error}")))
        })?;
        if inner.pressure.lock().is_some() {
            inner.at(Instant::now(), Job::Pressure);
        }
        Ok(Self { inner })
    }

    /// Opens one object by its URL.
    ///
    /// # Errors
    /// As [`store`](Self::store), and `IsADirectory` if the URL names a directory.
    pub fn open(&self, url: &str) -> Result<File> {
        self.store(url)?.open(Path::new(""))
    }

    /// Opens a store by its URL.
    ///
    /// # Errors
    /// `InvalidUrl` if the URL cannot be parsed, or as the store says.
    pub fn store(&self, url: &str) -> Result<Store> {
        Ok(self.store_of(open_url(url, &self.inner.options.store)?))
    }

    /// A store over any backend.
    pub fn store_of(&self, backend: Arc<dyn Backend>) -> Store {
        let queue = Arc::new(self.inner.new_queue(&*backend));
        // Held until the queue is known: `tune` then changes it, or has changed the tuning before.
        let tuning = self.inner.tuning.lock();
        queue.tune(tuning.scheduler);
        self.inner.queues.lock().push(Arc::clone(&queue));
        drop(tuning);
        Store::new(Arc::clone(&self.inner), backend, queue)
    }

    /// Counters of the engine.
    pub fn stats(&self) -> EngineStats {
        let mut stats = EngineStats { page_bytes: self.inner.page_size.bytes(), ..EngineStats::default() };
        for shard in &self.inner.shards {
            shard.with_cache(|cache| {
                stats.cache += cache.stats();
                let (dirty, going) = cache.pages_unwritten();
                stats.pages_unwritten += dirty + going;
                stats.frames_used += u64::from(cache.frames_used());
                stats.frames += u64::from(cache.frame_limit());
                stats.metadata_bytes += cache.metadata_bytes() as u64;
            });
        }
        stats.frames += u64::from(self.inner.budget.pool());
        stats.store += self.inner.past_stores.lock().0;
        for queue in &*self.inner.queues.lock() {
            stats.store += queue.stats();
        }
        stats
    }

    /// Current values of the settings that can be changed at run time.
    pub fn tuning(&self) -> Tuning {
        self.inner.tuning()
    }

    /// Changes settings at run time, from each shard's next decision on. [`options`](Self::options)
    /// keep their initial values.
    ///
    /// # Errors
    /// As [`new`](Self::new): a value out of bounds, or a window too large for the cache. Then
    /// nothing changes.
    pub fn tune(&self, tuning: Tuning) -> Result<()> {
        // Held to the end, so that concurrent calls do not mix their values across shards.
        let mut current = self.inner.tuning.lock();
        let options = tuning.apply(self.inner.options.clone());
        let plan = options.plan()?;
        let write_back = options.write_back(plan.cache_bytes, plan.page_size, self.inner.shards.len())?;
        let switched = (tuning.policy, tuning.range) != (current.policy, current.range);
        *current = tuning;
        self.inner.dirty_expire_ns.store(nanos(tuning.dirty_expire), Ordering::Relaxed);
        for queue in &*self.inner.queues.lock() {
            queue.tune(tuning.scheduler);
        }
        for (number, shard) in self.inner.shards.iter().enumerate() {
            let mut effects = Vec::new();
            shard.tune(tuning.windows(), write_back, &mut effects);
            if switched {
                shard.set_policy(tuning.policy, tuning.range, &mut effects);
            }
            self.inner.perform(number, effects);
        }
        Ok(())
    }

    /// Times that requests to stores waited and took so far.
    pub fn latencies(&self) -> Latencies {
        let mut all = self.inner.past_stores.lock().1.clone();
        for queue in &*self.inner.queues.lock() {
            all += &queue.latencies();
        }
        all
    }

    /// The journals of the shards, if [`Options::journal_events`] enables them.
    pub fn journals(&self) -> Vec<Journal> {
        self.inner.shards.iter().filter_map(Shard::journal).collect()
    }

    /// The options the engine was set up with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Inner {
    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    pub(crate) fn retries(&self) -> u32 {
        self.options.retries
    }

    pub(crate) fn device_depth(&self) -> Option<u32> {
        self.options.device_depth
    }

    pub(crate) fn chunk_pages(&self) -> u64 {
        self.chunk_pages
    }

    pub(crate) fn shard(&self, number: usize) -> &Shard {
        &self.shards[number]
    }

    fn new_queue(&self, backend: &dyn Backend) -> Queue {
        Queue::new(backend.url(), &backend.profile(), &self.options)
    }

    /// Shard for the next new file.
    pub(crate) fn next_shard(&self) -> usize {
        self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len()
    }

    pub(crate) fn next_uid(&self) -> u64 {
        self.next_uid.fetch_add(1, Ordering::Relaxed)
    }

    /// A random number for the jitter of retries (SplitMix64).
    pub(crate) fn random(&self) -> u64 {
        mix(self.chance.fetch_add(MIX_STEP, Ordering::Relaxed))
    }

    /// Lends a shard more frames, if it is short and some are free.
    pub(crate) fn relieve(self: &Arc<Self>, shard: usize) {
        self.budget.relieve(&self.shards, shard, |shard, effects| self.perform(shard, effects));
    }

    /// Where decisions are written.
    pub(crate) fn decisions(&self) -> Option<&DecisionLog> {
        self.options.decisions.as_ref()
    }

    pub(crate) fn tuning(&self) -> Tuning {
        *self.tuning.lock()
    }

    /// As [`StreamConfig::waste_percent`](bowwave_core::StreamConfig::waste_percent).
    pub(crate) fn waste_percent(&self) -> u32 {
        self.options.stream.waste_percent
    }

    /// Memory of all frames and their metadata, in bytes.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.options.cache_bytes.unwrap_or(0)
    }

    /// Memory for object uploads.
    pub(crate) fn memory_pool(&self) -> &MemoryPool {
        &self.memory_pool
    }

    /// Takes up to `frames` frames from the cache; returns how many.
    pub(crate) fn take_frames(self: &Arc<Self>, frames: u32) -> u32 {
        self.budget.take(&self.shards, frames, |shard, effects| self.perform(shard, effects))
    }

    /// Returns frames of [`take_frames`](Self::take_frames).
    pub(crate) fn give_frames(&self, frames: u32) {
        self.budget.give(frames);
    }

    /// Gives frames back to the system, or uses them again, as memory pressure requires.
    pub(crate) fn yield_memory(self: &Arc<Self>) {
        let mut pressure = self.pressure.lock();
        let Some(pressure) = &mut *pressure else { return };
        match pressure.look() {
            Step::Keep => {}
            Step::Give(frames) => pressure.gave(self.take_frames(frames)),
            Step::Use(frames) => self.give_frames(frames),
        }
        self.at(Instant::now() + LOOK_EVERY, Job::Pressure);
    }

    /// Schedules a job at `due`.
    pub(crate) fn at(&self, due: Instant, job: Job) {
        self.timer.add(due, job);
    }

    /// Unpins frames and carries out the effects.
    pub(crate) fn unpin(self: &Arc<Self>, shard: usize, frames: &[FrameId]) {
        let mut effects = Vec::new();
        self.shards[shard].unpin(frames, &mut effects);
        self.perform(shard, effects);
    }

    /// Completes fills and carries out the effects.
    pub(crate) fn filled(
        self: &Arc<Self>,
        shard: usize,
        answers: Vec<(FillId, std::result::Result<(), FillError>)>,
    ) {
        let mut effects = Vec::new();
        self.shards[shard].filled(answers, &mut effects);
        self.perform(shard, effects);
        if self.has_orphans.load(Ordering::Relaxed) {
            self.adopt(Vec::new());
        }
    }

    /// Takes over files of a closed store, and forgets them when their requests have ended.
    pub(crate) fn adopt(&self, entries: Vec<Arc<FileEntry>>) {
        let mut orphans = self.orphans.lock();
        orphans.extend(entries);
        // Before the check: a fill that ends meanwhile checks again.
        self.has_orphans.store(true, Ordering::Relaxed);
        orphans.retain(|entry| !self.shards[entry.shard].close_file(entry.file));
        self.has_orphans.store(!orphans.is_empty(), Ordering::Relaxed);
    }

    /// A store was closed; its counters stay.
    pub(crate) fn forget_queue(&self, queue: &Arc<Queue>) {
        let mut past = self.past_stores.lock();
        past.0 += queue.stats();
        past.1 += &queue.latencies();
        drop(past);
        self.queues.lock().retain(|other| !Arc::ptr_eq(other, queue));
    }

    /// Completes write-outs and carries out the effects.
    pub(crate) fn written_out(
        self: &Arc<Self>,
        shard: usize,
        answers: Vec<(WriteOutId, std::result::Result<(), FillError>)>,
    ) {
        let mut effects = Vec::new();
        self.shards[shard].written_out(answers, &mut effects);
        self.perform(shard, effects);
        if self.has_orphans.load(Ordering::Relaxed) {
            self.adopt(Vec::new());
        }
    }

    /// Pages became dirty: schedules their write-back by age.
    pub(crate) fn watch_dirty(&self) {
        if !self.watches_dirty.swap(true, Ordering::AcqRel) {
            self.timer.add(Instant::now() + self.look_at_dirty_every(), Job::WriteBack);
        }
    }

    /// Writes back old dirty pages; reschedules itself while pages are dirty.
    pub(crate) fn write_back_old(self: &Arc<Self>) {
        // Before the check: a concurrent writer then schedules the next one.
        self.watches_dirty.store(false, Ordering::Release);
        let mut is_dirty = false;
        for shard in 0..self.shards.len() {
            let mut effects = Vec::new();
            is_dirty |= self.shards[shard].expire(&mut effects);
            self.perform(shard, effects);
        }
        if is_dirty {
            self.watch_dirty();
        }
    }

    fn look_at_dirty_every(&self) -> Duration {
        let expire = Duration::from_nanos(self.dirty_expire_ns.load(Ordering::Relaxed));
        (expire / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }

    /// The object of a file was replaced: its cached pages are invalid.
    pub(crate) fn make_stale(&self, entry: &FileEntry) {
        if entry.set_stale() {
            self.shards[entry.shard].invalidate(entry);
        }
    }

    /// Carries out effects of a shard. Holds no lock, except briefly the locks of queues and slots.
    pub(crate) fn perform(self: &Arc<Self>, shard: usize, effects: Vec<Effect>) {
        self.perform_as(Caller::default(), shard, effects);
    }

    /// As [`perform`](Self::perform), for this caller.
    pub(crate) fn perform_as(self: &Arc<Self>, caller: Caller, shard: usize, effects: Vec<Effect>) {
        let mut effects = effects;
        let mut touched: Vec<Arc<Queue>> = Vec::new();
        while !effects.is_empty() {
            let mut answers = Vec::new();
            let mut unwanted = Vec::new();
            for effect in effects.drain(..) {
                match effect {
                    Effect::Send(io) => {
                        let queue = Arc::clone(&io.entry.queue);
                        let io = IoRequest { priority: caller.priority, ..io };
                        if let Some(fill) = queue.push(io, caller.drops) {
                            answers.push((fill.fill(), Err(FillError::DROPPED)));
                        }
                        if !touched.iter().any(|other| Arc::ptr_eq(other, &queue)) {
                            touched.push(queue);
                        }
                    }
                    Effect::Promote(entry, key) => entry.queue.promote(key, caller.priority),
                    Effect::Cancel(entry, key) => {
                        if let Some(fill) = entry.queue.cancel(key) {
                            answers.push((fill.fill(), Err(FillError::CLOSED)));
                        }
                    }
                    Effect::Wake(slot, outcome) => match slot.deliver(outcome) {
                        Delivery::Unwanted(outcome) => unwanted.extend(outcome.into_iter().flatten()),
                        Delivery::ToTask => self.timer.schedule_reclaim(shard, &slot),
                        Delivery::ToThread => {}
                    },
                }
            }
            if !answers.is_empty() {
                self.shards[shard].filled(answers, &mut effects);
            }
            if !unwanted.is_empty() {
                self.shards[shard].unpin(&unwanted, &mut effects);
            }
        }
        for queue in touched {
            queue.run(self);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.timer.close();
    }
}

#[cfg(test)]
mod tests;
