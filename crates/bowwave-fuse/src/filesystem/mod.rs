//! The FUSE protocol: dispatches each request to a worker and sends its reply.

mod listing;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bowwave_engine::backend::{Rename, Seek};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;

use crate::attributes::set_time;
use crate::inodes::ROOT;
use crate::kernel;
use crate::operations::advice::{AdviceRequest, IOCTL_ADVISE};
use crate::operations::{Caller, Changes, Found, Open, Operations, Pages, Sync, Write};
use crate::options::{KernelCache, REQUEST_BYTES_MAX};
use crate::workers::Workers;

/// Implements fuser's `Filesystem`.
pub(crate) struct Requests {
    operations: Arc<Operations>,
    workers: Workers,
}

impl Requests {
    pub(crate) fn new(operations: Arc<Operations>, workers: Workers) -> Self {
        Self { operations, workers }
    }

    fn run(&self, job: impl FnOnce(&Operations) + Send + 'static) {
        let operations = Arc::clone(&self.operations);
        self.workers.run(move || job(&operations));
    }

    /// Runs a job that changes something; EROFS on a read-only mount. The kernel checks this
    /// itself, unless a read-only mount was remounted for writing.
    fn change(&self, reply: ReplyEmpty, job: impl FnOnce(&Operations) -> Result<(), Errno> + Send + 'static) {
        if !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        self.run(move |operations| reply_empty(reply, job(operations)));
    }

    /// As [`change`](Self::change), for a job that creates an entry.
    fn create(
        &self,
        reply: ReplyEntry,
        job: impl FnOnce(&Operations) -> Result<Found, Errno> + Send + 'static,
    ) {
        if !self.operations.is_writable() {
            return reply.error(Errno::EROFS);
        }
        self.run(move |operations| match job(operations) {
            Ok(found) => entry(reply, &found),
            Err(error) => reply.error(error),
        });
    }
}

fn entry(reply: ReplyEntry, found: &Found) {
    reply.entry_with_ttls(&found.ttl, &found.name_ttl, &found.attributes, Generation(0));
}

/// Replies with an inode's attributes and their time to live.
fn attributes(
    operations: &Operations,
    reply: ReplyAttr,
    inode: u64,
    ask: impl FnOnce(&Operations, u64) -> Result<FileAttr, Errno>,
) {
    let ttl = operations.trust(inode);
    match ask(operations, inode) {
        Ok(attributes) => reply.attr(&ttl.min(operations.ttl_of_inode(inode)), &attributes),
        Err(error) => reply.error(error),
    }
}

fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// The credentials and mode of a create request.
fn caller(request: &Request, mode: u32, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), mode, umask }
}

/// The group of an unprivileged caller, whose changes clear set-user-id. FUSE flags such writes;
/// for truncations every caller but root counts.
fn unprivileged(request: &Request) -> Option<u32> {
    (request.uid() != 0).then(|| request.gid())
}

/// The kernel's use of its page cache for an open file.
///
/// A write-only file bypasses the cache: each write is a request anyway, and the kernel need not
/// allocate and fill pages first (ADR 19).
fn open_flags(operations: &Operations, pages: Pages, writes: bool, flags: i32) -> FopenFlags {
    let only_writes = OpenFlags(flags).acc_mode() == OpenAccMode::O_WRONLY;
    let cache = match (operations.options.kernel_cache, pages) {
        (KernelCache::Off, _) | (_, Pages::None) => FopenFlags::FOPEN_DIRECT_IO,
        _ if only_writes && kernel::drops_pages_after_direct_writes() => FopenFlags::FOPEN_DIRECT_IO,
        (KernelCache::On, Pages::Keep) => FopenFlags::FOPEN_KEEP_CACHE,
        // The kernel drops its pages, which have other content.
        (KernelCache::On, Pages::Drop) => FopenFlags::empty(),
    };
    // Only a writer has data to flush at `close`.
    if writes { cache } else { cache | FopenFlags::FOPEN_NOFLUSH }
}

