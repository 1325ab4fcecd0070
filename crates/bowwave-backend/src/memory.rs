//! A store in memory, which tests can change under a reader.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

use crate::generate::{Made, Source};
use crate::{Backend, Entry, EntryKind, Identity, Object, Profile, ReadBuf, Result, path};

/// Objects in memory by path; folders are there as soon as something is in them.
///
/// Clones share the same objects. Where a path is both an object and a folder, the object is shown.
///
/// ```
/// use bowwave_backend::{Backend, MemoryBackend};
///
/// let store = MemoryBackend::new();
/// store.insert("folder/object", b"bytes".to_vec());
/// assert_eq!(store.open("folder/object".as_ref()).unwrap().size(), 5);
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

impl MemoryBackend {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `bytes` at `path`, in place of what was there: open objects of this path then read as changed. The empty
    /// path makes the store a single object.
    pub fn insert(&self, path: impl Into<PathBuf>, bytes: impl Into<Arc<[u8]>>) {
        let mut objects = self.shared.write();
        objects.versions += 1;
        let version = Version { number: objects.versions, bytes: bytes.into(), modified: SystemTime::now() };
        objects.by_path.insert(path.into(), Arc::new(version));
    }

    /// Takes away the object at `path`; says whether there was one. Open objects of this path then read as changed.
    pub fn remove(&self, path: impl AsRef<Path>) -> bool {
        self.shared.write().by_path.remove(path.as_ref()).is_some()
    }
}

impl Backend for MemoryBackend {
    fn url(&self) -> &str {
        URL
    }

    fn profile(&self) -> Profile {
        Profile { latency: Duration::from_micros(1), ..Profile::read_only("memory") }
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        path::check(path)?;
        let objects = self.shared.read();
        let name = path.file_name().unwrap_or_default();
        if let Some(version) = objects.by_path.get(path) {
            Ok(version.entry(name))
        } else if path.as_os_str().is_empty() || objects.below(path).next().is_some() {
            Ok(Entry::directory(name))
        } else {
            Err(path::not_found(URL, path))
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        path::check(path)?;
        let objects = self.shared.read();
        if objects.by_path.contains_key(path) {
            return Err(path::not_a_directory(URL, path));
        }
        let mut names = BTreeMap::<&OsStr, Entry>::new();
        for (below, version) in objects.below(path) {
            let mut parts = below.iter();
            let Some(name) = parts.next() else { continue };
            if parts.next().is_none() {
                names.insert(name, version.entry(name));
            } else {
                names.entry(name).or_insert_with(|| Entry::directory(name));
            }
        }
        if names.is_empty() && !path.as_os_str().is_empty() {
            return Err(path::not_found(URL, path));
        }
        Ok(names.into_values().collect())
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        if self.stat(path)?.kind == EntryKind::Directory {
            return Err(path::is_a_directory(URL, path));
        }
        let version = self.shared.read().by_path.get(path).map(Arc::clone);
        let version = version.ok_or_else(|| path::not_found(URL, path))?;
        let identity = version.identity();
        let source = Held { path: path.to_owned(), version, shared: Arc::clone(&self.shared) };
        Ok(Arc::new(Made::new(identity, Arc::new(source))))
    }
}

/// One version of an object, held open.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    version: Arc<Version>,
    shared: Arc<Shared>,
}

impl Source for Held {
    fn size(&self) -> u64 {
        self.version.bytes.len() as u64
    }

    fn fill(&self, offset: u64, buf: &mut ReadBuf, at: usize, len: usize) {
        if len > 0 {
            let start = usize::try_from(offset).expect("offset lies within bytes that are in memory");
            buf.copy_in(at, &self.version.bytes[start..start + len]);
        }
    }

    fn check(&self) -> Result<()> {
        match self.shared.read().by_path.get(&self.path) {
            Some(now) if now.number == self.version.number => Ok(()),
            _ => Err(path::changed(&path::place(URL, &self.path))),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    objects: RwLock<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    by_path: BTreeMap<PathBuf, Arc<Version>>,
    versions: u64,
}

#[derive(Debug)]
struct Version {
    number: u64,
    bytes: Arc<[u8]>,
    modified: SystemTime,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects {
    /// The objects below the folder `path`, with their paths from there.
    fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a Path, &'a Version)> {
        // Paths are ordered part by part, so those below a folder stand together, right behind it.
        self.by_path
            .range::<Path, _>((Bound::Included(path), Bound::Unbounded))
            .map_while(move |(found, version)| Some((found.strip_prefix(path).ok()?, &**version)))
            .filter(|(below, _)| !below.as_os_str().is_empty())
    }
}

impl Version {
    fn entry(&self, name: &OsStr) -> Entry {
        Entry {
            name: name.to_owned(),
            kind: EntryKind::File,
            size: self.bytes.len() as u64,
            modified: Some(self.modified),
            mode: None,
            identity: Some(self.identity()),
            unix: None,
        }
    }

    fn identity(&self) -> Identity {
        let etag = Some(format!("\"{}\"", self.number));
        Identity { etag, size: self.bytes.len() as u64, ..Identity::default() }
    }
}

const URL: &str = "memory:";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Fixture};

    impl Fixture for MemoryBackend {
        fn put(&self, path: &str, bytes: &[u8]) {
            self.insert(path, bytes);
        }

        fn store(&self) -> Arc<dyn Backend> {
            Arc::new(self.clone())
        }
    }

    #[test]
    fn memory_conforms() {
        conformance::run(&MemoryBackend::new());
    }

    #[test]
    fn a_removed_object_is_gone_and_its_readers_know() {
        let store = MemoryBackend::new();
        store.insert("a/b", *b"bytes");
        let object = store.open("a/b".as_ref()).unwrap();
        assert!(store.remove("a/b"));
        assert!(!store.remove("a/b"));
        assert_eq!(store.list("a".as_ref()).unwrap_err().kind(), crate::ErrorKind::NotFound);
        let error = crate::read_once(&*object, 0, 5, Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Changed);
    }
}
