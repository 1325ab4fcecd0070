//! Extended attributes, and how much room there is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bowwave_engine::backend::{ErrorKind, SetXattr, StatFs};
use fuser::Errno;

use super::Operations;
use crate::layout::NAME_BYTES_MAX;
use crate::tree::Tree;

impl<T: Tree> Operations<T> {
    /// Reads an extended attribute.
    pub(crate) fn xattr(&self, inode: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let (path, _turn) = self.path(inode)?;
        let (tree, place) = self.layout.at(&path);
        tree.xattr(place, name).map_err(|error| match error.kind() {
            // Asked for with every `ls -l`: no news.
            ErrorKind::Unsupported => Errno::ENOTSUP,
            _ => self.fail(&path, &error),
        })
    }

    /// The names of the extended attributes, each with a zero behind it.
    pub(crate) fn xattr_names(&self, inode: u64) -> Result<Vec<u8>, Errno> {
        let (path, _turn) = self.path(inode)?;
        let (tree, place) = self.layout.at(&path);
        let names = match tree.list_xattrs(place) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Vec::new(),
            names => names.map_err(|error| self.fail(&path, &error))?,
        };
        Ok(names.iter().flat_map(|name| name.as_bytes().iter().copied().chain([0])).collect())
    }

    /// Sets an extended attribute. `flags` are those of `setxattr`.
    pub(crate) fn set_xattr(&self, inode: u64, name: &OsStr, value: &[u8], flags: i32) -> Result<(), Errno> {
        const CREATE: i32 = 1;
        const REPLACE: i32 = 2;
        let how = match flags {
            0 => SetXattr::Any,
            CREATE => SetXattr::Create,
            REPLACE => SetXattr::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let (path, _turn) = self.path(inode)?;
        let (tree, place) = self.layout.at(&path);
        self.note_change();
        tree.set_xattr(place, name, value, how).map_err(|error| self.fail(&path, &error))
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, inode: u64, name: &OsStr) -> Result<(), Errno> {
        let (path, _turn) = self.path(inode)?;
        let (tree, place) = self.layout.at(&path);
        self.note_change();
        tree.remove_xattr(place, name).map_err(|error| self.fail(&path, &error))
    }

    /// How much room there is. A store that does not know has none if it is only read, else more than anyone writes:
    /// programs that look first must not be kept from it.
    pub(crate) fn room(&self) -> Result<StatFs, Errno> {
        match self.layout.tree().statfs() {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let blocks = if self.is_writable() { UNKNOWN_ROOM_BYTES / BLOCK_BYTES } else { 0 };
                Ok(StatFs {
                    block_bytes: BLOCK_BYTES,
                    blocks,
                    blocks_free: blocks,
                    blocks_available: blocks,
                    files: 0,
                    files_free: 0,
                    name_bytes_max: NAME_BYTES_MAX as u32,
                })
            }
            room => room.map_err(|error| self.fail(std::path::Path::new(""), &error)),
        }
    }
}

const BLOCK_BYTES: u64 = 4096;

/// What `df` shows of a store that takes all there is: 1 PiB.
const UNKNOWN_ROOM_BYTES: u64 = 1 << 50;
