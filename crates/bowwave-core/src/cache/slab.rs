//! A vector with holes, whose keys are never used twice.

use alloc::vec::Vec;

/// Values by key; a key is the slot and how often the slot was used.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("each entry owns a frame or a waiter: fewer than 2^32")
        });
        let (generation, entry) = &mut self.slots[slot as usize];
        *entry = Some(value);
        u64::from(*generation) << 32 | u64::from(slot)
    }

    pub(super) fn get(&self, key: u64) -> Option<&T> {
        let (slot, generation) = split(key);
        self.slots.get(slot).filter(|entry| entry.0 == generation)?.1.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let (slot, generation) = split(key);
        self.slots.get_mut(slot).filter(|entry| entry.0 == generation)?.1.as_mut()
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let (slot, generation) = split(key);
        let entry = self.slots.get_mut(slot).filter(|entry| entry.0 == generation)?;
        let value = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(key as u32);
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (0u64..).zip(&self.slots).filter_map(|(slot, (generation, value))| {
            value.as_ref().map(|value| (u64::from(*generation) << 32 | slot, value))
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        (0u64..).zip(&mut self.slots).filter_map(|(slot, (generation, value))| {
            value.as_mut().map(|value| (u64::from(*generation) << 32 | slot, value))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Slot and generation of a key: its low and high half.
const fn split(key: u64) -> (usize, u32) {
    (key as u32 as usize, (key >> 32) as u32)
}
