//! A swap and its regions.
#![allow(unsafe_code, reason = "lends mapped memory as slices")]

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use bowwave_core::swap::SwapPolicy;
use bowwave_core::swap::pager::{Pager, PagerConfig, PagerLoad, RegionAdvice, RegionId, SwapStats};
use bowwave_core::{PageIndex, PageRange};

use super::buffers::Buffers;
use super::memory::{Memory, Pages};
use super::room::RoomMaker;
use super::serve::Handlers;
use super::spill::Spill;
use super::swap::{Budget, Shared};
use crate::error::{Error, Result};
use crate::reap::Owner;
use crate::signals;
use crate::uffd::{Delivery, SYSTEM_PAGE, Scope};

/// Memory for regions, and a place for what does not fit into it: one budget, one spill, any number of regions.
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
/// Cloning it gives another handle of the same swap; it ends with the last handle or region.
#[derive(Clone, Debug)]
pub struct Swap {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Before what is served.
    _server: Server,
    _room: RoomMaker,
    shared: Owner<Shared>,
}

/// Who serves touches, until this is dropped.
#[derive(Debug)]
enum Server {
    #[expect(dead_code, reason = "they end with it")]
    Handlers(Handlers),
    /// The threads that touch, from this address on.
    Threads(usize),
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Threads(start) = self {
            signals::forget(*start);
        }
    }
}

/// How a [`Swap`] is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOptions {
    /// Bytes of memory for pages, what is on its way, and the tables of all that was ever touched; at least 4 MiB. By default half of
    /// what is available.
    pub memory_bytes: Option<u64>,
    /// Address space for regions, in bytes; costs next to nothing. By default eight times the memory and the spill.
    pub address_bytes: Option<u64>,
    /// Which swap readahead.
    pub policy: SwapPolicy,
    /// Most pages that readahead brings at once; at least 8.
    pub ahead_pages_max: u64,
    /// Threads that serve touches; by default one for each processor, two at most.
    pub handlers: Option<NonZeroUsize>,
    /// Whose touches are served; by default all if this process may. See [`SwapRegion`].
    pub scope: Option<Scope>,
    /// How touches are told: by messages to threads that serve them, or by `SIGBUS` to the thread that has touched, which then
    /// serves itself, as [of files](crate::MapOptions::delivery). Messages by default.
    pub delivery: Delivery,
}

impl Default for SwapOptions {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            address_bytes: None,
            policy: SwapPolicy::Adaptive,
            ahead_pages_max: 256,
            handlers: None,
            scope: None,
            delivery: Delivery::default(),
        }
    }
}

/// What a swap, or a region of it, has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwapReport {
    /// Faults, pages read ahead (`swap_ra`) and found of use (`swap_ra_hit`), and so on.
    pub stats: SwapStats,
    /// How full things are.
    pub load: PagerLoad,
    /// Requests sent to the store, after merging.
    pub requests: u64,
    /// Transfers sent again after an error.
    pub retries: u64,
    /// Bytes asked of the store.
    pub bytes_read: u64,
    /// Bytes given to the store.
    pub bytes_written: u64,
    /// Whether the kernel tells which pages were written to. Without it (before Linux 6.7, or in a process that changed its user)
    /// each page that leaves memory is written out.
    pub tracks_writes: bool,
}

impl Swap {
    /// Opens the spill, and gets address space and threads.
    ///
    /// # Errors
    /// The spill is in use, holds something else or does not fit on its disk; the memory is too small; the kernel has no userfaultfd, or
    /// keeps it from this process.
    pub fn new(spill: &Spill, options: &SwapOptions) -> Result<Self> {
        let spill = spill.open()?;
        let budget = options.memory_bytes.unwrap_or_else(|| available() / 2);
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
        let shared = Owner::new(Shared::new(memory, buffers, spill, pager, budget)?);
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(HANDLERS_MAX);
        let handlers = match options.delivery {
            Delivery::Message => {
                let count = options.handlers.map_or(processors, NonZeroUsize::get);
                Server::Handlers(Handlers::start(&shared, count)?)
            }
            Delivery::Signal => {
                let server = Arc::downgrade(&shared);
                signals::watch(shared.memory.place(), server)?;
                Server::Threads(shared.memory.place().start)
            }
        };
        let room = RoomMaker::start(&shared)?;
        Ok(Self { inner: Arc::new(Inner { _server: handlers, _room: room, shared }) })
    }

    /// A region of `len` bytes, all zeros.
    ///
    /// # Errors
    /// [`Error::Range`] if it is empty, or there is no address space left for it.
    pub fn region(&self, len: usize) -> Result<SwapRegion> {
        if len == 0 {
            return Err(Error::Range("a region of no bytes".to_owned()));
        }
        let (id, pages) = self.inner.shared.add_region(len.div_ceil(SYSTEM_PAGE) as u64)?;
        Ok(SwapRegion { swap: self.clone(), id, pages, len })
    }

    /// What all regions have done so far.
    #[must_use]
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

