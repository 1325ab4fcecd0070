//! A mapping and its handlers.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bowwave_engine::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use bowwave_engine::sync::{Arc, Mutex};
use bowwave_engine::{Around, MappedFile, Mapping, Pattern};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::error::{Error, Result};
use crate::faults::{FaultOutcome, Faults};
use crate::kernel::Kernel;
use crate::region::{MapOptions, Protection};
use crate::streams::{Stream, Streams};
use crate::task;
use crate::uffd::{Partial, Touch};

mod failed;

use failed::Failed;

/// State shared by handlers, faults in flight and the region.
pub(crate) struct Inner {
    streams: Streams,
    pub(crate) kernel: Kernel,
    /// Address of the first page.
    pub(crate) base: usize,
    /// Length of the mapping in bytes, a multiple of the page size.
    len: usize,
    /// Offset of the mapping in the file.
    start: u64,
    /// Maximum bytes mapped around a fault, on either side.
    around: u64,
    protection: Protection,
    pattern: AtomicU8,
    /// Cleared before the addresses are unmapped; locked while the mapping changes.
    alive: Mutex<bool>,
    failed: Mutex<Failed>,
    /// How long a failed fetch of an accessed page is repeated.
    retry_for: Duration,
    /// URL of the file, for messages.
    name: String,
    pub(crate) faults: Faults,
    pub(crate) counters: Counters,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) faults: AtomicU64,
    pub(crate) pages_mapped: AtomicU64,
    pub(crate) pages_unmapped: AtomicU64,
    pub(crate) pages_poisoned: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("file", self.file())
            .field("base", &self.base)
            .field("len", &self.len)
            .finish()
    }
}