impl Filesystem for Requests {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let options = &self.operations.options;
        // Sets the maximum request size, for reads too. If rejected, the error has the nearest
        // valid value.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(nearest) = config.set_max_readahead(options.readahead_bytes().max(1)) {
            let _ = config.set_max_readahead(nearest);
        }
        // The kernel counts buffered reads as background requests. The limit must cover all served
        // requests and as many waiting ones. Beyond the threshold, the kernel defers speculative
        // readahead.
        let served = u16::try_from(options.requests_max.clamp(1, 16_384)).expect("clamped");
        let _ = config.set_max_background(served * 2);
        let _ = config.set_congestion_threshold(served);
        // Optional improvements, if the kernel supports them.
        let capabilities = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        let with_sizes = [InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO];
        // Not FUSE_ATOMIC_O_TRUNC: the kernel would truncate a running program's file before it
        // fails the open.
        let writing = [InitFlags::FUSE_HANDLE_KILLPRIV_V2];
        // Objects are not truncated until they are published.
        let objects = [InitFlags::FUSE_ATOMIC_O_TRUNC];
        // The file system has the access control lists. The kernel enforces them, and therefore
        // leaves the umask to us.
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
            let ttl = operations.negative_ttl();
            let will_read = operations.will_read_of(parent.0, &name);
            match operations.lookup(parent.0, &name, will_read) {
                Ok(found) => entry(reply, &found),
                // Inode 0 makes the kernel cache a negative entry.
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
        // The kernel passes O_TRUNC only for object stores.
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
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let process = request.pid();
        let cached = !has(flags.0, OFlags::DIRECT);
        self.run(move |operations| {
            operations.read(handle.0, process, (offset, size), cached, |bytes| match bytes {
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
                // The fsync that follows makes cached writes durable.
                _ if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) => None,
                (true, _) => Some(Sync::All),
                (_, true) => Some(Sync::Data),
                _ => None,
            },
        };
        let operations = Arc::clone(&self.operations);
        self.workers.run_on(data, move |data| match operations.write(write, data) {
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
        self.run(move |operations| reply_empty(reply, operations.flush(handle.0, process)));
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
        // The end of the mount waits for this close from now on.
        let closing = self.operations.begin_close();
        self.run(move |operations| {
            operations.release(handle.0);
            drop(closing);
            reply.ok();
        });
    }

    fn fsync(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let sync = if data_only { Sync::Data } else { Sync::All };
        let process = request.pid();
        self.run(move |operations| {
            operations.prioritise(handle.0, process);
            reply_empty(reply, operations.sync(handle.0, sync));
        });
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.operations.open_directory(inode.0)), FopenFlags::empty());
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
        self.operations.release_directory(handle.0);
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
        self.run(move |operations| reply_empty(reply, operations.sync_directory(inode.0)));
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        self.run(move |operations| match operations.statfs() {
            Ok(stats) => {
                let block = u32::try_from(stats.block_bytes).unwrap_or(u32::MAX);
                let (free, available) = (stats.blocks_free, stats.blocks_available);
                let (files, files_free) = (stats.files, stats.files_free);
                reply.statfs(
                    stats.blocks,
                    free,
                    available,
                    files,
                    files_free,
                    block,
                    stats.name_bytes_max,
                    block,
                );
            }
            Err(error) => reply.error(error),
        });
    }

    fn access(&self, _request: &Request, _inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself (`default_permissions`); this is a fallback.
        let refused = mask.contains(AccessFlags::W_OK) && !self.operations.is_writable();
        reply_empty(reply, if refused { Err(Errno::EROFS) } else { Ok(()) });
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
        self.create(reply, move |operations| operations.create_node(parent.0, &name, caller, rdev));
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
        self.create(reply, move |operations| operations.create_directory(parent.0, &name, caller));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (name, target, caller) = (name.to_owned(), target.to_owned(), caller(request, 0o777, 0));
        self.create(reply, move |operations| operations.create_link(parent.0, &name, caller, &target));
    }

    fn link(&self, _request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.create(reply, move |operations| operations.link(inode.0, parent.0, &name));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change(reply, move |operations| operations.remove_file(parent.0, &name));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change(reply, move |operations| operations.remove_directory(parent.0, &name));
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
            // `cp -p` requests access control lists. After ENOSYS the kernel sends no more such
            // requests.
            return reply.error(Errno::ENOSYS);
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        self.change(reply, move |operations| operations.set_xattr(inode.0, &name, &value, flags));
    }

    fn getxattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.operations.is_file_system() {
            // After ENOSYS the kernel sends no more such requests.
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

    fn ioctl(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        _reply_bytes: u32,
        reply: ReplyIoctl,
    ) {
        // As for ioctls that a file system does not know.
        if command != IOCTL_ADVISE {
            return reply.error(Errno::ENOTTY);
        }
        let Some(advice) = AdviceRequest::of_bytes(data) else { return reply.error(Errno::EINVAL) };
        let user = request.uid();
        self.run(move |operations| match operations.advise(handle.0, advice, user) {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(error),
        });
    }

    fn lseek(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        self.run(move |operations| match operations.seek(handle.0, offset, what) {
            Ok(found) => reply.offset(found.cast_signed()),
            Err(error) => reply.error(error),
        });
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

/// The value on most architectures. `rustix` uses the name for `O_SYNC`.
const O_DSYNC: i32 = 0o10000;

/// `lseek` for data and holes; the kernel serves the other kinds itself.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Whether an open file's flags contain `flag`.
fn has(flags: i32, flag: OFlags) -> bool {
    OFlags::from_bits_retain(flags.cast_unsigned()).contains(flag)
}

/// Replies with a value of at most `size` bytes, or with its length if `size` is 0.
fn sized(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error),
    }
}
