//! A swap and its regions.
#![allow(unsafe_code, reason = "lends mapped memory as slices")]

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use bowwave_core::swap::SwapPolicy;
use bowwave_core::swap::pager::{
    Lists, Pager, PagerConfig, PagerLoad, Placement, RegionAdvice, RegionId, SwapStats,
};
use bowwave_core::{PageIndex, PageRange};
use bowwave_engine::DecisionLog;

use super::buffers::Buffers;
use super::memory::{Memory, Pages};
use super::reclaim::ReclaimThread;
use super::recorder::{Recorder, SwapJournal, is_requested};
use super::serve::Handlers;
use super::spill::Spill;
use super::swap::{Budget, Shared};
use crate::error::{Error, Result};
use crate::reap::Owner;
use crate::signals;
use crate::uffd::{Delivery, SYSTEM_PAGE, Scope};

/// Memory for regions, and a spill for pages that do not fit: one budget, one spill, any number of
/// regions.
///
/// ```
/// use bowwave_region::{Spill, Swap, SwapOptions};
///
/// let spill = Spill::file(std::env::temp_dir(), 64 << 20);
/// let swap = Swap::new(&spill, &SwapOptions { memory_bytes: Some(8 << 20), ..SwapOptions::default() })?;
/// let mut region = swap.region(32 << 20)?;
/// region.as_mut_slice().fill(7);
/// assert!(region.as_slice().iter().all(|&byte| byte == 7));
/// assert!(swap.report().stats.swap_out > 0, "it was four times the memory");
/// # Ok::<(), bowwave_region::Error>(())
/// ```
///
/// A clone is another handle of the same swap, which ends with its last handle or region.
#[derive(Clone, Debug)]
pub struct Swap {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Dropped, with the next field, before the state that both use.
    _server: Server,
    _reclaim: ReclaimThread,
    shared: Owner<Shared>,
}

/// Serves page faults until it is dropped.
#[derive(Debug)]
enum Server {
    #[expect(dead_code, reason = "dropped with the server")]
    Handlers(Handlers),
    /// Each faulting thread serves itself. Has the address where the swap's memory starts.
    Threads(usize),
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Threads(start) = self {
            signals::forget(*start);
        }
    }
}

/// Options of a [`Swap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOptions {
    /// Bytes of memory for pages, buffers in flight, and the tables of all pages ever accessed; at
    /// least 4 MiB. By default half of [`available_memory`](bowwave_engine::available_memory).
    pub memory_bytes: Option<u64>,
    /// Address space for regions in bytes; nearly free. By default eight times the sum of memory
    /// and spill, at most 32 TiB.
    pub address_bytes: Option<u64>,
    /// Readahead policy. [`Swap::set`] changes it at run time.
    pub policy: SwapPolicy,
    /// Placement of pages on the spill. [`Placement::Reclaim`] is Linux's, for comparisons.
    pub placement: Placement,
    /// Which pages compete for memory. [`Lists::Global`] is Linux's, for comparisons.
    pub lists: Lists,
    /// Maximum pages per readahead; at least 8.
    pub ahead_pages_max: u64,
    /// Handler threads for page faults; by default one per processor, at most two.
    pub handlers: Option<NonZeroUsize>,
    /// Whose page faults are served; by default all, if the process may. See [`SwapRegion`].
    pub scope: Option<Scope>,
    /// How page faults are reported: by messages to handler threads, or by `SIGBUS` to the faulting
    /// thread, which serves itself, as [for files](crate::MapOptions::delivery). Messages by
    /// default.
    pub delivery: Delivery,
    /// Maximum events in the [journal](Swap::journal); 0 for no journal.
    pub journal_events: usize,
    /// Where the decisions of readahead are written as they are made; `None` for nowhere.
    pub decisions: Option<DecisionLog>,
}

impl Default for SwapOptions {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            address_bytes: None,
            policy: SwapPolicy::Adaptive,
            placement: Placement::Address,
            lists: Lists::PerRegion,
            ahead_pages_max: 256,
            handlers: None,
            scope: None,
            delivery: Delivery::default(),
            journal_events: 0,
            decisions: None,
        }
    }
}

/// Counters of a swap or of one of its regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwapReport {
    /// Faults, pages read ahead (`swap_ra`) and used (`swap_ra_hit`), and so on.
    pub stats: SwapStats,
    /// Fill levels.
    pub load: PagerLoad,
    /// Requests sent to the store, after merging.
    pub requests: u64,
    /// Transfers retried after an error.
    pub retries: u64,
    /// Bytes read from the store.
    pub bytes_read: u64,
    /// Bytes written to the store.
    pub bytes_written: u64,
    /// Whether the kernel reports which pages were written. Without it (before Linux 6.7, or in a
    /// process that changed its user), every evicted page is written out.
    pub tracks_writes: bool,
}

