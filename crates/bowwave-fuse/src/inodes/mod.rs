//! The inodes that the kernel knows, and what each one stands for.
//!
//! **Of a file system** an inode is a file, known by device and inode number: it keeps its number, and its pages in the
//! kernel's cache, under whatever name, and hard links are one. If somebody else has changed the file, the next open says
//! so, and the kernel drops what it has.
//!
//! **Of any other store** an inode is one version of one object: its pages in the kernel's cache can be kept for as long
//! as it lives. When an object is seen to have changed, its name is taken from the old inode; whoever looks the name up
//! next gets a new inode, with an empty cache, while open files of the old version keep theirs. The kernel does that
//! look-up by itself after ESTALE. So versions never mix in its cache. What we write ourselves makes no new version.
//!
//! The table holds what the kernel remembers, no more: an inode goes when its last look-up is forgotten.

mod table;

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bowwave_engine::backend::{Entry, EntryKind, Identity};

use table::{Key, Node, Table};

/// Number of the root.
pub(crate) const ROOT: u64 = 1;

/// The table of inodes.
#[derive(Debug)]
pub(crate) struct Inodes {
    table: Mutex<Table>,
}

/// What an open has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The bytes that the kernel may have pages of.
    Same,
    /// The file, with other bytes.
    Other,
    /// The object as it is published, while another version of it is being written: nothing of it may be kept.
    Apart,
    /// Not what the inode stands for.
    Stale,
    /// Opened before we changed the object, and compared after: it has to be opened once more.
    Again,
}

/// What became of a description of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Described {
    /// It is of what the inode stands for, and kept.
    Same,
    /// It is of something else, and the inode has no name any more.
    Other,
    /// Asked for before we changed the object, and compared after: the store has to be asked once more.
    Again,
}

/// What is known of a file that was opened.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) identity: Identity,
    /// See [`OpenFile::version`](crate::OpenFile::version).
    pub(crate) version: u64,
    pub(crate) size: u64,
    pub(crate) writes: bool,
}

impl Inodes {
    /// A table with the root in it.
    pub(crate) fn new(root: Entry) -> Self {
        Self { table: Mutex::new(Table::new(root)) }
    }

    /// A path to an inode; `None` if it has no name any more.
    pub(crate) fn path(&self, number: u64) -> Option<PathBuf> {
        self.lock().path(number)
    }

    /// The path of `name` in a folder.
    pub(crate) fn child_path(&self, parent: u64, name: &OsStr) -> Option<PathBuf> {
        self.lock().child_path(parent, name)
    }

    /// The folder that [`path`](Self::path) leads through last; the root's is itself.
    pub(crate) fn parent(&self, number: u64) -> Option<u64> {
        if number == ROOT {
            return Some(ROOT);
        }
        self.lock().nodes.get(&number)?.names.last().map(|(parent, _)| *parent)
    }

    /// How often we have changed what an inode stands for. Asked for before the store is: its answer may be of before a
    /// change that the table knows of already, and is then not somebody else's change.
    pub(crate) fn changes(&self, number: u64) -> u64 {
        self.lock().nodes.get(&number).map_or(0, |node| node.changes)
    }

    /// As [`changes`](Self::changes), of what stands at a name.
    pub(crate) fn changes_at(&self, parent: u64, name: &OsStr) -> u64 {
        let table = self.lock();
        table.child(parent, name).and_then(|number| table.nodes.get(&number)).map_or(0, |node| node.changes)
    }

    /// Whether handles are open that write.
    pub(crate) fn has_writers(&self, number: u64) -> bool {
        self.lock().nodes.get(&number).is_some_and(|node| node.writers > 0)
    }

    /// The last known description of an inode.
    pub(crate) fn last(&self, number: u64) -> Option<Entry> {
        self.lock().nodes.get(&number).map(|node| node.entry.clone())
    }

    /// The inode that a path leads to, if the kernel knows it; counts no look-up.
    pub(crate) fn at(&self, path: &Path) -> Option<u64> {
        let table = self.lock();
        path.iter().try_fold(ROOT, |parent, name| table.child(parent, name))
    }

    /// The number that `stat` shows for an inode: the store's, which need not be the one that the kernel goes by.
    pub(crate) fn shown(&self, number: u64) -> u64 {
        self.lock().shown(number)
    }

    /// The inode that stands for a name now, if the kernel knows it; counts no look-up.
    pub(crate) fn peek(&self, parent: u64, name: &OsStr) -> Option<u64> {
        self.lock().child(parent, name)
    }

    /// What stands at a name, as far as the kernel knows it.
    pub(crate) fn peek_kind(&self, parent: u64, name: &OsStr) -> Option<EntryKind> {
        let table = self.lock();
        let number = table.child(parent, name)?;
        table.nodes.get(&number).map(|node| node.entry.kind)
    }

