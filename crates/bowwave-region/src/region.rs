//! A mapped file.
#![allow(unsafe_code, reason = "lends mapped memory as slices")]

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use bowwave_engine::{Advice, Identity, Pattern, Stats, Store};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::kernel::Kernel;
use crate::reap::Owner;
use crate::signals;
use crate::sync::atomic::Ordering;
use crate::sync::thread::{self, JoinHandle};
use crate::task;
use crate::uffd::{Delivery, Scope, Uffd};

/// A file of a store, or a part of it, as memory.
///
/// Reading it fetches what is missing, with readahead by the engine's policy; pages go as the engine needs room and come
/// again when they are touched. Bytes of two versions of the object never meet: after a change, what is not there cannot be
/// had any more.
///
/// **A page that cannot be had** is never zeros: [`populate`](Self::populate) and [`read`](Self::read) return the error; a touch, after the
/// store's retries, says why on standard error and ends in a `SIGBUS`. [`failures`](Self::failures) has them all.
///
/// **System calls** that are handed this memory (`write`, `send`) work where the process may serve the kernel's touches: root, `CAP_SYS_PTRACE`,
/// the sysctl `vm.unprivileged_userfaultfd`, or leave to open `/dev/userfaultfd`. Elsewhere they return `EFAULT` for pages that are not there: [`populate`](Self::populate) them
/// first, or copy them with [`read`](Self::read); [`serves_system_calls`](Self::serves_system_calls) tells.
///
/// **A child** after `fork` does not have the memory: a touch is a segmentation fault there.
#[derive(Debug)]
pub struct Region {
    inner: Owner<Inner>,
    handlers: Vec<JoinHandle<()>>,
    /// Bytes of the file that it shows, less than whole pages.
    len: usize,
    start: u64,
    scope: Scope,
}

/// Who may write to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Nobody.
    #[default]
    ReadOnly,
    /// The program, to copies of its own: what it writes to stays in memory, beyond the engine's budget, and goes nowhere.
    CopyOnWrite,
}

/// How to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOptions {
    /// Which bytes of the file; all of it by default. Must begin at a multiple of the engine's page size.
    pub range: Option<Range<u64>>,
    /// Who may write.
    pub protection: Protection,
    /// Threads that serve touches; by default one for each processor, four at most.
    pub handlers: Option<NonZeroUsize>,
    /// Bytes mapped at once on either side of a touch, if they are there; behind it no more of what was read ahead and not used
    /// than was touched in order before it, and 64 KiB.
    pub around_bytes: u64,
    /// Threads whose touches are told apart, each with a readahead state of its own; past that, whoever has not touched for
    /// longest starts anew. 1: all touches are one stream, as in a kernel. 256 by default.
    pub streams: NonZeroUsize,
    /// Whose touches are served; by default all if this process may.
    pub scope: Option<Scope>,
    /// How touches are told: by messages to threads that serve them, or by `SIGBUS` to the thread that has touched, which then
    /// serves itself. That takes half of the time for a page that is there, and no threads; but system calls return `EFAULT` for
    /// pages that are not there, a program must not handle, block or wait for that signal itself, nor touch the memory with a
    /// lock in hand that its allocator or the store takes. Messages by default.
    pub delivery: Delivery,
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
        }
    }
}

/// What has happened in a region so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionStats {
    /// Touches of pages that were not mapped.
    pub faults: u64,
    /// Pages mapped, of the engine's size.
    pub pages_mapped: u64,
    /// Pages unmapped to see whether they are touched again.
    pub pages_unmapped: u64,
    /// Pages that could not be had.
    pub pages_poisoned: u64,
    /// What the cache did.
    pub cache: Stats,
}

impl Region {
    /// Maps a file.
    ///
    /// # Errors
    /// As the store says; [`Error::Range`] for a range that is empty, begins within a page or ends beyond the file; [`Error::System`] where the
    /// kernel has no userfaultfd, does not let this process use it, or gives no address space.
    pub fn map(store: &Store, path: &Path, options: &MapOptions) -> Result<Self> {
        Self::map_to(None, store, path, options)
    }

    /// Maps a file to an address, in place of what is mapped there.
    ///
    /// # Errors
    /// As [`map`](Self::map). What is mapped there then is unspecified.
    ///
    /// # Safety
    /// `at` begins a page, and the addresses from there, as many as the range has bytes, rounded up to the engine's pages, are
    /// the caller's to give away: nobody uses them but through the region, as long as it lives.
    #[allow(unsafe_code, reason = "replaces mappings")]
    pub unsafe fn map_at(at: usize, store: &Store, path: &Path, options: &MapOptions) -> Result<Self> {
        Self::map_to(Some(at), store, path, options)
    }

