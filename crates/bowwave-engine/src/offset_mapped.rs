//! The memory of a mapped file, in file order, so that programs can map it. Only cached pages use
//! memory.

#![allow(unsafe_code, reason = "maps memory that backends fill")]

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr;

use bowwave_backend::descriptors::own;
use bowwave_backend::{Error as StoreError, ErrorKind};
use bowwave_core::{PageIndex, PageRange, PageSize};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::Result;
use crate::sync::{Mutex, Weak};

/// Address space for every page of a file, at the page's offset.
#[derive(Debug)]
pub(crate) struct OffsetMappedFrames {
    memory: OwnedFd,
    base: *mut u8,
    len: usize,
    page_size: PageSize,
    /// The program's mapping.
    mapping: Mutex<Option<Weak<dyn Mapping>>>,
}

/// A program's mapping of a mapped file.
pub trait Mapping: Debug + Send + Sync {
    /// Unmaps these bytes of the file, so that the next touch of each page is a fault. Called under
    /// a lock of the cache: it must not read the mapping or call the engine.
    fn unmap(&self, bytes: Range<u64>);
}

// SAFETY: the mapping is plain memory that lives as long as this value. The cache regulates access
// to pages, as for the arena.
unsafe impl Send for OffsetMappedFrames {}
// SAFETY: as above.
unsafe impl Sync for OffsetMappedFrames {}

impl OffsetMappedFrames {
    /// Reserves address space for `pages` pages; memory follows on use.
    ///
    /// # Errors
    /// If the system has no memory object or no such range of address space.
    pub(crate) fn new(pages: u64, page_size: PageSize) -> Result<Self> {
        let bytes = pages.saturating_mul(page_size.bytes());
        let refused = |error: &dyn std::fmt::Display| {
            let message = format!("cannot map a file of {bytes} bytes: {error}");
            StoreError::new(ErrorKind::Io, message).retryable(false)
        };
        let len = usize::try_from(bytes).map_err(|error| refused(&error))?;
        let memory = own(|| memfd_create("bowwave", MemfdFlags::CLOEXEC)).map_err(|error| match error {
            Errno::MFILE | Errno::NFILE => refused(&format!(
                "{error}; map fewer files at once, or raise the limit of open files (ulimit -n)"
            )),
            error => refused(&error),
        })?;
        ftruncate(&memory, bytes).map_err(|error| refused(&error))?;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let base =
            unsafe { mmap(ptr::null_mut(), len, both, MapFlags::SHARED | MapFlags::NORESERVE, &memory, 0) }
                .map_err(|error| refused(&format!("{error}; is the address space limited (ulimit -v)?")))?;
        Ok(Self { memory, base: base.cast(), len, page_size, mapping: Mutex::default() })
    }

    /// Address of a page.
    pub(crate) fn address(&self, page: PageIndex) -> *mut u8 {
        let offset = (page.0 << self.page_size.shift()) as usize;
        assert!(offset < self.len, "page {} is outside the file", page.0);
        self.base.wrapping_add(offset)
    }

    /// The memory object; its offsets are those of the file.
    pub(crate) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    pub(crate) fn attach(&self, mapping: Weak<dyn Mapping>) {
        *self.mapping.lock() = Some(mapping);
    }

    /// Unmaps pages from the program.
    pub(crate) fn unmap(&self, range: PageRange) {
        let mapping = self.mapping.lock().as_ref().and_then(Weak::upgrade);
        if let Some(mapping) = mapping {
            mapping.unmap(self.bytes(range));
        }
    }

    /// Unmaps pages everywhere and returns their memory to the system.
    pub(crate) fn release(&self, range: PageRange) {
        let bytes = self.bytes(range);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The range is within our own object, so only lack of kernel memory can prevent this. Then
        // the page stays, with the same bytes.
        let punched = fallocate(&self.memory, how, bytes.start, bytes.end - bytes.start);
        debug_assert!(punched.is_ok(), "punching a hole into memory of our own: {punched:?}");
    }

    fn bytes(&self, range: PageRange) -> Range<u64> {
        let shift = self.page_size.shift();
        range.start.0 << shift..range.end.0 << shift
    }
}

impl Drop for OffsetMappedFrames {
    fn drop(&mut self) {
        // SAFETY: our own mapping; requests in flight hold the entry, and so this value, until they
        // end.
        let unmapped = unsafe { munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "unmapping a mapping of our own");
    }
}
