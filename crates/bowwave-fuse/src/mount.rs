//! Creates, waits for and ends a mount.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_engine::backend::Writes;
use bowwave_engine::backend::sync::{Condvar, Mutex};
use bowwave_engine::{SiblingJournal, Store};
use fuser::{Config, Session, SessionACL};

use crate::attributes::Defaults;
use crate::checks;
use crate::deferred::Deferred;
use crate::device::{self, Force, Unmounted};
use crate::error::{Error, Result};
use crate::filesystem::Requests;
use crate::finish::Finish;
use crate::layout::Layout;
use crate::mount_table::{self, Mounted};
use crate::operations::Operations;
use crate::options::{Consistency, MountOptions};
use crate::workers::Workers;

/// Receives details that an error number cannot carry, with the path in the store. Called on the
/// mount's threads.
pub type Listener = Box<dyn Fn(&Path, Told<'_>) + Send + Sync>;

/// An event for a [`Listener`].
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// A program received an error that is not an ordinary result; the cause.
    Failed(&'a bowwave_engine::backend::Error),
    /// For the first opened file whose versions cannot be distinguished reliably: the reason. Needs
    /// [`MountOptions::warns_unversioned`].
    Unversioned(&'a str),
    /// A read of a file. Needs [`MountOptions::tells_reads`].
    Read(ReadCall),
}

/// What happens to the range of a [`ReadCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEvent {
    /// A read begins.
    Begin,
    /// A read has ended.
    End,
    /// The mount reads it ahead, because a file's own table says that it will be read.
    WillNeed,
}

/// A range that the kernel requests, as part of a program's read or as its own readahead; or that
/// the mount reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCall {
    /// The thread that reads.
    pub thread: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes, within the file; at least 1.
    pub length: u64,
    /// What happens to it.
    pub event: ReadEvent,
}

/// A mounted store. Dropping it unmounts, by force if necessary.
#[derive(Debug)]
pub struct Mount {
    unmounter: Unmounter,
    announcer: Announcer,
    readahead_bytes: Option<u32>,
    read_only: bool,
}

/// Announces files of a mount.
#[derive(Clone, Debug)]
pub struct Announcer(Weak<Operations>);

impl Announcer {
    /// A program will open these files in this order: they are read ahead in it, up to half of the
    /// cache and 128 files at once. Paths are relative to the mount. The list follows the last one
    /// if `append`, otherwise it takes its place. A list of which no file is opened for ten minutes
    /// is dropped.
    ///
    /// # Errors
    /// What is wrong: a path that leaves the mount, more than a million files, or a mount that
    /// reads no files ahead.
    pub fn announce(&self, paths: Vec<PathBuf>, append: bool) -> Result<()> {
        let leaves = |path: &&PathBuf| !path.components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(path) = paths.iter().find(leaves) {
            return Err(Error::new(format!("{}: not a path below the mount point", path.display())));
        }
        let operations = self.0.upgrade().ok_or_else(|| Error::new("the mount has ended".to_owned()))?;
        operations.announce(paths, append).map_err(Error::new)
    }
}

impl Mount {
    /// Mounts `store` at the directory `dir`, which must exist and be empty.
    ///
    /// # Errors
    /// One line with cause and remedy: a problem of the mount point, of this machine (see
    /// [`is_available`](crate::is_available)), or of the store's root. Nothing stays mounted.
    pub fn new(store: Store, dir: &Path, options: MountOptions) -> Result<Self> {
        Self::with_listener(store, dir, options, Box::new(|_, _| {}))
    }

