//! The inodes that the kernel knows, and the version of an object that each one stands for.
//!
//! An inode is one version of one object: its pages in the kernel's cache can be kept for as long as it lives.
//! When an object is seen to have changed, its path is unbound from the old inode; whoever looks the path up
//! next gets a new inode, with an empty cache, while open files of the old version keep theirs. The kernel does
//! that look-up by itself after ESTALE. So versions never mix in its cache.
//!
//! The table holds what the kernel remembers, no more: an inode goes when its last look-up is forgotten.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bowwave_engine::backend::{Entry, EntryKind, Identity};

/// Number of the root.
pub(crate) const ROOT: u64 = 1;

/// The table of inodes.
#[derive(Debug)]
pub(crate) struct Inodes {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u64, Inode>,
    /// The current version at each path.
    by_path: HashMap<Arc<Path>, u64>,
    last: u64,
}

#[derive(Debug)]
struct Inode {
    path: Arc<Path>,
    entry: Entry,
    /// Identity at the first open; the stat of some stores tells less than their open.
    identity: Option<Identity>,
    /// Look-ups that the kernel has not forgotten yet.
    lookups: u64,
}

impl Inodes {
    /// A table with the root in it.
    pub(crate) fn new(root: Entry) -> Self {
        let path: Arc<Path> = Path::new("").into();
        let mut table = Table { last: ROOT, ..Table::default() };
        table.by_path.insert(Arc::clone(&path), ROOT);
        table.by_number.insert(ROOT, Inode { path, entry: root, identity: None, lookups: 1 });
        Self { table: Mutex::new(table) }
    }

    /// Path and last known description of an inode.
    pub(crate) fn find(&self, number: u64) -> Option<(Arc<Path>, Entry)> {
        let table = self.lock();
        table.by_number.get(&number).map(|inode| (Arc::clone(&inode.path), inode.entry.clone()))
    }

    /// The inode that stands for `path` now, if the kernel knows it; counts no look-up.
    pub(crate) fn peek(&self, path: &Path) -> Option<u64> {
        self.lock().by_path.get(path).copied()
    }

    /// The inode for what was found at `path`; counts a look-up.
    pub(crate) fn remember(&self, path: &Path, entry: &Entry) -> u64 {
        let mut table = self.lock();
        if let Some(&number) = table.by_path.get(path)
            && let Some(inode) = table.by_number.get_mut(&number)
            && is_same_version(&inode.entry, entry)
        {
            inode.entry = entry.clone();
            inode.lookups += 1;
            return number;
        }
        table.last += 1;
        let (number, path): (u64, Arc<Path>) = (table.last, path.into());
        table.by_path.insert(Arc::clone(&path), number);
        table.by_number.insert(number, Inode { path, entry: entry.clone(), identity: None, lookups: 1 });
        number
    }

    /// Takes note of a fresh description. `false`: it is of another version, and the path is unbound.
    pub(crate) fn refresh(&self, number: u64, entry: &Entry) -> bool {
        let mut table = self.lock();
        match table.by_number.get_mut(&number) {
            Some(inode) if is_same_version(&inode.entry, entry) => {
                inode.entry = entry.clone();
                true
            }
            _ => {
                table.unbind(number);
                false
            }
        }
    }

    /// Compares the identity and size of a newly opened file with the inode's. `false`: it is another version,
    /// and the path is unbound.
    pub(crate) fn identify(&self, number: u64, identity: &Identity, size: u64) -> bool {
        let mut table = self.lock();
        let same = table.by_number.get_mut(&number).is_some_and(|inode| {
            inode.entry.size == size && inode.identity.get_or_insert_with(|| identity.clone()) == identity
        });
        if !same {
            table.unbind(number);
        }
        same
    }

    /// Unbinds the path of an inode whose object has changed.
    pub(crate) fn outdate(&self, number: u64) {
        self.lock().unbind(number);
    }

