//! The inodes that the kernel knows, and the files and objects behind them.
//!
//! **In a file system**, an inode is a file, identified by device and inode number. It keeps its
//! number and its pages in the kernel's cache when it is renamed; hard links share one inode. If
//! the file was changed from outside, the next open reports it, and the kernel drops the pages.
//!
//! **In any other store**, an inode is one version of one object, so its pages in the kernel's
//! cache stay valid while it lives. When an object has changed, its old inode is unlinked, and an
//! open of it returns ESTALE. The kernel then looks the name up again, and gets a new inode with an
//! empty cache. Open files of the old version keep the old inode. So the kernel's cache never mixes
//! versions. Two changes keep the inode: writes through the mount, and a new version before the
//! kernel was given a byte of the old one.
//!
//! An inode is dropped when the kernel has forgotten its last lookup, its last handle is closed,
//! and the table has no inode below it.

mod table;

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bowwave_engine::backend::sync::Mutex;
use bowwave_engine::backend::{Entry, EntryKind, Identity};

use table::{Key, Node, Table};

/// Inode number of the root.
pub(crate) const ROOT: u64 = 1;

/// The table of inodes.
#[derive(Debug)]
pub(crate) struct Inodes {
    table: Mutex<Table>,
}

/// Result of comparing an opened file with its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The same bytes as the kernel may have cached.
    Same,
    /// The same file with other bytes.
    Other,
    /// The published object while another version is being written: its pages must not be cached.
    Apart,
    /// Not the file or version of the inode.
    Stale,
    /// The mount changed the object between open and comparison: must be opened again.
    Again,
}

/// Result of comparing fresh attributes with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Described {
    /// They belong to the inode and were recorded.
    Same,
    /// They belong to another object; the inode was unlinked.
    Other,
    /// The mount changed the object between request and comparison: must be requested again.
    Again,
}

/// Properties of an opened file.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) identity: Identity,
    /// See [`File::version`](bowwave_engine::File::version).
    pub(crate) version: u64,
    pub(crate) size: u64,
    pub(crate) writes: bool,
}

impl Inodes {
    /// A table with the root in it.
    pub(crate) fn new(root: Entry) -> Self {
        Self { table: Mutex::new(Table::new(root)) }
    }

    /// A path to an inode; `None` if it is unlinked.
    pub(crate) fn path(&self, number: u64) -> Option<PathBuf> {
        self.table.lock().path(number)
    }

    /// The path of `name` in a directory.
    pub(crate) fn child_path(&self, parent: u64, name: &OsStr) -> Option<PathBuf> {
        self.table.lock().child_path(parent, name)
    }

    /// The parent directory in [`path`](Self::path); the root is its own parent.
    pub(crate) fn parent(&self, number: u64) -> Option<u64> {
        if number == ROOT {
            return Some(ROOT);
        }
        self.table.lock().nodes.get(&number)?.names.last().map(|(parent, _)| *parent)
    }

    /// Number of the mount's own changes to the object of an inode. Callers read it before they
    /// send a request. If it has grown when the response arrives, the response may predate such a
    /// change. Then a difference is no evidence of a change from outside.
    pub(crate) fn changes(&self, number: u64) -> u64 {
        self.table.lock().nodes.get(&number).map_or(0, |node| node.changes)
    }

    /// As [`changes`](Self::changes), for the entry at a name.
    pub(crate) fn changes_at(&self, parent: u64, name: &OsStr) -> u64 {
        let table = self.table.lock();
        table.child(parent, name).and_then(|number| table.nodes.get(&number)).map_or(0, |node| node.changes)
    }

    /// Whether handles are open for writing.
    pub(crate) fn has_writers(&self, number: u64) -> bool {
        self.table.lock().nodes.get(&number).is_some_and(|node| node.writers > 0)
    }

    /// The last known attributes of an inode.
    pub(crate) fn last(&self, number: u64) -> Option<Entry> {
        self.table.lock().nodes.get(&number).map(|node| node.entry.clone())
    }

    /// The inode at a path, if the kernel knows it; counts no lookup.
    pub(crate) fn at(&self, path: &Path) -> Option<u64> {
        let table = self.table.lock();
        path.iter().try_fold(ROOT, |parent, name| table.child(parent, name))
    }

