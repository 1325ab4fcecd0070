//! The FUSE protocol's side of a mount: every request is handed to a lane, and answered.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::attributes::file_type;
use crate::inodes::ROOT;
use crate::lanes::Lanes;
use crate::layout::NAME_BYTES_MAX;
use crate::operations::Operations;
use crate::options::{KernelCache, REQUEST_BYTES_MAX};
use crate::tree::Tree;

/// What fuser calls.
pub(crate) struct Requests<T: Tree> {
    operations: Arc<Operations<T>>,
    lanes: Lanes,
}

impl<T: Tree> Requests<T> {
    pub(crate) fn new(operations: Arc<Operations<T>>, lanes: Lanes) -> Self {
        Self { operations, lanes }
    }

    fn run(&self, job: impl FnOnce(&Operations<T>) + Send + 'static) {
        let operations = Arc::clone(&self.operations);
        self.lanes.run(move || job(&operations));
    }
}

impl<T: Tree> Filesystem for Requests<T> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let options = &self.operations.options;
        // Sets the largest request, for reads too. A refusal names the nearest value that the kernel takes.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(nearest) = config.set_max_readahead(options.readahead_bytes().max(1)) {
            let _ = config.set_max_readahead(nearest);
        }
        // The kernel counts buffered reads as background: as many as we serve must reach us, and as many again
        // may wait. From there on it defers readahead that nobody waits for yet.
        let served = u16::try_from(options.requests_max.clamp(1, 16_384)).expect("clamped");
        let _ = config.set_max_background(served * 2);
        let _ = config.set_congestion_threshold(served);
        // Each is an improvement where the kernel has it.
        for capability in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            let _ = config.add_capabilities(capability);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.run(move |operations| {
            let ttl = operations.options.ttl;
            match operations.lookup(parent.0, &name) {
                Ok(attributes) => reply.entry(&ttl, &attributes, Generation(0)),
                // Inode 0 lets the kernel remember that there is nothing.
                Err(error) if error.code() == Errno::ENOENT.code() => {
                    match operations.last_attributes(ROOT) {
                        Ok(root) => {
                            reply.entry(&ttl, &FileAttr { ino: INodeNo(0), ..root }, Generation(0));
                        }
                        Err(error) => reply.error(error),
                    }
                }
                Err(error) => reply.error(error),
            }
        });
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        self.operations.inodes.forget(inode.0, lookups);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.run(move |operations| match operations.attributes(inode.0) {
            Ok(attributes) => reply.attr(&operations.options.ttl, &attributes),
            Err(error) => reply.error(error),
        });
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.run(move |operations| match operations.read_link(inode.0) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error),
        });
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        self.run(move |operations| {
            // An inode is one version of an object, so that its cached pages are always good.
            let cache = match operations.options.kernel_cache {
                KernelCache::On => FopenFlags::FOPEN_KEEP_CACHE,
                KernelCache::Off => FopenFlags::FOPEN_DIRECT_IO,
            };
            match operations.open(inode.0) {
                Ok(handle) => reply.opened(FileHandle(handle), cache | FopenFlags::FOPEN_NOFLUSH),
                Err(error) => reply.error(error),
            }
        });
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(move |operations| {
            operations.read(handle.0, offset, size, |bytes| match bytes {
                Ok(bytes) => reply.data(bytes),
                Err(error) => reply.error(error),
            });
        });
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.operations.release(handle.0);
        reply.ok();
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.operations.open_folder(inode.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.run(move |operations| {
            let (path, entries) = match operations.listing(handle.0, offset) {
                Ok(listing) => listing,
                Err(error) => return reply.error(error),
            };
            for position in positions(offset, entries.len()) {
                let full = match position.checked_sub(DOTS.len()).map(|index| &entries[index]) {
                    None => reply.add(inode, position as u64 + 1, FileType::Directory, DOTS[position]),
                    Some(entry) => {
                        let number = operations.inodes.peek(&path.join(&entry.name));
                        let number = INodeNo(number.unwrap_or(UNKNOWN_INODE));
                        reply.add(number, position as u64 + 1, file_type(entry.kind), &entry.name)
                    }
                };
                if full {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.run(move |operations| {
            let listed = operations.listing(handle.0, offset);
            let (((path, entries), own), ttl) =
                match listed.and_then(|listing| Ok((listing, operations.last_attributes(inode.0)?))) {
                    Ok(listing) => (listing, operations.options.ttl),
                    Err(error) => return reply.error(error),
                };
            for position in positions(offset, entries.len()) {
                let next = position as u64 + 1;
                let full = match position.checked_sub(DOTS.len()).map(|index| &entries[index]) {
                    // The kernel counts no look-up for these two.
                    None => reply.add(inode, next, DOTS[position], &ttl, &own, Generation(0)),
                    Some(entry) => {
                        let attributes = operations.remember(&path.join(&entry.name), entry);
                        let full =
                            reply.add(attributes.ino, next, &entry.name, &ttl, &attributes, Generation(0));
                        if full {
                            operations.inodes.forget(attributes.ino.0, 1);
                        }
                        full
                    }
                };
                if full {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.operations.release_folder(handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = self.operations.layout.tree().bytes_total().unwrap_or(0).div_ceil(4096);
        reply.statfs(blocks, 0, 0, 0, 0, 4096, NAME_BYTES_MAX as u32, 4096);
    }

    fn access(&self, _request: &Request, _inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks the permission bits itself (`default_permissions`); this is for one that does not.
        if mask.contains(AccessFlags::W_OK) { reply.error(Errno::EROFS) } else { reply.ok() }
    }

    // What follows would change the tree. A read-only mount makes the kernel refuse it by itself; these answers
    // are for a mount that somebody remounted for writing.

    fn setattr(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _target: &Path,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _new_parent: INodeNo,
        _name: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }
}

/// Positions in a folder that are still to list: the two dots, then the entries.
fn positions(offset: u64, entries: usize) -> std::ops::Range<usize> {
    let end = DOTS.len() + entries;
    usize::try_from(offset).unwrap_or(end).min(end)..end
}

/// The first two entries of every folder.
const DOTS: [&str; 2] = [".", ".."];

/// What FUSE calls an inode number that is not known yet.
const UNKNOWN_INODE: u64 = 0xffff_ffff;