    /// Takes back `lookups` look-ups.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.lock();
        let Some(inode) = table.by_number.get_mut(&number) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups == 0 {
            table.unbind(number);
            table.by_number.remove(&number);
        }
    }

    /// Number of inodes, the root included.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.lock().by_number.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each method leaves the table whole before anything in it can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn unbind(&mut self, number: u64) {
        if number == ROOT {
            return;
        }
        if let Some(inode) = self.by_number.get(&number)
            && self.by_path.get(&inode.path) == Some(&number)
        {
            self.by_path.remove(&inode.path);
        }
    }
}

/// Whether two descriptions can be of the same bytes. The identity of an entry is left out: listings and stats of
/// one store tell it with different completeness. What slips through here is caught at open.
fn is_same_version(old: &Entry, new: &Entry) -> bool {
    if old.kind != new.kind {
        return false;
    }
    old.kind != EntryKind::File || (old.size == new.size && is_same_time(old.modified, new.modified))
}

/// Times compared to the second: object stores list milliseconds and stat whole seconds.
fn is_same_time(old: Option<SystemTime>, new: Option<SystemTime>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            let apart = new.duration_since(old).unwrap_or_else(|error| error.duration());
            apart < Duration::from_secs(1)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, size: u64, seconds: u64) -> Entry {
        let modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        Entry { size, modified, ..Entry::new("x", kind) }
    }

    fn inodes() -> Inodes {
        Inodes::new(entry(EntryKind::Directory, 0, 0))
    }

    #[test]
    fn inodes_go_when_their_last_look_up_is_forgotten() {
        let inodes = inodes();
        let file = entry(EntryKind::File, 10, 5);
        let number = inodes.remember(Path::new("a/x"), &file);
        assert_eq!(inodes.remember(Path::new("a/x"), &file), number);
        inodes.forget(number, 1);
        assert_eq!(inodes.peek(Path::new("a/x")), Some(number));
        inodes.forget(number, 1);
        assert_eq!((inodes.peek(Path::new("a/x")), inodes.count()), (None, 1));
        inodes.forget(ROOT, 100);
        assert_eq!(inodes.count(), 1);
    }

    #[test]
    fn a_changed_object_gets_a_new_inode_and_the_old_one_lives_on() {
        let inodes = inodes();
        let old = inodes.remember(Path::new("x"), &entry(EntryKind::File, 10, 5));
        for changed in [entry(EntryKind::File, 11, 5), entry(EntryKind::File, 11, 9)] {
            let new = inodes.remember(Path::new("x"), &changed);
            assert_ne!(new, old);
            assert_eq!(inodes.peek(Path::new("x")), Some(new));
        }
        assert_eq!(inodes.find(old).expect("not forgotten").1.size, 10);
        inodes.forget(old, 1);
        assert!(inodes.peek(Path::new("x")).is_some(), "the old inode's end must not unbind the new one");
    }

    #[test]
    fn an_open_of_another_identity_unbinds_the_path() {
        let inodes = inodes();
        let file = entry(EntryKind::File, 10, 5);
        let number = inodes.remember(Path::new("x"), &file);
        let tag = |etag: &str| Identity { etag: Some(etag.to_owned()), size: 10, ..Identity::default() };
        assert!(inodes.identify(number, &tag("one"), 10));
        assert!(inodes.identify(number, &tag("one"), 10));
        assert!(!inodes.identify(number, &tag("two"), 10));
        assert_ne!(inodes.remember(Path::new("x"), &file), number);
    }

    #[test]
    fn folders_keep_their_inode_when_touched() {
        let inodes = inodes();
        let number = inodes.remember(Path::new("d"), &entry(EntryKind::Directory, 0, 5));
        assert!(inodes.refresh(number, &entry(EntryKind::Directory, 0, 99)));
        assert!(!inodes.refresh(number, &entry(EntryKind::File, 0, 99)));
    }
}
