//! Encodes directory listings for the kernel.

use std::time::Duration;

use bowwave_engine::backend::{Entry, WillRead};
use fuser::{Errno, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use crate::attributes::file_type;
use crate::inodes::ROOT;
use crate::operations::{Found, Listing, Operations};

/// Lists names and types (READDIR).
pub(super) fn names(
    operations: &Operations,
    inode: INodeNo,
    handle: u64,
    offset: u64,
    mut reply: ReplyDirectory,
) {
    let listing = match operations.listing(handle, offset) {
        Ok(listing) => listing,
        Err(error) => return reply.error(error),
    };
    for position in positions(offset, listing.entries.len()) {
        let full = match position.checked_sub(DOTS.len()).map(|index| &listing.entries[index]) {
            None => reply.add(inode, position as u64 + 1, FileType::Directory, DOTS[position]),
            Some(entry) => {
                let number = operations.inodes.peek(inode.0, &entry.name);
                let number =
                    number.or_else(|| entry.unix.map(|unix| unix.inode).filter(|&inode| inode > ROOT));
                let number = INodeNo(number.unwrap_or(UNKNOWN_INODE));
                reply.add(number, position as u64 + 1, file_type(entry.kind), &entry.name)
            }
        };
        if full {
            break;
        }
    }
    reply.ok();
}

/// Lists names with attributes, as if each had been looked up (READDIRPLUS).
pub(super) fn entries(
    operations: &Operations,
    inode: INodeNo,
    handle: u64,
    offset: u64,
    mut reply: ReplyDirectoryPlus,
) {
    let listed = operations.listing(handle, offset);
    let (listing, own) = match listed.and_then(|listing| Ok((listing, operations.last_attributes(inode.0)?)))
    {
        Ok(listing) => listing,
        Err(error) => return reply.error(error),
    };
    let ttl = operations.options.ttl;
    for position in positions(offset, listing.entries.len()) {
        let next = position as u64 + 1;
        let full = match position.checked_sub(DOTS.len()).map(|index| &listing.entries[index]) {
            // The kernel counts no lookup for `.` and `..`.
            None => reply.add(inode, next, DOTS[position], &ttl, &own, Generation(0)),
            Some(entry) => match lookup_listed(operations, inode.0, &listing, entry) {
                Ok(found) => {
                    let number = found.attributes.ino;
                    let full =
                        reply.add(number, next, &entry.name, &found.ttl, &found.attributes, Generation(0));
                    if full {
                        operations.inodes.forget(number.0, 1);
                    }
                    full
                }
                // Removed since it was listed.
                Err(_) => false,
            },
        };
        if full {
            break;
        }
    }
    reply.ok();
}

/// Looks up a listed entry for the kernel. If the listing may be out of date, requests its
/// attributes again, or lets the kernel request them when a program needs them.
fn lookup_listed(
    operations: &Operations,
    directory: u64,
    listing: &Listing,
    entry: &Entry,
) -> Result<Found, Errno> {
    if operations.is_fresh(listing, directory, entry)
        && !operations.inodes.is_written(directory, &entry.name, entry)
    {
        return operations.remember(directory, &entry.name, entry);
    }
    if operations.may_reply_unconfirmed(listing, directory, &entry.name) {
        let found = operations.remember(directory, &entry.name, entry)?;
        return Ok(Found { ttl: Duration::ZERO, name_ttl: Duration::ZERO, ..found });
    }
    match operations.lookup(directory, &entry.name, WillRead::Any) {
        Err(error) if error.code() != Errno::ENOENT.code() => {
            operations.remember(directory, &entry.name, entry)
        }
        found => found,
    }
}

/// Remaining positions in a directory: `.` and `..`, then the entries.
fn positions(offset: u64, entries: usize) -> std::ops::Range<usize> {
    let end = DOTS.len() + entries;
    usize::try_from(offset).unwrap_or(end).min(end)..end
}

/// The first two entries of every directory.
const DOTS: [&str; 2] = [".", ".."];

/// FUSE's number for an unknown inode.
const UNKNOWN_INODE: u64 = 0xffff_ffff;
