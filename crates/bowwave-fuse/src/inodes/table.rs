//! Names, keys and numbers of inodes: which path leads to which inode.
//!
//! Names are kept as (folder, name), not as paths, so that renaming a folder renames all beneath it at once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bowwave_engine::backend::{Entry, EntryKind, Identity};

use super::ROOT;

/// What names a file in a file system, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Key {
    /// The key of an entry; `None` where the store is no file system.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        entry.unix.map(|unix| Self { device: unix.device, inode: unix.inode })
    }
}

/// One name: the folder's inode, and the name in it.
type Name = (u64, Arc<OsStr>);

#[derive(Debug)]
pub(super) struct Node {
    /// Where it is found now; none once it is removed, or replaced by another version.
    pub(super) names: Vec<Name>,
    /// What is known of a folder's content.
    children: HashMap<Arc<OsStr>, u64>,
    pub(super) key: Option<Key>,
    pub(super) entry: Entry,
    /// When `entry` was asked for.
    pub(super) seen: Instant,
    /// Identity and version at the last open; the stat of some stores tells less than their open.
    pub(super) opened: Option<(Identity, u64)>,
    /// Open handles.
    pub(super) holds: u64,
    /// Open handles that write: until they are closed, and are asked about once more, sizes and times change by us.
    pub(super) writers: u64,
    /// How often it was opened or closed for writing.
    pub(super) changes: u64,
    /// Look-ups that the kernel has not forgotten yet.
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
            holds: 0,
            writers: 0,
            changes: 0,
            lookups: 0,
        }
    }

    /// Whether the file, as last described, is gone with the next name that is taken away.
    pub(super) fn has_one_name(&self) -> bool {
        self.entry.unix.is_some_and(|unix| self.entry.kind == EntryKind::Directory || unix.links <= 1)
    }

    /// Takes a fresh description.
    pub(super) fn describe(&mut self, entry: Entry) {
        self.entry = entry;
        self.seen = Instant::now();
    }
}

/// The inodes by number, name and key. What the kernel remembers, the folders on the way there, and no more.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) nodes: HashMap<u64, Node>,
    by_key: HashMap<Key, u64>,
    /// The device whose inode numbers are shown as they are.
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
            // Numbers of our own must not meet those of a file system.
            last: if key.is_some() { OWN_NUMBERS } else { ROOT },
        }
    }

    /// The inode called `name` in the folder `parent`.
    pub(super) fn child(&self, parent: u64, name: &OsStr) -> Option<u64> {
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    /// Whether two names lead to one inode.
    pub(super) fn are_one(&self, one: (u64, &OsStr), other: (u64, &OsStr)) -> bool {
        let number = self.child(one.0, one.1);
        number.is_some() && number == self.child(other.0, other.1)
    }

    /// A path to an inode; `None` if it has no name any more.
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

    /// The path of `name` in the folder `parent`.
    pub(super) fn child_path(&self, parent: u64, name: &OsStr) -> Option<PathBuf> {
        self.path(parent).map(|folder| folder.join(name))
    }

    /// The inode with the key of `entry`, if it still can be that one: numbers are used again for other files.
    pub(super) fn by_key(&mut self, entry: &Entry) -> Option<u64> {
        let key = Key::of(entry)?;
        let number = *self.by_key.get(&key)?;
        if self.nodes.get(&number).is_some_and(|node| node.entry.kind == entry.kind) {
            return Some(number);
        }
        self.by_key.remove(&key);
        None
    }

    /// Gives `number` the name `name` in `parent`, which must be there; whatever had it loses it.
    pub(super) fn bind(&mut self, number: u64, parent: u64, name: &OsStr) {
        if self.child(parent, name) == Some(number) {
            return;
        }
        self.unbind(parent, name);
        let name: Arc<OsStr> = name.into();
        let Some(folder) = self.nodes.get_mut(&parent) else { return };
        folder.children.insert(Arc::clone(&name), number);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.push((parent, name));
        }
    }

    /// Takes a name away from whatever has it, and gives the number of that.
    pub(super) fn unbind(&mut self, parent: u64, name: &OsStr) -> Option<u64> {
        let number = self.nodes.get_mut(&parent)?.children.remove(name)?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.retain(|(folder, known)| *folder != parent || **known != *name);
        }
        self.sweep(parent);
        Some(number)
    }

    /// Takes all names away from an inode.
    pub(super) fn unbind_all(&mut self, number: u64) {
        if number == ROOT {
            return;
        }
        let names = self.nodes.get(&number).map(|node| node.names.clone()).unwrap_or_default();
        for (parent, name) in names {
            self.unbind(parent, &name);
        }
    }

    /// Notes that the file behind an inode has no name left: its key may come back for another file.
    pub(super) fn bury(&mut self, number: u64) {
        if let Some(node) = self.nodes.get_mut(&number)
            && let Some(key) = node.key
            && self.by_key.get(&key) == Some(&number)
        {
            self.by_key.remove(&key);
        }
    }

    /// Takes back that a file has no name left; unless its key has come back already, and names another.
    pub(super) fn unearth(&mut self, number: u64) {
        if let Some(key) = self.nodes.get(&number).and_then(|node| node.key) {
            self.by_key.entry(key).or_insert(number);
        }
    }

    /// A new inode for `entry`, without a name; `lookups` are counted for it.
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

    /// The number for a file: its own where that is unmistakable. A removed file's number comes back at the store while
    /// the kernel, and perhaps a program that stands in it, still know the removed file by it.
    fn number_for(&mut self, key: Key) -> u64 {
        let free = key.inode > ROOT && key.inode < OWN_NUMBERS && !self.nodes.contains_key(&key.inode);
        if free && self.device == Some(key.device) { key.inode } else { self.own_number() }
    }

    /// The number that `stat` shows for an inode with this key: the store's, where one device holds all.
    pub(super) fn shown(&self, number: u64) -> u64 {
        let key = self.nodes.get(&number).and_then(|node| node.key);
        key.filter(|key| self.device == Some(key.device)).map_or(number, |key| key.inode)
    }

    fn own_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Drops an inode that the kernel has forgotten, nobody has open and no inode is beneath; then perhaps its folders.
    pub(super) fn sweep(&mut self, number: u64) {
        let idle = |node: &Node| node.lookups == 0 && node.holds == 0 && node.children.is_empty();
        if number == ROOT || !self.nodes.get(&number).is_some_and(idle) {
            return;
        }
        self.bury(number);
        if let Some(node) = self.nodes.remove(&number) {
            for (parent, name) in node.names {
                if let Some(folder) = self.nodes.get_mut(&parent) {
                    folder.children.remove(&name);
                }
                self.sweep(parent);
            }
        }
    }
}

/// Numbers that we give ourselves are larger; no file system's are.
const OWN_NUMBERS: u64 = 1 << 62;
