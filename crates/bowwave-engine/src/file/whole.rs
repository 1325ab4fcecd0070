//! Handles of object uploads.

use std::sync::Arc;

use bowwave_backend::{Entry, Error as StoreError, ErrorKind};

use super::{Access, File};
use crate::error::Result;
use crate::whole::{Whole, Writer};

impl File {
    /// Whether this is an unpublished object that is open for writing. A sync or close publishes
    /// it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.entry.whole.get().is_some_and(|whole| whole.is_new())
    }

    /// As [`flush`](Self::flush). Also publishes an object that was created or truncated but never
    /// written.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_untouched(&self) -> Result<()> {
        match self.whole() {
            Some((whole, writer)) => whole.flush_untouched(writer),
            None => self.flush(),
        }
    }

    /// Ends writing through this handle, as close does, and returns errors. Dropping the handle
    /// then does nothing more.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn end_writing(&self) -> Result<()> {
        match self.whole() {
            Some((whole, writer)) => whole.end(writer),
            None if self.is_writable() => self.flush(),
            None => Ok(()),
        }
    }

    /// Ends writing through this handle without publishing the object, which stays as it is. Has no
    /// effect on files that accept writes anywhere.
    pub fn abandon(&self) {
        if let Some((whole, _)) = self.whole() {
            whole.abandon(self.handle);
        }
    }

    /// Attributes of an object that is being written; the store knows those of others.
    pub(super) fn whole_attributes(&self) -> Result<Entry> {
        let whole = self.entry.whole.get().filter(|whole| whole.is_upload() || whole.is_nameless());
        let Some(whole) = whole else {
            let message = format!("{}: this store tells of objects by their names", self.entry.name());
            return Err(StoreError::new(ErrorKind::Unsupported, message).into());
        };
        Ok(Entry { identity: Some(self.identity()), ..whole.describe("".as_ref()) })
    }

    /// The upload and this handle as its writer, if the file is an upload.
    pub(super) fn whole(&self) -> Option<(&Arc<Whole>, Writer<'_>)> {
        let whole = self.entry.whole.get()?;
        let appends = self.access == Access::Append;
        Some((whole, Writer { entry: &self.entry, handle: self.handle, appends }))
    }

    /// The error for an operation that uploads do not support, if this is one.
    pub(super) fn refused_for_whole(&self, what: &str) -> Option<StoreError> {
        self.entry.whole.get().map(|whole| whole.unsupported(what))
    }
}
