//! Opening, reading and writing files.

use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use bowwave_engine::backend::{
    Allocate, Error, ErrorKind, SMALL_BYTES, Seek, SetAttributes, SetTime, WillRead,
};
use bowwave_engine::{Advice, File};
use fuser::{Errno, INodeNo};

use super::{OpenHandle, Operations, opening};
use crate::inodes::Opened;
use crate::options::KernelCache;
use crate::priority;

/// A write request from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    /// Append at the end of the file, whatever offset the kernel assumes.
    pub(crate) append: bool,
    /// The group of an unprivileged caller, whose writes clear set-user-id and set-group-id.
    pub(crate) unprivileged: Option<u32>,
    /// What to make durable before the reply.
    pub(crate) sync: Option<Sync>,
}

/// Scope of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Data, and metadata needed to read it (`O_DSYNC`).
    Data,
    /// All metadata, including times (`O_SYNC`).
    All,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) writes: bool,
    /// Truncate to zero bytes (`O_TRUNC`), if the kernel does not send a separate request.
    pub(crate) truncate: bool,
    /// ID of the opening process or of one of its threads.
    pub(crate) process: u32,
}

/// How the kernel may use its pages of an opened inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    Keep,
    Drop,
    /// Cache none: every read is a request.
    None,
}

impl Operations {
    /// Opens a file. ESTALE if it is not the inode's file: the kernel then looks the path up again
    /// and opens the result.
    pub(crate) fn open(&self, inode: u64, how: Open) -> Result<(u64, Pages), Errno> {
        let _acting = self.acting_for(how.process);
        let (open, pages) = self.open_current(inode, how)?;
        if how.truncate
            && let Err(error) = open.file().set_len(0)
        {
            self.inodes.closed(inode, || open.opening());
            return Err(self.fail(&open.path, &error));
        }
        Ok((self.files.insert(open), self.pages(how.writes, pages)))
    }

    /// Opens the file of an inode and counts it. Repeats if we changed it between open and
    /// comparison.
    fn open_current(&self, inode: u64, how: Open) -> Result<(OpenHandle, Pages), Errno> {
        let writes = how.writes;
        for _ in 0..OVERTAKEN_MAX {
            let since = self.inodes.changes(inode);
            let (path, guard) = self.path(inode).map_err(|_| Errno::ESTALE)?;
            if !writes && self.opens_known_versions() && self.inodes.is_read_in_part(inode) {
                // A program may read pages that the kernel has before one that it has not.
                self.layout.forget_name(&path, LOOKUP_AGE_MAX);
            }
            let opened = match writes {
                true => self.layout.open_write(&path),
                false => self.layout.open_to_read(&path, self.will_read(inode)),
            };
            let file = match opened {
                // Never published, or removed from outside. The kernel looks it up and creates it
                // if requested.
                Err(error) if writes && error.kind() == ErrorKind::NotFound && self.writes_objects() => break,
                opened => opened.map_err(|error| self.fail(&path, &error))?,
            };
            drop(guard);
            let closing = self.closing(writes, how.process);
            let mut open = OpenHandle::new(inode, path, file, (writes, how.process), closing);
            self.advised.apply(&open.path, &open.file());
            let opening = open.opening();
            if writes {
                self.columns.forget(inode);
            } else {
                open.columns = Some(self.columns.open(inode, opening.version));
            }
            self.caution(&open.path, &opening.identity);
            match self.inodes.opened(inode, &opening, since) {
                Opened::Same => match self.check_small(&open) {
                    Ok(()) => return Ok((open, Pages::Keep)),
                    // Replaced since it was looked up: the kernel looks it up again.
                    Err(error) => {
                        self.layout.forget_name(&open.path, Duration::ZERO);
                        self.inodes.closed(inode, || open.opening());
                        self.inodes.unbind_changed(inode);
                        return Err(error);
                    }
                },
                Opened::Other => return Ok((open, Pages::Drop)),
                Opened::Apart => {
                    open.apart = true;
                    return Ok((open, Pages::None));
                }
                Opened::Stale => break,
                Opened::Again => {}
            }
        }
        Err(Errno::ESTALE)
    }

