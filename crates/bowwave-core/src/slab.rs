//! A slab: values at small indices that are reused, each time under a new generation.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// No index.
pub const NONE: u32 = u32::MAX;

/// Values by index. A released value stays readable until its index is reused.
///
/// A slab of options also hands out keys: index and generation in one number, never used twice.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    entries: Vec<(u32, T)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Stores a value; returns its index.
    ///
    /// # Panics
    /// If 2^32 - 1 values are stored already.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize].1 = value;
            return index;
        }
        let index = u32::try_from(self.entries.len()).ok().filter(|&index| index != NONE);
        self.entries.push((0, value));
        index.expect("fewer than 2^32 - 1 values at once")
    }

    /// Frees an index that is in use.
    pub fn release(&mut self, index: u32) {
        let generation = &mut self.entries[index as usize].0;
        *generation = generation.wrapping_add(1);
        self.free.push(index);
    }

    /// How often an index was released.
    pub fn generation(&self, index: u32) -> u32 {
        self.entries[index as usize].0
    }

    /// Whether an index was not released since it had this generation.
    pub fn is_current(&self, index: u32, generation: u32) -> bool {
        self.entries.get(index as usize).is_some_and(|entry| entry.0 == generation)
    }

    /// Indices in use.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether no index is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Slab<Option<T>> {
    /// Stores a value; returns its key.
    pub fn insert_keyed(&mut self, value: T) -> u64 {
        let index = self.insert(Some(value));
        key(index, self.generation(index))
    }

    /// The value of a key, if it was not removed.
    pub fn get(&self, key: u64) -> Option<&T> {
        let (index, generation) = split(key);
        self.entries.get(index).filter(|entry| entry.0 == generation)?.1.as_ref()
    }

    /// The value of a key, if it was not removed.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let (index, generation) = split(key);
        self.entries.get_mut(index).filter(|entry| entry.0 == generation)?.1.as_mut()
    }

    /// Removes the value of a key.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let (index, generation) = split(key);
        let value = self.entries.get_mut(index).filter(|entry| entry.0 == generation)?.1.take()?;
        self.release(key as u32);
        Some(value)
    }

    /// Keys and values in order of index.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let entries = (0u32..).zip(&self.entries);
        entries.filter_map(|(at, (generation, value))| Some((key(at, *generation), value.as_ref()?)))
    }

    /// Keys and values in order of index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let entries = (0u32..).zip(&mut self.entries);
        entries.filter_map(|(at, (generation, value))| Some((key(at, *generation), value.as_mut()?)))
    }
}

fn key(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

/// Index and generation of a key: its low and high half.
const fn split(key: u64) -> (usize, u32) {
    (key as u32 as usize, (key >> 32) as u32)
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize].1
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize].1
    }
}
