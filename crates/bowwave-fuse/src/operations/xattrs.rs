//! Extended attributes and available space.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bowwave_engine::Namespace as _;
use bowwave_engine::backend::{ErrorKind, SetXattr, StatFs};
use fuser::Errno;

use super::Operations;
use crate::layout::NAME_BYTES_MAX;

impl Operations {
    /// Reads an extended attribute.
    pub(crate) fn xattr(&self, inode: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let (path, _guard) = self.path(inode)?;
        let (store, place) = self.layout.at(&path);
        store.xattr(place, name).map_err(|error| match error.kind() {
            // Every `ls -l` requests these: do not report.
            ErrorKind::Unsupported => Errno::ENOTSUP,
            _ => self.fail(&path, &error),
        })
    }

    /// The names of the extended attributes, each NUL-terminated.
    pub(crate) fn xattr_names(&self, inode: u64) -> Result<Vec<u8>, Errno> {
        let (path, _guard) = self.path(inode)?;
        let (store, place) = self.layout.at(&path);
        let names = match store.list_xattrs(place) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Vec::new(),
            names => names.map_err(|error| self.fail(&path, &error))?,
        };
        Ok(names.iter().flat_map(|name| name.as_bytes().iter().copied().chain([0])).collect())
    }

    /// Sets an extended attribute with the `flags` of `setxattr`.
    pub(crate) fn set_xattr(&self, inode: u64, name: &OsStr, value: &[u8], flags: i32) -> Result<(), Errno> {
        const CREATE: i32 = 1;
        const REPLACE: i32 = 2;
        let how = match flags {
            0 => SetXattr::Any,
            CREATE => SetXattr::Create,
            REPLACE => SetXattr::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let (path, _guard) = self.path(inode)?;
        let (store, place) = self.layout.at(&path);
        self.note_change();
        store.set_xattr(place, name, value, how).map_err(|error| self.fail(&path, &error))
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, inode: u64, name: &OsStr) -> Result<(), Errno> {
        let (path, _guard) = self.path(inode)?;
        let (store, place) = self.layout.at(&path);
        self.note_change();
        store.remove_xattr(place, name).map_err(|error| self.fail(&path, &error))
    }

    /// Total and available space. For a store that does not report it: none if read-only, otherwise
    /// a large value, so that programs that check before they write succeed.
    pub(crate) fn statfs(&self) -> Result<StatFs, Errno> {
        match self.layout.store().statfs() {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let blocks = if self.is_writable() { UNKNOWN_SPACE_BYTES / BLOCK_BYTES } else { 0 };
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
            statfs => statfs.map_err(|error| self.fail(std::path::Path::new(""), &error)),
        }
    }
}

const BLOCK_BYTES: u64 = 4096;

/// Bytes that `df` shows for a store without a limit: 1 PiB.
const UNKNOWN_SPACE_BYTES: u64 = 1 << 50;
