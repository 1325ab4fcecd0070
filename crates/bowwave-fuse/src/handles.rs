//! Open files and folders, by the number that the kernel gives back with each request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A table of open things. As large as what programs hold open.
#[derive(Debug)]
pub(crate) struct Handles<H> {
    open: RwLock<Open<H>>,
    last: AtomicU64,
}

#[derive(Debug)]
struct Open<H> {
    by_number: HashMap<u64, Arc<H>>,
    /// Numbers by the inode that was opened.
    by_inode: HashMap<u64, Vec<u64>>,
}

/// What an open thing is open of.
pub(crate) trait OfInode {
    /// The inode's number.
    fn inode(&self) -> u64;
}

impl<H: OfInode> Handles<H> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        let open = Open { by_number: HashMap::new(), by_inode: HashMap::new() };
        Self { open: RwLock::new(open), last: AtomicU64::new(0) }
    }

    /// Keeps `handle` and gives its number, never used before.
    pub(crate) fn insert(&self, handle: H) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        // Maps of finished inserts and removals are sound whatever a panicking holder did.
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.by_inode.entry(handle.inode()).or_default().push(number);
        open.by_number.insert(number, Arc::new(handle));
        number
    }

    /// The open thing of this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<H>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).by_number.get(&number).cloned()
    }

    /// Something that is open of an inode and fits.
    pub(crate) fn find_of(&self, inode: u64, fits: impl Fn(&H) -> bool) -> Option<Arc<H>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let numbers = open.by_inode.get(&inode)?;
        numbers.iter().filter_map(|number| open.by_number.get(number)).find(|handle| fits(handle)).cloned()
    }

    /// All that is open.
    pub(crate) fn all(&self) -> Vec<Arc<H>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).by_number.values().cloned().collect()
    }

    /// Closes; requests that still run keep the thing alive until they end.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<H>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let handle = open.by_number.remove(&number)?;
        if let Some(numbers) = open.by_inode.get_mut(&handle.inode()) {
            numbers.retain(|&known| known != number);
            if numbers.is_empty() {
                open.by_inode.remove(&handle.inode());
            }
        }
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OfInode for (u64, &str) {
        fn inode(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn handles_are_found_by_number_and_by_inode_until_they_are_closed() {
        let handles = Handles::new();
        let [first, second] = ["first", "second"].map(|name| handles.insert((7, name)));
        assert_eq!(*handles.find(second).expect("open"), (7, "second"));
        assert_eq!(*handles.find_of(7, |handle| handle.1 == "second").expect("open"), (7, "second"));
        assert!(handles.find_of(8, |_| true).is_none() && handles.find_of(7, |_| false).is_none());
        handles.remove(first);
        assert_eq!(*handles.find_of(7, |_| true).expect("one is left"), (7, "second"));
        handles.remove(second);
        assert!(handles.find_of(7, |_| true).is_none() && handles.remove(second).is_none());
    }
}
