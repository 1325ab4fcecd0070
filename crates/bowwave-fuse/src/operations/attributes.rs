//! Reading and changing attributes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use bowwave_engine::Namespace as _;
use bowwave_engine::backend::{Entry, EntryKind, Error, ErrorKind, SetAttributes, SetTime, WillRead};
use fuser::{Errno, FileAttr, INodeNo};

use super::data::OVERTAKEN_MAX;
use super::{Open, Operations};
use crate::inodes::Described;
use crate::options::Metadata;

/// Requested changes of an inode's attributes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<SetTime>,
    pub(crate) modified: Option<SetTime>,
    /// The handle with which the program identified the file.
    pub(crate) handle: Option<u64>,
    /// The group of an unprivileged caller, whose changes clear set-user-id and set-group-id.
    pub(crate) unprivileged: Option<u32>,
}

impl Operations {
    /// Requests the attributes of an inode from the store. ESTALE if the path now leads to another
    /// object: the kernel then looks the path up again.
    pub(crate) fn attributes(&self, inode: u64) -> Result<FileAttr, Errno> {
        for _ in 0..OVERTAKEN_MAX {
            let since = self.inodes.changes(inode);
            if let Some(entry) = self.attributes_of_open(inode, since)? {
                return Ok(self.shown_as(inode, &entry));
            }
            let (path, _guard) = match self.path(inode) {
                Ok(path) => path,
                Err(error) => return self.attributes_of_removed(inode).ok_or(error),
            };
            let entry = self.described(inode, &path).map_err(|error| self.fail(&path, &error))?;
            match self.inodes.refresh(inode, &entry, since) {
                Described::Same => return Ok(self.shown_as(inode, &entry)),
                Described::Other => break,
                Described::Again => {}
            }
        }
        Err(Errno::ESTALE)
    }

    /// The entry of an inode. If the kernel has never had all its attributes, a listing may have
    /// them by now. Otherwise the kernel wants newer ones, such as before it refuses to execute a
    /// file.
    fn described(&self, inode: u64, path: &Path) -> Result<Entry, Error> {
        if self.inodes.last(inode).is_some_and(|entry| entry.partial) {
            let found = self.layout.lookup(path, WillRead::Any)?;
            if !found.partial {
                return Ok(found);
            }
        }
        self.layout.stat(path)
    }

    /// Attributes through an open handle, if the store supports that: correct whatever the file's
    /// names.
    fn attributes_of_open(&self, inode: u64, since: u64) -> Result<Option<Entry>, Errno> {
        // For object stores, only our own writes are described by a handle.
        let file_system = self.is_file_system();
        // Prefer the writer: a reader may have an older version open.
        let writer = self.files.find_of(inode, |open| open.writes);
        let reader = || file_system.then(|| self.files.find_of(inode, |_| true)).flatten();
        let Some(open) = writer.or_else(reader) else { return Ok(None) };
        match open.file().attributes().map_err(Error::from) {
            Ok(entry) => {
                self.inodes.settle(inode, entry.clone(), since);
                Ok(Some(entry))
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Changed) => Ok(None),
            Err(error) => Err(self.fail(&open.path, &error)),
        }
    }

    /// Attributes of a removed inode that is not open, such as a process's current directory.
    fn attributes_of_removed(&self, inode: u64) -> Option<FileAttr> {
        let entry = self.inodes.last(inode)?;
        entry.unix.filter(|unix| unix.links == 0).map(|_| self.shown_as(inode, &entry))
    }

    /// An inode's attributes for `stat`, with the store's inode number.
    fn shown_as(&self, inode: u64, entry: &Entry) -> FileAttr {
        FileAttr { ino: INodeNo(self.inodes.shown(inode)), ..self.shown(inode, entry) }
    }

    /// Changes attributes and returns the new ones.
    pub(crate) fn set_attributes(&self, inode: u64, changes: &Changes) -> Result<FileAttr, Errno> {
        if let Some(size) = changes.size {
            if let Some(group) = changes.unprivileged {
                self.kill_privileges(inode, group)?;
            }
            self.set_size(inode, size, changes.handle)?;
        }
        let rest = SetAttributes {
            mode: changes.mode,
            uid: changes.uid,
            gid: changes.gid,
            accessed: changes.accessed,
            modified: changes.modified,
        };
        // No change at all is `chown(-1, -1)`, which updates the change time.
        if rest != SetAttributes::default() || changes.size.is_none() {
            self.set_rest(inode, &rest)?;
        }
        self.note_change();
        self.attributes(inode)
    }

