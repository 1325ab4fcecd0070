//! What a descriptor of ours stands for: an open file or directory of a store.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowwave_engine::{Entry, EntryKind, File, Identity};
use bowwave_interpose::say;

use crate::errno::{Errno, Result, of_engine};
use crate::service::service;
use crate::setup::{Place, setup};

/// An open file or directory, which duplicated descriptors share.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) place: Place,
    /// Which version of the object was opened; 0 for directories.
    version: u64,
    /// Opened again in a child, and after an exec, when first wanted.
    live: Mutex<Option<Arc<Live>>>,
    /// Reads that move the offset take turns.
    turn: Mutex<()>,
}

/// The same in this process.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) entry: Entry,
    /// None for directories.
    file: Option<File>,
}

impl Open {
    /// Opens what is at a place; links have been followed.
    pub(crate) fn new(place: Place, entry: Entry) -> Result<Self> {
        let live = Live::new(&place, entry)?;
        let version = live.version();
        Ok(Self { place, version, live: Mutex::new(Some(Arc::new(live))), turn: Mutex::default() })
    }

    /// What another process had open.
    pub(crate) fn inherited(place: Place, version: u64) -> Self {
        Self { place, version, live: Mutex::default(), turn: Mutex::default() }
    }

    /// As a child has it, whose parent's threads may have held the locks.
    pub(crate) fn for_child(&self) -> Self {
        Self::inherited(self.place.clone(), self.version)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Opens it again if need be.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = &*live {
            return Ok(Arc::clone(live));
        }
        let (place, entry) = service()?.look(&self.place, true)?;
        let again = Live::new(&place, entry)?;
        self.check(again.version())?;
        Ok(Arc::clone(live.insert(Arc::new(again))))
    }

    /// Whether what was opened just now is what this stands for.
    pub(crate) fn check(&self, version: u64) -> Result<()> {
        if version == self.version {
            return Ok(());
        }
        say(&format_args!("{} has changed since it was opened", setup().shown(&self.place).display()));
        Err(Errno(libc::ESTALE))
    }

    /// Keeps others from moving the offset.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    fn new(place: &Place, entry: Entry) -> Result<Self> {
        let file = match entry.kind {
            EntryKind::Directory => None,
            EntryKind::File => {
                let store = service()?.store(place.map)?;
                Some(store.open(&place.path).map_err(|error| of_engine(&error))?)
            }
            EntryKind::Link => return Err(Errno(libc::ELOOP)),
            // Nothing of theirs is in a store.
            _ => return Err(Errno(libc::ENXIO)),
        };
        Ok(Self { entry, file })
    }

    /// The file; directories have none.
    pub(crate) fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or(Errno(libc::EISDIR))
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file.is_none()
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.file.as_ref().map_or(0, File::size)
    }

    fn version(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| version_of(&file.identity()))
    }
}

/// A number that stands for a version, in every process.
pub(crate) fn version_of(identity: &Identity) -> u64 {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    hasher.finish() | 1
}
