//! Making, removing and renaming.

use std::ffi::OsStr;
use std::path::Path;

use bowwave_engine::backend::{EntryKind, Error, ErrorKind, Owner, Rename};
use fuser::Errno;

use super::{Found, OpenHandle, Operations};
use crate::attributes::{device_from, kind_of};
use crate::inodes::Opened;
use crate::tree::{NewFile, OpenFile, Tree};

/// Who makes something, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Type and permission bits, before the umask.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl<T: Tree> Operations<T> {
    /// Makes a file that is not there, and opens it. ESTALE if it is there after all, and may be: the kernel then looks it
    /// up and opens it, checking permissions.
    pub(crate) fn create(
        &self,
        parent: u64,
        name: &OsStr,
        caller: Caller,
        exclusive: bool,
        process: u32,
    ) -> Result<(Found, u64), Errno> {
        let _turn = self.order.change(parent);
        let path = self.child(parent, name)?;
        self.check_journal(&path)?;
        let new = NewFile { mode: self.mode_in(parent, caller), owner: self.owner(caller), exclusive };
        let made = self.layout.names().and_then(|tree| tree.open_write(&path, Some(new)));
        let file = match made {
            Err(error) if error.kind() == ErrorKind::Exists && !exclusive => return Err(Errno::ESTALE),
            made => made.map_err(|error| self.fail(&path, &error))?,
        };
        self.note_change();
        let entry = match file.attributes() {
            Err(error) if error.kind() == ErrorKind::Unsupported => self.layout.stat(&path),
            described => described,
        };
        let entry = entry.map_err(|error| self.fail(&path, &error))?;
        let closing = self.closing(true, process);
        let mut open = OpenHandle { inode: 0, path: path.into(), file, writes: true, closing, apart: false };
        // Whatever else the name stood for, which may be gone without our knowing, does so no more at the second look.
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

    /// Makes a folder.
    pub(crate) fn make_folder(&self, parent: u64, name: &OsStr, caller: Caller) -> Result<Found, Errno> {
        let (mode, owner) = (self.mode_in(parent, caller), self.owner(caller));
        self.make(parent, name, |tree, path| tree.make_directory(path, mode, owner))
    }

    /// Makes an empty file or a special one.
    pub(crate) fn make_node(
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
        self.make(parent, name, |tree, path| tree.make_node(path, kind, mode, device, owner))
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(
        &self,
        parent: u64,
        name: &OsStr,
        caller: Caller,
        target: &Path,
    ) -> Result<Found, Errno> {
        let owner = self.owner(caller);
        self.make(parent, name, |tree, path| tree.symlink(target, path, owner))
    }

    /// Gives a file another name.
    pub(crate) fn link(&self, inode: u64, parent: u64, name: &OsStr) -> Result<Found, Errno> {
        let mut known = self.inodes.parent(inode).ok_or_else(|| self.gone(inode))?;
        let _turn = loop {
            let turn = self.order.change_both(known, parent);
            match self.inodes.parent(inode).ok_or_else(|| self.gone(inode))? {
                still if still == known => break turn,
                other => known = other,
            }
        };
        let from = self.inodes.path(inode).ok_or_else(|| self.gone(inode))?;
        self.make_here(parent, name, |tree, path| tree.link(&from, path))
    }

    fn make(
        &self,
        parent: u64,
        name: &OsStr,
        make: impl FnOnce(&T, &Path) -> Result<(), Error>,
    ) -> Result<Found, Errno> {
        let _turn = self.order.change(parent);
        self.make_here(parent, name, make)
    }

    fn make_here(
        &self,
        parent: u64,
        name: &OsStr,
        make: impl FnOnce(&T, &Path) -> Result<(), Error>,
    ) -> Result<Found, Errno> {
        let path = self.child(parent, name)?;
        let made = self.layout.names().and_then(|tree| make(tree, &path));
        self.note_change();
        let entry = made.and_then(|()| self.layout.stat(&path)).map_err(|error| self.fail(&path, &error))?;
        self.remember(parent, name, &entry)
    }

    /// Removes what is not a folder.
    pub(crate) fn remove_file(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        self.remove(parent, name, |tree, path| tree.remove_file(path))
    }

    /// Removes an empty folder.
    pub(crate) fn remove_folder(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        self.remove(parent, name, |tree, path| tree.remove_directory(path))
    }

    fn remove(
        &self,
        parent: u64,
        name: &OsStr,
        remove: impl FnOnce(&T, &Path) -> Result<(), Error>,
    ) -> Result<(), Errno> {
        let _turn = self.order.change(parent);
        let path = self.child(parent, name)?;
        let going = self.inodes.goes(parent, name);
        let removed = self.layout.names().and_then(|tree| remove(tree, &path));
        self.unless_gone(going, &path, removed)?;
        self.inodes.removed(parent, name);
        self.deferred.removed(&path);
        self.note_change();
        Ok(())
    }

    /// Gives an entry another name.
    pub(crate) fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), how: Rename) -> Result<(), Errno> {
        let _turn = match self.inodes.peek_kind(from.0, from.1) {
            None | Some(EntryKind::Directory) => self.order.change_all(),
            Some(_) if how == Rename::Exchange => self.order.change_all(),
            Some(_) => self.order.change_both(from.0, to.0),
        };
        let (old, new) = (self.child(from.0, from.1)?, self.child(to.0, to.1)?);
        let replaces = how == Rename::Replace && !self.inodes.are_one(from, to);
        let going = replaces.then(|| self.inodes.goes(to.0, to.1)).flatten();
        // The copy that the rename is stores attributes, too.
        let one_at_a_time = self.deferred.turn();
        let attributes = self.deferred.get(&old);
        let renamed = self.layout.names().and_then(|tree| match &attributes {
            Some(attributes) if how != Rename::Exchange => tree.rename_with(&old, &new, how, attributes),
            _ => tree.rename(&old, &new, how),
        });
        self.unless_gone(going, &old, renamed)?;
        self.deferred.renamed(&old, &new);
        drop(one_at_a_time);
        match how {
            Rename::Exchange => self.inodes.exchanged(from, to),
            Rename::Replace | Rename::NoReplace => self.inodes.renamed(from, to),
        }
        self.note_change();
        Ok(())
    }

    /// Passes on what the store said to a change that takes the last name of `going` away.
    fn unless_gone(&self, going: Option<u64>, path: &Path, changed: Result<(), Error>) -> Result<(), Errno> {
        changed.map_err(|error| {
            if let Some(number) = going {
                self.inodes.stays(number);
            }
            self.fail(path, &error)
        })
    }

    /// Permission bits for something new in a folder: a default access list of the folder takes the umask's place.
    fn mode_in(&self, parent: u64, caller: Caller) -> u32 {
        let bits = caller.mode & 0o7777;
        let masked = bits & !caller.umask;
        if masked == bits || !self.is_file_system() {
            return masked;
        }
        let path = self.inodes.path(parent).unwrap_or_default();
        let (tree, place) = self.layout.at(&path);
        if tree.xattr(place, OsStr::new(DEFAULT_ACCESS_LIST)).is_ok() { bits } else { masked }
    }

    /// The owner to ask the store for; nothing to ask where it is ourselves.
    fn owner(&self, caller: Caller) -> Option<Owner> {
        ((caller.uid, caller.gid) != self.defaults.process)
            .then_some(Owner { uid: caller.uid, gid: caller.gid })
    }
}

/// The extended attribute that holds what new entries of a folder get.
const DEFAULT_ACCESS_LIST: &str = "system.posix_acl_default";
