//! Things with small numbers that are used again.

/// A list with holes.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<T>,
    free: Vec<u32>,
}

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = value;
            return index;
        }
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 requests at once");
        self.entries.push(value);
        index
    }

    /// Gives the number back; the entry stays readable until it is used again.
    pub(super) fn release(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize]
    }
}