    /// As [`new`](Self::new), with a listener for errors.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_listener(
        store: Store,
        dir: &Path,
        options: MountOptions,
        listener: Listener,
    ) -> Result<Self> {
        let point = checks::mount_point(dir)?;
        let source = store.url().to_owned();
        let readahead_bytes = options.readahead_bytes();
        let write_out_timeout = options.write_out_timeout;
        let allow_other = options.allow_other;
        let workers = Workers::new(RECEIVERS, options.requests_max.max(1));
        let operations = Arc::new(operations_of(store, options, listener)?);
        let read_only = !operations.is_writable();
        let finish = (!read_only).then(|| {
            let operations = Arc::clone(&operations);
            Finish::new(write_out_timeout, move || operations.sync_all())
        });

        // Only root may use a private mount of root, and passes all checks of an open.
        let checks = allow_other || !rustix::process::geteuid().is_root() || !operations.lists_partly();
        let connection = device::mount(&point, &source, (allow_other, checks), read_only)?;
        let device = match mount_table::find(&point) {
            Ok(Some(entry)) if checks::is_ours(&entry.fs_type) => entry.device,
            _ => return Err(Error::new(format!("{}: the new mount is gone already", point.display()))),
        };
        let _ = operations.device.set(device);
        let ended = Arc::new(Ended::default());
        let unmounter = Unmounter { point, device, ended: Arc::clone(&ended), finish: finish.clone() };
        // From here on, an early return drops `mount`, which unmounts.
        let announcer = Announcer(Arc::downgrade(&operations));
        let mut mount = Self { unmounter, announcer, readahead_bytes: None, read_only };
        let failed = |error: io::Error| Error::new(format!("{source}: the mount failed: {error}"));
        let mut config = Config::default();
        config.acl = if allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(RECEIVERS);
        operations.start_siblings();
        if operations.defers_attributes() {
            Deferred::start(&operations).map_err(failed)?;
        }
        let requests = Requests::new(Arc::clone(&operations), workers);
        let session = Session::from_fd(requests, connection, config.acl, config).map_err(failed)?;
        let _ = operations.notifier.set(session.notifier());
        // The session holds the operations until its end.
        drop(operations);
        // Detached: at unmount it may still wait for a slow store, and the unmount must not wait
        // for it.
        thread::Builder::new()
            .name("bowwave-fuse".to_owned())
            .spawn(move || {
                let result = outcome_of(session.run());
                // However it was unmounted, no more writes arrive.
                let finished = finish.map_or(Ok(()), |finish| finish.run());
                ended.set(result.and(finished));
            })
            .map_err(failed)?;
        mount.readahead_bytes = device::set_readahead(device, readahead_bytes);
        Ok(mount)
    }

    /// The mount point, absolute and without symbolic links.
    pub fn point(&self) -> &Path {
        &self.unmounter.point
    }

    /// Major and minor number of its device, as in the mount table.
    pub fn device(&self) -> (u32, u32) {
        self.unmounter.device
    }

    /// The kernel's effective readahead window for this mount, in bytes; `None` if it cannot be
    /// read.
    pub fn kernel_readahead_bytes(&self) -> Option<u32> {
        self.readahead_bytes
    }

    /// Whether the mount is read-only, because of its options or because of the store.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// A handle that unmounts from another thread, for example on Ctrl-C.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// All events of readahead across files so far, which
    /// [replay](SiblingJournal::replays) to the same decisions, if
    /// [`MountOptions::journal_events`] enables it.
    pub fn sibling_journal(&self) -> Option<SiblingJournal> {
        self.announcer.0.upgrade()?.sibling_journal()
    }

    /// A handle that announces files from any thread.
    #[must_use]
    pub fn announcer(&self) -> Announcer {
        self.announcer.clone()
    }

    /// Waits until the mount ends, through `bowwave umount`, `fusermount3 -u`,
    /// `umount`, or [`Unmounter::unmount`].
    ///
    /// # Errors
    /// If the connection to the kernel broke, or if some writes have not reached the store.
    pub fn wait(&self) -> Result<()> {
        self.unmounter.ended.wait(None).unwrap_or(Ok(()))
    }

    /// Unmounts, by force if the mount is in use; reads in flight then fail.
    ///
    /// # Errors
    /// As [`Unmounter::unmount`].
    pub fn unmount(self) -> Result<()> {
        self.unmounter.unmount()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // `drop` cannot return the error; `unmount` does.
        let _ = self.unmounter.unmount();
    }
}

