//! A store of generated files whose every byte can be verified without storing it.
//!
//! A file's name begins with its size (`1GiB`, `3000000000`, `64KiB-b`). Its bytes are a function
//! of its path and the offset, so any reader can verify them with [`fill`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowwave_core::fill_pattern;

use crate::generate::{Source, SourceObject};
use crate::{
    Backend, Entry, EntryKind, Error, ErrorKind, Identity, Namespace, Object, Profile, ReadBuf, Result,
};
use crate::{path, units};

/// The generated files below one path. Its directories list as empty, yet every valid name in them
/// opens.
#[derive(Debug, Clone)]
pub struct PatternBackend {
    url: String,
    base: PathBuf,
}

impl PatternBackend {
    /// The store of all generated files at and below `base`; a single object if `base` itself
    /// begins with a size.
    ///
    /// # Errors
    /// `InvalidUrl` if `base` is not a relative, normal path.
    pub fn new(base: impl Into<PathBuf>) -> Result<Self> {
        let base = base.into();
        let url = format!("pattern:/{}", base.display());
        path::check(&base).map_err(|error| Error::new(ErrorKind::InvalidUrl, format!("{url}: {error}")))?;
        Ok(Self { url, base })
    }

    /// The size in the name, if it is a file's.
    fn size_of(path: &Path) -> Option<u64> {
        units::leading_size(path.file_name()?.to_str()?)
    }

    /// The path from the root of the scheme.
    fn full(&self, path: &Path) -> PathBuf {
        // Joining an empty path would add a slash, and so change the seed.
        if path.as_os_str().is_empty() { self.base.clone() } else { self.base.join(path) }
    }

    fn missing(&self, path: &Path) -> Error {
        let place = path::place(&self.url, path);
        let message =
            format!("{place}: no such file; a pattern's name begins with its size, such as `64KiB-b`");
        Error::new(ErrorKind::NotFound, message)
    }
}

impl Backend for PatternBackend {
    fn url(&self) -> &str {
        &self.url
    }

    fn profile(&self) -> Profile {
        Profile { latency: Duration::from_micros(1), ..Profile::read_only("pattern") }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Object>> {
        let entry = self.stat(path)?;
        if entry.kind == EntryKind::Directory {
            return Err(path::is_a_directory(&self.url, path));
        }
        let full = self.full(path);
        let source = Synthetic { seed: seed(&full), size: entry.size };
        Ok(Arc::new(SourceObject::new(identity(&full, entry.size), Arc::new(source))))
    }

    fn namespace(&self) -> Option<&dyn Namespace> {
        Some(self)
    }
}

impl Namespace for PatternBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        path::check(path)?;
        let full = self.full(path);
        let name = path.file_name().unwrap_or_default();
        if full
            .parent()
            .is_some_and(|parent| parent.ancestors().any(|directory| Self::size_of(directory).is_some()))
        {
            return Err(path::not_found(&self.url, path));
        }
        match Self::size_of(&full) {
            Some(size) => {
                let identity = Some(identity(&full, size));
                Ok(Entry { size, identity, ..Entry::new(name, EntryKind::File) })
            }
            None if path.as_os_str().is_empty() => Ok(Entry::directory(name)),
            None => Err(self.missing(path)),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        match self.stat(path)?.kind {
            EntryKind::Directory => Ok(Vec::new()),
            _ => Err(path::not_a_directory(&self.url, path)),
        }
    }
}

/// The seed of the generated file at `path` (from the root of the scheme: `256MiB` for
/// `pattern:/256MiB`).
pub fn seed(path: &Path) -> u64 {
    // FNV-1a: short, and the same on every machine.
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Writes the bytes at `offset` of the generated file with this [`seed`].
///
/// ```
/// use bowwave_backend::pattern;
///
/// let seed = pattern::seed("1GiB".as_ref());
/// let (mut all, mut part) = ([0; 32], [0; 5]);
/// pattern::fill(seed, 0, &mut all);
/// pattern::fill(seed, 7, &mut part);
/// assert_eq!(part, all[7..12]);
/// ```
pub fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    // In the core, which a debug build optimises, too.
    fill_pattern(seed, offset, bytes);
}

fn identity(full: &Path, size: u64) -> Identity {
    Identity { etag: Some(format!("\"{:016x}-{size:x}\"", seed(full))), size, ..Identity::default() }
}

#[derive(Debug)]
struct Synthetic {
    seed: u64,
    size: u64,
}

impl Source for Synthetic {
    fn size(&self) -> u64 {
        self.size
    }

    fn fill(&self, offset: u64, buf: &mut ReadBuf, at: usize, len: usize) {
        buf.fill_with(at..at + len, |position, bytes| {
            fill(self.seed, offset + (position - at) as u64, bytes)
        });
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_equals_the_same_range_of_the_whole() {
        let seed = seed(Path::new("x"));
        let mut whole = [0; 64];
        fill(seed, 0, &mut whole);
        for from in 0..64 {
            for to in from..=64 {
                let mut part = vec![0; to - from];
                fill(seed, from as u64, &mut part);
                assert_eq!(part, whole[from..to], "{from}..{to}");
            }
        }
    }

    #[test]
    fn the_name_contains_the_size_and_a_file_is_no_directory() {
        let store = PatternBackend::new("").unwrap();
        assert_eq!(store.stat("64KiB-b".as_ref()).unwrap().size, 65536);
        assert_eq!(store.open("directory/3000000000".as_ref()).unwrap().size(), 3_000_000_000);
        assert_eq!(store.stat("word".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(store.stat("1KiB/1KiB".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(PatternBackend::new("1GiB").unwrap().open("".as_ref()).unwrap().size(), 1 << 30);
    }
}