    /// Whether system calls may be handed memory of regions that is not there. See [`SwapRegion`].
    #[must_use]
    pub fn serves_system_calls(&self) -> bool {
        self.inner.shared.memory.scope() == Scope::All
    }

    /// The addresses that its regions have, and may have.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        let memory = &self.inner.shared.memory;
        memory.address(0)..memory.address(memory.pages())
    }

    /// Whether two handles are of one swap.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

/// Memory that may be larger than memory. It begins as zeros.
///
/// **No write is lost.** What cannot be written out, because the disk is full or failing, stays in memory; touches that need more memory
/// than there is then wait, standard error says so, and they go on when the store takes pages again.
///
/// **A page that cannot be brought back** is never zeros: after the store's retries, a touch says why on standard error and ends in a `SIGBUS`.
///
/// **System calls** that are handed this memory (`read`, `write`) work where the process may serve the kernel's touches: root, `CAP_SYS_PTRACE`,
/// the sysctl `vm.unprivileged_userfaultfd`, or leave to open `/dev/userfaultfd`. Elsewhere they return `EFAULT` for pages that are out: touch
/// them first, or go through other memory. [`Swap::serves_system_calls`] tells.
///
/// **A child** after `fork` does not have the memory: a touch is a segmentation fault there. `vfork` and `posix_spawn` are no matter.
#[derive(Debug)]
pub struct SwapRegion {
    swap: Swap,
    id: RegionId,
    pages: Pages,
    len: usize,
}

impl SwapRegion {
    /// Bytes; never 0.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte, at a page's start. Valid, for reads and writes, as long as the region lives.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.swap.inner.shared.memory.address(self.pages.start) as *mut u8
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped as long as `self` lives; pages come back as they went.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The bytes, to be changed.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above; borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }

    /// Says how the bytes of `range` will be used.
    ///
    /// [`RegionAdvice::DontNeed`] takes whole pages only: what they hold is gone, and zeros from now on, which is why the region is
    /// borrowed exclusively. The others may be taken of any page that holds a byte of the range.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end.
    pub fn advise(&mut self, range: Range<usize>, advice: RegionAdvice) -> Result<()> {
        if range.start > range.end || range.end > self.len {
            let message = format!("bytes {} to {} of a region of {}", range.start, range.end, self.len);
            return Err(Error::Range(message));
        }
        let pages = if advice == RegionAdvice::DontNeed {
            // The last page is all the region's.
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

    /// What was done for this region; `load` and the bytes are of the whole swap.
    #[must_use]
    pub fn report(&self) -> SwapReport {
        let (stats, _) = self.swap.inner.shared.region_stats(self.id);
        let (_, load) = self.swap.inner.shared.stats();
        self.swap.report_of(stats, load)
    }

    /// Pages of it that are in memory.
    #[must_use]
    pub fn resident_pages(&self) -> u64 {
        self.swap.inner.shared.region_stats(self.id).1
    }

    /// Pages that could not be brought back: their offsets in bytes, and why.
    #[must_use]
    pub fn failures(&self) -> Vec<(usize, String)> {
        let all = self.swap.inner.shared.failures();
        let mine = all.range(self.pages.clone());
        mine.map(|(page, cause)| ((page - self.pages.start) as usize * SYSTEM_PAGE, cause.clone())).collect()
    }

    /// The swap that it is a region of.
    #[must_use]
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
    /// Memory of `len` bytes that may be larger than memory, all zeros, in a [`Swap`] of its own with the default options: half of what is
    /// available, and the rest in `spill`.
    ///
    /// # Errors
    /// As [`Swap::new`] and [`Swap::region`].
    pub fn anonymous(len: usize, spill: &Spill) -> Result<SwapRegion> {
        Swap::new(spill, &SwapOptions::default())?.region(len)
    }
}

/// What the pager is to do, while its tables are empty.
fn config(budget: Budget, spill: &super::spill::OpenSpill, options: &SwapOptions) -> Result<PagerConfig> {
    let own = PagerConfig::own(budget.frames(0), spill.slots);
    let config = PagerConfig { policy: options.policy, ahead_max: options.ahead_pages_max, ..own };
    config.validate().map_err(|error| Error::Range(error.to_string()))?;
    Ok(config)
}

/// Bytes of memory that are there to be had.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(1 << 30, |kib| kib << 10)
}

/// Least memory that makes sense.
const MEMORY_MIN: u64 = 4 << 20;
/// One page in so many is a buffer.
const BUFFER_SHARE: u64 = 16;
/// Fewest pages of buffers: enough for the longest window and a write.
const BUFFERS_MIN: u64 = 512;
/// Most: what a fast drive has in flight.
const BUFFERS_MAX: u64 = 8192;
/// Address space without being asked for it: a quarter of what a process has.
const ADDRESS_MAX: u64 = 1 << 45;
/// More threads serve no faster: what they do is done one at a time.
const HANDLERS_MAX: usize = 2;
