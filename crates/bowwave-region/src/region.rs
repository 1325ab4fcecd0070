//! A mapped file.
#![allow(unsafe_code, reason = "lends mapped memory as slices")]

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use bowwave_engine::sync::atomic::Ordering;
use bowwave_engine::sync::thread::{self, JoinHandle};
use bowwave_engine::{Advice, Identity, Pattern, Stats, Store};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::faults::Fault;
use crate::inner::Inner;
use crate::kernel::Kernel;
use crate::reap::Owner;
use crate::signals;
use crate::task;
use crate::uffd::{Delivery, Scope, Uffd};

/// A file of a store, or a part of it, as memory.
///
/// An access fetches missing pages, with readahead by the engine's policy. Pages are evicted when
/// the engine needs memory, and fetched again at the next access. Versions of the object never mix:
/// after a change, missing pages can no longer be fetched.
///
/// **A page that cannot be fetched** is never zeros: [`populate`](Self::populate),
/// [`copy`](Self::copy) and [`read`](Self::read) return the error. An access, after the store's
/// retries and [`MapOptions::retry_for`], prints the cause to standard error and raises `SIGBUS`.
/// [`failures`](Self::failures) returns all causes.
///
/// **System calls** that get this memory (`write`, `send`) work if the process may serve the
/// kernel's page faults: root, `CAP_SYS_PTRACE`, the sysctl `vm.unprivileged_userfaultfd`, or
/// permission to open `/dev/userfaultfd`. Otherwise they return `EFAULT` for missing pages:
/// [`populate`](Self::populate) the range first, or copy it with [`read`](Self::read).
/// [`serves_system_calls`](Self::serves_system_calls) returns which case applies.
///
/// **A child** after `fork` does not have the memory: an access there is a segmentation fault. With
/// [`keep_in_children`](Self::keep_in_children), it can map it again.
#[derive(Debug)]
pub struct Region {
    inner: Owner<Inner>,
    handlers: Vec<JoinHandle<()>>,
    /// Bytes of the file in the region, without padding to whole pages.
    len: usize,
    start: u64,
    scope: Scope,
    /// What it was mapped from, for a child.
    pub(crate) path: PathBuf,
    pub(crate) options: MapOptions,
}

/// Write access to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// No writes.
    #[default]
    ReadOnly,
    /// Writes go to private copies. They stay in memory beyond the engine's budget and are never
    /// stored.
    CopyOnWrite,
}

/// Options of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOptions {
    /// Range of the file; the whole file by default. Must start at a multiple of the engine's page
    /// size.
    pub range: Option<Range<u64>>,
    /// Write access.
    pub protection: Protection,
    /// Handler threads for page faults; by default one per processor, at most four.
    pub handlers: Option<NonZeroUsize>,
    /// Maximum cached bytes mapped on either side of a fault. Of unread readahead, a fault maps at
    /// most as much as was accessed sequentially before it, plus 64 KiB.
    pub around_bytes: u64,
    /// Threads with a handle of their own in the engine, by which readahead tells them apart.
    /// Beyond that, the least recently faulting thread starts anew. 1: all faults are one stream,
    /// as in a kernel. 256 by default.
    pub streams: NonZeroUsize,
    /// Whose page faults are served; by default all, if the process may.
    pub scope: Option<Scope>,
    /// How page faults are reported: by messages to handler threads, or by `SIGBUS` to the faulting
    /// thread, which serves itself.
    ///
    /// `SIGBUS` halves the time of a fault on a cached page and needs no threads. But system calls
    /// return `EFAULT` for missing pages. A program must not handle, block or wait for that signal
    /// itself. It must not access the memory while it holds a lock that the allocator or the store
    /// takes. Messages by default.
    pub delivery: Delivery,
    /// The version to map, if it is known: mapping it sends no request to the store. If the store
    /// has another version, pages cannot be fetched. By default, that of the store.
    pub version: Option<Identity>,
    /// How long an access waits, and the read of its page is repeated, after an error that may
    /// pass. This is in addition to the retries of the engine. Then the access ends in `SIGBUS`.
    /// Calls do not wait. Not at all by default.
    pub retry_for: Duration,
    /// Page faults to remember, for [`Region::last_faults`]. None by default.
    pub remembered_faults: usize,
}

