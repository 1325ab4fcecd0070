//! The crate's own mount over data in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowwave_engine::backend::{Entry, EntryKind, Error, ErrorKind, Identity, Result};
use bowwave_fuse::{KernelCache, Mount, MountOptions, OpenFile, Tree};

use crate::choice::Choice;
use crate::{FILE_BYTES, Seen};

/// Mounts with the crate's defaults.
pub(crate) fn mount(dir: &Path, data: &Arc<Vec<u8>>, seen: &Arc<Seen>, choice: &Choice) -> Mount {
    let store = Store { data: Arc::clone(data), seen: Arc::clone(seen), slow: choice.slow };
    let kernel_cache = if choice.direct { KernelCache::Off } else { KernelCache::On };
    let options = MountOptions { kernel_cache, ..MountOptions::default() };
    Mount::new(store, dir, options).expect("mounts can be made here")
}

#[derive(Clone)]
struct Store {
    data: Arc<Vec<u8>>,
    seen: Arc<Seen>,
    slow: bool,
}

impl Tree for Store {
    type File = Self;

    fn url(&self) -> &str {
        "memory://bench"
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        let root = path.as_os_str().is_empty();
        let kind = if root { EntryKind::Directory } else { EntryKind::File };
        Ok(Entry { size: FILE_BYTES as u64, ..Entry::new(path.file_name().unwrap_or_default(), kind) })
    }

    fn list(&self, _path: &Path) -> Result<Vec<Entry>> {
        Ok(Vec::new())
    }

    fn read_link(&self, _path: &Path) -> Result<PathBuf> {
        Err(Error::new(ErrorKind::Unsupported, "no links"))
    }

    fn open(&self, _path: &Path) -> Result<Self> {
        Ok(self.clone())
    }
}

impl OpenFile for Store {
    fn size(&self) -> u64 {
        FILE_BYTES as u64
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }

    fn version(&self) -> u64 {
        1
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.seen.note(offset, buf.len() as u64);
        if self.slow {
            std::thread::sleep(slow_time(buf.len()));
        }
        let start = usize::try_from(offset).expect("within the file");
        buf.copy_from_slice(&self.data[start..start + buf.len()]);
        Ok(buf.len())
    }
}

/// Duration of a request of `bytes` bytes: S3's time to first byte, and the rate of one connection.
pub(crate) fn slow_time(bytes: usize) -> Duration {
    Duration::from_millis(30) + Duration::from_secs_f64(bytes as f64 / 90e6)
}
