//! The order of look-ups and changes of names.
//!
//! Stores are asked by path, and what they answer is noted in the table of inodes. Both must happen as one: a look-up that
//! was answered before a rename and noted after it would bring the old name back. So who looks at a name shares its
//! folder with others who look, who changes a name has its folder alone, and who moves a folder has the whole tree alone,
//! for it changes the paths of all beneath.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks of folders, by their inodes; see the module's head.
#[derive(Debug)]
pub(crate) struct Order {
    tree: RwLock<()>,
    folders: [RwLock<()>; FOLDERS],
}

/// The right to look at, or to change, names; until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _folders: [Option<Folder<'a>>; 2],
    _tree: Option<RwLockReadGuard<'a, ()>>,
    _whole: Option<RwLockWriteGuard<'a, ()>>,
}

/// Held, never read.
#[derive(Debug)]
#[expect(dead_code, reason = "the guards do their work by being held")]
enum Folder<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl Default for Order {
    fn default() -> Self {
        Self { tree: RwLock::default(), folders: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl Order {
    /// To look at names in the folder with this inode.
    pub(crate) fn look(&self, folder: u64) -> Turn<'_> {
        let tree = self.tree();
        let folder = Folder::Shared(self.shard(folder).read().unwrap_or_else(PoisonError::into_inner));
        Turn { _folders: [Some(folder), None], _tree: Some(tree), _whole: None }
    }

    /// To change names in a folder.
    pub(crate) fn change(&self, folder: u64) -> Turn<'_> {
        let tree = self.tree();
        let folder = self.alone(folder);
        Turn { _folders: [Some(folder), None], _tree: Some(tree), _whole: None }
    }

    /// To change names in two folders, which may be the same.
    pub(crate) fn change_both(&self, one: u64, other: u64) -> Turn<'_> {
        let tree = self.tree();
        let (low, high) = (index(one).min(index(other)), index(one).max(index(other)));
        // In one order, so that two renames never wait for each other.
        let first = self.alone(low as u64);
        let second = (low != high).then(|| self.alone(high as u64));
        Turn { _folders: [Some(first), second], _tree: Some(tree), _whole: None }
    }

    /// To move folders: nobody else looks at or changes anything by its path meanwhile.
    pub(crate) fn change_all(&self) -> Turn<'_> {
        let whole = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        Turn { _folders: [None, None], _tree: None, _whole: Some(whole) }
    }

    // The locks guard no data of their own, so that a panicking holder leaves nothing half done in them.

    fn tree(&self) -> RwLockReadGuard<'_, ()> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self, folder: u64) -> Folder<'_> {
        Folder::Alone(self.shard(folder).write().unwrap_or_else(PoisonError::into_inner))
    }

    fn shard(&self, folder: u64) -> &RwLock<()> {
        &self.folders[index(folder)]
    }
}

fn index(folder: u64) -> usize {
    usize::try_from(folder % FOLDERS as u64).expect("small")
}

/// Folders share this many locks: more than requests that are likely to change names at once.
const FOLDERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use std::thread;

    #[test]
    fn those_who_look_share_and_those_who_change_wait() {
        let order = Order::default();
        let first = order.look(3);
        let _other_folder = order.change(4);
        let second = order.look(3);
        let (tell, told) = sync_channel(1);
        thread::scope(|scope| {
            let order = &order;
            scope.spawn(move || {
                let _turn = order.change_both(67, 3);
                tell.send(()).expect("the test waits");
            });
            assert!(told.try_recv().is_err());
            drop((first, second));
            told.recv().expect("its turn has come");
        });
    }

    #[test]
    fn who_moves_a_folder_is_alone() {
        let order = Order::default();
        let turn = order.change_all();
        let (tell, told) = sync_channel(1);
        thread::scope(|scope| {
            let order = &order;
            scope.spawn(move || {
                let _turn = order.look(9);
                tell.send(()).expect("the test waits");
            });
            assert!(told.try_recv().is_err());
            drop(turn);
            told.recv().expect("its turn has come");
        });
    }

    #[test]
    fn two_folders_are_locked_in_one_order() {
        let order = Order::default();
        thread::scope(|scope| {
            for (one, other) in [(1, 2), (2, 1), (1, 65), (65, 2)] {
                let order = &order;
                scope.spawn(move || (0..10_000).for_each(|_| drop(order.change_both(one, other))));
            }
        });
    }
}
