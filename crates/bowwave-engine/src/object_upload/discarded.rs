//! Uploads that failed, which the next sync of the store reports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowwave_backend::Error as StoreError;

use crate::sync::Mutex;

/// Objects whose last upload failed, so that their written bytes are lost. The writer may not know:
/// the kernel drops the error of a `close` at the end of a process.
#[derive(Debug, Default)]
pub(crate) struct Discarded(Mutex<Losses>);

#[derive(Debug, Default)]
struct Losses {
    known: BTreeMap<PathBuf, StoreError>,
    /// Objects beyond [`DISCARDED_MAX`].
    others: u64,
}

impl Discarded {
    pub(super) fn add(&self, path: &Path, error: &StoreError) {
        let mut losses = self.0.lock();
        if losses.known.len() < DISCARDED_MAX || losses.known.contains_key(path) {
            losses.known.insert(path.to_owned(), error.clone());
        } else {
            losses.others += 1;
        }
    }

    /// A later upload to `path` has succeeded.
    pub(super) fn forget(&self, path: &Path) {
        self.0.lock().known.remove(path);
    }

    /// One error for all objects that were added since the last call.
    pub(crate) fn take(&self) -> Option<StoreError> {
        let Losses { known, others } = std::mem::take(&mut *self.0.lock());
        let (path, first) = known.first_key_value()?;
        let message = match known.len() as u64 - 1 + others {
            0 => format!("{} was not uploaded, and is lost: {first}", path.display()),
            more => format!("{} and {more} more were not uploaded, and are lost: {first}", path.display()),
        };
        Some(StoreError::new(first.kind(), message))
    }
}

/// Objects remembered by name; each takes about 300 bytes.
const DISCARDED_MAX: usize = 1000;
