//! A mapping and those who serve it.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowwave_engine::{MappedFile, Mapping, Pattern};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::error::{Error, Result};
use crate::region::{MapOptions, Protection};
use crate::streams::Streams;
use crate::task;
use crate::uffd::{Modes, Partial, Touch, Uffd};

/// What handlers, faults on their way and the region share.
pub(crate) struct Inner {
    streams: Streams,
    uffd: Uffd,
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
        uffd: Uffd,
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
            uffd,
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
        let modes = Modes { missing: true, minor: true, protected: false };
        // SAFETY: our own mapping; handlers are started before anybody gets its address.
        unsafe { inner.uffd.register(inner.base..inner.base + len, modes) }
            .map_err(|error| Error::System { wanted: "watch the mapping", error, hint: "" })?;
        let mapping: Arc<dyn Mapping> = Arc::clone(&inner) as _;
        inner.file().attach(Arc::downgrade(&mapping));
        Ok(inner)
    }

    /// The file; its readahead state is that of what the program asks for, not of what it touches.
    pub(crate) fn file(&self) -> &MappedFile {
        self.streams.first()
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

    /// Serves touches until something can be read from `stop`.
    pub(crate) fn handle(self: &Arc<Self>, stop: &OwnedFd) {
        let mut touches: Vec<Touch> = Vec::new();
        loop {
            let mut ready = [
                PollFd::from_borrowed_fd(self.uffd.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => {}
                Err(error) => unreachable!("polling two descriptors of our own: {error}"),
            }
            if !ready[1].revents().is_empty() {
                return;
            }
            self.uffd.receive(&mut touches).expect("a userfaultfd is readable while it is open");
            for touch in touches.drain(..) {
                self.counters.faults.fetch_add(1, Ordering::Relaxed);
                let inner = Arc::clone(self);
                task::spawn(async move { inner.serve(touch).await });
            }
        }
    }

    /// Sees to it that the thread that has touched goes on, with the page or with a signal.
    async fn serve(&self, touch: Touch) {
        let offset = self.start + (touch.address - self.base) as u64;
        let stream = self.streams.of(touch.thread);
        if self.fetch(&stream, offset).await.is_err() {
            // Noted, and fatal for the page: who sleeps wakes to a SIGBUS.
        }
    }

    /// Has the page of `offset` mapped, and what lies around it; the end of what was mapped.
    pub(crate) async fn fetch(&self, stream: &MappedFile, offset: u64) -> Result<u64> {
        let page = offset / stream.page_bytes() * stream.page_bytes();
        if let Some(cause) = self.failed().pages.get(&page) {
            let cause = cause.clone();
            self.poison(page);
            return Err(Error::Range(cause));
        }
        let around = offset.saturating_sub(self.around).max(self.start)
            ..offset.saturating_add(self.around).min(self.start + self.len as u64);
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
        while at < range.end {
            // SAFETY: our own mapping, registered; the cache says that these pages are up to date.
            match unsafe { self.uffd.map(at..range.end) } {
                Ok(()) => at = range.end,
                Err(Partial { done, error: Errno::AGAIN }) => at += done,
                // Another touch of it was faster, or it has a copy of the program's own.
                Err(Partial { done, error: Errno::EXIST }) => {
                    at += done;
                    self.wake(at..at + crate::uffd::SYSTEM_PAGE);
                    at += crate::uffd::SYSTEM_PAGE;
                }
                // Who waits there touches again, and is served again.
                Err(Partial { done, .. }) => {
                    at += done;
                    self.wake(at..range.end);
                    break;
                }
            }
        }
        let whole = (at - range.start) / page * page;
        self.counters.pages_mapped.fetch_sub(pages.saturating_sub((whole / page) as u64), Ordering::Relaxed);
        whole as u64
    }

    fn wake(&self, range: Range<usize>) {
        // Whole pages of our own mapping: it cannot fail.
        let woken = self.uffd.wake(range);
        debug_assert!(woken.is_ok(), "{woken:?}");
    }

    /// Notes why a page cannot be had, says so once, and makes it fatal to touch.
    fn fail(&self, page: u64, error: &bowwave_engine::Error) {
        let first = self.failed().pages.insert(page, error.to_string()).is_none();
        if first {
            say(format_args!("bowwave: bytes from {page} of a mapped file cannot be had: {error}"));
        }
        self.poison(page);
    }

    fn poison(&self, page: u64) {
        let bytes = page..page + self.file().page_bytes();
        let Some(range) = self.addresses(&bytes) else { return };
        let alive = self.alive();
        if *alive {
            // SAFETY: our own mapping, registered. A page that is there meanwhile stays as it is.
            let poisoned = unsafe { self.uffd.poison(range.clone()) };
            self.counters.pages_poisoned.fetch_add(u64::from(poisoned.is_ok()), Ordering::Relaxed);
            self.wake(range);
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
            let unmapped = unsafe { munmap(self.base as *mut _, self.len) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
            // Who still sleeps there finds nothing mapped, which is better than to find out when the store answers.
            self.wake(self.base..self.base + self.len);
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
            // SAFETY: our own mapping, shared and read-only: what it shows comes back at the next touch. If it fails, touches
            // are merely not seen.
            let _touches_unseen = unsafe { madvise(range.start as *mut _, len, Advice::LinuxDontNeed) };
        }
    }
}

/// Tells people; nothing can be done where that fails.
#[allow(clippy::print_stderr, reason = "the signal that follows says nothing")]
fn say(message: fmt::Arguments<'_>) {
    eprintln!("{message}");
}
