//! The memory of all regions of a swap: address space, the pages that are in it, and what the kernel knows of them.
//!
//! One sparse memory file, mapped once, shared and watched for missing pages. What is resident is what the file holds, mapped or not: a page
//! can be unmapped, looked at and mapped again, and so be seen to be in use. Pages that are equal to what the
//! store has are mapped write-protected; the first write lifts that without telling anybody, and unmapping says
//! whether it did: the kernel leaves a mark where a protected page was, in the same step that takes the page
//! away. Nothing written before that step is missed, and nothing can be written after.
#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::ptr;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::error::{Error, Result};
use crate::uffd::{Delivery, Modes, Partial, SYSTEM_PAGE, Scope, Touch, Uffd};

/// Pages, by their number in the address space.
pub(super) type Pages = Range<u64>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Memory {
    uffd: Uffd,
    scope: Scope,
    file: File,
    base: usize,
    pages: u64,
    /// The process's page table; none where writes cannot be tracked.
    pagemap: Option<File>,
    /// The process, to unmap many runs of pages at once.
    this: Option<OwnedFd>,
}

impl Memory {
    /// Address space for `pages` pages, none of them there.
    pub(super) fn new(pages: u64, scope: Option<Scope>, delivery: Delivery) -> Result<Self> {
        let refused = |wanted| move |error: Errno| Error::System { wanted, error: error.into(), hint: "" };
        let too_long = || Error::Range(format!("{pages} pages are more than this machine can address"));
        let len = usize::try_from(pages).ok().and_then(|pages| pages.checked_mul(SYSTEM_PAGE));
        let len = len.filter(|&len| isize::try_from(len).is_ok()).ok_or_else(too_long)?;
        let (uffd, scope, pagemap) = watch(scope, delivery)?;
        let file =
            memfd_create("bowwave-swap", MemfdFlags::CLOEXEC).map_err(refused("make a memory file"))?;
        ftruncate(&file, len as u64).map_err(refused("extend a memory file"))?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choosing.
        let base = unsafe { mmap(ptr::null_mut(), len, access, flags, &file, 0) }.map_err(|error| {
            let hint = "is the address space limited (ulimit -v)?";
            Error::System { wanted: "reserve address space", error: error.into(), hint }
        })?;
        let memory = Self {
            uffd,
            scope,
            file: file.into(),
            base: base as usize,
            pages,
            pagemap,
            this: this_process(),
        };
        for advice in [Advice::LinuxDontFork, Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
            // SAFETY: advice on our own mapping. A kernel without huge pages refuses the second; then there are none.
            let advised = unsafe { madvise(base, len, advice) };
            if advice == Advice::LinuxDontFork {
                // A child has none of the threads that serve this.
                advised.map_err(refused("keep the memory from children"))?;
            }
        }
        let modes = Modes { missing: true, minor: true, protected: memory.tracks_writes() };
        // SAFETY: our own mapping; handlers are started before anybody gets an address in it.
        unsafe { memory.uffd.register(memory.base..memory.base + len, modes) }
            .map_err(|error| Error::System { wanted: "watch the memory", error, hint: "" })?;
        Ok(memory)
    }