    /// What a program that opens a file reads of it through the mount: nothing that the kernel has.
    fn will_read(&self, inode: u64) -> WillRead {
        let is_kept = self.opens_known_versions() && self.options.kernel_cache == KernelCache::On;
        if is_kept && self.inodes.is_read(inode) { WillRead::Nothing } else { WillRead::Any }
    }

    /// Gives a handle's requests to the store the I/O priority of the process that uses it now.
    pub(crate) fn prioritise(&self, handle: u64, process: u32) {
        if let Some(open) = self.files.find(handle) {
            open.file().set_priority(priority::of_process(process));
        }
    }

    /// Reads up to `size` bytes and passes them to `reply`. Never fewer than the file has: the
    /// kernel treats a short cached read as the end of the file and fills the page with zeros.
    ///
    /// `process` is the thread that reads. Where the kernel caches what it gets (`cached`), the pages
    /// are dropped.
    pub(crate) fn read(
        &self,
        handle: u64,
        process: u32,
        (offset, size): (u64, u32),
        cached: bool,
        reply: impl FnOnce(Result<&[u8], Errno>),
    ) {
        let Some(open) = self.files.find(handle) else { return reply(Err(Errno::EBADF)) };
        let _acting = self.acting_for(process);
        let mut file = open.file_of(process);
        file.set_priority(priority::of_process(process));
        for ahead in open.columns_ahead(&file, (offset, size)) {
            file.advise(ahead.start, ahead.end - ahead.start, Advice::WillNeed);
            self.tell_ahead(&open, process, ahead);
        }
        let told = self.tell_read(&open, process, (offset, size.into()));
        let reply = |result: Result<&[u8], Errno>| {
            // Before the program goes on.
            drop(told);
            reply(result);
        };
        self.note_read(open.sibling, &file, offset, size.into());
        self.buffers.lend(size as usize, |buffer| {
            for _ in 0..OVERTAKEN_MAX {
                match self.read_version(&open, &file, offset, buffer) {
                    Ok(Some(count)) => {
                        if let Some(columns) = open.columns_of(&file) {
                            self.columns.read(columns, offset, &buffer[..count], file.size());
                        }
                        reply(Ok(&buffer[..count]));
                        // A writer's pages are changed in parts.
                        if cached
                            && self.options.kernel_cache == KernelCache::On
                            && !open.apart
                            && !open.writes
                        {
                            file.advise(offset, count as u64, Advice::Copied);
                        }
                        return;
                    }
                    Ok(None) => match self.reopen(&open, &file) {
                        Ok(newer) => file = newer,
                        Err(error) => return reply(Err(error)),
                    },
                    Err(error) => return reply(Err(error)),
                }
            }
            reply(Err(Errno::ESTALE));
        });
    }

