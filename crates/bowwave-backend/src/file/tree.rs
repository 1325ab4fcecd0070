//! Names: directories, links, renames and removals.

use rustix::fs::{AtFlags, Dev, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use super::attributes;
use super::owner::Acting;
use super::root::At;
use crate::{EntryKind, Owner, Rename};

/// Result of a rustix call.
type Answer<T> = Result<T, Errno>;

/// Creates a directory.
pub(super) fn create_directory(at: &At<'_>, mode: u32, owner: Option<Owner>) -> Answer<()> {
    let acting = Acting::begin(owner)?;
    rustix::fs::mkdirat(at.directory(), at.name, Mode::from_raw_mode(mode & 0o7777))?;
    drop(acting);
    correct_mode(at, mode)
}

/// Creates an empty file or a special one.
pub(super) fn create_node(
    at: &At<'_>,
    kind: EntryKind,
    mode: u32,
    special_device: u64,
    owner: Option<Owner>,
) -> Answer<()> {
    let kind = match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice => FileType::CharacterDevice,
        EntryKind::BlockDevice => FileType::BlockDevice,
        EntryKind::Directory | EntryKind::Link => return Err(Errno::INVAL),
    };
    let acting = Acting::begin(owner)?;
    rustix::fs::mknodat(
        at.directory(),
        at.name,
        kind,
        Mode::from_raw_mode(mode & 0o7777),
        special_device as Dev,
    )?;
    drop(acting);
    correct_mode(at, mode)
}

/// Creates a symbolic link.
pub(super) fn symlink(target: &std::path::Path, at: &At<'_>, owner: Option<Owner>) -> Answer<()> {
    let _acting = Acting::begin(owner)?;
    rustix::fs::symlinkat(target, at.directory(), at.name)
}

/// Creates a second name for a file; does not follow a link.
pub(super) fn link(from: &At<'_>, to: &At<'_>) -> Answer<()> {
    rustix::fs::linkat(from.directory(), from.name, to.directory(), to.name, AtFlags::empty())
}

/// Renames within the store.
pub(super) fn rename(from: &At<'_>, to: &At<'_>, how: Rename) -> Answer<()> {
    let flags = match how {
        // The call without flags, which every file system supports.
        Rename::Replace => return rustix::fs::renameat(from.directory(), from.name, to.directory(), to.name),
        Rename::NoReplace => RenameFlags::NOREPLACE,
        Rename::Exchange => RenameFlags::EXCHANGE,
    };
    rustix::fs::renameat_with(from.directory(), from.name, to.directory(), to.name, flags)
}

/// Removes a directory, or another entry.
pub(super) fn remove(at: &At<'_>, directory: bool) -> Answer<()> {
    let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(at.directory(), at.name, flags)
}

/// The mode to set on an entry that was created with `wanted` and got `made`, because this
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

fn correct_mode(at: &At<'_>, wanted: u32) -> Answer<()> {
    let made = rustix::fs::statat(at.directory(), at.name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
    match without_umask(at, made, wanted) {
        Some(mode) => attributes::set_mode(at, mode),
        None => Ok(()),
    }
}

/// This process's umask, from the list of its properties: `umask` would also set it, for all
/// threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o777)
}
