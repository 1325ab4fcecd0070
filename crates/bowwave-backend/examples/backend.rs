//! A complete store of another crate, read through this crate's own helper. An engine reads it as
//! `engine.store_of(Arc::new(map))`, and a mount shows it.
//!
//! `cargo run -p bowwave-backend --example backend`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bowwave_backend::{Backend, Error, ErrorKind, Identity, Object, ReadBuf, ReadSink, Result, read_exact};

// The backend begins here.
/// Objects by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map(Arc<RwLock<HashMap<PathBuf, Arc<Version>>>>);

/// One version of an object: its identity and bytes, and whether it was replaced.
#[derive(Debug)]
struct Version(Identity, Vec<u8>, AtomicBool);

impl Backend for Map {
    fn url(&self) -> &str {
        "map:"
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let found = self.0.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        found.map(|object| object as _).ok_or_else(|| Error::new(ErrorKind::NotFound, "not in the map"))
    }
}

impl Object for Version {
    fn identity(&self) -> &Identity {
        &self.0
    }
    fn read(&self, offset: u64, mut buf: ReadBuf, sink: Box<dyn ReadSink>) {
        if self.2.load(Ordering::Acquire) {
            return sink.done(buf, Err(Error::new(ErrorKind::Changed, "replaced")));
        }
        let bytes = usize::try_from(offset).ok().and_then(|at| self.1.get(at..)).unwrap_or_default();
        let count = bytes.len().min(buf.len());
        buf.copy_in(0, &bytes[..count]);
        sink.done(buf, Ok(count));
    }
}
// The backend ends here.

impl Map {
    /// Puts an object, in place of any other.
    pub(crate) fn put(&self, path: impl Into<PathBuf>, bytes: &[u8]) {
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        let mut objects = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A version has a tag of its own, so that pages of two versions never mix.
        let tag = format!("\"{}\"", VERSIONS.fetch_add(1, Ordering::Relaxed));
        let identity = Identity { etag: Some(tag), size: bytes.len() as u64, ..Identity::default() };
        let version = Version(identity, bytes.to_vec(), AtomicBool::new(false));
        if let Some(replaced) = objects.insert(path.into(), Arc::new(version)) {
            replaced.2.store(true, Ordering::Release);
        }
    }
}

#[allow(dead_code, reason = "tests include this file for its backend")]
fn main() -> Result<()> {
    let map = Map::default();
    map.put("greeting", b"hello, world");
    let object = map.open("greeting".as_ref())?;
    let bytes = read_exact(&*object, 7, 5, Duration::from_secs(1))?;
    println!("{}", String::from_utf8_lossy(&bytes));
    Ok(())
}