    /// Reads a version of the file. `None` if it was replaced before the kernel had a byte of it:
    /// then a newer version may be read through the same handle.
    fn read_version(
        &self,
        open: &OpenHandle,
        file: &File,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        let (inode, version) = (open.inode, file.version());
        let replaced = || {
            let may_reopen = !open.apart && !open.writes && self.inodes.is_unread(inode, version);
            if may_reopen { Ok(None) } else { Err(Errno::ESTALE) }
        };
        if !open.apart && !self.inodes.is_current(inode, version) {
            // The kernel caches pages by inode: of the version opened last only.
            return replaced();
        }
        let left = file.size().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if len == 0 {
            // Also of an object in upload, whose bytes cannot be read: SQLite probes new files so.
            return Ok(Some(0));
        }
        match file.read_at(offset, &mut buffer[..len]).map_err(Error::from) {
            Ok(count) if open.apart || self.inodes.served(inode, version, count) => Ok(Some(count)),
            Ok(_) => replaced(),
            Err(error) => {
                let is_current = !open.apart && self.inodes.is_current(inode, version);
                if error.kind() == ErrorKind::Changed && replaced().is_ok() {
                    return Ok(None);
                }
                // A reader of an older published version says nothing about the current version.
                if matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt) && is_current {
                    self.inodes.unbind_changed(inode);
                }
                Err(self.fail(&open.path, &error))
            }
        }
    }

    /// Reads a small file when it is opened by a version that the store has not just confirmed. So
    /// it is one request and one version, and the response has the attributes that are stored with
    /// it.
    ///
    /// # Errors
    /// ESTALE if the store has another version. Other errors are for the program that reads.
    fn check_small(&self, open: &OpenHandle) -> Result<(), Errno> {
        let file = open.file();
        if open.writes || self.inodes.is_read(open.inode) {
            return Ok(());
        }
        // If the kernel has bytes of it, it was looked up again, or a response has just shown it.
        let is_new = !file.is_confirmed() && !self.inodes.was_read(open.inode);
        let must_read = is_new && (1..=SMALL_BYTES).contains(&file.size());
        let requested = if must_read { self.request_small(&open.path, &file) } else { 0 };
        self.read_end(open, &file);
        // Behind the requests for this file.
        if let Some(noted) = self.note_open(&open.path, &file) {
            // Each handle is opened once.
            let _ = open.noted.set(noted);
        }
        if !must_read {
            return Ok(());
        }
        let _told = self.tell_read(open, open.process, (0, file.size()));
        // The first read of the program waits for the rest, and compares the version, too.
        match block_for(CHECK_WAIT, file.read_at_async(requested, &mut [0])).transpose().map_err(Error::from)
        {
            Err(error) if error.kind() == ErrorKind::Changed => Err(Errno::ESTALE),
            _ => Ok(()),
        }
    }

    /// Opens the current version of an object that was replaced before a byte of it was read.
    fn reopen(&self, open: &OpenHandle, old: &Arc<File>) -> Result<Arc<File>, Errno> {
        let now = open.file();
        if now.version() != old.version() {
            // Another read of this handle was faster.
            return Ok(now);
        }
        let inode = open.inode;
        let (path, _guard) = self.path(inode)?;
        self.layout.forget_name(&path, Duration::ZERO);
        let file = match self.layout.open(&path) {
            Ok(file) => Arc::new(file),
            // Removed: the name leads to nothing, and the old bytes are gone.
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Errno::ESTALE),
            Err(error) => return Err(self.fail(&path, &error)),
        };
        let entry = self.layout.lookup(&path, WillRead::Any).map_err(|error| self.fail(&path, &error))?;
        if !self.inodes.replaced(inode, old.version(), &opening(&file, false), entry) {
            self.inodes.unbind_changed(inode);
            return Err(Errno::ESTALE);
        }
        self.advised.apply(&open.path, &file);
        open.replace_file(&file);
        if let Some(notifier) = self.notifier.get() {
            // Attributes only. It fails if the kernel has forgotten the inode.
            let _ = notifier.inval_inode(INodeNo(inode), -1, 0);
        }
        Ok(file)
    }

    /// Writes, and returns the number of bytes accepted.
    pub(crate) fn write(&self, write: Write, bytes: &[u8]) -> Result<u32, Errno> {
        let open = self.writer(write.handle)?;
        if let Some(group) = write.unprivileged {
            self.kill_privileges(open.inode, group)?;
        }
        let written = match write.append && self.writes_objects() {
            true => open.file().append(bytes).map(|(_, count)| count),
            false => open.file().write_at(write.offset, bytes),
        };
        let count = written.map_err(|error| self.fail(&open.path, &error))?;
        if self.defers_attributes() {
            self.deferred.forget_time(&open.path);
        }
        open.closing.note_write();
        self.note_change();
        self.stamps.stamp_if(open.inode, open.file().is_dirty(), || modified(&open.file()));
        if let Some(sync) = write.sync {
            self.sync_open(&open, sync)?;
        }
        Ok(u32::try_from(count.min(bytes.len())).expect("no larger than a request"))
    }

    /// A descriptor was closed: writes dirty data to the store and returns errors.
    pub(crate) fn flush(&self, handle: u64, process: u32) -> Result<(), Errno> {
        let open = self.files.find(handle).ok_or(Errno::EBADF)?;
        if !open.writes {
            return Ok(());
        }
        self.note_change();
        if !open.closing.publishes(process) {
            return Ok(());
        }
        self.hand_over(&open, File::flush)?;
        match open.file().upload() {
            Some(upload)
                if open.file().is_dirty() && open.closing.is_last(process, self.kernel_file(open.inode)) =>
            {
                upload.publish().map_err(|error| self.fail(&open.path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Writes dirty data to the store with `flush`, and then sends the time of the last write. A
    /// user with write permission who is not the owner may not set the time; then the store's own
    /// time stays.
    fn hand_over(
        &self,
        open: &OpenHandle,
        flush: fn(&File) -> bowwave_engine::Result<()>,
    ) -> Result<(), Errno> {
        let time = self.stamps.get(open.inode);
        flush(&open.file()).map_err(|error| self.fail(&open.path, &error))?;
        let _guard = self.stamps.sending.lock();
        if let Some(time) = time.filter(|&time| self.stamps.get(open.inode) == Some(time)) {
            let modified = SetAttributes { modified: Some(SetTime::At(time)), ..SetAttributes::default() };
            let _best_effort = open.file().set_attributes(&modified);
            self.stamps.sent(open.inode, time);
        }
        Ok(())
    }

    /// Makes written data durable.
    pub(crate) fn sync(&self, handle: u64, sync: Sync) -> Result<(), Errno> {
        let open = self.files.find(handle).ok_or(Errno::EBADF)?;
        self.note_change();
        self.sync_open(&open, sync)
    }

    fn sync_open(&self, open: &OpenHandle, sync: Sync) -> Result<(), Errno> {
        if self.stamps.get(open.inode).is_some() {
            // The time must become durable with the bytes, so flush everything first.
            self.hand_over(open, File::flush_for_sync)?;
        }
        open.file().sync(sync == Sync::Data).map_err(|error| self.fail(&open.path, &error))?;
        self.send_attributes(&open.path)
    }

    /// Closes a file. Writes by memory maps after the last `close` go to the store now; their
    /// errors reach only the log.
    pub(crate) fn release(&self, handle: u64) {
        let Some(open) = self.files.remove(handle) else { return };
        self.note_close(open.sibling);
        if open.writes {
            self.note_change();
            let _told_to_the_log = match self.writes_objects() {
                true => self.end_writing(&open),
                false => self.hand_over(&open, File::flush),
            };
        }
        let (inode, path) = (open.inode, Arc::clone(&open.path));
        if open.writes {
            self.columns.forget(inode);
        }
        let left = if self.writes_objects() {
            // While the file is open, it reports the state that all its writers leave.
            let left = self.inodes.closed(inode, || open.opening());
            drop(open);
            left
        } else {
            let opening = open.opening();
            drop(open);
            self.inodes.closed(inode, || opening)
        };
        if let Some(since) = left {
            // Listings may have been taken between publishing and this point.
            self.note_change();
            self.settle(inode, &path, since);
        }
    }

    /// Requests the store's attributes of an object that we have written: not a change from
    /// outside.
    fn settle(&self, inode: u64, path: &Path, since: u64) {
        if self.inodes.path(inode).is_some_and(|now| now == path)
            && let Ok(entry) = self.layout.stat(path)
        {
            self.inodes.settle(inode, entry, since);
        }
    }

    /// Changes the allocation of a range, as `fallocate` does.
    pub(crate) fn allocate(&self, handle: u64, range: Range<u64>, mode: i32) -> Result<(), Errno> {
        let open = self.writer(handle)?;
        let keep_size = mode & KEEP_SIZE != 0;
        let how = match mode & !KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            PUNCH_HOLE if keep_size => Allocate::Punch,
            ZERO_RANGE => Allocate::Zero { keep_size },
            COLLAPSE_RANGE if !keep_size => Allocate::Collapse,
            INSERT_RANGE if !keep_size => Allocate::Insert,
            _ => return Err(Errno::ENOTSUP),
        };
        self.note_change();
        self.stamps.restamp(open.inode);
        let allocated = open.file().allocate(range.start, range.end - range.start, how);
        allocated.map_err(|error| self.fail(&open.path, &error))
    }

    /// Finds the next data or hole of an open file, as `lseek` with `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek(&self, handle: u64, offset: u64, what: Seek) -> Result<u64, Errno> {
        let open = self.files.find(handle).ok_or(Errno::EBADF)?;
        let found = open.file().seek(offset, what).map_err(|error| self.fail(&open.path, &error))?;
        found.ok_or(Errno::ENXIO)
    }

    /// Copies between two open files through the cache. Returns the number of bytes, at most
    /// [`COPY_BYTES_MAX`].
    pub(crate) fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64) -> Result<u32, Errno> {
        let source = self.files.find(from.0).ok_or(Errno::EBADF)?;
        let target = self.writer(to.0)?;
        let left = source.file().size().saturating_sub(from.1).min(len).min(COPY_BYTES_MAX);
        let mut done = 0;
        self.note_change();
        self.note_read(source.sibling, &source.file(), from.1, left);
        while done < left {
            let part = usize::try_from((left - done).min(COPY_PART_BYTES)).expect("small");
            let copied = self.buffers.lend(part, |buffer| {
                let count = source.file().read_at(from.1 + done, buffer)?;
                target.file().write_at(to.1 + done, &buffer[..count])
            });
            match copied {
                Ok(0) => break,
                Ok(count) => {
                    let dirty = target.file().is_dirty();
                    self.stamps.stamp_if(target.inode, dirty, || modified(&target.file()));
                    done += count as u64;
                }
                // Return the partial copy; the next call returns the error.
                Err(_) if done > 0 => break,
                Err(error) => return Err(self.fail(&target.path, &error)),
            }
        }
        Ok(u32::try_from(done).expect("bounded"))
    }

    /// Writes all dirty data to the store and makes it durable; for the end of the mount.
    pub(crate) fn sync_all(&self) -> crate::Result<()> {
        self.end_closed();
        self.deferred.end();
        self.send_all_attributes(Duration::ZERO);
        let synced = self.layout.store().sync();
        self.abandon_open();
        let unsynced =
            synced.err().map(|error| format!("not all that was written has reached the store: {error}"));
        let rejections: Vec<_> = unsynced.into_iter().chain(self.deferred.rejections()).collect();
        if rejections.is_empty() { Ok(()) } else { Err(crate::Error::new(rejections.join("; "))) }
    }

    fn writer(&self, handle: u64) -> Result<Arc<OpenHandle>, Errno> {
        self.files.find(handle).filter(|open| open.writes).ok_or(Errno::EBADF)
    }
}

/// Runs a future on this thread for at most `limit`; `None` if it takes longer.
fn block_for<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    let end = Instant::now() + limit;
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        thread::park_timeout(end.checked_duration_since(Instant::now())?);
    }
}

