//! Having the store make what was written last.

use std::sync::Arc;

use super::{Store, StoreInner};
use crate::entry::FileEntry;
use crate::error::Result;

impl Store {
    /// Returns when the bytes of files open for writing are safe from a loss of power. Goes on after an error.
    ///
    /// # Errors
    /// The first there was.
    pub fn sync(&self) -> Result<()> {
        let settled = self.settle_wholes();
        let written = self.inner.files().written();
        written.iter().map(|entry| self.inner.sync_entry(entry, false)).fold(settled, Result::and)
    }
}

impl StoreInner {
    /// Has the store make what was written to a file last.
    pub(crate) fn sync_entry(&self, entry: &Arc<FileEntry>, data_only: bool) -> Result<()> {
        let Some(object) = entry.write_object() else { return Ok(()) };
        Ok(object.sync(data_only)?)
    }
}
