//! Names, keys and numbers of inodes: maps paths to inodes.
//!
//! Names are stored as (directory, name), not as paths, so renaming a directory renames everything
//! below it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bowwave_engine::backend::{Entry, EntryKind, Identity};

use super::ROOT;

/// Identifies a file in a file system regardless of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Key {
    /// The key of an entry; `None` if the store is not a file system.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        entry.unix.map(|unix| Self { device: unix.device, inode: unix.inode })
    }
}

/// One name: the directory's inode, and the name in it.
type Name = (u64, Arc<OsStr>);

#[derive(Debug)]
pub(super) struct Node {
    /// Current names; none once the file is removed or replaced by another version.
    pub(super) names: Vec<Name>,
    /// The known entries of a directory.
    children: HashMap<Arc<OsStr>, u64>,
    pub(super) key: Option<Key>,
    pub(super) entry: Entry,
    /// When `entry` was requested.
    pub(super) seen: Instant,
    /// Identity and version at the last open. Some stores report less by stat than by open.
    pub(super) opened: Option<(Identity, u64)>,
    /// Bytes of that version that the kernel was given; it may have them cached.
    pub(super) served: u64,
    /// Versions that were replaced before the kernel was given a byte of them.
    pub(super) unread: Vec<u64>,
    /// Open handles.
    pub(super) holds: u64,
    /// Open handles for writing. Until they are closed and attributes are requested again, we
    /// change size and time.
    pub(super) writers: u64,
    /// Number of opens and closes for writing.
    pub(super) changes: u64,
    /// Lookups that the kernel has not forgotten.
    pub(super) lookups: u64,
}

impl Node {
    pub(super) fn new(entry: Entry) -> Self {
        Self {
            names: Vec::new(),
            children: HashMap::new(),
            key: Key::of(&entry),
            entry,
            seen: Instant::now(),
            opened: None,
            served: 0,
            unread: Vec::new(),
            holds: 0,
            writers: 0,
            changes: 0,
            lookups: 0,
        }
    }

    /// Whether removing one more name removes the file, by its last attributes.
    pub(super) fn has_one_name(&self) -> bool {
        self.entry.unix.is_some_and(|unix| self.entry.kind == EntryKind::Directory || unix.links <= 1)
    }

    /// Records fresh attributes.
    pub(super) fn describe(&mut self, entry: Entry) {
        self.entry = entry;
        self.seen = Instant::now();
    }
}

/// The inodes by number, name and key: those that the kernel remembers, and their parent
/// directories.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) nodes: HashMap<u64, Node>,
    by_key: HashMap<Key, u64>,
    /// The device whose inode numbers `stat` returns unchanged.
    device: Option<u64>,
    last: u64,
}

impl Table {
    pub(super) fn new(root: Entry) -> Self {
        let mut node = Node::new(root);
        node.lookups = 1;
        let key = node.key;
        let by_key = key.map(|key| (key, ROOT)).into_iter().collect();
        Self {
            nodes: HashMap::from([(ROOT, node)]),
            by_key,
            device: key.map(|key| key.device),
            // Our own numbers must not collide with a file system's.
            last: if key.is_some() { OWN_NUMBERS } else { ROOT },
        }
    }

    /// The inode called `name` in the directory `parent`.
    pub(super) fn child(&self, parent: u64, name: &OsStr) -> Option<u64> {
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    /// Whether two names lead to one inode.
    pub(super) fn are_links(&self, one: (u64, &OsStr), other: (u64, &OsStr)) -> bool {
        let number = self.child(one.0, one.1);
        number.is_some() && number == self.child(other.0, other.1)
    }

    /// A path to an inode; `None` if it is unlinked.
    pub(super) fn path(&self, number: u64) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT {
            let (parent, name) = self.nodes.get(&at)?.names.last()?;
            names.push(name);
            at = *parent;
        }
        let mut path = PathBuf::new();
        names.into_iter().rev().for_each(|name| path.push(&**name));
        Some(path)
    }

    /// The path of `name` in the directory `parent`.
    pub(super) fn child_path(&self, parent: u64, name: &OsStr) -> Option<PathBuf> {
        self.path(parent).map(|directory| directory.join(name))
    }

