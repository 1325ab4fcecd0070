//! Publishing of objects, and caching of their pages by the kernel.
//!
//! Closing an object publishes it. The kernel reports each closed descriptor (FLUSH), and later,
//! without a caller, the close of the last one (RELEASE). Descriptors are closed while a file is
//! still being written: a shell opens a file, its child processes inherit the descriptor, and each
//! closes its copy when it exits. So a FLUSH publishes only if it comes from the process that
//! opened the file, or after that process has exited. RELEASE publishes otherwise.
//!
//! Descriptors are also closed before the first write: a shell that redirects output opens a file,
//! duplicates the descriptor and closes the first. So a FLUSH of an object without writes publishes
//! only if the process has no other writable descriptor of it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowwave_engine::File;
use bowwave_engine::backend::sync::{Condvar, Mutex};
use bowwave_engine::backend::{Error, ErrorKind, Writes};
use fuser::Errno;

use super::{OpenHandle, Operations, Pages};
use crate::descriptors::{self, KernelFile};

/// Decides which close of a file publishes it.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// ID of the opening process; 0 if irrelevant or unknown.
    opener: u32,
    /// Whether a descriptor was closed and nothing was written since.
    seen: AtomicBool,
}

impl Closing {
    /// Whether a close by this process or thread publishes.
    pub(super) fn publishes(&self, process: u32) -> bool {
        self.seen.store(true, Ordering::Relaxed);
        self.opener == 0
            || process == 0
            || process == self.opener
            || process_of(process).is_none_or(|process| process == self.opener)
            || !is_alive(self.opener)
    }

    /// Whether the closing process has no other descriptor to write the file with; false if
    /// unknown.
    pub(super) fn is_last(&self, process: u32, file: KernelFile) -> bool {
        let process = if self.opener == 0 { None } else { process_of(process) };
        // An exiting process has closed its descriptors.
        process
            .is_some_and(|process| descriptors::can_write(process, file, false).is_ok_and(|writes| !writes))
    }

    /// Whether no further writes are expected: a descriptor was closed, nothing was written since,
    /// and the opening process has no other one. This is the case when only a child process has
    /// closed its copy.
    fn is_finished(&self, file: KernelFile) -> bool {
        let may_write =
            || self.opener != 0 && descriptors::can_write(self.opener, file, true).unwrap_or(false);
        self.seen.load(Ordering::Relaxed) && !may_write()
    }

    /// Records a write.
    pub(super) fn note_write(&self) {
        self.seen.store(false, Ordering::Relaxed);
    }
}

/// Counts files that are being closed.
#[derive(Debug, Default)]
pub(super) struct Closings {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: Mutex<u64>,
    none: Condvar,
}

/// A close in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct CloseInProgress(Arc<Shared>);

impl Closings {
    fn begin(&self) -> CloseInProgress {
        *self.shared.count.lock() += 1;
        CloseInProgress(Arc::clone(&self.shared))
    }

    /// Waits until no close is in progress.
    fn wait(&self) {
        let mut count = self.shared.count.lock();
        while *count > 0 {
            count = self.shared.none.wait(count);
        }
    }
}

impl Drop for CloseInProgress {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.none.notify_all();
    }
}

impl Operations {
    /// Whether the store accepts whole objects only.
    pub(crate) fn writes_objects(&self) -> bool {
        self.is_writable() && self.layout.store().writes() == Writes::Whole
    }

    /// The kernel's use of pages of an opened file. An object being written cannot be read, so it
    /// has none.
    pub(crate) fn pages(&self, writes: bool, pages: Pages) -> Pages {
        if writes && self.writes_objects() { Pages::None } else { pages }
    }

    /// The TTL of an inode's attributes: zero while an object is being written, because a failed
    /// write reverts them. Must be read before the attributes are requested.
    pub(crate) fn trust(&self, inode: u64) -> Duration {
        let is_unpublished = self.writes_objects() && self.inodes.has_writers(inode);
        if is_unpublished { Duration::ZERO } else { self.options.ttl }
    }

    /// The close policy of a file that `process` opens.
    pub(super) fn closing(&self, writes: bool, process: u32) -> Closing {
        let counts = writes && process != 0 && self.writes_objects();
        let opener = if counts { process_of(process).unwrap_or(0) } else { 0 };
        Closing { opener, ..Closing::default() }
    }

    /// Rejects the journal of a SQLite database that is open for writing. SQLite then reports a
    /// read-only database before it changes anything. A newly created, empty database is not
    /// published.
    pub(super) fn check_journal(&self, path: &Path) -> Result<(), Errno> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let database = JOURNALS.iter().find_map(|end| name.strip_suffix(end.as_bytes()));
        let Some(database) = database.filter(|name| !name.is_empty() && self.writes_objects()) else {
            return Ok(());
        };
        let database = path.with_file_name(OsStr::from_bytes(database));
        let all = self.files.all();
        let open: Vec<_> = all.iter().filter(|open| open.writes && *open.path == *database).collect();
        if open.is_empty() {
            return Ok(());
        }
        for open in open.iter().filter(|open| open.file().is_dirty() && open.file().size() == 0) {
            abandon(&open.file());
        }
        let message = format!(
            "{}: a SQLite database cannot be changed in an object store, whose objects are written from front to back; \
             change a copy on a disk, and copy it back",
            database.display()
        );
        Err(self.fail(path, &Error::new(ErrorKind::PermissionDenied, message)))
    }

    /// A close begins.
    pub(crate) fn begin_close(&self) -> CloseInProgress {
        self.closings.begin()
    }

    /// Publishes an object after its last descriptor was closed.
    pub(super) fn end_writing(&self, open: &OpenHandle) -> Result<(), Errno> {
        self.stamps.drop(open.inode);
        let ended = open.file().upload().map_or(Ok(()), |upload| upload.end());
        ended.map_err(|error| self.fail(&open.path, &error))
    }

    /// At the end of the mount: discards incomplete objects instead of publishing them.
    pub(super) fn abandon_open(&self) {
        self.files.all().iter().filter(|open| open.writes).for_each(|open| abandon(&open.file()));
    }

    /// At the end of the mount: publishes objects whose last close the kernel may not have
    /// reported.
    pub(super) fn end_closed(&self) {
        if !self.writes_objects() {
            return;
        }
        self.closings.wait();
        for open in self.files.all() {
            if open.writes && open.closing.is_finished(self.kernel_file(open.inode)) {
                let _told_to_the_log = self.end_writing(&open);
            }
        }
    }
}

fn abandon(file: &File) {
    if let Some(upload) = file.upload() {
        upload.abandon();
    }
}

/// Suffixes of SQLite's journal files.
const JOURNALS: [&str; 2] = ["-journal", "-wal"];

/// The process of a thread.
fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn is_alive(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_counts_from_the_opener_or_after_its_exit() {
        let ours = std::process::id();
        let closing = Closing { opener: ours, ..Closing::default() };
        assert!(closing.publishes(ours) && closing.publishes(0));
        let thread = fs::read_link("/proc/thread-self").expect("Linux has it");
        let thread = thread.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
        assert!(closing.publishes(thread), "a thread of it");
        assert!(!closing.publishes(1), "another, while it lives");
        // Process IDs do not reach this value.
        assert!(Closing { opener: 1 << 30, ..Closing::default() }.publishes(1));
        assert!(Closing::default().publishes(1));
    }

    #[test]
    fn the_end_waits_for_closes_in_progress() {
        let closings = Closings::default();
        let being_closed = closings.begin();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| closings.wait());
            assert!(!waits.is_finished());
            drop(being_closed);
            waits.join().expect("it ends");
        });
    }
}
