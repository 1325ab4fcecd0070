//! The FUSE protocol's side of a mount: every request is handed to a lane, and answered.

mod listing;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bowwave_engine::backend::Rename;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;

use crate::attributes::set_time;
use crate::inodes::ROOT;
use crate::kernel;
use crate::lanes::Lanes;
use crate::operations::{Caller, Changes, Found, Open, Operations, Pages, Sync, Write};
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

    /// Runs a job that changes something; EROFS where nothing may be. The kernel sees to that by itself, unless somebody
    /// has remounted a read-only mount for writing.
    fn change(
        &self,
        reply: ReplyEmpty,
        job: impl FnOnce(&Operations<T>) -> Result<(), Errno> + Send + 'static,
    ) {
        if !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        self.run(move |operations| answer(reply, job(operations)));
    }

    /// As [`change`](Self::change), for a job that makes an entry.
    fn make(
        &self,
        reply: ReplyEntry,
        job: impl FnOnce(&Operations<T>) -> Result<Found, Errno> + Send + 'static,
    ) {
        if !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        self.run(move |operations| match job(operations) {
            Ok(found) => entry(operations, reply, &found),
            Err(error) => reply.error(error),
        });
    }
}

fn entry<T: Tree>(operations: &Operations<T>, reply: ReplyEntry, found: &Found) {
    reply.entry_with_ttls(&found.ttl, &operations.options.ttl, &found.attributes, Generation(0));
}

/// Tells the kernel an inode's attributes, and for how long to trust them.
fn attributes<T: Tree>(
    operations: &Operations<T>,
    reply: ReplyAttr,
    inode: u64,
    ask: impl FnOnce(&Operations<T>, u64) -> Result<FileAttr, Errno>,
) {
    let ttl = operations.trust(inode);
    match ask(operations, inode) {
        Ok(attributes) => reply.attr(&ttl, &attributes),
        Err(error) => reply.error(error),
    }
}

fn answer(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// Who makes something.
fn caller(request: &Request, mode: u32, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), mode, umask }
}

/// The group of a caller without the right to change a file's bytes and leave set-user-id on it. FUSE tells of writes;
/// for truncations it is root who has that right.
fn unprivileged(request: &Request) -> Option<u32> {
    (request.uid() != 0).then(|| request.gid())
}

