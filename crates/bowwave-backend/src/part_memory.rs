//! Memory for a part of an object, mapped and unmapped directly.
//!
//! The allocator would retain freed parts in one heap for each thread: several times the memory in
//! use.

use std::fmt;

use memmap2::{Advice, MmapMut};

use crate::{Error, Result};

/// A vector of bytes with a fixed capacity.
pub struct PartMemory {
    map: MmapMut,
    /// Bytes in use.
    len: usize,
}

impl PartMemory {
    /// Reserves address space for `capacity` bytes; memory is allocated as they are written.
    ///
    /// # Errors
    /// If there is none (`ENOMEM`).
    pub fn new(capacity: usize) -> Result<Self> {
        let map = MmapMut::map_anon(capacity.max(1));
        let map = map.map_err(|error| Error::from_os("memory for a part", &error))?;
        // Small objects need no huge page. A kernel without huge pages rejects the advice.
        map.advise(Advice::NoHugePage).ok();
        Ok(Self { map, len: 0 })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn extend(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.map[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl std::ops::Deref for PartMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[..self.len]
    }
}

impl fmt::Debug for PartMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartMemory")
            .field("len", &self.len)
            .field("capacity", &self.map.len())
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
