//! A mapping and those who serve it.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use bowwave_engine::{Around, MappedFile, Mapping, Pattern};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::error::{Error, Result, report};
use crate::kernel::Kernel;
use crate::region::{MapOptions, Protection};
use crate::streams::{Stream, Streams};
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::task;
use crate::uffd::{Partial, Touch};

/// What handlers, faults on their way and the region share.
pub(crate) struct Inner {
    streams: Streams,
    pub(crate) kernel: Kernel,
    /// Address of the first page.
    pub(crate) base: usize,
    /// Bytes of the mapping, whole pages.
    len: usize,
    /// Where in the file it begins.
    start: u64,
    /// Most bytes mapped around a touch, on either side.
    around: u64,
    protection: Protection,
    pattern: AtomicU8,
    /// Cleared before the addresses are given back; held while somebody changes what is mapped there.
    alive: Mutex<bool>,
    failed: Mutex<Failed>,
    pub(crate) counters: Counters,
}

/// Pages that could not be fetched.
#[derive(Debug, Default)]
struct Failed {
    /// By page: offset in the file, and why.
    pages: BTreeMap<u64, String>,
}

/// What has happened so far.
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
    /// Maps `len` bytes of the file from `start`, none of them present; to `at`, whose addresses the caller gives away, or
    /// anywhere.
    pub(crate) fn new(
        file: MappedFile,
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
        // SAFETY: a fresh mapping at an address of the kernel's choosing, or where the caller gives addresses away.
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
            counters: Counters::default(),
        });
        // A child has none of the threads that serve this: it does not get the memory either, rather than wait for ever.
        // SAFETY: advice on our own mapping.
        unsafe { madvise(base, len, Advice::LinuxDontFork) }
            .map_err(refused("keep the mapping from children"))?;
        // SAFETY: our own mapping; handlers are started before anybody gets its address.
        unsafe { inner.kernel.watch(inner.base..inner.base + len) }.map_err(|error| Error::System {
            wanted: "watch the mapping",
            error,
            hint: "",
        })?;
        let mapping: Arc<dyn Mapping> = Arc::clone(&inner) as _;
        inner.file().attach(Arc::downgrade(&mapping));
        Ok(inner)
    }

    /// Where it is mapped.
    #[cfg(not(feature = "model"))]
    pub(crate) fn place(&self) -> Range<usize> {
        self.base..self.base + self.len
    }

    /// The file; its readahead state is that of what the program asks for, not of what it touches.
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

    /// Serves touches until the kernel is told to stop.
    pub(crate) fn handle(self: &Arc<Self>) {
        let mut touches: Vec<Touch> = Vec::new();
        while self.kernel.touches(&mut touches) {
            for touch in touches.drain(..) {
                self.counters.faults.fetch_add(1, Ordering::Relaxed);
                self.serve(&touch);
            }
        }
    }

    /// Sees to it that the thread that has touched goes on, with the page or with a signal.
    fn serve(self: &Arc<Self>, touch: &Touch) {
        let offset = self.start + (touch.address - self.base) as u64;
        let stream = self.streams.of(touch.thread);
        let around = self.around(offset, self.unread(&stream, offset));
        if let Some(end) = self.map_if_there(&stream, offset, around.clone()) {
            self.map_ahead(&stream, offset, end);
            return;
        }
        let inner = Arc::clone(self);
        task::spawn(async move {
            // An error is noted, and fatal for the page: who sleeps wakes to a SIGBUS.
            if let Ok(end) = inner.fetch(&stream.file, offset, around).await {
                inner.map_ahead(&stream, offset, end);
            }
        });
    }

    /// Touches what comes next on behalf of a thread that touches in order, as far as it is there, so that it need not sleep
    /// and be woken for each few pages. The policy sees these touches in place of the thread's own.
    fn map_ahead(&self, stream: &Stream, offset: u64, from: u64) {
        if self.around == 0 || self.pattern() == Pattern::Random {
            return;
        }
        let Some(ahead) = stream.touched(offset, from, self.around) else { return };
        let (mut at, end) = (from, from.saturating_add(ahead).min(self.start + self.len as u64));
        // Whoever sleeps comes first.
        while at < end && !self.kernel.has_touches() {
            let bytes = at..at.saturating_add(self.around).min(end);
            match self.map_if_there(stream, at, Around { bytes, unread_bytes: u64::MAX }) {
                Some(mapped) => at = mapped,
                None => break,
            }
        }
        stream.mapped_ahead(at);
    }

    /// If the page of `offset` is there, and not mapped so far as the cache knows, maps it and what of `around` is there, and
    /// returns where that ends.
    fn map_if_there(&self, stream: &Stream, offset: u64, around: Around) -> Option<u64> {
        let page = offset / stream.file.page_bytes() * stream.file.page_bytes();
        if self.failed().pages.contains_key(&page) {
            return None;
        }
        let mut end = page + stream.file.page_bytes();
        let is_there = stream.file.fault_if_there(offset, self.pattern(), around, |bytes| {
            let count = self.map(bytes.clone());
            end = end.max(bytes.start + count);
            count
        });
        is_there.then_some(end)
    }

    /// What may be mapped with the page of `offset`, and how much of it that nobody has used.
    pub(crate) fn around(&self, offset: u64, unread_bytes: u64) -> Around {
        let from = offset.saturating_sub(self.around).max(self.start);
        let to = offset.saturating_add(self.around).min(self.start + self.len as u64);
        Around { bytes: from..to, unread_bytes }
    }

    /// How much of what was read ahead is mapped behind a touch at `offset`: as a program says that it touches, or as much as it has
    /// touched in order.
    fn unread(&self, stream: &Stream, offset: u64) -> u64 {
        match self.pattern() {
            Pattern::Sequential => u64::MAX,
            _ => stream.unread(offset),
        }
    }

    /// Has the page of `offset` mapped, and what lies around it; the end of what was mapped.
    pub(crate) async fn fetch(&self, stream: &MappedFile, offset: u64, around: Around) -> Result<u64> {
        let page = offset / stream.page_bytes() * stream.page_bytes();
        if let Some(cause) = self.failed().pages.get(&page) {
            let cause = cause.clone();
            self.poison(page);
            return Err(Error::Range(cause));
        }
        let mut end = page;
        let mapped = stream.fault(offset, self.pattern(), around, |bytes| {
            let count = self.map(bytes.clone());
            end = bytes.start + count;
            count
        });
        match mapped.await {
            Ok(()) => Ok(end.max(page + stream.page_bytes())),
            Err(error) => {
                self.fail(page, &error);
                Err(error.into())
            }
        }
    }

    /// Maps bytes of the file that are in its memory; how many, from the first on.
    fn map(&self, bytes: Range<u64>) -> u64 {
        let Some(range) = self.addresses(&bytes) else { return 0 };
        let (alive, mut at) = (self.alive(), range.start);
        if !*alive {
            return 0;
        }
        let page = self.file().page_bytes() as usize;
        // Counted before it is done: who touches goes on as soon as a page is there, and may look at the counters.
        let pages = ((range.end - range.start) / page) as u64;
        self.counters.pages_mapped.fetch_add(pages, Ordering::Relaxed);
        let mut step = range.end - range.start;
        while at < range.end {
            let to = at.saturating_add(step).min(range.end);
            // SAFETY: our own mapping, registered; the cache says that these pages are up to date.
            match unsafe { self.kernel.map(at..to) } {
                Ok(()) => at = to,
                Err(Partial { done, error: Errno::AGAIN }) => at += done,
                // Another touch of it was faster, or it has a copy of the program's own.
                Err(Partial { done, error: Errno::EXIST }) => {
                    at += done;
                    self.kernel.wake(at..at + crate::uffd::SYSTEM_PAGE);
                    at += crate::uffd::SYSTEM_PAGE;
                }
                // The program has unmapped a part of it: what is left is found page by page.
                Err(Partial { done, error: Errno::NOENT }) if step > crate::uffd::SYSTEM_PAGE => {
                    at += done;
                    step = crate::uffd::SYSTEM_PAGE;
                }
                Err(Partial { error: Errno::NOENT, .. }) => {
                    self.kernel.wake(at..to);
                    at = to;
                }
                // Who waits there touches again, and is served again.
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

    /// Notes why a page cannot be had, says so once, and makes it fatal to touch.
    fn fail(&self, page: u64, error: &bowwave_engine::Error) {
        let first = self.failed().pages.insert(page, error.to_string()).is_none();
        if first {
            report(format_args!("bowwave: bytes from {page} of a mapped file cannot be had: {error}"));
        }
        self.poison(page);
    }

    fn poison(&self, page: u64) {
        let bytes = page..page + self.file().page_bytes();
        let Some(range) = self.addresses(&bytes) else { return };
        let alive = self.alive();
        if *alive {
            // SAFETY: our own mapping, registered. A page that is there meanwhile stays as it is.
            let poisoned = unsafe { self.kernel.poison(range.clone()) };
            self.counters.pages_poisoned.fetch_add(u64::from(poisoned.is_ok()), Ordering::Relaxed);
            self.kernel.wake(range);
        }
    }

    /// Why pages could not be had, by their offset in the file.
    pub(crate) fn failures(&self) -> Vec<(u64, String)> {
        self.failed().pages.iter().map(|(&page, cause)| (page, cause.clone())).collect()
    }

    /// Where bytes of the file are mapped, those that are.
    fn addresses(&self, bytes: &Range<u64>) -> Option<Range<usize>> {
        let start = bytes.start.max(self.start);
        let end = bytes.end.min(self.start + self.len as u64);
        (start < end)
            .then(|| self.base + (start - self.start) as usize..self.base + (end - self.start) as usize)
    }

    /// Takes the mapping away. Nobody touches it any more.
    pub(crate) fn end(&self) {
        let mut alive = self.alive();
        if std::mem::replace(&mut *alive, false) {
            // SAFETY: our own mapping, whose owner lets go of it.
            unsafe { self.kernel.end(self.base..self.base + self.len) }
        }
    }

    fn alive(&self) -> MutexGuard<'_, bool> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mapping for Inner {
    fn unmap(&self, bytes: Range<u64>) {
        // This would take a program's own copies, too: they stay, and the others go with their memory.
        if self.protection == Protection::CopyOnWrite {
            return;
        }
        let Some(range) = self.addresses(&bytes) else { return };
        let alive = self.alive();
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
        let mapped = self.map_if_there(&stream, offset, around.clone());
        let mapped = mapped.map_or_else(|| task::wait_for(self.fetch(&stream.file, offset, around)), Ok);
        let Ok(end) = mapped else { return false };
        self.map_ahead(&stream, offset, end);
        true
    }
}

/// As messages number it.
#[cfg(not(feature = "model"))]
fn this_thread() -> u32 {
    // SAFETY: takes nothing and changes nothing.
    unsafe { libc::gettid() }.unsigned_abs()
}