    /// Whether a listed file is open for writing: then listings tell its size too late.
    pub(crate) fn is_written(&self, parent: u64, name: &OsStr, entry: &Entry) -> bool {
        let mut table = self.lock();
        let number = table.by_key(entry).or_else(|| table.child(parent, name));
        number.and_then(|number| table.nodes.get(&number)).is_some_and(|node| node.writers > 0)
    }

    /// The inode for what was found as `name` in a folder; counts a look-up. `None` if the folder is gone.
    pub(crate) fn remember(&self, parent: u64, name: &OsStr, entry: &Entry) -> Option<u64> {
        let mut table = self.lock();
        if !table.nodes.contains_key(&parent) {
            return None;
        }
        let known = match Key::of(entry) {
            Some(_) => table.by_key(entry),
            None => table.child(parent, name).filter(|&number| is_same(table.nodes.get(&number), entry)),
        };
        let number = match known.and_then(|number| table.nodes.get_mut(&number).map(|node| (number, node))) {
            Some((number, node)) => {
                // A listing tells less of the same version.
                if !entry.partial || node.entry.partial || !is_version(&node.entry, entry) {
                    node.describe(entry.clone());
                }
                node.lookups += 1;
                number
            }
            None => table.add(entry.clone(), 1),
        };
        table.bind(number, parent, name);
        Some(number)
    }

    /// Takes note of a fresh description, asked for when the inode had been changed `since` times.
    pub(crate) fn refresh(&self, number: u64, entry: &Entry, since: u64) -> Described {
        let mut table = self.lock();
        match table.nodes.get_mut(&number) {
            Some(node) if number == ROOT || is_same(Some(node), entry) => {
                node.describe(entry.clone());
                Described::Same
            }
            Some(node) if node.changes != since => Described::Again,
            _ => {
                table.unbind_all(number);
                Described::Other
            }
        }
    }

    /// Whether a description of what was found at a name, asked for when that had been changed `since` times, is of before
    /// a change of ours.
    pub(crate) fn is_outrun(&self, parent: u64, name: &OsStr, entry: &Entry, since: u64) -> bool {
        let table = self.lock();
        let node = table.child(parent, name).and_then(|number| table.nodes.get(&number));
        node.is_some_and(|node| node.changes != since && !is_same(Some(node), entry))
    }

    /// Takes a description as it is, because what has changed, we have changed; but not one from before what was changed
    /// after that.
    pub(crate) fn settle(&self, number: u64, entry: Entry, since: u64) {
        if let Some(node) = self.lock().nodes.get_mut(&number).filter(|node| node.changes == since) {
            node.describe(entry);
        }
    }

    /// Compares a newly opened file with the inode, which had been changed `since` times before it was opened, and if it is
    /// that, or the published version of that, counts it as open.
    pub(crate) fn opened(&self, number: u64, file: &Opening, since: u64) -> Opened {
        let mut table = self.lock();
        let Some(node) = table.nodes.get_mut(&number) else { return Opened::Stale };
        let same = node
            .opened
            .as_ref()
            .is_none_or(|(identity, version)| *version == file.version || *identity == file.identity);
        // Even if it is the version from which the writer set out: its pages would be taken for those of the next.
        if node.key.is_none() && node.writers > 0 && !file.writes {
            node.holds += 1;
            return Opened::Apart;
        }
        let sized = node.writers > 0 || node.entry.size == file.size;
        let found = match node.key {
            Some(key) if is_other(key, &file.identity) => Opened::Stale,
            // The kernel would append at, and read up to, the size that it knows. It asks again after ESTALE; a file
            // that grows all the time must open all the same.
            Some(_) if !sized && node.seen.elapsed() > JUST_NOW => return Opened::Stale,
            Some(_) if same => Opened::Same,
            Some(_) => Opened::Other,
            None if sized && (same || node.writers > 0) => Opened::Same,
            None => Opened::Stale,
        };
        if found == Opened::Stale {
            if node.changes != since {
                return Opened::Again;
            }
            table.unbind_all(number);
            return found;
        }
        node.holds += 1;
        node.writers += u64::from(file.writes);
        node.changes += u64::from(file.writes);
        node.opened = Some((file.identity.clone(), file.version));
        found
    }

    /// A file that was counted as open is closed. What it is then, `file` tells while nobody else changes the table: from
    /// when its last writer is not counted any more, an object is compared with what that has left. Of that a fresh
    /// description is wanted: for [`settle`](Self::settle) with the number that is returned.
    pub(crate) fn closed(&self, number: u64, file: impl FnOnce() -> Opening) -> Option<u64> {
        let mut table = self.lock();
        let mut left = None;
        if let Some(node) = table.nodes.get_mut(&number) {
            let file = file();
            node.holds = node.holds.saturating_sub(1);
            if file.writes {
                node.writers = node.writers.saturating_sub(1);
                node.opened = Some((file.identity, file.version));
                node.changes += 1;
                if node.writers == 0 && node.key.is_none() {
                    // The time is the store's to say.
                    let entry = Entry {
                        size: file.size,
                        modified: None,
                        uploaded: None,
                        identity: None,
                        ..node.entry.clone()
                    };
                    node.describe(entry);
                    left = Some(node.changes);
                }
            }
        }
        table.sweep(number);
        left
    }

