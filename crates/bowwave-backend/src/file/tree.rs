//! Names: directories, links, attributes, renames and removals.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dev, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::FileBackend;
use super::attributes::{bytes, entry, set_mode, split_names, timestamps, xattr_flags};
use super::owner::Acting;
use super::root::{At, os_error};
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, Namespace, Owner, Rename, Result, SetAttributes, SetXattr,
    StatFs,
};

impl Namespace for FileBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let (at, name) = (self.root.at(path)?, path.file_name().unwrap_or_default());
        let stat = rustix::fs::statat(at.directory(), at.name, AtFlags::SYMLINK_NOFOLLOW);
        at.result(stat.map(|stat| entry(name, &stat)))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let directory = self.root.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let failed = |error| os_error(&self.root.place(path), error);
        let mut entries = Vec::new();
        let mut directory = Dir::new(directory).map_err(failed)?;
        while let Some(found) = directory.read() {
            let found = found.map_err(failed)?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match rustix::fs::statat(directory.fd().map_err(failed)?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => entries.push(entry(OsStr::from_bytes(name.to_bytes()), &stat)),
                // Removed between the two calls.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let at = self.root.at(path)?;
        match rustix::fs::readlinkat(at.directory(), at.name, Vec::new()) {
            Ok(target) => Ok(PathBuf::from(OsString::from_vec(target.into_bytes()))),
            Err(Errno::INVAL) => {
                Err(Error::new(ErrorKind::Unsupported, format!("{}: is not a link", at.place.display())))
            }
            Err(error) => Err(at.failed(error)),
        }
    }

    fn create_directory(&self, path: &Path, mode: u32, owner: Option<Owner>) -> Result<()> {
        create(&self.root.named(path)?, mode, owner, |at| {
            rustix::fs::mkdirat(at.directory(), at.name, Mode::from_raw_mode(mode & 0o7777))
        })
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let at = self.root.named(path)?;
        at.result(rustix::fs::unlinkat(at.directory(), at.name, AtFlags::empty()))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let at = self.root.named(path)?;
        at.result(rustix::fs::unlinkat(at.directory(), at.name, AtFlags::REMOVEDIR))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> Result<()> {
        let (from, to) = (self.root.named(from)?, self.root.named(to)?);
        let (old, new) = (from.directory(), to.directory());
        to.result(match how {
            // The call without flags, which every file system supports.
            Rename::Replace => rustix::fs::renameat(old, from.name, new, to.name),
            Rename::NoReplace => {
                rustix::fs::renameat_with(old, from.name, new, to.name, RenameFlags::NOREPLACE)
            }
            Rename::Exchange => {
                rustix::fs::renameat_with(old, from.name, new, to.name, RenameFlags::EXCHANGE)
            }
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (self.root.named(from)?, self.root.named(to)?);
        let flags = AtFlags::empty();
        to.result(rustix::fs::linkat(from.directory(), from.name, to.directory(), to.name, flags))
    }

    fn symlink(&self, target: &Path, path: &Path, owner: Option<Owner>) -> Result<()> {
        let at = self.root.named(path)?;
        let _acting = at.result(Acting::begin(owner))?;
        at.result(rustix::fs::symlinkat(target, at.directory(), at.name))
    }

    fn create_node(
        &self,
        path: &Path,
        kind: EntryKind,
        mode: u32,
        special_device: u64,
        owner: Option<Owner>,
    ) -> Result<()> {
        let at = self.root.named(path)?;
        let kind = match kind {
            EntryKind::File => FileType::RegularFile,
            EntryKind::Fifo => FileType::Fifo,
            EntryKind::Socket => FileType::Socket,
            EntryKind::CharDevice => FileType::CharacterDevice,
            EntryKind::BlockDevice => FileType::BlockDevice,
            EntryKind::Directory | EntryKind::Link => return Err(at.failed(Errno::INVAL)),
        };
        create(&at, mode, owner, |at| {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::mknodat(at.directory(), at.name, kind, mode, special_device as Dev)
        })
    }

    /// Changes attributes of the entry itself, even of a link. Owner first: changing it clears mode
    /// bits.
    fn set_attributes(&self, path: &Path, attributes: &SetAttributes) -> Result<()> {
        let at = self.root.at(path)?;
        let (uid, gid) = (attributes.uid.map(Uid::from_raw), attributes.gid.map(Gid::from_raw));
        if uid.is_some() || gid.is_some() || attributes.is_empty() {
            at.result(rustix::fs::chownat(at.directory(), at.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
        }
        if let Some(mode) = attributes.mode {
            at.result(set_mode(&at, Mode::from_raw_mode(mode & 0o7777)))?;
        }
        match timestamps(attributes) {
            Some(times) => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                at.result(rustix::fs::utimensat(at.directory(), at.name, &times, flags))
            }
            None => Ok(()),
        }
    }

    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        let at = self.root.at(path)?;
        at.result(bytes(|buffer| rustix::fs::lgetxattr(at.through_descriptor(), name, buffer)))
    }

    fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        let at = self.root.at(path)?;
        let names = bytes(|buffer| rustix::fs::llistxattr(at.through_descriptor(), buffer));
        Ok(split_names(&at.result(names)?))
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], how: SetXattr) -> Result<()> {
        let at = self.root.at(path)?;
        at.result(rustix::fs::lsetxattr(at.through_descriptor(), name, value, xattr_flags(how)))
    }

    fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        let at = self.root.at(path)?;
        at.result(rustix::fs::lremovexattr(at.through_descriptor(), name))
    }

    fn statfs(&self) -> Result<StatFs> {
        let room = rustix::fs::fstatvfs(self.root.directory())
            .map_err(|error| os_error(&self.root.place(Path::new("")), error))?;
        Ok(StatFs {
            block_bytes: room.f_frsize,
            blocks: room.f_blocks,
            blocks_free: room.f_bfree,
            blocks_available: room.f_bavail,
            files: room.f_files,
            files_free: room.f_ffree,
            name_bytes_max: u32::try_from(room.f_namemax).unwrap_or(u32::MAX),
        })
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let directory = self.root.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::fsync(directory).map_err(|error| os_error(&self.root.place(path), error))
    }
}