/// How a session has ended.
///
/// The kernel gives `ENODEV` to a receiver of an unmounted connection, which `fuser` takes for the
/// end, and `ECONNABORTED` to one that was just receiving a request (`fuse_dev_do_read`).
fn outcome_of(session: io::Result<()>) -> Result<()> {
    match session {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CONNABORTED.raw_os_error()) => Ok(()),
        Err(error) => Err(Error::new(format!("the mount ended: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// The operations of a mount of `store`.
///
/// # Errors
/// If the store's root cannot be read.
pub(crate) fn operations_of(store: Store, options: MountOptions, listener: Listener) -> Result<Operations> {
    let source = store.url().to_owned();
    let of_store = |error: bowwave_engine::backend::Error| Error::new(format!("{source}: {error}"));
    let process = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let defaults = Defaults {
        uid: options.uid.unwrap_or(process.0),
        gid: options.gid.unwrap_or(process.1),
        own: options.uid.is_some() || options.gid.is_some(),
        file_mode: options.file_mode.unwrap_or(0o644),
        dir_mode: options.dir_mode.unwrap_or(0o755),
        modified: SystemTime::now(),
        writable: !options.read_only && store.writes() != Writes::No,
        process,
    };
    let mut options = options;
    let keeps_names = store.backend().keep_names(options.keep_names()).is_some();
    if options.consistency == Consistency::Strict {
        options.ttl = Duration::ZERO;
    }
    let layout = Layout::new(store).map_err(of_store)?;
    Operations::new(layout, options, defaults, (listener, keeps_names)).map_err(of_store)
}

/// Unmounts a [`Mount`] from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    point: PathBuf,
    device: (u32, u32),
    ended: Arc<Ended>,
    /// Writes out dirty data; `None` for a read-only mount.
    finish: Option<Finish>,
}

impl Unmounter {
    /// Unmounts, by force if the mount is in use, and waits briefly for requests in flight. Does
    /// nothing when called again.
    ///
    /// Force fails the reads of other processes if this process is root or the kernel's control
    /// file system is mounted (`/sys/fs/fuse/connections`, as on most systems). Otherwise the mount
    /// leaves the file tree immediately, and open files stay readable until they are closed or this
    /// process ends.
    ///
    /// Before it returns, dirty data is written to the store, for at most
    /// [`MountOptions::write_out_timeout`]. The directory is unmounted before that.
    ///
    /// # Errors
    /// If it cannot be unmounted, or if some writes have not reached the store.
    pub fn unmount(&self) -> Result<()> {
        if self.is_mounted() {
            let unmounted = device::unmount(&self.point, self.device, Force::IfIdle)?;
            if unmounted == Unmounted::Busy {
                self.write_out_maps();
                device::unmount(&self.point, self.device, Force::Always)?;
            }
        }
        if self.ended.unmounted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // A request blocked on its store may outlive the mount; its response is discarded.
        let ended = self.ended.wait(Some(END_WAIT));
        let finished = self.finish.as_ref().map_or(Ok(()), Finish::run);
        if ended.is_none() {
            // The session may never end: release other waiters now.
            self.ended.set(finished.clone());
        }
        finished
    }

    /// Makes the kernel write back memory maps before the mount is detached.
    fn write_out_maps(&self) {
        if self.finish.is_none() {
            return;
        }
        let point = self.point.clone();
        let (send, received) = sync_channel(1);
        // `syncfs` blocks on the store, so the wait below has a limit.
        let started = thread::Builder::new().name("bowwave-maps".to_owned()).spawn(move || {
            if let Ok(dir) = File::open(point) {
                let _best_effort = rustix::fs::syncfs(dir);
            }
            let _nobody_waits_any_more = send.send(());
        });
        if started.is_ok() {
            let _in_time = received.recv_timeout(MAPS_WAIT);
        }
    }

    /// Whether this mount is still at its mount point. Another mount may have replaced it and
    /// reused its device number.
    fn is_mounted(&self) -> bool {
        if self.ended.unmounted.load(Ordering::Acquire) || matches!(self.ended.result(), Some(Ok(()))) {
            return false;
        }
        matches!(mount_table::find(&self.point), Ok(Some(entry)) if entry.device == self.device)
    }
}

/// The bowwave mount at `dir`, alive or dead, of any process.
///
/// # Errors
/// If there is none.
pub fn mounted_at(dir: &Path) -> Result<Mounted> {
    let shown = dir.display();
    let of = |error: io::Error| Error::new(format!("{shown}: {error}"));
    let point = mount_table::absolute(dir).map_err(of)?;
    let Some(entry) = mount_table::find(&point).map_err(of)? else {
        return Err(Error::new(format!(
            "{shown}: nothing is mounted there: `mount -t fuse.bowwave` lists mounts"
        )));
    };
    if !checks::is_ours(&entry.fs_type) {
        let fs_type = entry.fs_type.display();
        return Err(Error::new(format!("{shown}: not a bowwave mount ({fs_type}): use `umount {shown}`")));
    }
    Ok(entry.into())
}

impl Mounted {
    /// Unmounts it. Returns `true` if its file system is still mounted elsewhere: at another
    /// directory, or in another mount namespace, such as a container's. `false`: its process ends,
    /// possibly after it has written out dirty data.
    ///
    /// Without the kernel's control file system, mounts in other namespaces are not found.
    ///
    /// # Errors
    /// If a program uses the mount, or if this user may not unmount it.
    pub fn unmount(&self) -> Result<bool> {
        let shown = self.point.display();
        let before = self.marks();
        match device::unmount(&self.point, self.device, Force::IfIdle)? {
            Unmounted::Done => Ok(self.marks().iter().any(|mark| before.contains(mark))),
            Unmounted::Busy => Err(Error::new(format!(
                "{shown}: a program uses the mount: end it (`fuser -vm {shown}` lists them), or detach the \
                 mount with `fusermount3 -uz {shown}`"
            ))),
        }
    }
}

/// Unmounts the bowwave mount at `dir`, alive or dead, of any process.
///
/// # Errors
/// As [`mounted_at`] and [`Mounted::unmount`].
pub fn unmount(dir: &Path) -> Result<()> {
    mounted_at(dir)?.unmount().map(drop)
}

/// Signals the end of the session to waiting threads.
#[derive(Debug, Default)]
struct Ended {
    /// `Ok` once the kernel has closed the connection.
    result: Mutex<Option<Result<()>>>,
    /// Whether we have unmounted. Requests may still be in flight.
    unmounted: AtomicBool,
    changed: Condvar,
}

impl Ended {
    fn set(&self, result: Result<()>) {
        self.result.lock().get_or_insert(result);
        self.changed.notify_all();
    }

    /// How the session ended, if it has.
    fn result(&self) -> Option<Result<()>> {
        self.result.lock().clone()
    }

    /// Waits for the end of the session; `None` if it has not ended within `limit`.
    fn wait(&self, limit: Option<Duration>) -> Option<Result<()>> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut result = self.result.lock();
        while result.is_none() {
            result = match deadline {
                None => self.changed.wait(result),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    self.changed.wait_timeout(result, left)
                }
            };
        }
        result.clone()
    }
}

/// Threads that read requests. One reads while the others run jobs; see `workers`.
const RECEIVERS: usize = 4;

/// How long an unmount waits for requests in flight. Shorter: warm requests may be cut off.
/// Longer: a slow store delays the unmount.
const END_WAIT: Duration = Duration::from_secs(1);

/// How long a forced unmount waits for the kernel to write back memory maps.
const MAPS_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a mount that was unmounted while the kernel passed a request to it ended with an
    /// error.
    #[test]
    fn a_session_that_was_unmounted_while_it_received_a_request_has_ended_well() {
        let ended = |errno| outcome_of(Err(io::Error::from_raw_os_error(errno)));
        assert!(outcome_of(Ok(())).is_ok() && ended(103).is_ok());
        let error = ended(5).expect_err("the connection broke").to_string();
        assert!(error.starts_with("the mount ended: "), "{error}");
    }
}
