//! The open file or directory of a store behind a descriptor.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use bowwave_engine::backend::sync::Mutex;
use bowwave_engine::{Entry, EntryKind, File, Identity, NamedFile, Namespace as _};
use bowwave_interpose::say;

use crate::errno::{Errno, Result, of_error};
use crate::service::service;
use crate::setup::{Place, setup};

/// An open file or directory, shared by duplicated descriptors.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) place: Place,
    /// Version of the opened object; 0 for directories.
    version: u64,
    /// Reopened on first use in a child and after an exec.
    live: Mutex<Option<Arc<Live>>>,
    /// Serialises reads that move the offset.
    pub(crate) offset_lock: Mutex<()>,
}

/// The open file in this process.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) entry: Entry,
    /// `None` for directories.
    file: Option<NamedFile>,
}

impl Open {
    /// Opens the entry at a place, whose links have been resolved.
    pub(crate) fn new(place: Place, entry: Entry) -> Result<Self> {
        let live = Live::new(&place, entry)?;
        let version = live.version();
        Ok(Self { place, version, live: Mutex::new(Some(Arc::new(live))), offset_lock: Mutex::default() })
    }

    /// A file or directory opened by another process.
    pub(crate) fn inherited(place: Place, version: u64) -> Self {
        Self { place, version, live: Mutex::default(), offset_lock: Mutex::default() }
    }

    /// A copy for a child: threads of its parent may have held the locks.
    pub(crate) fn for_child(&self) -> Self {
        Self::inherited(self.place.clone(), self.version)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Reopens it if necessary.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        let mut live = self.live.lock();
        if let Some(live) = &*live {
            return Ok(Arc::clone(live));
        }
        let (place, entry) = service()?.lookup(&self.place, true)?;
        let again = Live::new(&place, entry)?;
        self.check(again.version())?;
        Ok(Arc::clone(live.insert(Arc::new(again))))
    }

    /// Whether a reopened file is the same version.
    pub(crate) fn check(&self, version: u64) -> Result<()> {
        if version == self.version {
            return Ok(());
        }
        say(&format_args!("{} has changed since it was opened", setup().visible_path(&self.place).display()));
        Err(Errno(libc::ESTALE))
    }
}

impl Live {
    fn new(place: &Place, mut entry: Entry) -> Result<Self> {
        let service = service()?;
        let file = match entry.kind {
            EntryKind::Directory => None,
            EntryKind::File => {
                let store = service.store(place.map)?;
                let file = service.open(place)?;
                let known = entry.identity.as_ref();
                if known.is_some_and(|known| known.etag != file.file().identity().etag) {
                    // Replaced since the lookup: the time of the old version is not that of the
                    // opened one.
                    store.backend().forget_name(&place.path, Duration::ZERO);
                    entry = store.stat(&place.path).map_err(of_error)?;
                }
                Some(file)
            }
            EntryKind::Link => return Err(Errno(libc::ELOOP)),
            // Special files have no content in a store.
            _ => return Err(Errno(libc::ENXIO)),
        };
        Ok(Self { entry, file })
    }

    /// The file; an error for directories.
    pub(crate) fn file(&self) -> Result<&File> {
        self.named().map(NamedFile::file)
    }

    fn named(&self) -> Result<&NamedFile> {
        self.file.as_ref().ok_or(Errno(libc::EISDIR))
    }

    /// Reads into `buf` from `offset`. Returns the number of bytes read.
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.named()?.read_at(offset, buf).map_err(of_error)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file.is_none()
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.file.as_ref().map_or(0, |named| named.file().size())
    }

    fn version(&self) -> u64 {
        self.file.as_ref().map_or(0, |named| version_of(&named.file().identity()))
    }
}

/// A number for a version, the same in every process.
pub(crate) fn version_of(identity: &Identity) -> u64 {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    hasher.finish() | 1
}
