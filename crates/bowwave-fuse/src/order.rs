//! Order of lookups and changes of names.
//!
//! The mount sends requests by path and records the responses in the table of inodes. Both must be
//! one atomic step: recording a lookup response from before a rename after it would bring the old
//! name back. So lookups share the lock of their directory, and a change of a name holds it alone.
//! A move of a directory holds the whole tree alone, because it changes all paths below.

use std::collections::HashMap;
use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use bowwave_engine::backend::sync::{Condvar, Mutex, RwLock};

/// Locks of directories, by inode. Each directory has a lock of its own: a slow request in one
/// directory delays no other.
#[derive(Debug, Default)]
pub(crate) struct Order {
    tree: RwLock<()>,
    /// The directories that are locked or waited for.
    directories: Mutex<HashMap<u64, Holders>>,
    released: Condvar,
}

/// Holders of, and waiters for, the lock of a directory.
#[derive(Debug, Default)]
struct Holders {
    lookups: u32,
    is_changing: bool,
    /// Waiting changes block later lookups. Otherwise a stream of lookups could starve a change.
    waiting_changes: u32,
}

/// Permission to look up or change names, until it is dropped.
#[derive(Debug)]
pub(crate) struct NamesGuard<'a> {
    // In this order: a directory is released before the tree.
    _directories: [Option<Directory<'a>>; 2],
    _tree: Option<RwLockReadGuard<'a, ()>>,
    _whole: Option<RwLockWriteGuard<'a, ()>>,
}

/// A lock of one directory.
#[derive(Debug)]
struct Directory<'a> {
    order: &'a Order,
    inode: u64,
    is_changing: bool,
}

impl Order {
    /// Locks the directory with this inode for lookups.
    pub(crate) fn lookup(&self, directory: u64) -> NamesGuard<'_> {
        let tree = self.tree.read();
        let shared = self.shared(directory);
        NamesGuard { _directories: [Some(shared), None], _tree: Some(tree), _whole: None }
    }

    /// Locks a directory for changes of names.
    pub(crate) fn change(&self, directory: u64) -> NamesGuard<'_> {
        self.change_both(directory, directory)
    }

    /// Locks two directories, possibly the same, for changes of names.
    pub(crate) fn change_both(&self, one: u64, other: u64) -> NamesGuard<'_> {
        let tree = self.tree.read();
        // Ordered by inode, so that two renames cannot deadlock.
        let first = self.alone(one.min(other));
        let second = (one != other).then(|| self.alone(one.max(other)));
        NamesGuard { _directories: [Some(first), second], _tree: Some(tree), _whole: None }
    }

    /// Locks the tree for moves of directories: no other thread uses a path meanwhile.
    pub(crate) fn change_all(&self) -> NamesGuard<'_> {
        let whole = self.tree.write();
        NamesGuard { _directories: [None, None], _tree: None, _whole: Some(whole) }
    }

    fn shared(&self, inode: u64) -> Directory<'_> {
        let mut directories = self.directories.lock();
        loop {
            let holders = directories.entry(inode).or_default();
            if !holders.is_changing && holders.waiting_changes == 0 {
                holders.lookups += 1;
                return Directory { order: self, inode, is_changing: false };
            }
            directories = self.wait(directories);
        }
    }

    fn alone(&self, inode: u64) -> Directory<'_> {
        let mut directories = self.directories.lock();
        directories.entry(inode).or_default().waiting_changes += 1;
        loop {
            let holders = directories.entry(inode).or_default();
            if !holders.is_changing && holders.lookups == 0 {
                holders.waiting_changes -= 1;
                holders.is_changing = true;
                return Directory { order: self, inode, is_changing: true };
            }
            directories = self.wait(directories);
        }
    }

    fn wait<'a>(
        &self,
        directories: MutexGuard<'a, HashMap<u64, Holders>>,
    ) -> MutexGuard<'a, HashMap<u64, Holders>> {
        self.released.wait(directories)
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        let mut directories = self.order.directories.lock();
        let Some(holders) = directories.get_mut(&self.inode) else { return };
        match self.is_changing {
            true => holders.is_changing = false,
            false => holders.lookups -= 1,
        }
        let is_free = !holders.is_changing && holders.lookups == 0;
        if is_free && holders.waiting_changes == 0 {
            directories.remove(&self.inode);
        }
        drop(directories);
        if is_free {
            self.order.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn lookups_share_a_directory_and_a_change_waits_for_them() {
        let order = Order::default();
        let first = order.lookup(3);
        let _other_directory = order.change(4);
        let second = order.lookup(3);
        thread::scope(|scope| {
            let entered = waiting(scope, || drop(order.change_both(67, 3)));
            assert!(entered.recv_timeout(Duration::from_millis(20)).is_err());
            drop((first, second));
            entered.recv().expect("the change gets the directory");
        });
    }

    #[test]
    fn a_later_lookup_waits_for_a_waiting_change() {
        let order = Order::default();
        let first = order.lookup(3);
        thread::scope(|scope| {
            let changed = waiting(scope, || drop(order.change(3)));
            while order.directories.lock()[&3].waiting_changes == 0 {
                thread::yield_now();
            }
            let looked = waiting(scope, || drop(order.lookup(3)));
            assert!(looked.recv_timeout(Duration::from_millis(20)).is_err());
            drop(first);
            changed.recv().expect("the change gets the directory");
            looked.recv().expect("the lookup gets the directory");
        });
    }

    // Regression: directories shared 64 locks by inode, so a slow request in one directory delayed
    // every 64th other directory.
    #[test]
    fn a_change_delays_no_other_directory() {
        let order = Order::default();
        let _held = order.change(1);
        for inode in 2..1000 {
            drop(order.lookup(inode));
            drop(order.change(inode));
        }
    }

    #[test]
    fn moving_a_directory_locks_the_tree() {
        let order = Order::default();
        let guard = order.change_all();
        thread::scope(|scope| {
            let entered = waiting(scope, || drop(order.lookup(9)));
            assert!(entered.recv_timeout(Duration::from_millis(20)).is_err());
            drop(guard);
            entered.recv().expect("the lookup gets its directory");
        });
    }

    #[test]
    fn two_directories_are_locked_in_one_order_and_forgotten_when_free() {
        let order = Order::default();
        thread::scope(|scope| {
            for (one, other) in [(1, 2), (2, 1), (1, 65), (65, 2)] {
                let order = &order;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        drop(order.change_both(one, other));
                        drop(order.lookup(one));
                    }
                });
            }
        });
        assert!(order.directories.lock().is_empty());
    }

    /// Runs `enter` on a thread. The receiver gets a message when `enter` has returned.
    fn waiting<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        enter: impl FnOnce() + Send + 'scope,
    ) -> Receiver<()> {
        let (send, received) = sync_channel(1);
        scope.spawn(move || {
            enter();
            send.send(()).expect("the test waits");
        });
        received
    }
}