impl Default for MapOptions {
    fn default() -> Self {
        Self {
            range: None,
            protection: Protection::default(),
            handlers: None,
            around_bytes: 256 << 10,
            streams: const { NonZeroUsize::new(256).expect("not 0") },
            scope: None,
            delivery: Delivery::default(),
            version: None,
            retry_for: Duration::ZERO,
            remembered_faults: 0,
        }
    }
}

/// Counters of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionStats {
    /// Page faults.
    pub faults: u64,
    /// Pages mapped, in engine pages.
    pub pages_mapped: u64,
    /// Pages unmapped to detect further accesses.
    pub pages_unmapped: u64,
    /// Pages that could not be fetched.
    pub pages_poisoned: u64,
    /// Counters of the cache.
    pub cache: Stats,
}

impl Region {
    /// Maps a file.
    ///
    /// # Errors
    /// The store's error. [`Error::Range`] for a range that is empty, starts within a page or ends
    /// beyond the file. [`Error::System`] if userfaultfd is missing or not permitted, or no address
    /// space is left.
    pub fn map(store: &Store, path: &Path, options: &MapOptions) -> Result<Self> {
        Self::map_to(None, store, path, options)
    }

    /// Maps a file to an address, in place of the existing mapping.
    ///
    /// # Errors
    /// As [`map`](Self::map). The mapping there is then unspecified.
    ///
    /// # Safety
    /// `at` is page-aligned. The caller yields the addresses from `at`, for the length of the range
    /// rounded up to engine pages: they are used only through the region while it lives.
    #[allow(unsafe_code, reason = "replaces mappings")]
    pub unsafe fn map_at(at: usize, store: &Store, path: &Path, options: &MapOptions) -> Result<Self> {
        Self::map_to(Some(at), store, path, options)
    }

    fn map_to(at: Option<usize>, store: &Store, path: &Path, options: &MapOptions) -> Result<Self> {
        let file = match &options.version {
            Some(version) => store.open_mapped_version(path, version)?,
            None => store.open_mapped(path)?,
        };
        let (size, page) = (file.file().size(), file.page_bytes());
        let range = options.range.clone().unwrap_or(0..size);
        check(&range, size, page)?;
        let (uffd, scope) = open_uffd(options)?;
        let whole = (range.end - range.start).next_multiple_of(page);
        let out_of_space = |_| Error::Range(format!("{whole} bytes are more than this machine can address"));
        let whole = usize::try_from(whole).map_err(out_of_space)?;
        let kernel = Kernel::new(uffd).map_err(|error| {
            let hint = if is_out_of_descriptors(&error) { OUT_OF_DESCRIPTORS } else { "" };
            Error::System { wanted: "make an event", error, hint }
        })?;
        let version = Some(file.file().identity());
        let name = bowwave_backend::place(store.url(), path);
        let inner = Inner::new((file, name), kernel, (range.start, whole), at, options)?;
        let mut region = Self {
            inner: Owner::new(inner),
            handlers: Vec::new(),
            len: (range.end - range.start) as usize,
            start: range.start,
            scope,
            path: path.to_owned(),
            options: MapOptions { version, ..options.clone() },
        };
        match options.delivery {
            Delivery::Message => region.start_handlers(options.handlers)?,
            Delivery::Signal => region.serve_in_threads()?,
        }
        Ok(region)
    }

