//! Creating, removing and renaming.

use std::ffi::OsStr;
use std::path::Path;

use bowwave_engine::backend::{EntryKind, Error, ErrorKind, Owner, Rename, Writes};
use bowwave_engine::{File, Namespace as _, OpenOptions, Store};
use fuser::Errno;

use super::{Found, OpenHandle, Operations};
use crate::attributes::{device_from, kind_of};
use crate::inodes::Opened;

/// Credentials and mode of a create request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Type and permission bits, before the umask.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl Operations {
    /// Creates and opens a file. ESTALE if it exists and `exclusive` is not set: the kernel then
    /// looks it up, checks permissions and opens it.
    pub(crate) fn create(
        &self,
        parent: u64,
        name: &OsStr,
        caller: Caller,
        exclusive: bool,
        process: u32,
    ) -> Result<(Found, u64), Errno> {
        let _guard = self.order.change(parent);
        let path = self.child(parent, name)?;
        self.check_journal(&path)?;
        let (mode, owner) = (self.mode_in(parent, caller), self.owner(caller));
        let new = OpenOptions { write: true, create: true, exclusive, mode, owner, ..OpenOptions::default() };
        let created = self.layout.names().and_then(|store| create(store, &path, &new));
        let file = match created {
            Err(error) if error.kind() == ErrorKind::Exists && !exclusive => return Err(Errno::ESTALE),
            created => created.map_err(|error| self.fail(&path, &error))?,
        };
        self.note_change();
        let entry = match file.attributes().map_err(Error::from) {
            Err(error) if error.kind() == ErrorKind::Unsupported => self.layout.stat(&path),
            described => described,
        };
        let entry = entry.map_err(|error| self.fail(&path, &error))?;
        let closing = self.closing(true, process);
        let mut open = OpenHandle::new(0, path, file, (true, process), closing);
        // The name may still have a stale inode; the second lookup finds it unbound.
        for _ in 0..2 {
            let found = self.remember(parent, name, &entry)?;
            let number = found.attributes.ino.0;
            match self.inodes.opened(number, &open.opening(), self.inodes.changes(number)) {
                Opened::Stale | Opened::Again => self.inodes.forget(number, 1),
                Opened::Same | Opened::Other | Opened::Apart => {
                    open.inode = number;
                    return Ok((found, self.files.insert(open)));
                }
            }
        }
        Err(Errno::ESTALE)
    }

    /// Creates a directory.
    pub(crate) fn create_directory(&self, parent: u64, name: &OsStr, caller: Caller) -> Result<Found, Errno> {
        let (mode, owner) = (self.mode_in(parent, caller), self.owner(caller));
        self.create_entry(parent, name, |store, path| store.create_directory(path, mode, owner))
    }

    /// Creates an empty or special file.
    pub(crate) fn create_node(
        &self,
        parent: u64,
        name: &OsStr,
        caller: Caller,
        device: u32,
    ) -> Result<Found, Errno> {
        let kind = kind_of(caller.mode).ok_or(Errno::EINVAL)?;
        let device = match kind {
            EntryKind::CharDevice | EntryKind::BlockDevice => device_from(device),
            _ => 0,
        };
        let (mode, owner) = (self.mode_in(parent, caller), self.owner(caller));
        self.create_entry(parent, name, |store, path| store.create_node(path, kind, mode, device, owner))
    }

    /// Creates a symbolic link.
    pub(crate) fn create_link(
        &self,
        parent: u64,
        name: &OsStr,
        caller: Caller,
        target: &Path,
    ) -> Result<Found, Errno> {
        let owner = self.owner(caller);
        self.create_entry(parent, name, |store, path| store.symlink(target, path, owner))
    }

    /// Creates a hard link.
    pub(crate) fn link(&self, inode: u64, parent: u64, name: &OsStr) -> Result<Found, Errno> {
        let mut known = self.inodes.parent(inode).ok_or_else(|| self.unlinked(inode))?;
        let _guard = loop {
            let guard = self.order.change_both(known, parent);
            match self.inodes.parent(inode).ok_or_else(|| self.unlinked(inode))? {
                still if still == known => break guard,
                other => known = other,
            }
        };
        let from = self.inodes.path(inode).ok_or_else(|| self.unlinked(inode))?;
        self.create_entry_here(parent, name, |store, path| store.link(&from, path))
    }

    fn create_entry(
        &self,
        parent: u64,
        name: &OsStr,
        create: impl FnOnce(&Store, &Path) -> Result<(), Error>,
    ) -> Result<Found, Errno> {
        let _guard = self.order.change(parent);
        self.create_entry_here(parent, name, create)
    }

    fn create_entry_here(
        &self,
        parent: u64,
        name: &OsStr,
        create: impl FnOnce(&Store, &Path) -> Result<(), Error>,
    ) -> Result<Found, Errno> {
        let path = self.child(parent, name)?;
        let created = self.layout.names().and_then(|store| create(store, &path));
        self.note_change();
        let entry =
            created.and_then(|()| self.layout.stat(&path)).map_err(|error| self.fail(&path, &error))?;
        self.remember(parent, name, &entry)
    }

    /// Removes an entry that is not a directory.
    pub(crate) fn remove_file(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        self.remove(parent, name, |store, path| store.remove_file(path))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        self.remove(parent, name, |store, path| store.remove_directory(path))
    }

    fn remove(
        &self,
        parent: u64,
        name: &OsStr,
        remove: impl FnOnce(&Store, &Path) -> Result<(), Error>,
    ) -> Result<(), Errno> {
        let _guard = self.order.change(parent);
        let path = self.child(parent, name)?;
        let going = self.inodes.begin_remove(parent, name);
        let removed = self.layout.names().and_then(|store| remove(store, &path));
        self.unless_removed(going, &path, removed)?;
        self.inodes.removed(parent, name);
        self.deferred.removed(&path);
        self.note_change();
        Ok(())
    }

    /// Renames an entry.
    pub(crate) fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), how: Rename) -> Result<(), Errno> {
        let _guard = match self.inodes.peek_kind(from.0, from.1) {
            None | Some(EntryKind::Directory) => self.order.change_all(),
            Some(_) if how == Rename::Exchange => self.order.change_all(),
            Some(_) => self.order.change_both(from.0, to.0),
        };
        let (old, new) = (self.child(from.0, from.1)?, self.child(to.0, to.1)?);
        let replaces = how == Rename::Replace && !self.inodes.are_links(from, to);
        let going = replaces.then(|| self.inodes.begin_remove(to.0, to.1)).flatten();
        // An object store renames by a copy, which stores pending attributes too.
        let one_at_a_time = self.deferred.sending.lock();
        let attributes = self.deferred.get(&old);
        let renamed = self.layout.names().and_then(|store| match &attributes {
            Some(attributes) if how != Rename::Exchange => store.rename_with(&old, &new, how, attributes),
            _ => store.rename(&old, &new, how),
        });
        self.unless_removed(going, &old, renamed)?;
        self.deferred.renamed(&old, &new);
        drop(one_at_a_time);
        match how {
            Rename::Exchange => self.inodes.exchanged(from, to),
            Rename::Replace | Rename::NoReplace => self.inodes.renamed(from, to),
        }
        self.note_change();
        Ok(())
    }

    /// Converts the store's result of a change that removes the last name of `going`. If the change
    /// failed, cancels the removal.
    fn unless_removed(
        &self,
        going: Option<u64>,
        path: &Path,
        changed: Result<(), Error>,
    ) -> Result<(), Errno> {
        changed.map_err(|error| {
            if let Some(number) = going {
                self.inodes.cancel_remove(number);
            }
            self.fail(path, &error)
        })
    }

    /// Permission bits of a new entry. A default access control list of the directory replaces the
    /// umask.
    fn mode_in(&self, parent: u64, caller: Caller) -> u32 {
        let bits = caller.mode & 0o7777;
        let masked = bits & !caller.umask;
        if masked == bits || !self.is_file_system() {
            return masked;
        }
        let path = self.inodes.path(parent).unwrap_or_default();
        let (store, place) = self.layout.at(&path);
        if store.xattr(place, OsStr::new(DEFAULT_ACCESS_LIST)).is_ok() { bits } else { masked }
    }

    /// The owner to request from the store; `None` if it is this process.
    fn owner(&self, caller: Caller) -> Option<Owner> {
        ((caller.uid, caller.gid) != self.defaults.process)
            .then_some(Owner { uid: caller.uid, gid: caller.gid })
    }
}

/// Creates a file. Fails as `Exists` if it is there, also without `exclusive`.
fn create(store: &Store, path: &Path, new: &OpenOptions) -> Result<File, Error> {
    if store.writes() != Writes::Whole {
        return Ok(store.open_with(path, &OpenOptions { exclusive: true, ..*new })?);
    }
    // Without `exclusive`, other writers may create the object too until it is published; the last
    // one wins.
    let file = store.open_with(path, new)?;
    if file.upload().is_some_and(|upload| upload.is_new()) {
        return Ok(file);
    }
    Err(Error::new(ErrorKind::Exists, format!("{}: is there already", path.display())))
}

/// The extended attribute with a directory's default access control list.
const DEFAULT_ACCESS_LIST: &str = "system.posix_acl_default";
