//! A file for a loop device that records every write and flush: the disk of `tools/power_loss.py`.
//!
//! `block_log DIR LOG BYTES` mounts a file system at DIR with one file, `disk`, of BYTES zero bytes
//! in memory. It prints a line when the mount is ready and ends when it is unmounted. LOG gets one
//! record for each write and flush, in the order in which they are served and before they are
//! acknowledged. A record is a header of 16 bytes in native byte order (kind, bytes of data,
//! offset: `u32`, `u32`, `u64`), followed by the data of a write. Each record is one `write(2)`: a
//! complete record in LOG was served, and every acknowledged operation has its record.

#![expect(clippy::print_stdout, reason = "reports when the mount is ready")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};

/// Kind of a record: data that the device may lose until the next flush.
const WRITE: u32 = 1;
/// Kind of a record: everything served before it is durable.
const FLUSH: u32 = 2;

/// The inode of `disk`.
const DISK: INodeNo = INodeNo(2);
/// TTL of attributes, which never change.
const TTL: Duration = Duration::from_secs(3600);
/// Maximum request size in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The disk's bytes and the log of their changes.
struct State {
    bytes: Vec<u8>,
    log: File,
}

impl State {
    fn record(&mut self, kind: u32, offset: usize, data: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(16 + data.len());
        record.extend_from_slice(&kind.to_ne_bytes());
        record.extend_from_slice(&u32::try_from(data.len()).map_err(io::Error::other)?.to_ne_bytes());
        record.extend_from_slice(&(offset as u64).to_ne_bytes());
        record.extend_from_slice(data);
        self.log.write_all(&record)
    }

    /// Writes within the disk; ignores bytes beyond its end.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(data.len()).ok_or_else(|| io::Error::other("too far"))?;
        if end > self.bytes.len() {
            return Err(io::Error::other("beyond the end of the disk"));
        }
        self.record(WRITE, start, data)?;
        self.bytes[start..end].copy_from_slice(data);
        Ok(())
    }
}

/// The file system.
struct BlockLog {
    state: Mutex<State>,
    size: u64,
}

impl BlockLog {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            _ => (FileType::RegularFile, 0o600, self.size),
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl Filesystem for BlockLog {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // If rejected, the kernel's own limit is good enough.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.add_capabilities(InitFlags::FUSE_BIG_WRITES);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&TTL, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // The loop driver sets times, which are never read.
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Bypass the page cache: the kernel must neither delay nor merge the requests of the loop
        // device.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(state.bytes.len());
        let end = start.saturating_add(size as usize).min(state.bytes.len());
        reply.data(&state.bytes[start..end]);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match (self.state().write(offset, data), u32::try_from(data.len())) {
            (Ok(()), Ok(count)) => reply.written(count),
            _ => reply.error(Errno::EIO),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        match self.state().record(FLUSH, 0, &[]) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [dir, log, bytes] = &arguments[..] else {
        return Err(io::Error::other("usage: block_log DIR LOG BYTES"));
    };
    let size: usize = bytes
        .to_str()
        .and_then(|bytes| bytes.parse().ok())
        .ok_or_else(|| io::Error::other("BYTES must be a number"))?;
    let state = State { bytes: vec![0; size], log: File::create_new(log)? };
    let disk = BlockLog { state: Mutex::new(state), size: size as u64 };
    let mount = Session::new(disk, dir, &Config::default())?.spawn()?;
    println!("ready");
    io::stdout().flush()?;
    mount.join()
}