impl Swap {
    /// Opens the spill, reserves address space and starts threads.
    ///
    /// # Errors
    /// The spill is in use, has other content or does not fit on its disk; the memory is too small;
    /// userfaultfd is missing or not permitted.
    pub fn new(spill: &Spill, options: &SwapOptions) -> Result<Self> {
        let spill = spill.open()?;
        let budget = options.memory_bytes.unwrap_or_else(|| bowwave_engine::available_memory() / 2);
        if budget < MEMORY_MIN {
            let message = format!("{budget} bytes of memory for a swap: it takes {MEMORY_MIN} at least");
            return Err(Error::Range(message));
        }
        let page = SYSTEM_PAGE as u64;
        let wanted = spill.slots.saturating_mul(page).saturating_add(budget).saturating_mul(8);
        let address = options.address_bytes.unwrap_or_else(|| wanted.min(ADDRESS_MAX)).div_ceil(page);
        let frames = budget / page;
        let buffers = (frames / BUFFER_SHARE).clamp(BUFFERS_MIN, BUFFERS_MAX);
        let budget = Budget { pages: frames - buffers };
        let config = config(budget, &spill, options)?;
        let pager = Pager::new(config).map_err(|error| Error::Range(error.to_string()))?;
        let memory = Memory::new(address, options.scope, options.delivery)?;
        let buffers = Buffers::new(buffers as usize, (buffers / 8) as usize)?;
        let recorder = Recorder::new(options, &pager, &memory);
        let shared = Owner::new(Shared::new(memory, buffers, spill, (pager, recorder), budget)?);
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(HANDLERS_MAX);
        let handlers = match options.delivery {
            Delivery::Message => {
                let count = options.handlers.map_or(processors, NonZeroUsize::get);
                Server::Handlers(Handlers::start(&shared, count)?)
            }
            Delivery::Signal => {
                let server = Arc::downgrade(&shared);
                signals::watch(shared.memory.all_addresses(), server)?;
                Server::Threads(shared.memory.all_addresses().start)
            }
        };
        let reclaim = ReclaimThread::start(&shared)?;
        Ok(Self { inner: Arc::new(Inner { _server: handlers, _reclaim: reclaim, shared }) })
    }

    /// Creates a region of `len` bytes, all zeros.
    ///
    /// # Errors
    /// [`Error::Range`] if it is empty or no address space is left for it.
    pub fn region(&self, len: usize) -> Result<SwapRegion> {
        if len == 0 {
            return Err(Error::Range("a region of no bytes".to_owned()));
        }
        let (id, pages) = self.inner.shared.add_region(len.div_ceil(SYSTEM_PAGE) as u64)?;
        Ok(SwapRegion { swap: self.clone(), id, pages, len })
    }

    /// Counters of all regions.
    pub fn report(&self) -> SwapReport {
        let (stats, load) = self.inner.shared.stats();
        self.report_of(stats, load)
    }

    fn report_of(&self, stats: SwapStats, load: PagerLoad) -> SwapReport {
        let queue = self.inner.shared.queue.stats();
        SwapReport {
            stats,
            load,
            requests: queue.requests,
            retries: queue.retries,
            bytes_read: queue.bytes_read,
            bytes_written: queue.bytes_written,
            tracks_writes: self.inner.shared.memory.tracks_writes(),
        }
    }

