//! A bare FUSE server with options that the crate does not have.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, Notifier, OpenFlags, ReplyAttr, ReplyData,
    ReplyEntry, ReplyOpen, Request, Session,
};

use crate::choice::{Choice, Push};
use crate::shipped::slow_time;
use crate::{FILE_BYTES, Seen};

/// Mounts according to `choice`. Needs root.
pub(crate) fn mount(dir: &Path, data: &Arc<Vec<u8>>, seen: &Arc<Seen>, choice: &Choice) -> BackgroundSession {
    let notifier = Arc::new(OnceLock::new());
    let server = Server {
        data: Arc::clone(data),
        seen: Arc::clone(seen),
        choice: choice.clone(),
        notifier: Arc::clone(&notifier),
        pushing: Mutex::new(()),
        pushed: Mutex::default(),
        buffers: Mutex::default(),
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("bench".to_owned())];
    config.n_threads = Some(choice.threads);
    config.clone_fd = choice.clone;
    let session =
        Session::new(server, dir, &config).and_then(Session::spawn).expect("mounts can be made here");
    notifier.set(session.notifier()).expect("set once");
    let device = fs::metadata(dir).expect("mounted").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), choice.ra_kib.to_string())
        .expect("run as root");
    session
}

struct Server {
    data: Arc<Vec<u8>>,
    seen: Arc<Seen>,
    choice: Choice,
    notifier: Arc<OnceLock<Notifier>>,
    /// At most one thread pushes, so that others can serve the pages it may wait for.
    pushing: Mutex<()>,
    /// End of the pushed pages, by file.
    pushed: Mutex<HashMap<u64, u64>>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Server {
    /// The range to push after a request for `start..end` that continues the last push.
    fn to_push(&self, inode: u64, start: u64, end: u64) -> Option<(usize, usize)> {
        if self.choice.push == Push::Never {
            return None;
        }
        let stop = (end + self.choice.push_kib as u64 * 1024).min(FILE_BYTES as u64);
        let mut pushed = self.pushed.lock().expect("no panic holds it");
        let sequential = start == 0 || pushed.get(&inode) == Some(&start);
        pushed.insert(inode, if sequential { stop } else { end });
        (sequential && stop > end).then_some((index(end), index(stop)))
    }

    fn push(&self, inode: INodeNo, range: Option<(usize, usize)>) {
        if let (Some((start, end)), Ok(_alone), Some(notifier)) =
            (range, self.pushing.try_lock(), self.notifier.get())
        {
            notifier.store(inode, start as u64, &self.data[start..end]).expect("the inode is open");
        }
    }
}

impl Filesystem for Server {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(128);
        let _ = config.set_congestion_threshold(64);
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name
            .to_str()
            .and_then(|name| name.strip_prefix('f'))
            .and_then(|number| number.parse::<u64>().ok())
        {
            Some(number) => reply.entry(&TTL, &attributes(number + 1), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attributes(inode.0));
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let cache =
            if self.choice.direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::FOPEN_KEEP_CACHE };
        reply.opened(FileHandle(0), cache | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let start = offset.min(FILE_BYTES as u64);
        let end = (offset + u64::from(size)).min(FILE_BYTES as u64);
        self.seen.note(start, end - start);
        let bytes = &self.data[index(start)..index(end)];
        if self.choice.slow {
            std::thread::sleep(slow_time(bytes.len()));
        }
        let mut range = self.to_push(inode.0, start, end);
        if self.choice.push == Push::Before {
            self.push(inode, range.take());
        }
        // Copied once, as out of cache frames.
        let mut buffer = self.buffers.lock().expect("no panic holds it").pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        reply.data(&buffer);
        self.buffers.lock().expect("no panic holds it").push(buffer);
        self.push(inode, range);
    }
}

fn attributes(inode: u64) -> FileAttr {
    let root = inode == 1;
    FileAttr {
        ino: INodeNo(inode),
        size: if root { 0 } else { FILE_BYTES as u64 },
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: if root { FileType::Directory } else { FileType::RegularFile },
        perm: if root { 0o555 } else { 0o444 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("within the file")
}

const TTL: Duration = Duration::from_secs(3600);