/// Creates an entry by `make` for `owner`, with exactly the permission bits of `mode`.
fn create(
    at: &At<'_>,
    mode: u32,
    owner: Option<Owner>,
    make: impl FnOnce(&At<'_>) -> std::result::Result<(), Errno>,
) -> Result<()> {
    let acting = at.result(Acting::begin(owner))?;
    at.result(make(at))?;
    drop(acting);
    let created = rustix::fs::statat(at.directory(), at.name, AtFlags::SYMLINK_NOFOLLOW);
    match without_umask(at, at.result(created)?.st_mode, mode) {
        Some(mode) => at.result(set_mode(at, mode)),
        None => Ok(()),
    }
}

/// The mode to set on an entry that was requested with `wanted` and got `made`, because this
/// process's umask applied to its caller's mode; `None` if it is correct.
pub(super) fn without_umask(at: &At<'_>, made: u32, wanted: u32) -> Option<Mode> {
    let missing = match wanted & !made & 0o777 {
        0 => return None,
        missing => missing & umask(),
    };
    // With a default ACL in the directory the ACL determines the mode, and no umask applies.
    let parent_acl = || {
        let parent = super::root::descriptor_path(&at.directory());
        rustix::fs::getxattr(parent, "system.posix_acl_default", &mut [0; 0]).is_ok()
    };
    (missing != 0 && !parent_acl()).then(|| Mode::from_raw_mode((made | missing) & 0o7777))
}

/// This process's umask, from the list of its properties: `umask` would also set it, for all
/// threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o777)
}
