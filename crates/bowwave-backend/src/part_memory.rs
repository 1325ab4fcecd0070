//! Memory for a part of an object, mapped and unmapped directly.
//!
//! The allocator would retain freed parts in one heap for each thread: several times the memory in
//! use.

#![expect(unsafe_code, reason = "parts lie in anonymous memory maps")]

use std::fmt;
use std::io;
use std::ptr::NonNull;

use crate::{Error, Result};

/// A vector of bytes with a fixed capacity.
pub struct PartMemory {
    base: NonNull<u8>,
    capacity: usize,
    /// Initialised bytes from `base`.
    len: usize,
}

// SAFETY: it owns its memory, as a vector does.
unsafe impl Send for PartMemory {}
// SAFETY: a shared reference only reads it.
unsafe impl Sync for PartMemory {}

impl PartMemory {
    /// Reserves address space for `capacity` bytes; memory is allocated as they are written.
    ///
    /// # Errors
    /// If there is none (`ENOMEM`).
    pub fn new(capacity: usize) -> Result<Self> {
        let capacity = capacity.max(1);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping affects no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), capacity, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::from_os("memory for a part", &io::Error::last_os_error()));
        }
        // Small objects are to take no huge page each. A kernel that knows none of them refuses, and need not be told.
        // SAFETY: the map is ours.
        let _as_it_is = unsafe { libc::madvise(base, capacity, libc::MADV_NOHUGEPAGE) };
        let base = NonNull::new(base.cast()).expect("the first page is never mapped");
        Ok(Self { base, capacity, len: 0 })
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.capacity - self.len, "a part holds no more than its capacity");
        // SAFETY: the bytes fit into our mapping after its contents, and cannot overlap it: they
        // are borrowed from elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(self.len).as_ptr(), bytes.len());
        }
        self.len += bytes.len();
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl std::ops::Deref for PartMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes of the mapping are initialised, and change only through
        // `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for PartMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this size, and no borrow of it exists.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.capacity) };
    }
}

impl fmt::Debug for PartMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartMemory")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_added_up_to_its_capacity() {
        let mut memory = PartMemory::new(10).expect("there is memory");
        assert!(memory.is_empty());
        memory.extend(b"0123");
        memory.extend(b"456789");
        memory.extend(b"");
        assert_eq!((&*memory, memory.len()), (&b"0123456789"[..], 10));
        memory.clear();
        memory.extend(b"x");
        assert_eq!(&*memory, b"x");
        let overfull = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| memory.extend(&[0; 10])));
        assert!(overfull.is_err());
        assert!(PartMemory::new(usize::MAX).is_err());
    }
}
