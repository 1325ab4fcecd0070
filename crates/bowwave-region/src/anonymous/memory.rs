//! The memory of all regions of a swap: address space, resident pages, and their state in the
//! kernel.
//!
//! All regions share one sparse memory file, mapped once as shared memory. userfaultfd reports its
//! missing pages and minor faults, and tracks writes. The resident pages are those in the file,
//! mapped or not. To detect whether a page is in use, the pager unmaps it: the next access faults.
//!
//! Pages that equal the store are mapped write-protected. The kernel lifts the protection at the
//! first write without a message. Unmapping shows whether the page was written: in the step that
//! unmaps it, the kernel leaves a marker if the page was still protected. No write before that step
//! is missed, and none is possible after it.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr;

use bowwave_backend::descriptors::own;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::error::{Error, Result};
use crate::uffd::{Delivery, Modes, Partial, SYSTEM_PAGE, Scope, Touch, Uffd};

/// Page numbers, from 0 at the start of the mapping.
pub(super) type Pages = Range<u64>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Memory {
    uffd: Uffd,
    scope: Scope,
    file: File,
    base: usize,
    pages: u64,
    /// The process's page table; `None` if writes cannot be tracked.
    pagemap: Option<File>,
    /// A pidfd of this process, to unmap many runs of pages at once.
    pidfd: Option<OwnedFd>,
}

impl Memory {
    /// Reserves address space for `pages` pages, all missing.
    pub(super) fn new(pages: u64, scope: Option<Scope>, delivery: Delivery) -> Result<Self> {
        let refused = |wanted| move |error: Errno| Error::System { wanted, error: error.into(), hint: "" };
        let too_long = || Error::Range(format!("{pages} pages are more than this machine can address"));
        let len = usize::try_from(pages).ok().and_then(|pages| pages.checked_mul(SYSTEM_PAGE));
        let len = len.filter(|&len| isize::try_from(len).is_ok()).ok_or_else(too_long)?;
        let (uffd, scope, pagemap) = open_uffd(scope, delivery)?;
        let file = own(|| memfd_create("bowwave-swap", MemfdFlags::CLOEXEC))
            .map_err(refused("make a memory file"))?;
        ftruncate(&file, len as u64).map_err(refused("extend a memory file"))?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address chosen by the kernel.
        let base = unsafe { mmap(ptr::null_mut(), len, access, flags, &file, 0) }.map_err(|error| {
            let hint = "is the address space limited (ulimit -v)?";
            Error::System { wanted: "reserve address space", error: error.into(), hint }
        })?;
        let memory =
            Self { uffd, scope, file: file.into(), base: base as usize, pages, pagemap, pidfd: open_pidfd() };
        for advice in [Advice::LinuxDontFork, Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
            // SAFETY: advice on our own mapping. A kernel without huge pages rejects the second;
            // then none are used.
            let advised = unsafe { madvise(base, len, advice) };
            if advice == Advice::LinuxDontFork {
                // A child has no handler threads.
                advised.map_err(refused("keep the memory from children"))?;
            }
        }
        let modes = Modes { missing: true, minor: true, protected: memory.tracks_writes() };
        // SAFETY: our own mapping; handlers start before any address in it is returned.
        unsafe { memory.uffd.register(memory.base..memory.base + len, modes) }
            .map_err(|error| Error::System { wanted: "watch the memory", error, hint: "" })?;
        Ok(memory)
    }

