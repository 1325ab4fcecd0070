//! Open files and directories, by the handle number in each request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_engine::backend::sync::RwLock;

/// A table of open handles.
#[derive(Debug)]
pub(crate) struct Handles<H> {
    open: RwLock<Open<H>>,
    last: AtomicU64,
}

#[derive(Debug)]
struct Open<H> {
    by_number: HashMap<u64, Arc<H>>,
    /// Handle numbers by inode.
    by_inode: HashMap<u64, Vec<u64>>,
}

/// A handle that belongs to an inode.
pub(crate) trait OfInode {
    /// The inode's number.
    fn inode(&self) -> u64;
}

impl<H: OfInode> Handles<H> {
    pub(crate) fn new() -> Self {
        let open = Open { by_number: HashMap::new(), by_inode: HashMap::new() };
        Self { open: RwLock::new(open), last: AtomicU64::new(0) }
    }

    /// Stores `handle` and returns its number, which is never reused.
    pub(crate) fn insert(&self, handle: H) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        // A panicking holder leaves the maps valid.
        let mut open = self.open.write();
        open.by_inode.entry(handle.inode()).or_default().push(number);
        open.by_number.insert(number, Arc::new(handle));
        number
    }

    /// The handle with this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<H>> {
        self.open.read().by_number.get(&number).cloned()
    }

    /// A handle of an inode that satisfies `fits`.
    pub(crate) fn find_of(&self, inode: u64, fits: impl Fn(&H) -> bool) -> Option<Arc<H>> {
        let open = self.open.read();
        let numbers = open.by_inode.get(&inode)?;
        numbers.iter().filter_map(|number| open.by_number.get(number)).find(|handle| fits(handle)).cloned()
    }

    /// All open handles.
    pub(crate) fn all(&self) -> Vec<Arc<H>> {
        self.open.read().by_number.values().cloned().collect()
    }

    /// Closes a handle. Running requests keep it alive until they end.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<H>> {
        let mut open = self.open.write();
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