/// The store's modification time of a file.
fn modified(file: &File) -> Option<SystemTime> {
    file.attributes().ok()?.modified
}

/// The kernel's `fallocate` mode flags.
const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const COLLAPSE_RANGE: i32 = 0x08;
const ZERO_RANGE: i32 = 0x10;
const INSERT_RANGE: i32 = 0x20;

/// Maximum bytes of one copy request. The caller continues with further requests and can be
/// interrupted in between.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// Maximum retries of an open or stat that our own changes overtook. Each retry means that another
/// writer has opened or closed the file.
pub(super) const OVERTAKEN_MAX: u32 = 100;

/// Age of the last HEAD of an object up to which another open of it sends none. Longer: if the
/// object was replaced meanwhile, the program that opened it fails when it needs the store.
/// Shorter: programs that open a file several times, such as readers of Parquet, wait each time.
const LOOKUP_AGE_MAX: Duration = Duration::from_secs(1);

/// How long an open waits for the first bytes of a small file. Longer: an open hangs with a store
/// that stops in a body. Shorter: over a slow link, a shorter version fails the first read.
const CHECK_WAIT: Duration = Duration::from_secs(1);

/// Chunk size of a copy in bytes: one reply buffer.
const COPY_PART_BYTES: u64 = 1 << 20;