    /// Whether the kernel reports which pages were written; otherwise all pages count as written.
    pub(super) fn tracks_writes(&self) -> bool {
        self.pagemap.is_some()
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// The mapped addresses.
    pub(super) fn all_addresses(&self) -> Range<usize> {
        self.addresses(&(0..self.pages))
    }

    /// Address of a page.
    pub(super) fn address(&self, page: u64) -> usize {
        debug_assert!(page <= self.pages, "{page}");
        self.base + page as usize * SYSTEM_PAGE
    }

    /// The page at an address, if it is in this memory.
    pub(super) fn page_at(&self, address: usize) -> Option<u64> {
        let page = (address.checked_sub(self.base)? / SYSTEM_PAGE) as u64;
        (page < self.pages).then_some(page)
    }

    fn addresses(&self, pages: &Pages) -> Range<usize> {
        self.address(pages.start)..self.address(pages.end)
    }

    /// Reads the waiting page faults without blocking.
    pub(super) fn receive(&self, touches: &mut Vec<Touch>) -> io::Result<()> {
        self.uffd.receive(touches)
    }

    /// Fills missing pages from `source`, maps them, and wakes waiting threads. `protected`: the
    /// bytes equal the store, so writes are to be tracked.
    ///
    /// # Safety
    /// `source` points to the bytes of all these pages, and they do not change.
    pub(super) unsafe fn fill(&self, pages: &Pages, source: *const u8, protected: bool) -> io::Result<()> {
        let protected = protected && self.tracks_writes();
        let Range { start, end } = self.addresses(pages);
        self.for_unmapped(start..end, |range| {
            // SAFETY: our own mapping, registered; the caller guarantees the source.
            unsafe { self.uffd.copy(range.start, source.add(range.start - start), range.len(), protected) }
        })
    }

    /// Maps zeros at missing pages and wakes waiting threads.
    pub(super) fn zero(&self, pages: &Pages) -> io::Result<()> {
        // SAFETY: our own mapping, registered; these pages were never written.
        self.for_unmapped(self.addresses(pages), |range| unsafe { self.uffd.zero(range) })
    }

    /// Maps resident pages and wakes waiting threads. `protected` as in [`fill`](Self::fill).
    pub(super) fn map(&self, pages: &Pages, protected: bool) -> io::Result<()> {
        let protected = protected && self.tracks_writes();
        // SAFETY: our own mapping, registered; the file has the content that readers should see.
        self.for_unmapped(self.addresses(pages), |range| unsafe { self.uffd.map(range, protected) })
    }

    /// Maps a resident page that the kernel may have unmapped by itself. Reclaim and DAMON unmap
    /// pages of a memory file even if no swap space can take them. The page may have been written
    /// before, so it is mapped unprotected.
    pub(super) fn map_again(&self, page: u64) {
        // After an error the thread faults again.
        let _mapped = self.map(&(page..page + 1), false);
    }

    /// Applies `step` to all of `range`, skipping pages that are already mapped.
    fn for_unmapped(
        &self,
        range: Range<usize>,
        step: impl Fn(Range<usize>) -> std::result::Result<(), Partial>,
    ) -> io::Result<()> {
        let Range { start: mut at, end } = range;
        while at < end {
            match step(at..end) {
                Ok(()) => return Ok(()),
                // Another thread is changing the address space.
                Err(Partial { done, error: Errno::AGAIN | Errno::INTR }) => at += done,
                // Already mapped, correctly as far as we know.
                Err(Partial { done, error: Errno::EXIST }) => {
                    at += done;
                    self.wake(at..at + SYSTEM_PAGE);
                    at += SYSTEM_PAGE;
                }
                Err(Partial { error, .. }) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wake(&self, range: Range<usize>) {
        // Cannot fail for whole pages of our own mapping.
        let woken = self.uffd.wake(range);
        debug_assert!(woken.is_ok(), "{woken:?}");
    }

    /// Wakes threads that wait for these pages. A thread whose page is not mapped faults again.
    pub(super) fn wake_pages(&self, pages: &Pages) {
        self.wake(self.addresses(pages));
    }

    /// Poisons missing pages and wakes waiting threads.
    pub(super) fn poison(&self, pages: &Pages) -> io::Result<()> {
        // SAFETY: our own mapping, registered.
        self.for_unmapped(self.addresses(pages), |range| unsafe { self.uffd.poison(range) })
    }

    /// Unmaps runs of pages, which stay resident. Reports for each page whether it was written
    /// since it was mapped.
    ///
    /// A page without the kernel's marker counts as written.
    pub(super) fn unmap(&self, runs: &[Pages], written: &mut Vec<bool>) -> io::Result<()> {
        self.unmap_all(runs)?;
        written.clear();
        let mut entries = Vec::new();
        for pages in runs {
            let count = (pages.end - pages.start) as usize;
            let Some(pagemap) = &self.pagemap else {
                written.resize(written.len() + count, true);
                continue;
            };
            entries.resize(count * ENTRY_BYTES, 0u8);
            let offset = self.address(pages.start) / SYSTEM_PAGE * ENTRY_BYTES;
            pagemap.read_exact_at(&mut entries, offset as u64)?;
            written.extend(entries.chunks_exact(ENTRY_BYTES).map(|entry| {
                let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                entry & PROTECTED == 0
            }));
        }
        Ok(())
    }

    /// Unmaps runs of pages, in one call if the kernel lets a process do that to itself (since
    /// 6.13). Each call flushes the TLB of all processors that run the program.
    fn unmap_all(&self, mut runs: &[Pages]) -> io::Result<()> {
        while let Some(pidfd) = &self.pidfd
            && runs.len() > 1
        {
            let vectors: Vec<libc::iovec> =
                runs.iter().take(VECTORS).map(|pages| self.vector(pages)).collect();
            // SAFETY: our own mapping, shared: its content stays in the file. The vectors outlive
            // the call.
            let done = unsafe {
                let (vectors, count) = (vectors.as_ptr(), vectors.len());
                let advice = libc::MADV_DONTNEED;
                libc::syscall(libc::SYS_process_madvise, pidfd.as_raw_fd(), vectors, count, advice, 0)
            };
            // The kernel completes whole runs, from the first on.
            let Ok(mut done) = usize::try_from(done) else { break };
            let all = runs.len();
            while let Some((first, rest)) = runs.split_first()
                && self.vector(first).iov_len <= done
            {
                done -= self.vector(first).iov_len;
                runs = rest;
            }
            if runs.len() == all {
                break;
            }
        }
        for pages in runs {
            let Range { start, end } = self.addresses(pages);
            // SAFETY: as above.
            unsafe { madvise(start as *mut _, end - start, Advice::LinuxDontNeed) }?;
        }
        Ok(())
    }

    fn vector(&self, pages: &Pages) -> libc::iovec {
        let Range { start, end } = self.addresses(pages);
        libc::iovec { iov_base: start as *mut _, iov_len: end - start }
    }

    /// Copies resident pages, mapped or not, into `bytes`, which has the length of whole pages.
    pub(super) fn load(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, page * SYSTEM_PAGE as u64)
    }

    /// Makes missing pages resident with these bytes, unmapped; wakes no thread.
    pub(super) fn store(&self, page: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, page * SYSTEM_PAGE as u64)
    }

    /// Frees pages, mapped or not: they become missing.
    pub(super) fn free(&self, pages: &Pages) -> io::Result<()> {
        let (offset, len) =
            (pages.start * SYSTEM_PAGE as u64, (pages.end - pages.start) * SYSTEM_PAGE as u64);
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    /// Frees pages and clears all their markers, of unwritten and of poisoned pages.
    pub(super) fn clear(&self, pages: &Pages) -> io::Result<()> {
        let Range { start, end } = self.addresses(pages);
        self.free(pages)?;
        // SAFETY: advice on a part of our own mapping that is no longer in use.
        Ok(unsafe { madvise(start as *mut _, end - start, Advice::LinuxDontNeed) }?)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.uffd.as_fd()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; regions keep the memory alive, so no address in it is in use.
        let unmapped = unsafe { munmap(self.base as *mut _, self.pages as usize * SYSTEM_PAGE) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// A pidfd of this process, if the kernel supports it (since 5.3).
fn open_pidfd() -> Option<OwnedFd> {
    own(|| pidfd_open(getpid(), PidfdFlags::empty())).ok()
}

/// Opens the userfaultfd, and the page table if the kernel and the process's rights allow tracking.
fn open_uffd(scope: Option<Scope>, delivery: Delivery) -> Result<(Uffd, Scope, Option<File>)> {
    // Not readable for processes that have changed their user.
    let pagemap = own(|| File::open("/proc/self/pagemap")).ok();
    let open = |scope| {
        if let Some(pagemap) = pagemap.as_ref().and_then(|file| own(|| file.try_clone()).ok())
            && let Ok(uffd) = Uffd::open_tracking(scope, delivery)
        {
            return Ok((uffd, scope, Some(pagemap)));
        }
        Uffd::open(scope, delivery).map(|uffd| (uffd, scope, None))
    };
    let opened = match scope {
        Some(scope) => open(scope),
        None if delivery == Delivery::Signal => open(Scope::Program),
        None => open(Scope::All).or_else(|_| open(Scope::Program)),
    };
    opened.map_err(crate::region::uffd_refused)
}

/// Maximum runs per system call.
const VECTORS: usize = 1024;
/// Size of an entry of `/proc/self/pagemap`.
const ENTRY_BYTES: usize = 8;
/// Bit of an entry: the page, or the marker in its place, is write-protected by userfaultfd.
const PROTECTED: u64 = 1 << 57;