    fn set_size(&self, inode: u64, size: u64, handle: Option<u64>) -> Result<(), Errno> {
        self.stamps.restamp(inode);
        let named = handle.and_then(|handle| self.files.find(handle)).filter(|open| open.writes);
        if let Some(open) = named.or_else(|| self.files.find_of(inode, |open| open.writes)) {
            return open.file().set_len(size).map_err(|error| self.fail(&open.path, &error));
        }
        if self.writes_objects() {
            return self.set_size_of_object(inode, size);
        }
        let (path, _guard) = self.path(inode)?;
        let cut = self.layout.set_len(&path, size).map_err(|error| self.fail(&path, &error));
        self.columns.forget(inode);
        cut
    }

    /// Opens the object like a program, so that the new version counts as our own change.
    fn set_size_of_object(&self, inode: u64, size: u64) -> Result<(), Errno> {
        let (handle, _) = self.open(inode, Open { writes: true, truncate: false, process: 0 })?;
        let open = self.files.find(handle).ok_or(Errno::EBADF)?;
        let cut = open.file().set_len(size).and_then(|()| open.file().sync(false));
        let cut = cut.map_err(|error| self.fail(&open.path, &error));
        drop(open);
        self.release(handle);
        cut
    }

    fn set_rest(&self, inode: u64, changes: &SetAttributes) -> Result<(), Errno> {
        let _guard = changes.modified.is_some().then(|| {
            // The store receives the written bytes first, then this time.
            let guard = self.stamps.sending.lock();
            self.stamps.drop(inode);
            guard
        });
        if self.writes_objects() && self.options.metadata == Metadata::Ignore {
            return Ok(());
        }
        // For an object, its writer: the next version gets the attributes.
        let writer = || self.files.find_of(inode, |open| open.writes).filter(|_| self.writes_objects());
        if let Some(open) = writer().or_else(|| self.files.find_of(inode, |_| true)) {
            match open.file().set_attributes(changes).map_err(Error::from) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Unsupported && error.errno().is_none() => {}
                Err(error) => return Err(self.fail(&open.path, &error)),
            }
        }
        let (path, _guard) = match self.path(inode) {
            Ok(path) => path,
            Err(error) => return self.set_removed(inode, changes).ok_or(error),
        };
        if self.defers_attributes() {
            self.deferred.add(&path, changes);
            return Ok(());
        }
        let (store, place) = self.layout.at(&path);
        match store.set_attributes(place, changes) {
            Err(error) if self.is_touch_of_written(inode, changes, &error) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Unsupported && self.is_as_shown(inode, changes) => {
                Ok(())
            }
            result => result.map_err(|error| self.fail(&path, &error)),
        }
    }

    /// Whether attributes are collected before they are sent: each request makes the store copy the
    /// object.
    pub(crate) fn defers_attributes(&self) -> bool {
        self.writes_objects() && self.options.metadata == Metadata::Store
    }

    /// Whether names are kept whose attributes only other requests return.
    pub(crate) fn lists_partly(&self) -> bool {
        self.keeps_names && self.layout.store().profile().attributes
    }

    /// Sends the attributes that programs have set for `path` to the store, if any.
    pub(crate) fn send_attributes(&self, path: &Path) -> Result<(), Errno> {
        let _one_at_a_time = self.deferred.sending.lock();
        let Some(changes) = self.deferred.get(path) else { return Ok(()) };
        let (store, place) = self.layout.at(path);
        let sent = match store.set_attributes(place, &changes) {
            // Removed meanwhile by another client.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            sent => sent,
        };
        match &sent {
            Ok(()) => self.deferred.stored(path, &changes),
            Err(error) => self.deferred.refused(path, &changes, error),
        }
        self.note_change();
        if let Some(inode) = self.inodes.at(path)
            && let Ok(entry) = self.layout.stat(path)
        {
            // Another version now, with the same bytes.
            self.inodes.settle(inode, entry, self.inodes.changes(inode));
        }
        sent.map_err(|error| self.fail(path, &error))
    }

    /// Sends all attributes that have waited for at least `longer`.
    pub(crate) fn send_all_attributes(&self, longer: Duration) {
        for path in self.deferred.since(longer) {
            // The listener has received the error, and the end of the mount reports it.
            let _refused = self.send_attributes(&path);
        }
    }

    /// Changes the attributes of a removed entry that is still in use, such as an open FIFO.
    fn set_removed(&self, inode: u64, changes: &SetAttributes) -> Option<()> {
        let mut entry = self.inodes.last(inode)?;
        let unix = entry.unix.as_mut().filter(|unix| unix.links == 0)?;
        let time = |wanted: SetTime| match wanted {
            SetTime::Now => SystemTime::now(),
            SetTime::At(time) => time,
        };
        unix.uid = changes.uid.unwrap_or(unix.uid);
        unix.gid = changes.gid.unwrap_or(unix.gid);
        unix.accessed = changes.accessed.map_or(unix.accessed, time);
        unix.changed = SystemTime::now();
        entry.modified = changes.modified.map(time).or(entry.modified);
        entry.mode = changes.mode.or(entry.mode);
        self.describe(inode, entry);
        Some(())
    }

    /// Whether the change only sets the time of an unpublished object to now, which publishing
    /// does.
    fn is_touch_of_written(&self, inode: u64, changes: &SetAttributes, error: &Error) -> bool {
        let now = |time: Option<SetTime>| time.is_none_or(|time| time == SetTime::Now);
        error.kind() == ErrorKind::Unsupported
            && (changes.mode, changes.uid, changes.gid) == (None, None, None)
            && now(changes.accessed)
            && now(changes.modified)
            && self.files.find_of(inode, |open| open.writes && open.file().is_dirty()).is_some()
    }

    /// Whether attributes that the store does not keep already have the requested values.
    fn is_as_shown(&self, inode: u64, changes: &SetAttributes) -> bool {
        let Some(entry) = self.inodes.last(inode) else { return false };
        let shown = self.shown(inode, &entry);
        let same = |time: Option<SetTime>, shown| time.is_none_or(|time| time == SetTime::At(shown));
        changes.mode.is_none_or(|mode| mode == u32::from(shown.perm))
            && changes.uid.is_none_or(|uid| uid == shown.uid)
            && changes.gid.is_none_or(|gid| gid == shown.gid)
            && same(changes.modified, shown.mtime)
            && (changes.accessed.is_none() || changes.modified.is_some())
    }

    /// Clears set-user-id and set-group-id after a change by an unprivileged caller of this group.
    /// The store's own kernel clears file capabilities with the write.
    pub(super) fn kill_privileges(&self, inode: u64, group: u32) -> Result<(), Errno> {
        let Some(entry) = self.inodes.last(inode) else { return Ok(()) };
        let (EntryKind::File, Some(mode)) = (entry.kind, entry.mode) else { return Ok(()) };
        let left = without_privileges(mode, entry.unix.is_some_and(|unix| unix.gid == group));
        if left == mode {
            return Ok(());
        }
        self.set_rest(inode, &SetAttributes { mode: Some(left), ..SetAttributes::default() })?;
        self.describe(inode, Entry { mode: Some(left), ..entry });
        Ok(())
    }

    fn describe(&self, inode: u64, entry: Entry) {
        self.inodes.settle(inode, entry, self.inodes.changes(inode));
    }
}

/// Permission bits after a write by an unprivileged caller, who may be in the file's group.
fn without_privileges(mode: u32, of_group: bool) -> u32 {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2000;
    const GROUP_RUNS: u32 = 0o010;
    // Without group execute permission, set-group-id once meant mandatory locking.
    let kept = if of_group && mode & GROUP_RUNS == 0 { SET_GID } else { 0 };
    mode & !(SET_UID | SET_GID) | mode & kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_clear_the_same_privileges_as_linux() {
        for (before, of_group, after) in [
            (0o644, true, 0o644),
            (0o4755, true, 0o755),
            (0o2755, true, 0o755),
            (0o6777, false, 0o777),
            (0o2644, true, 0o2644),
            (0o2644, false, 0o644),
            (0o6644, true, 0o2644),
        ] {
            assert_eq!(without_privileges(before, of_group), after, "{before:o}");
        }
    }
}