    fn map_to(at: Option<usize>, store: &Store, path: &Path, options: &MapOptions) -> Result<Self> {
        let file = store.open_mapped(path)?;
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
        let inner = Inner::new(file, kernel, (range.start, whole), at, options)?;
        let mut region = Self {
            inner: Owner::new(inner),
            handlers: Vec::new(),
            len: (range.end - range.start) as usize,
            start: range.start,
            scope,
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

    /// In the model there are no signals.
    #[cfg(feature = "model")]
    fn serve_in_threads(&mut self) -> Result<()> {
        self.start_handlers(None)
    }

    /// Bytes of the file that it shows; never 0.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Identity of the object, as of the last agreement with the store.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.inner.file().file().identity()
    }

    /// Address of the first byte. Valid, for reads, as long as the region lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.inner.base as *const u8
    }

    /// The bytes. Reading one that cannot be had ends in a `SIGBUS`.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped for reading as long as `self` lives; each byte is the same whenever it is read, since pages come back
        // as they went or not at all, and nobody writes but through `as_mut_slice`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The bytes, to be changed; `None` unless the region is [`Protection::CopyOnWrite`].
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let writable = self.inner.is_writable();
        // SAFETY: mapped for writing, as copies of this process's own; borrowed exclusively.
        writable.then(|| unsafe { std::slice::from_raw_parts_mut(self.inner.base as *mut u8, self.len) })
    }

    /// The region as threads of the model touch it, also when it is gone.
    #[cfg(feature = "model")]
    #[must_use]
    pub fn toucher(&self) -> crate::kernel::Toucher {
        crate::kernel::Toucher::new(&self.inner)
    }

    /// Copies bytes from `offset` of the region as the file has them, whatever was written to the region. Needs no touch, so errors are returned.
    ///
    /// # Errors
    /// As the store says; [`Error::Range`] beyond the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_range(offset, buf.len() as u64)?;
        self.inner.file().file().read_at(self.start + offset, buf)?;
        Ok(())
    }

    /// Fetches and maps `len` bytes from `offset`, so that touching them later is no fault, unless the engine needs the room before.
    ///
    /// # Errors
    /// As the store says, for the first page that cannot be had; [`Error::Range`] beyond the end.
    pub fn populate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)?;
        let (mut at, end) = (self.start + offset, self.start + offset + len);
        while at < end {
            let around = self.inner.around(at, u64::MAX);
            at = task::wait_for(self.inner.fetch(self.inner.file(), at, around))?.max(at + 1);
        }
        Ok(())
    }

    /// Says how `len` bytes from `offset` will be touched; 0 for `len` means to the end. `Normal`, `Sequential` and `Random` hold for the whole region.
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

    /// Whether system calls may be handed memory of the region that is not there yet.
    #[must_use]
    pub fn serves_system_calls(&self) -> bool {
        self.scope == Scope::All
    }

    /// Pages that could not be had: where they begin in the file, in bytes, and why.
    #[must_use]
    pub fn failures(&self) -> Vec<(u64, String)> {
        self.inner.failures()
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> RegionStats {
        let counters = &self.inner.counters;
        let load = |counter: &crate::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
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
        self.inner.kernel.stop();
        for handler in self.handlers.drain(..) {
            // One that panicked has said so.
            let _said = handler.join();
        }
        self.inner.end();
    }
}

/// More threads serve no faster: they only start what stores and their threads do.
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

/// Serves all touches if this process may, else those of the program, unless it was said which. A signal goes to programs alone.
fn open_uffd(options: &MapOptions) -> Result<(Uffd, Scope)> {
    let open = |scope| Uffd::open(scope, options.delivery).map(|uffd| (uffd, scope));
    match (options.scope, options.delivery) {
        (Some(Scope::All), Delivery::Signal) => {
            Err(Error::Range("touches of the kernel cannot be told by a signal: leave the scope to the program's, or have messages".into()))
        }
        (_, Delivery::Signal) => open(Scope::Program).map_err(uffd_refused),
        (Some(scope), Delivery::Message) => open(scope).map_err(uffd_refused),
        (None, Delivery::Message) => open(Scope::All).or_else(|_| open(Scope::Program)).map_err(uffd_refused),
    }
}

/// Says what may help where there is no userfaultfd to be had.
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

/// A region takes three descriptors.
const OUT_OF_DESCRIPTORS: &str = "map fewer regions at once, or raise the limit of open files (ulimit -n)";

fn is_out_of_descriptors(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| Some(errno.raw_os_error()) == error.raw_os_error())
}
