//! Where the demo reads: through a mount, or in this process without one.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowwave_engine::Store;
use bowwave_fuse::{Mount, MountOptions};

use crate::Failure;
use crate::logging;
use crate::mounted::Calls;

/// Where files are opened.
#[derive(Debug)]
pub(super) enum Place {
    /// Through the kernel, as any program.
    Mounted(Mounted),
    /// By engine calls.
    Process(Store),
}

/// A mount at a temporary directory; dropping removes both.
#[derive(Debug)]
pub(super) struct Mounted {
    /// `None` only during drop.
    mount: Option<Mount>,
    dir: PathBuf,
}

/// An open file.
pub(super) enum Reading<'a> {
    Mounted(fs::File, &'a Path),
    Process(bowwave_engine::File),
}

impl Place {
    /// Mounts `store` at a new directory.
    pub(super) fn mounted(store: Store, options: MountOptions) -> Result<Self, Failure> {
        let dir = new_directory()?;
        logging::to_stderr();
        match Mount::with_listener(store, &dir, options, Arc::<Calls>::default().listener()) {
            Ok(mount) => Ok(Self::Mounted(Mounted { mount: Some(mount), dir })),
            Err(error) => {
                let _best_effort = fs::remove_dir(&dir);
                Err(Failure::failed(error))
            }
        }
    }

    /// Opens a file.
    pub(super) fn open(&self, name: &Path) -> Result<Reading<'_>, Failure> {
        match self {
            Self::Mounted(mounted) => {
                let path = mounted.dir.join(name);
                let file = fs::File::open(&path).map_err(|error| of_system(&path, &error))?;
                Ok(Reading::Mounted(file, &mounted.dir))
            }
            Self::Process(store) => store.open(name).map(Reading::Process).map_err(Failure::from),
        }
    }
}

impl Reading<'_> {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure> {
        match self {
            Self::Mounted(file, dir) => file.read_at(buffer, offset).map_err(|error| of_system(dir, &error)),
            Self::Process(file) => file.read_at(offset, buffer).map_err(Failure::from),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.mount.take());
        // Never recursive: if the unmount failed, the mount still has files.
        let _best_effort = fs::remove_dir(&self.dir);
    }
}

/// An empty directory of this process.
fn new_directory() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir();
    for number in 0..1000 {
        let dir = base.join(format!("bowwave-demo-{}-{number}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(failed!("cannot make {}: {error}", dir.display())
                    .try_this("TMPDIR=/some/directory bowwave demo"));
            }
        }
    }
    Err(failed!("{}: too many directories of demos", base.display()))
}

fn of_system(path: &Path, error: &std::io::Error) -> Failure {
    failed!("{}: {error}", path.display())
}