/// What the kernel's page cache may do with an open file.
///
/// Who only writes goes past it: each of these writes is a request either way, and the kernel need not make pages first
/// and copy to them (ADR 19).
fn open_flags<T: Tree>(operations: &Operations<T>, pages: Pages, writes: bool, flags: i32) -> FopenFlags {
    let only_writes = OpenFlags(flags).acc_mode() == OpenAccMode::O_WRONLY;
    let cache = match (operations.options.kernel_cache, pages) {
        (KernelCache::Off, _) | (_, Pages::None) => FopenFlags::FOPEN_DIRECT_IO,
        _ if only_writes && kernel::drops_pages_after_direct_writes() => FopenFlags::FOPEN_DIRECT_IO,
        (KernelCache::On, Pages::Keep) => FopenFlags::FOPEN_KEEP_CACHE,
        // The kernel drops what it has of other bytes.
        (KernelCache::On, Pages::Drop) => FopenFlags::empty(),
    };
    // Only who writes has something to hand over at `close`.
    if writes { cache } else { cache | FopenFlags::FOPEN_NOFLUSH }
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
        let capabilities = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        let with_sizes = [InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO];
        // Not FUSE_ATOMIC_O_TRUNC: the kernel would have us cut a running program's file, and refuse only then.
        let writing = [InitFlags::FUSE_HANDLE_KILLPRIV_V2];
        // Of objects, nothing is cut before they are published.
        let objects = [InitFlags::FUSE_ATOMIC_O_TRUNC];
        // Access lists are the file system's; the kernel heeds them, and leaves the umask to us because of them.
        let owned = [InitFlags::FUSE_POSIX_ACL, InitFlags::FUSE_DONT_MASK];
        let writing = writing.iter().filter(|_| self.operations.is_writable());
        let owned = owned.iter().filter(|_| self.operations.is_file_system());
        let objects = objects.iter().filter(|_| self.operations.writes_objects());
        let with_sizes = with_sizes.iter().filter(|_| options.lists_sizes);
        for &capability in capabilities.iter().chain(with_sizes).chain(writing).chain(owned).chain(objects) {
            let _ = config.add_capabilities(capability);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.run(move |operations| {
            let ttl = operations.options.ttl;
            match operations.lookup(parent.0, &name) {
                Ok(found) => entry(operations, reply, &found),
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
        self.run(move |operations| attributes(operations, reply, inode.0, Operations::attributes));
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.run(move |operations| match operations.read_link(inode.0) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error),
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // Comes with the opening of objects only.
        let truncate = has(flags.0, OFlags::TRUNC);
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY || truncate;
        if writes && !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        let how = Open { writes, truncate, process: request.pid() };
        self.run(move |operations| match operations.open(inode.0, how) {
            Ok((handle, pages)) => {
                reply.opened(FileHandle(handle), open_flags(operations, pages, writes, flags.0));
            }
            Err(error) => reply.error(error),
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

    fn write(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        let write = Write {
            handle: handle.0,
            offset,
            append: has(flags.0, OFlags::APPEND),
            unprivileged: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then(|| request.gid()),
            sync: match (has(flags.0, OFlags::SYNC), flags.0 & O_DSYNC != 0) {
                // What the kernel writes of its cache is made safe by the fsync that follows.
                _ if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) => None,
                (true, _) => Some(Sync::All),
                (_, true) => Some(Sync::Data),
                _ => None,
            },
        };
        let operations = Arc::clone(&self.operations);
        self.lanes.run_on(data, move |data| match operations.write(write, data) {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(error),
        });
    }

    fn flush(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let process = request.pid();
        self.run(move |operations| answer(reply, operations.flush(handle.0, process)));
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
        // The end of the mount waits for it from now on.
        let closing = self.operations.closing_begins();
        self.run(move |operations| {
            operations.release(handle.0);
            drop(closing);
            reply.ok();
        });
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let sync = if data_only { Sync::Data } else { Sync::All };
        self.run(move |operations| answer(reply, operations.sync(handle.0, sync)));
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.operations.open_folder(inode.0)), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.run(move |operations| listing::names(operations, inode, handle.0, offset, reply));
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.run(move |operations| listing::entries(operations, inode, handle.0, offset, reply));
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

    fn fsyncdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.run(move |operations| answer(reply, operations.sync_folder(inode.0)));
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        self.run(move |operations| match operations.room() {
            Ok(room) => {
                let block = u32::try_from(room.block_bytes).unwrap_or(u32::MAX);
                let (free, available) = (room.blocks_free, room.blocks_available);
                let (files, files_free) = (room.files, room.files_free);
                reply.statfs(
                    room.blocks,
                    free,
                    available,
                    files,
                    files_free,
                    block,
                    room.name_bytes_max,
                    block,
                );
            }
            Err(error) => reply.error(error),
        });
    }

    fn access(&self, _request: &Request, _inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks the permission bits itself (`default_permissions`); this is for one that does not.
        let refused = mask.contains(AccessFlags::W_OK) && !self.operations.is_writable();
        answer(reply, if refused { Err(Errno::EROFS) } else { Ok(()) });
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        let changes = Changes {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            accessed: atime.map(set_time),
            modified: mtime.map(set_time),
            handle: handle.map(|handle| handle.0),
            unprivileged: unprivileged(request),
        };
        self.run(move |operations| {
            attributes(operations, reply, inode.0, |operations, inode| {
                operations.set_attributes(inode, &changes)
            });
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        let (name, caller) = (name.to_owned(), caller(request, mode, umask));
        let exclusive = has(flags, OFlags::EXCL);
        let process = request.pid();
        self.run(move |operations| match operations.create(parent.0, &name, caller, exclusive, process) {
            Ok((found, handle)) => {
                let flags = open_flags(operations, operations.pages(true, Pages::Keep), true, flags);
                reply.created(&found.ttl, &found.attributes, Generation(0), FileHandle(handle), flags);
            }
            Err(error) => reply.error(error),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (name, caller) = (name.to_owned(), caller(request, mode, umask));
        self.make(reply, move |operations| operations.make_node(parent.0, &name, caller, rdev));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (name, caller) = (name.to_owned(), caller(request, mode, umask));
        self.make(reply, move |operations| operations.make_folder(parent.0, &name, caller));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (name, target, caller) = (name.to_owned(), target.to_owned(), caller(request, 0o777, 0));
        self.make(reply, move |operations| operations.make_link(parent.0, &name, caller, &target));
    }

    fn link(&self, _request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.make(reply, move |operations| operations.link(inode.0, parent.0, &name));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change(reply, move |operations| operations.remove_file(parent.0, &name));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change(reply, move |operations| operations.remove_folder(parent.0, &name));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            RenameFlags::RENAME_NOREPLACE => Rename::NoReplace,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            flags if flags.is_empty() => Rename::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.change(reply, move |operations| {
            operations.rename((parent.0, &name), (new_parent.0, &new_name), how)
        });
    }

    fn setxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if self.operations.writes_objects() {
            // `cp -p` tries for access lists; the kernel then asks no more.
            return reply.error(Errno::ENOSYS);
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        self.change(reply, move |operations| operations.set_xattr(inode.0, &name, &value, flags));
    }

    fn getxattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.operations.is_file_system() {
            // The kernel then asks no more.
            return reply.error(Errno::ENOSYS);
        }
        let name = name.to_owned();
        self.run(move |operations| sized(reply, size, operations.xattr(inode.0, &name)));
    }

    fn listxattr(&self, _request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.operations.is_file_system() {
            return reply.error(Errno::ENOSYS);
        }
        self.run(move |operations| sized(reply, size, operations.xattr_names(inode.0)));
    }

    fn removexattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change(reply, move |operations| operations.remove_xattr(inode.0, &name));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(end) = offset.checked_add(length) else { return reply.error(Errno::EFBIG) };
        self.change(reply, move |operations| operations.allocate(handle.0, offset..end, mode));
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _inode_in: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        _inode_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.run(move |operations| {
            match operations.copy((handle_in.0, offset_in), (handle_out.0, offset_out), len) {
                Ok(count) => reply.written(count),
                Err(error) => reply.error(error),
            }
        });
    }
}

/// As most architectures number it; what `rustix` calls so is `O_SYNC`.
const O_DSYNC: i32 = 0o10000;

/// Whether the flags of an open file have this one.
fn has(flags: i32, flag: OFlags) -> bool {
    OFlags::from_bits_retain(flags.cast_unsigned()).contains(flag)
}

/// Answers with a value of at most `size` bytes; with its length alone if `size` is 0.
fn sized(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error),
    }
}