    /// Whether the kernel tells which pages were written to; else all count as written.
    pub(super) fn tracks_writes(&self) -> bool {
        self.pagemap.is_some()
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Where it lies.
    pub(super) fn place(&self) -> Range<usize> {
        self.addresses(&(0..self.pages))
    }

    /// Address of a page.
    pub(super) fn address(&self, page: u64) -> usize {
        debug_assert!(page <= self.pages, "{page}");
        self.base + page as usize * SYSTEM_PAGE
    }

    /// The page at an address, if it is one of ours.
    pub(super) fn page_at(&self, address: usize) -> Option<u64> {
        let page = (address.checked_sub(self.base)? / SYSTEM_PAGE) as u64;
        (page < self.pages).then_some(page)
    }

    fn addresses(&self, pages: &Pages) -> Range<usize> {
        self.address(pages.start)..self.address(pages.end)
    }

    /// Takes the messages of touches that are there, without waiting.
    pub(super) fn receive(&self, touches: &mut Vec<Touch>) -> io::Result<()> {
        self.uffd.receive(touches)
    }

    /// Makes missing pages copies of what lies at `source`, maps them, protected if they are as the store has them, and wakes who waits.
    ///
    /// # Safety
    /// `source` holds as many bytes, which nobody changes.
    pub(super) unsafe fn fill(&self, pages: &Pages, source: *const u8, protected: bool) -> io::Result<()> {
        let protected = protected && self.tracks_writes();
        let Range { start, end } = self.addresses(pages);
        self.advance(start..end, |range| {
            // SAFETY: our own mapping, registered; the source is the caller's promise.
            unsafe { self.uffd.copy_as(range.start, source.add(range.start - start), range.len(), protected) }
        })
    }

    /// Makes missing pages zeros, maps them and wakes who waits.
    pub(super) fn zero(&self, pages: &Pages) -> io::Result<()> {
        // SAFETY: our own mapping, registered; these pages were never written to.
        self.advance(self.addresses(pages), |range| unsafe { self.uffd.zero(range) })
    }

    /// Maps pages that are there, protected if they are as the store has them, and wakes who waits.
    pub(super) fn map(&self, pages: &Pages, protected: bool) -> io::Result<()> {
        let protected = protected && self.tracks_writes();
        // SAFETY: our own mapping, registered; what the file holds is what should be seen.
        self.advance(self.addresses(pages), |range| unsafe { self.uffd.map_as(range, protected) })
    }

    /// Has `step` done for all of `range`, over what is there already.
    fn advance(
        &self,
        range: Range<usize>,
        step: impl Fn(Range<usize>) -> std::result::Result<(), Partial>,
    ) -> io::Result<()> {
        let Range { start: mut at, end } = range;
        while at < end {
            match step(at..end) {
                Ok(()) => return Ok(()),
                // Another thread changes the address space just now.
                Err(Partial { done, error: Errno::AGAIN | Errno::INTR }) => at += done,
                // It is mapped: as it should be for all that we know.
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
        // Whole pages of our own mapping: it cannot fail.
        let woken = self.uffd.wake(range);
        debug_assert!(woken.is_ok(), "{woken:?}");
    }

    /// Wakes who waits for these pages; those whose page is not mapped touch it again and are told of again.
    pub(super) fn wake_pages(&self, pages: &Pages) {
        self.wake(self.addresses(pages));
    }

    /// Makes missing pages fatal to touch, and wakes who waits.
    pub(super) fn poison(&self, pages: &Pages) -> io::Result<()> {
        // SAFETY: our own mapping, registered.
        self.advance(self.addresses(pages), |range| unsafe { self.uffd.poison(range) })
    }

    /// Unmaps runs of pages, which stay there, and says of each page whether it was written to since it was mapped.
    ///
    /// What was not mapped counts as not written to if it was unmapped by this and has the mark of a page that was not.
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

    /// Unmaps runs of pages, in one call where the kernel lets a process have that of itself (since 6.13): each call has all processors that
    /// run the program forget what they know of addresses.
    fn unmap_all(&self, mut runs: &[Pages]) -> io::Result<()> {
        while let Some(this) = &self.this
            && runs.len() > 1
        {
            let vectors: Vec<libc::iovec> =
                runs.iter().take(VECTORS).map(|pages| self.vector(pages)).collect();
            // SAFETY: our own mapping, shared: what it shows stays in the file. The vectors live as long as the call.
            let done = unsafe {
                let (vectors, count) = (vectors.as_ptr(), vectors.len());
                let advice = libc::MADV_DONTNEED;
                libc::syscall(libc::SYS_process_madvise, this.as_raw_fd(), vectors, count, advice, 0)
            };
            // The first so many runs; of none is a part done.
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

    /// Copies what is there into `bytes`, whole pages, mapped or not.
    pub(super) fn load(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, page * SYSTEM_PAGE as u64)
    }

    /// Has missing pages be there, unmapped, with these bytes; wakes nobody.
    pub(super) fn store(&self, page: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, page * SYSTEM_PAGE as u64)
    }

    /// Takes pages away, mapped or not: as if nothing had ever been there.
    pub(super) fn free(&self, pages: &Pages) -> io::Result<()> {
        let (offset, len) =
            (pages.start * SYSTEM_PAGE as u64, (pages.end - pages.start) * SYSTEM_PAGE as u64);
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    /// The same, with all marks: of pages that were not written to, and of those that were fatal to touch.
    pub(super) fn clear(&self, pages: &Pages) -> io::Result<()> {
        let Range { start, end } = self.addresses(pages);
        self.free(pages)?;
        // SAFETY: advice on our own mapping, which nobody uses here any more.
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
        // SAFETY: our own mapping; regions keep the memory alive, so that nobody has an address in it any more.
        let unmapped = unsafe { munmap(self.base as *mut _, self.pages as usize * SYSTEM_PAGE) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// This process, if the kernel has such names (since 5.3).
fn this_process() -> Option<OwnedFd> {
    // SAFETY: no memory is passed; the result is checked before it is used.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    let fd = RawFd::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: made just above, and nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens what tells of touches, and of writes where the kernel and the process's rights allow.
fn watch(scope: Option<Scope>, delivery: Delivery) -> Result<(Uffd, Scope, Option<File>)> {
    // Not for processes that have changed their user: to these their own page table is closed.
    let pagemap = File::open("/proc/self/pagemap").ok();
    let open = |scope| {
        if let Some(pagemap) = pagemap.as_ref().and_then(|file| file.try_clone().ok())
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

/// Runs that the kernel takes at once.
const VECTORS: usize = 1024;
/// Bytes of an entry of `/proc/self/pagemap`.
const ENTRY_BYTES: usize = 8;
/// Bit of an entry: the page, or the mark where it was, is write-protected by userfaultfd.
const PROTECTED: u64 = 1 << 57;
