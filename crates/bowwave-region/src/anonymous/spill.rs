//! Storage for pages that do not fit into memory: a file, or an object of any store with in-place
//! writes.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowwave_backend::descriptors::own;
use bowwave_backend::{
    Allocate, Backend, ErrorKind, FileBackend, FileIo, OpenWrite, Profile, Write as _, WriteObject, Writes,
    read_exact, write_exact,
};
use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};
use crate::uffd::SYSTEM_PAGE;

/// Storage for pages that do not fit into memory, and its size.
///
/// Pages are stored unencrypted. A file is readable only by its owner, and used by one process at a
/// time.
#[derive(Clone, Debug)]
pub struct Spill {
    place: Place,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum Place {
    File(PathBuf),
    Store(Arc<dyn Backend>, PathBuf),
}

impl Spill {
    /// A file of `bytes` bytes. If `path` is a directory, an unnamed file in it, freed with the
    /// swap.
    ///
    /// [`Swap::new`](crate::Swap::new) allocates the space if the file system supports it. An
    /// existing file must be empty or a former spill; it is kept, with its space. A new file is
    /// removed at the end.
    pub fn file(path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { place: Place::File(path.into()), bytes }
    }

    /// An object of a store that accepts writes at any offset. It is created if missing, and kept.
    /// The caller must ensure exclusive use.
    pub fn store(store: Arc<dyn Backend>, path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { place: Place::Store(store, path.into()), bytes }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// An open spill, used exclusively.
#[derive(Debug)]
pub(super) struct OpenSpill {
    pub(super) object: Arc<dyn WriteObject>,
    pub(super) profile: Profile,
    /// Pages of space, including the header.
    pub(super) slots: u64,
    /// Locks the file while it is open.
    _lock: Option<File>,
    /// Path to remove at the end.
    remove: Option<PathBuf>,
}

impl Spill {
    pub(super) fn open(&self) -> Result<OpenSpill> {
        let slots = self.bytes / SYSTEM_PAGE as u64;
        if !(2..=u64::from(u32::MAX)).contains(&slots) {
            let message = format!("a spill of {} bytes: it takes from 8 KiB to 16 TiB", self.bytes);
            return Err(Error::Range(message));
        }
        match &self.place {
            Place::File(path) => open_file(path, slots),
            Place::Store(store, path) => {
                let object = open_object(&**store, path)?;
                reserve(&*object, slots, &path.display().to_string())?;
                Ok(OpenSpill { object, profile: store.profile(), slots, _lock: None, remove: None })
            }
        }
    }
}

impl Drop for OpenSpill {
    fn drop(&mut self) {
        if let Some(path) = &self.remove {
            // It may be removed already; further errors have no receiver.
            let _removed = std::fs::remove_file(path);
        }
    }
}

fn system(wanted: &'static str, hint: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::System { wanted, error, hint }
}

fn open_file(path: &Path, slots: u64) -> Result<OpenSpill> {
    let is_directory = path.metadata().is_ok_and(|metadata| metadata.is_dir());
    let path = if is_directory { unique_path_in(path) } else { path.to_owned() };
    let created = !path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let lock = own(|| options.open(&path)).map_err(system(
        "open the spill file",
        "name a file on a disk that you may write to, or a directory",
    ))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        system("lock the spill file", "another program swaps to it: name another file")(error.into())
    })?;
    let remove = created.then(|| path.clone());
    let metadata = lock.metadata().map_err(system("read the attributes of the spill file", ""))?;
    if !metadata.is_file() {
        return Err(Error::Range(format!("{}: a spill must be a file or a directory", path.display())));
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let name = path.file_name().ok_or_else(|| Error::Range(format!("{}: has no name", path.display())))?;
    let store = FileBackend::open(directory.unwrap_or_else(|| Path::new(".")), FileIo::Auto, true, None)?;
    let store = store.with_all_writes_direct();
    let object = open_object(&store, Path::new(name))?;
    let mut spill = OpenSpill { object, profile: store.profile(), slots, _lock: Some(lock), remove };
    if metadata.size() > 0 {
        check_header(&*spill.object, metadata.size(), &path)?;
    }
    reserve(&*spill.object, slots, &path.display().to_string())?;
    if is_directory {
        std::fs::remove_file(&path).map_err(system("remove the name of the spill file", ""))?;
        spill.remove = None;
    }
    Ok(spill)
}

/// A unique name in a directory.
fn unique_path_in(directory: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    directory.join(format!(".bowwave-swap-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn open_object(store: &dyn Backend, path: &Path) -> Result<Arc<dyn WriteObject>> {
    let writes = store.profile().writes;
    if writes != Writes::Anywhere {
        let why = if writes == Writes::No { "it is only read" } else { "it writes whole objects only" };
        return Err(Error::Range(format!("cannot spill to {}: {why}; name a file, or memory:", store.url())));
    }
    let how = OpenWrite { create: true, mode: 0o600, ..OpenWrite::default() };
    Ok(store.open_write(path, &how)?)
}

/// Allocates space for all slots, if the store supports it, and writes the header.
fn reserve(object: &dyn WriteObject, slots: u64, place: &str) -> Result<()> {
    let bytes = slots * SYSTEM_PAGE as u64;
    match object.allocate(0, bytes, Allocate::Reserve { keep_size: false }) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Unsupported => object.set_len(bytes)?,
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            // Free the partial allocation.
            let _cut = object.set_len(0);
            return Err(Error::Range(format!(
                "{place}: {bytes} bytes of spill do not fit on the disk: {error}; make room, or spill less"
            )));
        }
        Err(error) => return Err(error.into()),
    }
    let mut header = vec![0; SYSTEM_PAGE];
    (&mut header[..]).write_all(MAGIC).expect("it is shorter than a page");
    Ok(write_exact(object, 0, &header, PATIENCE)?)
}

/// Fails unless the file was a spill before: a mistyped name must not overwrite data.
fn check_header(object: &dyn WriteObject, size: u64, path: &Path) -> Result<()> {
    let len = MAGIC.len().min(usize::try_from(size).unwrap_or(usize::MAX));
    if read_exact(object, 0, len, PATIENCE)? == MAGIC {
        return Ok(());
    }
    let place = path.display();
    Err(Error::Range(format!("{place}: is not a spill file; give a new file, or remove that one")))
}

/// First bytes of a spill.
const MAGIC: &[u8] = b"bowwave spill 1\n";
/// Timeout for the header.
const PATIENCE: Duration = Duration::from_secs(30);