impl Inner {
    /// Maps `len` bytes of the file from `start`, with no page present. Maps to `at`, whose
    /// addresses the caller yields, or anywhere.
    pub(crate) fn new(
        (file, name): (MappedFile, String),
        kernel: Kernel,
        (start, len): (u64, usize),
        at: Option<usize>,
        options: &MapOptions,
    ) -> Result<Arc<Self>> {
        let protection = options.protection;
        let (access, flags) = match protection {
            Protection::ReadOnly => (ProtFlags::READ, MapFlags::SHARED),
            Protection::CopyOnWrite => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE),
        };
        let refused = |wanted| move |error: Errno| Error::System { wanted, error: error.into(), hint: "" };
        let place = if at.is_some() { MapFlags::FIXED } else { MapFlags::empty() };
        let flags = flags | MapFlags::NORESERVE | place;
        // SAFETY: a new mapping at an address chosen by the kernel, or at addresses that the caller
        // yields.
        let base = unsafe { mmap(at.unwrap_or(0) as *mut _, len, access, flags, file.memory(), start) }
            .map_err(|error| Error::System {
                wanted: "map the file",
                error: error.into(),
                hint: "is the address space limited (ulimit -v)?",
            })?;
        let inner = Arc::new(Self {
            streams: Streams::new(file, options.streams.get()),
            kernel,
            base: base as usize,
            len,
            start,
            around: options.around_bytes,
            protection,
            pattern: AtomicU8::new(Pattern::Normal as u8),
            alive: Mutex::new(true),
            failed: Mutex::default(),
            retry_for: options.retry_for,
            name,
            faults: Faults::new(options.remembered_faults),
            counters: Counters::default(),
        });
        // A child has no handler threads. Without the mapping it faults instead of blocking
        // forever. SAFETY: advice on our own mapping.
        unsafe { madvise(base, len, Advice::LinuxDontFork) }
            .map_err(refused("keep the mapping from children"))
            .and_then(|()| {
                let refused = |error| Error::System { wanted: "watch the mapping", error, hint: "" };
                // SAFETY: our own mapping; handlers start before its address is returned.
                unsafe { inner.kernel.watch(inner.base..inner.base + len) }.map_err(refused)
            })
            // Accesses would see zeros in place of missing pages.
            .inspect_err(|_| inner.end())?;
        let mapping: Arc<dyn Mapping> = Arc::clone(&inner) as _;
        inner.file().attach(Arc::downgrade(&mapping));
        Ok(inner)
    }

    /// The mapped addresses.
    #[cfg(not(feature = "model"))]
    pub(crate) fn place(&self) -> Range<usize> {
        self.base..self.base + self.len
    }

    /// The file. Its readahead state is that of explicit reads, not of faults.
    pub(crate) fn file(&self) -> &MappedFile {
        &self.streams.first().file
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.protection == Protection::CopyOnWrite
    }

    pub(crate) fn set_pattern(&self, pattern: Pattern) {
        self.pattern.store(pattern as u8, Ordering::Relaxed);
    }

    fn pattern(&self) -> Pattern {
        let pattern = self.pattern.load(Ordering::Relaxed);
        [Pattern::Sequential, Pattern::Random]
            .into_iter()
            .find(|&one| one as u8 == pattern)
            .unwrap_or(Pattern::Normal)
    }

    /// Serves page faults until the kernel object is stopped.
    pub(crate) fn handle(self: &Arc<Self>) {
        let mut touches: Vec<Touch> = Vec::new();
        while self.kernel.touches(&mut touches) {
            for touch in touches.drain(..) {
                self.counters.faults.fetch_add(1, Ordering::Relaxed);
                self.serve(&touch);
            }
        }
    }

    /// Serves a page fault: the faulting thread continues with the page or gets a signal.
    fn serve(self: &Arc<Self>, touch: &Touch) {
        let offset = self.start + (touch.address - self.base) as u64;
        let stream = self.streams.of(touch.thread);
        let around = self.around(offset, self.unread(&stream, offset));
        if let Some(end) = self.hit(&stream, offset, around.clone()) {
            self.map_ahead(&stream, offset, end);
            return;
        }
        let inner = Arc::clone(self);
        task::spawn(async move {
            match inner.fetch(&stream.file, offset, around.clone()).await {
                Ok(end) => inner.map_ahead(&stream, offset, end),
                Err(error) => inner.fetch_again_elsewhere(&stream, offset, around, error),
            }
        });
    }

    /// Maps the page of a touch as [`map_if_cached`](Self::map_if_cached), and notes the fault.
    fn hit(&self, stream: &Stream, offset: u64, around: Around) -> Option<u64> {
        let begun = self.faults.now();
        let end = self.map_if_cached(stream, offset, around)?;
        self.faults.note(begun, self.page_of(offset)..end, FaultOutcome::Hit);
        Some(end)
    }

    /// Maps the cached pages ahead of a sequential thread, so that it does not sleep and wake every
    /// few pages. The policy sees these accesses instead of the thread's own.
    fn map_ahead(&self, stream: &Stream, offset: u64, from: u64) {
        if self.around == 0 || self.pattern() == Pattern::Random {
            return;
        }
        let Some(ahead) = stream.touched(offset, from, self.around) else { return };
        let (mut at, end) = (from, from.saturating_add(ahead).min(self.start + self.len as u64));
        // Sleeping threads take priority.
        while at < end && !self.kernel.has_touches() {
            let bytes = at..at.saturating_add(self.around).min(end);
            match self.map_if_cached(stream, at, Around { bytes, unread_bytes: u64::MAX }) {
                Some(mapped) => at = mapped,
                None => break,
            }
        }
        stream.mapped_ahead(at);
    }

    /// If the page of `offset` is cached but not mapped as far as the cache knows, maps it and the
    /// cached pages of `around`. Returns the end of the mapped range.
    fn map_if_cached(&self, stream: &Stream, offset: u64, around: Around) -> Option<u64> {
        let page = self.page_of(offset);
        let failed = self.failed.lock().state(page);
        if failed == Some(true) {
            return None;
        }
        let mut end = page + stream.file.page_bytes();
        let is_there = stream.file.fault_if_there(offset, self.pattern(), around, |bytes| {
            if failed.is_some() {
                self.failed.lock().forget(page);
            }
            let count = self.map(bytes.clone());
            end = end.max(bytes.start + count);
            count
        });
        is_there.then_some(end)
    }

    /// The range that may be mapped with the page of `offset`, and its maximum of unread readahead.
    pub(crate) fn around(&self, offset: u64, unread_bytes: u64) -> Around {
        let from = offset.saturating_sub(self.around).max(self.start);
        let to = offset.saturating_add(self.around).min(self.start + self.len as u64);
        Around { bytes: from..to, unread_bytes }
    }

    /// How many unread readahead bytes to map after a fault at `offset`: as advised, or as many as
    /// the thread has accessed sequentially.
    fn unread(&self, stream: &Stream, offset: u64) -> u64 {
        match self.pattern() {
            Pattern::Sequential => u64::MAX,
            _ => stream.unread(offset),
        }
    }

    /// Fetches and maps the page of `offset` and cached pages around it; returns the end of the
    /// mapped range.
    pub(crate) async fn fetch(&self, stream: &MappedFile, offset: u64, around: Around) -> Result<u64> {
        let page = self.page_of(offset);
        if let Some(cause) = self.failed.lock().poisoned(page).map(str::to_owned) {
            self.poison(page);
            return Err(Error::Range(cause));
        }
        let (begun, mut end) = (self.faults.now(), page);
        let before = begun.map(|_| self.file().stats());
        let mapped = stream.fault(offset, self.pattern(), around, |bytes| {
            self.failed.lock().forget(page);
            let count = self.map(bytes.clone());
            end = bytes.start + count;
            count
        });
        match mapped.await {
            Ok(()) => {
                let end = end.max(page + stream.page_bytes());
                if let Some(before) = before {
                    let outcome = FaultOutcome::between(&before, &self.file().stats());
                    self.faults.note(begun, page..end, outcome);
                }
                Ok(end)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Maps bytes of the file that are in its memory. Returns how many, from the start of the
    /// range.
    fn map(&self, bytes: Range<u64>) -> u64 {
        let Some(range) = self.addresses(&bytes) else { return 0 };
        let (alive, mut at) = (self.alive.lock(), range.start);
        if !*alive {
            return 0;
        }
        let page = self.file().page_bytes() as usize;
        // Counted before the call: the faulting thread continues as soon as a page is mapped and
        // may read the counters.
        let pages = ((range.end - range.start) / page) as u64;
        self.counters.pages_mapped.fetch_add(pages, Ordering::Relaxed);
        let mut step = range.end - range.start;
        while at < range.end {
            let to = at.saturating_add(step).min(range.end);
            // SAFETY: our own mapping, registered; the cache has these pages up to date.
            match unsafe { self.kernel.map(at..to) } {
                Ok(()) => at = to,
                Err(Partial { done, error: Errno::AGAIN }) => at += done,
                // Another fault was faster, or the program has a private copy.
                Err(Partial { done, error: Errno::EXIST }) => {
                    at += done;
                    self.kernel.wake(at..at + crate::uffd::SYSTEM_PAGE);
                    at += crate::uffd::SYSTEM_PAGE;
                }
                // The program has unmapped part of the range: map the rest page by page.
                Err(Partial { done, error: Errno::NOENT }) if step > crate::uffd::SYSTEM_PAGE => {
                    at += done;
                    step = crate::uffd::SYSTEM_PAGE;
                }
                Err(Partial { error: Errno::NOENT, .. }) => {
                    self.kernel.wake(at..to);
                    at = to;
                }
                // The waiting thread faults again and is served again.
                Err(Partial { done, .. }) => {
                    at += done;
                    self.kernel.wake(at..range.end);
                    break;
                }
            }
        }
        let whole = (at - range.start) / page * page;
        self.counters.pages_mapped.fetch_sub(pages.saturating_sub((whole / page) as u64), Ordering::Relaxed);
        whole as u64
    }

    fn poison(&self, page: u64) {
        let bytes = page..page + self.file().page_bytes();
        let Some(range) = self.addresses(&bytes) else { return };
        let alive = self.alive.lock();
        if *alive {
            // SAFETY: our own mapping, registered. A page mapped meanwhile stays.
            let poisoned = unsafe { self.kernel.poison(range.clone()) };
            self.counters.pages_poisoned.fetch_add(u64::from(poisoned.is_ok()), Ordering::Relaxed);
            self.kernel.wake(range);
        }
    }

    /// The addresses of the mapped part of a range of the file.
    fn addresses(&self, bytes: &Range<u64>) -> Option<Range<usize>> {
        let start = bytes.start.max(self.start);
        let end = bytes.end.min(self.start + self.len as u64);
        (start < end)
            .then(|| self.base + (start - self.start) as usize..self.base + (end - self.start) as usize)
    }

    /// Unmaps. The region is no longer accessed.
    pub(crate) fn end(&self) {
        let mut alive = self.alive.lock();
        if std::mem::replace(&mut *alive, false) {
            // SAFETY: our own mapping, released by its owner.
            unsafe { self.kernel.end(self.base..self.base + self.len) }
        }
    }
}

impl Mapping for Inner {
    fn unmap(&self, bytes: Range<u64>) {
        // This would drop the program's private copies too. They stay; other pages go with their
        // memory.
        if self.protection == Protection::CopyOnWrite {
            return;
        }
        let Some(range) = self.addresses(&bytes) else { return };
        let alive = self.alive.lock();
        if *alive {
            let len = range.end - range.start;
            self.counters.pages_unmapped.fetch_add(len as u64 / self.file().page_bytes(), Ordering::Relaxed);
            // SAFETY: our own mapping, shared and read-only.
            unsafe { self.kernel.unmap(range) }
        }
    }
}

#[cfg(not(feature = "model"))]
impl crate::signals::Serves for Inner {
    fn serve_here(&self, address: usize, _write: bool) -> bool {
        self.counters.faults.fetch_add(1, Ordering::Relaxed);
        let offset = self.start + (address - self.base) as u64;
        let stream = self.streams.of(this_thread());
        let around = self.around(offset, self.unread(&stream, offset));
        let mapped = self.hit(&stream, offset, around.clone());
        let mapped = mapped.map_or_else(
            || {
                task::block_on(self.fetch(&stream.file, offset, around.clone()))
                    .or_else(|error| self.fetch_again_here(&stream, offset, &around, error))
            },
            Ok,
        );
        let Ok(end) = mapped else { return false };
        self.map_ahead(&stream, offset, end);
        true
    }
}

/// The thread ID as in userfaultfd messages.
#[cfg(not(feature = "model"))]
fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