    /// The first [`SwapOptions::journal_events`] events, which [replay](SwapJournal::replays) to
    /// the same decisions. `None` if that option is 0.
    pub fn journal(&self) -> Option<SwapJournal> {
        self.inner.shared.journal()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Whether system calls may access missing pages of regions. See [`SwapRegion`].
    pub fn serves_system_calls(&self) -> bool {
        self.inner.shared.memory.scope() == Scope::All
    }

    /// The address range of all present and future regions.
    pub fn addresses(&self) -> Range<usize> {
        let memory = &self.inner.shared.memory;
        memory.address(0)..memory.address(memory.pages())
    }

    /// Whether two handles belong to one swap.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

/// Memory that may be larger than RAM. It starts as zeros.
///
/// **No write is lost.** Pages that cannot be written out, because the disk is full or failing,
/// stay in memory. Accesses that need more memory then block, with a message on standard error,
/// until the store accepts pages again.
///
/// **A page that cannot be read back** is never zeros: after the store's retries, an access prints
/// the cause to standard error and raises `SIGBUS`.
///
/// **System calls** that get this memory (`read`, `write`) work if the process may serve the
/// kernel's page faults: root, `CAP_SYS_PTRACE`, the sysctl `vm.unprivileged_userfaultfd`, or
/// permission to open `/dev/userfaultfd`. Otherwise they return `EFAULT` for swapped-out pages:
/// access them first, or use other memory. [`Swap::serves_system_calls`] returns which case
/// applies.
///
/// **A child** after `fork` does not have the memory: an access there is a segmentation fault.
/// `vfork` and `posix_spawn` work.
#[derive(Debug)]
pub struct SwapRegion {
    swap: Swap,
    id: RegionId,
    pages: Pages,
    len: usize,
}

impl SwapRegion {
    /// Length in bytes; never 0.
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Page-aligned address of the first byte. Valid for reads and writes while the region lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.swap.inner.shared.memory.address(self.pages.start) as *mut u8
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped while `self` lives; pages return unchanged.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The bytes, writable.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above; borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }

    /// Advises how the bytes of `range` will be used.
    ///
    /// [`RegionAdvice::DontNeed`] discards whole pages, which then read as zeros; this is why the
    /// region is borrowed exclusively. Other advice may apply to every page with a byte of the
    /// range.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end.
    pub fn advise(&mut self, range: Range<usize>, advice: RegionAdvice) -> Result<()> {
        if range.start > range.end || range.end > self.len {
            let message = format!("bytes {} to {} of a region of {}", range.start, range.end, self.len);
            return Err(Error::Range(message));
        }
        let pages = if advice == RegionAdvice::DontNeed {
            // The region owns all of its last page.
            let end = if range.end == self.len { self.len.next_multiple_of(SYSTEM_PAGE) } else { range.end };
            range.start.div_ceil(SYSTEM_PAGE)..end / SYSTEM_PAGE
        } else {
            range.start / SYSTEM_PAGE..range.end.div_ceil(SYSTEM_PAGE)
        };
        if pages.start < pages.end {
            let pages = PageRange { start: PageIndex(pages.start as u64), end: PageIndex(pages.end as u64) };
            self.swap.inner.shared.advise(self.id, pages, advice);
        }
        Ok(())
    }

    /// Counters of this region in `stats`; the other fields are about the whole swap.
    pub fn report(&self) -> SwapReport {
        let stats = self.swap.inner.shared.region_stats(self.id);
        let (_, load) = self.swap.inner.shared.stats();
        self.swap.report_of(stats, load)
    }

    /// Pages that could not be read back: their offsets in bytes, and the cause.
    pub fn failures(&self) -> Vec<(usize, String)> {
        let all = self.swap.inner.shared.failures();
        let mine = all.range(self.pages.clone());
        mine.map(|(page, cause)| ((page - self.pages.start) as usize * SYSTEM_PAGE, cause.clone())).collect()
    }

    /// The region's swap.
    pub fn swap(&self) -> &Swap {
        &self.swap
    }
}

impl Drop for SwapRegion {
    fn drop(&mut self) {
        self.swap.inner.shared.remove_region(self.id);
    }
}

impl crate::Region {
    /// Creates `len` bytes of zeroed memory that may be larger than RAM, in its own [`Swap`] with
    /// default options: pages that do not fit into half of the available memory are in `spill`.
    ///
    /// # Errors
    /// As [`Swap::new`] and [`Swap::region`].
    pub fn anonymous(len: usize, spill: &Spill) -> Result<SwapRegion> {
        Swap::new(spill, &SwapOptions::default())?.region(len)
    }
}

/// The pager's configuration while its tables are empty.
fn config(budget: Budget, spill: &super::spill::OpenSpill, options: &SwapOptions) -> Result<PagerConfig> {
    let own = PagerConfig::own(budget.frames(0), spill.slots);
    let SwapOptions { policy, placement, lists, ahead_pages_max: ahead_max, .. } = *options;
    let explain = is_requested(options);
    let config = PagerConfig { policy, placement, lists, ahead_max, explain, ..own };
    config.validate().map_err(|error| Error::Range(error.to_string()))?;
    Ok(config)
}

/// Minimum memory in bytes; less leaves no useful number of frames.
const MEMORY_MIN: u64 = 4 << 20;
/// One page in 16 is a buffer.
const BUFFER_SHARE: u64 = 16;
/// Minimum pages of buffers: the longest window and a write.
const BUFFERS_MIN: u64 = 512;
/// Maximum pages of buffers: what a fast drive has in flight.
const BUFFERS_MAX: u64 = 8192;
/// Maximum default address space in bytes: a quarter of a process's.
const ADDRESS_MAX: u64 = 1 << 45;
/// Maximum default handler threads. More do not help: the pager's lock serialises their work.
const HANDLERS_MAX: usize = 2;