    fn start_handlers(&mut self, wanted: Option<NonZeroUsize>) -> Result<()> {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get).min(HANDLERS_MAX);
        for number in 0..wanted.map_or(processors, NonZeroUsize::get) {
            let inner = Arc::clone(&self.inner);
            let handler = thread::Builder::new()
                .name(format!("bowwave-fault-{number}"))
                .spawn(move || inner.handle())
                .map_err(|error| {
                    let hint = "map fewer regions at once, or raise the limit of threads (ulimit -u)";
                    Error::System { wanted: "start a thread", error, hint }
                })?;
            self.handlers.push(handler);
        }
        Ok(())
    }

    #[cfg(not(feature = "model"))]
    fn serve_in_threads(&self) -> Result<()> {
        let server = Arc::downgrade(&self.inner);
        signals::watch(self.inner.place(), server)
    }

    /// The model has no signals.
    #[cfg(feature = "model")]
    fn serve_in_threads(&mut self) -> Result<()> {
        self.start_handlers(None)
    }

    /// Length in bytes; never 0.
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Identity of the object, as last reported by the store.
    pub fn identity(&self) -> Identity {
        self.inner.file().file().identity()
    }

    /// The mapped addresses.
    #[cfg(not(feature = "model"))]
    pub(crate) fn place(&self) -> Range<usize> {
        self.inner.place()
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.inner.kernel
    }

    /// Address of the first byte. Valid for reads while the region lives.
    pub fn as_ptr(&self) -> *const u8 {
        self.inner.base as *const u8
    }

    /// The bytes. Reading a page that cannot be fetched raises `SIGBUS`.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped for reading while `self` lives. Each byte is constant: pages return
        // unchanged or not at all, and only `as_mut_slice` writes.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The bytes, writable; `None` unless the region is [`Protection::CopyOnWrite`].
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let writable = self.inner.is_writable();
        // SAFETY: mapped for writing, as private copies; borrowed exclusively.
        writable.then(|| unsafe { std::slice::from_raw_parts_mut(self.inner.base as *mut u8, self.len) })
    }

    /// The region as accessed by model threads, also after it is dropped.
    #[cfg(feature = "model")]
    pub fn toucher(&self) -> crate::kernel::Toucher {
        crate::kernel::Toucher::new(&self.inner)
    }

    /// Copies bytes of the file from `offset` of the region, ignoring writes to the region. Causes
    /// no page fault, so errors are returned.
    ///
    /// # Errors
    /// The store's error; [`Error::Range`] beyond the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_range(offset, buf.len() as u64)?;
        self.inner.file().file().read_at(self.start + offset, buf)?;
        Ok(())
    }

    /// Fetches and maps `len` bytes from `offset`, so that later accesses do not fault unless the
    /// engine evicts the pages before.
    ///
    /// # Errors
    /// The store's error for the first page that cannot be fetched; [`Error::Range`] beyond the
    /// end.
    pub fn populate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)?;
        let (mut at, end) = (self.start + offset, self.start + offset + len);
        while at < end {
            let around = self.inner.around(at, u64::MAX);
            let fetched = task::block_on(self.inner.fetch(self.inner.file(), at, around));
            let failed = |error: &Error| self.inner.note_failed(at, error);
            at = fetched.inspect_err(failed)?.max(at + 1);
        }
        Ok(())
    }

    /// Advises how `len` bytes from `offset` will be accessed; a `len` of 0 extends to the end.
    /// `Normal`, `Sequential` and `Random` apply to the whole region.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end.
    pub fn advise(&self, offset: u64, len: u64, advice: Advice) -> Result<()> {
        self.check_range(offset, len)?;
        match advice {
            Advice::Normal => self.inner.set_pattern(Pattern::Normal),
            Advice::Sequential => self.inner.set_pattern(Pattern::Sequential),
            Advice::Random => self.inner.set_pattern(Pattern::Random),
            _ => {}
        }
        let len = if len == 0 { self.len as u64 - offset } else { len };
        self.inner.file().advise(self.start + offset, len, advice);
        Ok(())
    }

    /// Whether system calls may access missing pages of the region.
    pub fn serves_system_calls(&self) -> bool {
        self.scope == Scope::All
    }

    /// Pages that could not be fetched: their offset in the file in bytes, and the cause.
    pub fn failures(&self) -> Vec<(u64, String)> {
        self.inner.failures()
    }

    /// The last [`remembered_faults`](MapOptions::remembered_faults) page faults and populated
    /// ranges, in the order in which they ended.
    pub fn last_faults(&self) -> Vec<Fault> {
        self.inner.faults.last()
    }

    /// Counters so far.
    pub fn stats(&self) -> RegionStats {
        let counters = &self.inner.counters;
        let load = |counter: &bowwave_engine::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        RegionStats {
            faults: load(&counters.faults),
            pages_mapped: load(&counters.pages_mapped),
            pages_unmapped: load(&counters.pages_unmapped),
            pages_poisoned: load(&counters.pages_poisoned),
            cache: self.inner.file().stats(),
        }
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.len as u64;
        if offset <= size && len <= size - offset {
            return Ok(());
        }
        Err(Error::Range(format!("{len} bytes from {offset} of a region of {size} bytes")))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        signals::forget(self.inner.base);
        #[cfg(not(feature = "model"))]
        crate::fork::forget(self.inner.base);
        self.inner.kernel.stop();
        for handler in self.handlers.drain(..) {
            // A handler's panic has printed its message.
            let _said = handler.join();
        }
        self.inner.end();
    }
}