    /// The inode number for `stat`: the store's, if the file is on the root's device. It may differ
    /// from `number`, which the kernel uses.
    pub(crate) fn shown(&self, number: u64) -> u64 {
        self.table.lock().shown(number)
    }

    /// The current inode of a name, if the kernel knows it; counts no lookup.
    pub(crate) fn peek(&self, parent: u64, name: &OsStr) -> Option<u64> {
        self.table.lock().child(parent, name)
    }

    /// The kind of entry at a name, if the kernel knows it.
    pub(crate) fn peek_kind(&self, parent: u64, name: &OsStr) -> Option<EntryKind> {
        let table = self.table.lock();
        let number = table.child(parent, name)?;
        table.nodes.get(&number).map(|node| node.entry.kind)
    }

    /// Whether a listed file is open for writing, so that the listed size is out of date.
    pub(crate) fn is_written(&self, parent: u64, name: &OsStr, entry: &Entry) -> bool {
        let mut table = self.table.lock();
        let number = table.by_key(entry).or_else(|| table.child(parent, name));
        number.and_then(|number| table.nodes.get(&number)).is_some_and(|node| node.writers > 0)
    }

    /// The inode for an entry found as `name` in a directory; counts a lookup. `None` if the
    /// directory was dropped.
    pub(crate) fn remember(&self, parent: u64, name: &OsStr, entry: &Entry) -> Option<u64> {
        let mut table = self.table.lock();
        if !table.nodes.contains_key(&parent) {
            return None;
        }
        let known = match Key::of(entry) {
            Some(_) => table.by_key(entry),
            None => table.child(parent, name).filter(|&number| is_same(table.nodes.get(&number), entry)),
        };
        let number = match known.and_then(|number| table.nodes.get_mut(&number).map(|node| (number, node))) {
            Some((number, node)) => {
                // A partial entry of the same version must not replace a complete one.
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

    /// Records fresh attributes if they belong to the inode. They were requested when it had
    /// `since` changes.
    pub(crate) fn refresh(&self, number: u64, entry: &Entry, since: u64) -> Described {
        let mut table = self.table.lock();
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

    /// Whether the attributes of a name, requested when it had `since` changes, predate a change of
    /// ours.
    pub(crate) fn is_overtaken(&self, parent: u64, name: &OsStr, entry: &Entry, since: u64) -> bool {
        let table = self.table.lock();
        let node = table.child(parent, name).and_then(|number| table.nodes.get(&number));
        node.is_some_and(|node| node.changes != since && !is_same(Some(node), entry))
    }

    /// Records attributes without comparing them, because the change was the mount's own. Discards
    /// them if the inode has changed since they were requested.
    pub(crate) fn settle(&self, number: u64, entry: Entry, since: u64) {
        if let Some(node) = self.table.lock().nodes.get_mut(&number).filter(|node| node.changes == since) {
            node.describe(entry);
        }
    }

    /// Compares an opened file with its inode, which had `since` changes before the open. Counts
    /// the file as open, unless the result is `Stale` or `Again`.
    pub(crate) fn opened(&self, number: u64, file: &Opening, since: u64) -> Opened {
        let mut table = self.table.lock();
        let Some(node) = table.nodes.get_mut(&number) else { return Opened::Stale };
        let same = node
            .opened
            .as_ref()
            .is_none_or(|(identity, version)| *version == file.version || *identity == file.identity);
        // Even if it is the version that the writer changes: the kernel would take its pages for
        // the next version's.
        if node.key.is_none() && node.writers > 0 && !file.writes {
            node.holds += 1;
            return Opened::Apart;
        }
        let sized = node.writers > 0 || node.entry.size == file.size;
        let found = match node.key {
            Some(key) if is_other(key, &file.identity) => Opened::Stale,
            // The kernel would use its old size for appends and reads. After ESTALE it requests the
            // size again. A size from just now is accepted, so that a growing file can be opened.
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

    /// Counts an open file as closed. `file` returns its state, and is called under the table's
    /// lock. At the close of an object's last writer, the object gets the size in that state, and
    /// the result is `Some`. The caller then requests fresh attributes and passes them to
    /// [`settle`](Self::settle) with this number.
    pub(crate) fn closed(&self, number: u64, file: impl FnOnce() -> Opening) -> Option<u64> {
        let mut table = self.table.lock();
        let mut left = None;
        if let Some(node) = table.nodes.get_mut(&number) {
            let file = file();
            node.holds = node.holds.saturating_sub(1);
            if file.writes {
                node.writers = node.writers.saturating_sub(1);
                node.opened = Some((file.identity, file.version));
                node.changes += 1;
                if node.writers == 0 && node.key.is_none() {
                    // The store sets the time, which is not known here.
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

    /// Whether `version` is the version that was opened last.
    pub(crate) fn is_current(&self, number: u64, version: u64) -> bool {
        let table = self.table.lock();
        let opened = table.nodes.get(&number).and_then(|node| node.opened.as_ref());
        opened.is_none_or(|(_, current)| *current == version)
    }

    /// Records that the kernel gets bytes of a version. False if the inode has another version
    /// now.
    pub(crate) fn served(&self, number: u64, version: u64, bytes: usize) -> bool {
        let mut table = self.table.lock();
        let Some(node) = table.nodes.get_mut(&number) else { return true };
        if node.opened.as_ref().is_some_and(|(_, current)| *current != version) {
            return false;
        }
        node.served = node.served.saturating_add(bytes as u64);
        true
    }

    /// Whether the bytes given to the kernel reach the object's size. A byte given twice counts
    /// twice.
    pub(crate) fn is_read(&self, number: u64) -> bool {
        self.table.lock().nodes.get(&number).is_some_and(|node| node.served >= node.entry.size)
    }

    /// Whether the kernel was given some bytes of an object, but fewer than all.
    pub(crate) fn is_read_in_part(&self, number: u64) -> bool {
        let table = self.table.lock();
        table.nodes.get(&number).is_some_and(|node| (1..node.entry.size).contains(&node.served))
    }

    /// Whether the kernel was given bytes of an object.
    pub(crate) fn was_read(&self, number: u64) -> bool {
        self.table.lock().nodes.get(&number).is_some_and(|node| node.served > 0)
    }

    /// Whether the kernel was given no byte of this version of an object.
    pub(crate) fn is_unread(&self, number: u64, version: u64) -> bool {
        let table = self.table.lock();
        let Some(node) = table.nodes.get(&number).filter(|node| node.key.is_none()) else { return false };
        let is_current = node.opened.as_ref().is_some_and(|(_, current)| *current == version);
        is_current && node.served == 0 || node.unread.contains(&version)
    }

    /// Lets a handle that has read nothing of version `old` continue with `new`. Returns false if
    /// the kernel may have bytes of another version, if the object is being written or is shorter
    /// now, or if `UNREAD_MAX` versions were replaced before.
    pub(crate) fn replaced(&self, number: u64, old: u64, new: &Opening, entry: Entry) -> bool {
        let mut table = self.table.lock();
        let node = table.nodes.get_mut(&number);
        let Some(node) = node.filter(|node| node.key.is_none() && node.writers == 0) else { return false };
        let Some((identity, current)) = &node.opened else { return false };
        // From a short read, the kernel learns that a file is shorter only if it gets no attributes
        // meanwhile.
        if new.size < node.entry.size {
            return false;
        }
        if *current == old && node.served == 0 && node.unread.len() < UNREAD_MAX {
            node.unread.push(old);
        } else if !node.unread.contains(&old) || *identity != new.identity {
            return false;
        }
        node.opened = Some((new.identity.clone(), new.version));
        node.describe(Entry { size: new.size, ..entry });
        true
    }

    /// Unlinks an inode whose object has changed.
    pub(crate) fn unbind_changed(&self, number: u64) {
        let mut table = self.table.lock();
        // A file system's file stays the same file when its content changes.
        if table.nodes.get(&number).is_some_and(|node| node.key.is_none()) {
            table.unbind_all(number);
        }
    }

    /// A name is about to be removed at the store. If it is the file's last one, the store may
    /// reuse the file's number before the removal returns. A lookup in another directory may then
    /// find the new file. So the number no longer identifies this inode.
    /// [`cancel_remove`](Self::cancel_remove) reverts this if the removal fails.
    pub(crate) fn begin_remove(&self, parent: u64, name: &OsStr) -> Option<u64> {
        let mut table = self.table.lock();
        let number = table.child(parent, name)?;
        if !table.nodes.get(&number)?.has_one_name() {
            return None;
        }
        table.release_key(number);
        Some(number)
    }

    /// Reverts [`begin_remove`](Self::begin_remove): the file still exists.
    pub(crate) fn cancel_remove(&self, number: u64) {
        self.table.lock().restore_key(number);
    }

    /// Records that a name was removed.
    pub(crate) fn removed(&self, parent: u64, name: &OsStr) {
        self.table.lock().remove(parent, name);
    }

    /// Whether two names are known to be links to one file: a rename then leaves both.
    pub(crate) fn are_links(&self, one: (u64, &OsStr), other: (u64, &OsStr)) -> bool {
        self.table.lock().are_links(one, other)
    }

    /// Records a rename, which replaced any entry at the new name.
    pub(crate) fn renamed(&self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        let mut table = self.table.lock();
        if table.are_links(from, to) {
            return;
        }
        let moved = table.child(from.0, from.1);
        table.remove(to.0, to.1);
        if let Some(number) = moved {
            table.bind(number, to.0, to.1);
            table.unbind(from.0, from.1);
        }
    }

    /// Records that two names were exchanged.
    pub(crate) fn exchanged(&self, one: (u64, &OsStr), other: (u64, &OsStr)) {
        let mut table = self.table.lock();
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

    /// Removes `lookups` lookups from the count.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.table.lock();
        if let Some(node) = table.nodes.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        table.sweep(number);
    }
}

impl Table {
    /// Removes a name, and with a file's last name its key.
    fn remove(&mut self, parent: u64, name: &OsStr) {
        let Some(number) = self.unbind(parent, name) else { return };
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let last = node.has_one_name();
        let Some(unix) = &mut node.entry.unix else { return };
        unix.links = if last { 0 } else { unix.links - 1 };
        if last {
            self.release_key(number);
        }
    }
}

/// Whether an opened file surely has another key.
fn is_other(key: Key, identity: &Identity) -> bool {
    let differs = |known: Option<u64>, want: u64| known.is_some_and(|known| known != want);
    differs(identity.inode, key.inode) || differs(identity.device, key.device)
}

/// Whether attributes may belong to the object of an inode. Does not compare whole identities: a
/// store may report less of them in a listing than in a stat. The comparison at open finds other
/// changes.
fn is_same(node: Option<&Node>, new: &Entry) -> bool {
    let Some(node) = node else { return false };
    let old = &node.entry;
    if old.kind != new.kind || node.key != Key::of(new) {
        return false;
    }
    let by_us = node.key.is_some() || node.writers > 0 || old.kind != EntryKind::File;
    by_us || old.size == new.size && (is_version(old, new) || has_one_tag(old, new))
}

/// Whether the times that the store has set are equal, or one is unknown. Ignores times that a
/// program has set.
fn is_version(old: &Entry, new: &Entry) -> bool {
    let stamp = |entry: &Entry| entry.uploaded.or(entry.modified);
    is_same_time(stamp(old), stamp(new))
}

/// Whether two entries have the same strong ETag: then their bytes are equal, whatever their times.
/// S3 changes an object's attributes by a copy onto itself. This keeps the ETag of most objects.
fn has_one_tag(old: &Entry, new: &Entry) -> bool {
    let tag = |entry: &Entry| entry.identity.as_ref()?.etag.clone().filter(|tag| !tag.starts_with("W/"));
    tag(old).is_some() && tag(old) == tag(new)
}

/// Whether times differ by less than a second, or one is unknown. Object stores list milliseconds
/// but stat whole seconds.
fn is_same_time(old: Option<SystemTime>, new: Option<SystemTime>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            let apart = new.duration_since(old).unwrap_or_else(|error| error.duration());
            apart < Duration::from_secs(1)
        }
        _ => true,
    }
}

/// Maximum versions of an inode remembered as unread. Handles of further versions get ESTALE.
const UNREAD_MAX: usize = 64;

/// Maximum age of attributes that count as the response to the lookup right before an open.
const JUST_NOW: Duration = Duration::from_millis(50);
