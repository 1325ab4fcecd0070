//! The crate's own mount over data in memory: requests are those that reach the store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, thread};

use bowwave_engine::backend::{Backend, Error, ErrorKind, Identity, Object, ReadBuf, ReadSink, Result};
use bowwave_engine::{Engine, Options, Policy};
use bowwave_fuse::{KernelCache, Mount, MountOptions};

use crate::choice::Choice;
use crate::{FILE_BYTES, Seen};

/// Mounts with the crate's defaults.
pub(crate) fn mount(dir: &Path, data: &Arc<Vec<u8>>, seen: &Arc<Seen>, choice: &Choice) -> Mount {
    let identity = Identity { size: FILE_BYTES as u64, ..Identity::default() };
    let (data, seen) = (Arc::clone(data), Arc::clone(seen));
    // Without readahead, so that the kernel's own is seen.
    let options = Options { policy: Policy::None, ..Options::default() };
    let engine = Engine::new(options).expect("there is memory");
    let store = engine.store_of(Arc::new(Everything { data, seen, slow: choice.slow, identity }));
    let kernel_cache = if choice.direct { KernelCache::Off } else { KernelCache::On };
    let options = MountOptions { kernel_cache, ..MountOptions::default() };
    Mount::new(store, dir, options).expect("mounts can be made here")
}

/// A store in which every name is a file with the same data.
#[derive(Clone)]
struct Everything {
    data: Arc<Vec<u8>>,
    seen: Arc<Seen>,
    slow: bool,
    identity: Identity,
}

impl fmt::Debug for Everything {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Everything")
    }
}

impl Backend for Everything {
    fn url(&self) -> &str {
        "memory://bench"
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        if path.as_os_str().is_empty() {
            return Err(Error::new(ErrorKind::IsADirectory, "the root"));
        }
        Ok(Arc::new(self.clone()))
    }
}

impl Object for Everything {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read(&self, offset: u64, mut buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.seen.note(offset, buf.len() as u64);
        let (data, slow) = (Arc::clone(&self.data), self.slow);
        let serve = move || {
            if slow {
                thread::sleep(slow_time(buf.len()));
            }
            let start = usize::try_from(offset).expect("within the file");
            let len = buf.len();
            buf.copy_in(0, &data[start..start + len]);
            sink.done(buf, Ok(len));
        };
        if slow {
            drop(thread::spawn(serve));
        } else {
            serve();
        }
    }
}

/// Duration of a request of `bytes` bytes: S3's time to first byte, and the rate of one connection.
pub(crate) fn slow_time(bytes: usize) -> Duration {
    Duration::from_millis(30) + Duration::from_secs_f64(bytes as f64 / 90e6)
}