    /// Whether a file is still the version that was opened last.
    pub(crate) fn is_current(&self, number: u64, version: u64) -> bool {
        let table = self.lock();
        let opened = table.nodes.get(&number).and_then(|node| node.opened.as_ref());
        opened.is_none_or(|(_, current)| *current == version)
    }

    /// Takes the name from an inode whose object has changed.
    pub(crate) fn outdate(&self, number: u64) {
        let mut table = self.lock();
        // A file of a file system is the same file whatever it holds.
        if table.nodes.get(&number).is_some_and(|node| node.key.is_none()) {
            table.unbind_all(number);
        }
    }

    /// A name is about to be taken away at the store. If it is its file's last, the number of the file there may come back for
    /// another file before we hear that it is gone, and that one, in another folder, be looked up: it is no longer the
    /// name of this inode. For [`stays`](Self::stays), if it is not taken away after all.
    pub(crate) fn goes(&self, parent: u64, name: &OsStr) -> Option<u64> {
        let mut table = self.lock();
        let number = table.child(parent, name)?;
        if !table.nodes.get(&number)?.has_one_name() {
            return None;
        }
        table.bury(number);
        Some(number)
    }

    /// What was about to [go](Self::goes) is still there.
    pub(crate) fn stays(&self, number: u64) {
        self.lock().unearth(number);
    }

    /// A name was removed.
    pub(crate) fn removed(&self, parent: u64, name: &OsStr) {
        self.lock().remove(parent, name);
    }

    /// Whether two names are known to be of one file: a rename leaves both.
    pub(crate) fn are_one(&self, one: (u64, &OsStr), other: (u64, &OsStr)) -> bool {
        self.lock().are_one(one, other)
    }

    /// A name was moved to another, in place of what had that.
    pub(crate) fn renamed(&self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        let mut table = self.lock();
        if table.are_one(from, to) {
            return;
        }
        let moved = table.child(from.0, from.1);
        table.remove(to.0, to.1);
        if let Some(number) = moved {
            table.bind(number, to.0, to.1);
            table.unbind(from.0, from.1);
        }
    }

    /// Two names were exchanged.
    pub(crate) fn exchanged(&self, one: (u64, &OsStr), other: (u64, &OsStr)) {
        let mut table = self.lock();
        let (first, second) = (table.child(one.0, one.1), table.child(other.0, other.1));
        if first == second {
            return;
        }
        table.unbind(one.0, one.1);
        table.unbind(other.0, other.1);
        for (number, (parent, name)) in [(first, other), (second, one)] {
            if let Some(number) = number {
                table.bind(number, parent, name);
            }
        }
    }

    /// Takes back `lookups` look-ups.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.lock();
        if let Some(node) = table.nodes.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        table.sweep(number);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each method leaves the table whole before anything in it can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Takes a name away, and with a file's last name its key.
    fn remove(&mut self, parent: u64, name: &OsStr) {
        let Some(number) = self.unbind(parent, name) else { return };
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let last = node.has_one_name();
        let Some(unix) = &mut node.entry.unix else { return };
        unix.links = if last { 0 } else { unix.links - 1 };
        if last {
            self.bury(number);
        }
    }
}

/// Whether an opened file is surely not the one with this key.
fn is_other(key: Key, identity: &Identity) -> bool {
    let differs = |known: Option<u64>, want: u64| known.is_some_and(|known| known != want);
    differs(identity.inode, key.inode) || differs(identity.device, key.device)
}

/// Whether a description can be of what an inode stands for. The identity of an entry is left out: listings and stats of
/// one store tell it with different completeness. What slips through here is caught at open.
fn is_same(node: Option<&Node>, new: &Entry) -> bool {
    let Some(node) = node else { return false };
    let old = &node.entry;
    if old.kind != new.kind || node.key != Key::of(new) {
        return false;
    }
    let by_us = node.key.is_some() || node.writers > 0 || old.kind != EntryKind::File;
    by_us || old.size == new.size && (is_version(old, new) || has_one_tag(old, new))
}

/// Whether two descriptions are of one version by its time, which is that of the store, and not one that a program has set.
fn is_version(old: &Entry, new: &Entry) -> bool {
    let stamp = |entry: &Entry| entry.uploaded.or(entry.modified);
    is_same_time(stamp(old), stamp(new))
}

/// Whether two descriptions have the same strong tag: then the bytes are the same, whatever the time. A copy onto itself,
/// which changes attributes, keeps the tag of most objects.
fn has_one_tag(old: &Entry, new: &Entry) -> bool {
    let tag = |entry: &Entry| entry.identity.as_ref()?.etag.clone().filter(|tag| !tag.starts_with("W/"));
    tag(old).is_some() && tag(old) == tag(new)
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

/// How old a description may be to count as the answer to the look-up right before an open.
const JUST_NOW: Duration = Duration::from_millis(50);
