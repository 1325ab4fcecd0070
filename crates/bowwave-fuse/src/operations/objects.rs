//! What is different where whole objects are written: when one is published, and what the kernel may keep of it.
//!
//! An object is published by its closing. The kernel tells of each closed descriptor (FLUSH), and, later and to nobody, that
//! the last is closed (RELEASE). Descriptors are closed while a file is still being written: a shell opens a file, has it
//! inherited by one program after the other, and each closes its copy at its end. So a FLUSH counts when it comes from the
//! process that opened the file, or from another once that one is gone; everything else is left to RELEASE.
//!
//! Descriptors are closed before anything is written, too: a shell that redirects opens a file, makes a second descriptor,
//! and closes the first. So of an object that nothing was written to a FLUSH counts when the process has no other descriptor
//! to write it with.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowwave_engine::backend::{Error, ErrorKind, Writes};
use fuser::Errno;

use super::{OpenHandle, Operations, Pages};
use crate::descriptors;
use crate::tree::{OpenFile, Tree};

/// Whose closing of a file is its end.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Process that opened it; 0 where it does not matter, or cannot be known.
    opener: u32,
    /// A descriptor of it was closed, and nothing written since.
    seen: AtomicBool,
}

impl Closing {
    /// Whether the closing of a descriptor by this process, or a thread of it, is to publish.
    pub(super) fn is_meant(&self, process: u32) -> bool {
        self.seen.store(true, Ordering::Relaxed);
        self.opener == 0
            || process == 0
            || process == self.opener
            || process_of(process).is_none_or(|process| process == self.opener)
            || !is_alive(self.opener)
    }

    /// Whether the process that closes a descriptor has no other one to write this inode with, so that nothing more will be
    /// written; not if that cannot be told.
    pub(super) fn is_last(&self, process: u32, inode: u64) -> bool {
        let process = if self.opener == 0 { None } else { process_of(process) };
        // Who ends has nothing open any more.
        process
            .is_some_and(|process| descriptors::can_write(process, inode, false).is_ok_and(|writes| !writes))
    }

    /// Whether nobody is known to be able to write more: a descriptor was closed, nothing was written since, and the process
    /// that opened the file has no other one, as when only a program that it started has closed its own.
    fn is_over(&self, inode: u64) -> bool {
        let goes_on =
            || self.opener != 0 && descriptors::can_write(self.opener, inode, true).unwrap_or(false);
        self.seen.load(Ordering::Relaxed) && !goes_on()
    }

    /// Something was written.
    pub(super) fn goes_on(&self) {
        self.seen.store(false, Ordering::Relaxed);
    }
}

/// Files that are being closed.
#[derive(Debug, Default)]
pub(super) struct Closings {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: Mutex<u64>,
    none: Condvar,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct BeingClosed(Arc<Shared>);

impl Closings {
    fn begins(&self) -> BeingClosed {
        *self.shared.lock() += 1;
        BeingClosed(Arc::clone(&self.shared))
    }

    /// Waits until none is.
    fn wait(&self) {
        let mut count = self.shared.lock();
        while *count > 0 {
            count = self.shared.none.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BeingClosed {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.none.notify_all();
    }
}

impl<T: Tree> Operations<T> {
    /// Whether whole objects are what can be written.
    pub(crate) fn writes_objects(&self) -> bool {
        self.is_writable() && self.layout.tree().writes() == Writes::Whole
    }

    /// What the kernel may keep of a file that was opened: nothing of an object that is being written, which nobody can read.
    pub(crate) fn pages(&self, writes: bool, pages: Pages) -> Pages {
        if writes && self.writes_objects() { Pages::None } else { pages }
    }

    /// How long the kernel may trust what it is told of an inode. Of an object that is being written not at all: if that
    /// fails, it is as it was before. To be asked for before the attributes are.
    pub(crate) fn trust(&self, inode: u64) -> Duration {
        let is_draft = self.writes_objects() && self.inodes.has_writers(inode);
        if is_draft { Duration::ZERO } else { self.options.ttl }
    }

    /// Whose closing counts, of a file that `process` opens.
    pub(super) fn closing(&self, writes: bool, process: u32) -> Closing {
        let counts = writes && process != 0 && self.writes_objects();
        let opener = if counts { process_of(process).unwrap_or(0) } else { 0 };
        Closing { opener, ..Closing::default() }
    }

    /// Refuses the journal of a SQLite database that is open for writing: SQLite is then told that the database can only be
    /// read, before it changes anything. A database that was just created, and is empty, is not published.
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
        for open in open {
            if open.file.is_dirty() && open.file.size() == 0 {
                open.file.abandon();
            }
        }
        let message = format!(
            "{}: a SQLite database cannot be changed in an object store, whose objects are written from front to back; \
             change a copy on a disk, and copy it back",
            database.display()
        );
        Err(self.fail(path, &Error::new(ErrorKind::PermissionDenied, message)))
    }

    /// A file is going to be closed.
    pub(crate) fn closing_begins(&self) -> BeingClosed {
        self.closings.begins()
    }

    /// Publishes an object whose last descriptor is closed.
    pub(super) fn end_writing(&self, open: &OpenHandle<T::File>) -> Result<(), Errno> {
        self.stamps.drop(open.inode);
        open.file.end_writing().map_err(|error| self.fail(&open.path, &error))
    }

    /// For the end of the mount: no half object is published because nobody can go on with it.
    pub(super) fn abandon_open(&self) {
        self.files.all().iter().filter(|open| open.writes).for_each(|open| open.file.abandon());
    }

    /// For the end of the mount: the kernel may not have told of the last closings.
    pub(super) fn end_closed(&self) {
        if !self.writes_objects() {
            return;
        }
        self.closings.wait();
        for open in self.files.all() {
            if open.writes && open.closing.is_over(self.inodes.shown(open.inode)) {
                let _told_to_the_log = self.end_writing(&open);
            }
        }
    }
}

/// What SQLite adds to the name of a database for what it writes first.
const JOURNALS: [&str; 2] = ["-journal", "-wal"];

/// The process that a thread belongs to.
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
    fn a_closing_counts_from_the_opener_and_from_others_once_it_is_gone() {
        let ours = std::process::id();
        let closing = Closing { opener: ours, ..Closing::default() };
        assert!(closing.is_meant(ours) && closing.is_meant(0));
        let thread = fs::read_link("/proc/thread-self").expect("Linux has it");
        let thread = thread.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
        assert!(closing.is_meant(thread), "a thread of it");
        assert!(!closing.is_meant(1), "another, while it lives");
        // No process has so high a number.
        assert!(Closing { opener: 1 << 30, ..Closing::default() }.is_meant(1));
        assert!(Closing::default().is_meant(1));
    }

    #[test]
    fn the_end_waits_for_what_is_being_closed() {
        let closings = Closings::default();
        let being_closed = closings.begins();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| closings.wait());
            assert!(!waits.is_finished());
            drop(being_closed);
            waits.join().expect("it ends");
        });
    }
}