/// More threads do not help: handlers only start what stores and their threads do.
const HANDLERS_MAX: usize = 4;

fn check(range: &Range<u64>, size: u64, page: u64) -> Result<()> {
    let problem = if range.start >= range.end {
        "it is empty".to_owned()
    } else if range.end > size {
        format!("the file has {size} bytes")
    } else if !range.start.is_multiple_of(page) {
        format!("it must begin at a multiple of {page}")
    } else {
        return Ok(());
    };
    Err(Error::Range(format!("cannot map bytes {} to {}: {problem}", range.start, range.end)))
}

/// Opens a userfaultfd for all page faults if permitted, otherwise for the program's, unless the
/// scope is given. Signals report only the program's.
fn open_uffd(options: &MapOptions) -> Result<(Uffd, Scope)> {
    let open = |scope| Uffd::open(scope, options.delivery).map(|uffd| (uffd, scope));
    match (options.scope, options.delivery) {
        (Some(Scope::All), Delivery::Signal) => {
            Err(Error::Range("page faults of the kernel cannot be reported by a signal: use Scope::Program, or Delivery::Message for messages".into()))
        }
        (_, Delivery::Signal) => open(Scope::Program).map_err(uffd_refused),
        (Some(scope), Delivery::Message) => open(scope).map_err(uffd_refused),
        (None, Delivery::Message) => open(Scope::All).or_else(|_| open(Scope::Program)).map_err(uffd_refused),
    }
}

/// Adds a remedy to a userfaultfd error.
pub(crate) fn uffd_refused(error: io::Error) -> Error {
    Error::System { wanted: "use userfaultfd", hint: uffd_hint(&error), error }
}

fn uffd_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run as root, set the sysctl vm.unprivileged_userfaultfd=1, or let this user open /dev/userfaultfd; in a sandbox or \
             container, its seccomp profile must allow userfaultfd"
        }
        _ if is_out_of_descriptors(error) => OUT_OF_DESCRIPTORS,
        _ => "it takes Linux 6.6 or later, with CONFIG_USERFAULTFD, and a sandbox that allows it",
    }
}

/// Each region uses three descriptors.
const OUT_OF_DESCRIPTORS: &str = "map fewer regions at once, or raise the limit of open files (ulimit -n)";

fn is_out_of_descriptors(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| Some(errno.raw_os_error()) == error.raw_os_error())
}