    /// The inode with the key of `entry`, if it can still be the same file: file systems reuse
    /// inode numbers.
    pub(super) fn by_key(&mut self, entry: &Entry) -> Option<u64> {
        let key = Key::of(entry)?;
        let number = *self.by_key.get(&key)?;
        if self.nodes.get(&number).is_some_and(|node| node.entry.kind == entry.kind) {
            return Some(number);
        }
        self.by_key.remove(&key);
        None
    }

    /// Gives `number` the name `name` in `parent`, which must exist; takes the name from its last
    /// owner.
    pub(super) fn bind(&mut self, number: u64, parent: u64, name: &OsStr) {
        if self.child(parent, name) == Some(number) {
            return;
        }
        self.unbind(parent, name);
        let name: Arc<OsStr> = name.into();
        let Some(directory) = self.nodes.get_mut(&parent) else { return };
        directory.children.insert(Arc::clone(&name), number);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.push((parent, name));
        }
    }

    /// Removes a name and returns the inode that had it.
    pub(super) fn unbind(&mut self, parent: u64, name: &OsStr) -> Option<u64> {
        let number = self.nodes.get_mut(&parent)?.children.remove(name)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.retain(|(directory, known)| *directory != parent || **known != *name);
        }
        self.sweep(parent);
        Some(number)
    }

    /// Removes all names of an inode.
    pub(super) fn unbind_all(&mut self, number: u64) {
        if number == ROOT {
            return;
        }
        let names = self.nodes.get(&number).map(|node| node.names.clone()).unwrap_or_default();
        for (parent, name) in names {
            self.unbind(parent, &name);
        }
    }

    /// Records that the file of an inode has no name left: its key may be reused.
    pub(super) fn release_key(&mut self, number: u64) {
        if let Some(node) = self.nodes.get_mut(&number)
            && let Some(key) = node.key
            && self.by_key.get(&key) == Some(&number)
        {
            self.by_key.remove(&key);
        }
    }

    /// Reverts `release_key`, unless the key already identifies another file.
    pub(super) fn restore_key(&mut self, number: u64) {
        if let Some(key) = self.nodes.get(&number).and_then(|node| node.key) {
            self.by_key.entry(key).or_insert(number);
        }
    }

    /// Adds an inode for `entry`, without a name and with `lookups` lookups.
    pub(super) fn add(&mut self, entry: Entry, lookups: u64) -> u64 {
        let mut node = Node::new(entry);
        node.lookups = lookups;
        let number = match node.key {
            Some(key) => {
                let number = self.number_for(key);
                self.by_key.insert(key, number);
                number
            }
            None => self.own_number(),
        };
        self.nodes.insert(number, node);
        number
    }

    /// The inode number for a file: its own if that is unambiguous. The store may reuse a removed
    /// file's number while the kernel, or a program in that directory, still uses it.
    fn number_for(&mut self, key: Key) -> u64 {
        let free = key.inode > ROOT && key.inode < OWN_NUMBERS && !self.nodes.contains_key(&key.inode);
        if free && self.device == Some(key.device) { key.inode } else { self.own_number() }
    }

    /// The inode number for `stat`: the store's if the file is on the device of the root, else our
    /// own.
    pub(super) fn shown(&self, number: u64) -> u64 {
        let key = self.nodes.get(&number).and_then(|node| node.key);
        key.filter(|key| self.device == Some(key.device)).map_or(number, |key| key.inode)
    }

    fn own_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Drops an inode without lookups, open handles and children; then possibly its parents.
    pub(super) fn sweep(&mut self, number: u64) {
        let idle = |node: &Node| node.lookups == 0 && node.holds == 0 && node.children.is_empty();
        if number == ROOT || !self.nodes.get(&number).is_some_and(idle) {
            return;
        }
        self.release_key(number);
        if let Some(node) = self.nodes.remove(&number) {
            for (parent, name) in node.names {
                if let Some(directory) = self.nodes.get_mut(&parent) {
                    directory.children.remove(&name);
                }
                self.sweep(parent);
            }
        }
    }
}

/// Lower bound of our own inode numbers; file systems do not reach it.
const OWN_NUMBERS: u64 = 1 << 62;
