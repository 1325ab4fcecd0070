//! A vector larger than RAM.
#![allow(unsafe_code, reason = "casts bytes to items")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use bytemuck::Pod;

use super::region::{Swap, SwapRegion};
use crate::error::{Error, Result};
use bowwave_core::swap::pager::RegionAdvice;

/// Plain data in a region: used like a slice, grows like a vector.
///
/// ```
/// use bowwave_region::{Spill, Swap, SwapOptions, SwapVec};
///
/// let spill = Spill::file(std::env::temp_dir(), 64 << 20);
/// let swap = Swap::new(&spill, &SwapOptions { memory_bytes: Some(8 << 20), ..SwapOptions::default() })?;
/// let mut numbers = SwapVec::<u64>::with_capacity(&swap, 4 << 20)?;
/// for number in 0..4 << 20 {
///     numbers.push(number ^ 0x5555)?;
/// }
/// numbers.sort_unstable();
/// assert_eq!(numbers[0x5555], 0x5555);
/// # Ok::<(), bowwave_region::Error>(())
/// ```
pub struct SwapVec<T: Pod> {
    swap: Swap,
    /// `None` without capacity.
    region: Option<SwapRegion>,
    len: usize,
    items: PhantomData<T>,
}

impl<T: Pod> SwapVec<T> {
    /// An empty vector, without memory.
    pub fn new(swap: &Swap) -> Self {
        Self { swap: swap.clone(), region: None, len: 0, items: PhantomData }
    }

    /// An empty vector with address space for `capacity` items, which use no memory until written.
    ///
    /// # Errors
    /// As [`Swap::region`].
    pub fn with_capacity(swap: &Swap, capacity: usize) -> Result<Self> {
        let mut vec = Self::new(swap);
        vec.reserve(capacity)?;
        Ok(vec)
    }

    /// `len` items of zero bytes.
    ///
    /// # Errors
    /// As [`Swap::region`].
    pub fn zeroed(swap: &Swap, len: usize) -> Result<Self> {
        let mut vec = Self::with_capacity(swap, len)?;
        vec.len = len;
        Ok(vec)
    }

    /// Items that fit into the address space.
    pub fn capacity(&self) -> usize {
        match (&self.region, size_of::<T>()) {
            (Some(region), size) if size > 0 => region.len() / size,
            _ => 0,
        }
    }

    /// Reserves address space for `capacity` items in total. Growing moves all items through
    /// memory, so reserve early.
    ///
    /// # Errors
    /// As [`Swap::region`].
    pub fn reserve(&mut self, capacity: usize) -> Result<()> {
        if capacity <= self.capacity() {
            return Ok(());
        }
        let too_long = || Error::Range(format!("{capacity} items are more than this machine can address"));
        let bytes = capacity.checked_mul(size_of::<T>()).ok_or_else(too_long)?;
        if bytes == 0 || align_of::<T>() > crate::uffd::SYSTEM_PAGE {
            let message = "a vector takes items of a byte or more, aligned to a page at most".to_owned();
            return Err(Error::Range(message));
        }
        let mut region = self.swap.region(bytes)?;
        if let Some(old) = &self.region {
            let used = self.len * size_of::<T>();
            region.as_mut_slice()[..used].copy_from_slice(&old.as_slice()[..used]);
        }
        self.region = Some(region);
        Ok(())
    }

    /// Appends an item; doubles the capacity if it is full.
    ///
    /// # Errors
    /// As [`Swap::region`].
    pub fn push(&mut self, item: T) -> Result<()> {
        if self.len == self.capacity() {
            self.reserve((self.len * 2).max(CAPACITY_MIN))?;
        }
        self.len += 1;
        let last = self.len - 1;
        self[last] = item;
        Ok(())
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        let item = *self.last()?;
        self.len -= 1;
        Some(item)
    }

    /// Keeps the first `len` items and frees the memory of the others.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            let used = len * size_of::<T>();
            if let Some(region) = &mut self.region {
                let rest = used..region.len();
                region.advise(rest, RegionAdvice::DontNeed).expect("it ends where the region does");
            }
        }
    }

    /// Advises how items will be used.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end, and for [`RegionAdvice::DontNeed`]; use
    /// [`truncate`](Self::truncate) instead.
    pub fn advise(&mut self, items: Range<usize>, advice: RegionAdvice) -> Result<()> {
        if advice == RegionAdvice::DontNeed {
            return Err(Error::Range("items of a vector cannot be discarded: truncate it".to_owned()));
        }
        if items.start > items.end || items.end > self.len {
            let message = format!("items {} to {} of a vector of {}", items.start, items.end, self.len);
            return Err(Error::Range(message));
        }
        let size = size_of::<T>();
        match &mut self.region {
            Some(region) => region.advise(items.start * size..items.end * size, advice),
            None => Ok(()),
        }
    }

    /// The underlying region; `None` without capacity.
    pub fn region(&self) -> Option<&SwapRegion> {
        self.region.as_ref()
    }
}

impl<T: Pod> Deref for SwapVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.region {
            // SAFETY: the region is page-aligned, which suffices, has `len` items, and any bytes
            // are valid.
            Some(region) => unsafe { std::slice::from_raw_parts(region.as_ptr().cast(), self.len) },
            None => &[],
        }
    }
}

impl<T: Pod> DerefMut for SwapVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &self.region {
            // SAFETY: as above; borrowed exclusively.
            Some(region) => unsafe { std::slice::from_raw_parts_mut(region.as_ptr().cast(), self.len) },
            None => &mut [],
        }
    }
}

impl<T: Pod> fmt::Debug for SwapVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwapVec").field("len", &self.len).field("region", &self.region).finish()
    }
}

/// Capacity of a vector that grows for the first time, in items.
const CAPACITY_MIN: usize = 1024;
