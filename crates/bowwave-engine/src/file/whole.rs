//! Handles of objects that are written as a whole.

use std::sync::Arc;

use bowwave_backend::{Entry, Error as StoreError, ErrorKind};

use super::{Access, File};
use crate::error::Result;
use crate::whole::{Whole, Writer};

impl File {
    /// Whether this is an object, open for writing, that nobody sees yet: it is published when it is synced or closed.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.entry.whole.get().is_some_and(|whole| whole.is_new())
    }

    /// As [`flush`](Self::flush); and publishes an object that was begun, or cut to no bytes, and that nobody has written to.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_untouched(&self) -> Result<()> {
        match self.whole() {
            Some((whole, writer)) => whole.flush_untouched(writer),
            None => self.flush(),
        }
    }

    /// Writes no more through this handle, as closing it does, and tells what went wrong. Dropping the handle then does
    /// nothing more.
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

    /// Writes no more through this handle, and does not publish what was written to an object: it stays as it is. Of files
    /// that are written anywhere nothing is taken back.
    pub fn abandon(&self) {
        if let Some((whole, _)) = self.whole() {
            whole.abandon(self.handle);
        }
    }

    /// What is known of an object that is being written; of others the store knows more.
    pub(super) fn whole_attributes(&self) -> Result<Entry> {
        let whole = self.entry.whole.get().filter(|whole| whole.is_draft() || whole.is_nameless());
        let Some(whole) = whole else {
            let message = format!("{}: this store tells of objects by their names", self.entry.name());
            return Err(StoreError::new(ErrorKind::Unsupported, message).into());
        };
        Ok(Entry { identity: Some(self.identity()), ..whole.describe("".as_ref()) })
    }

    /// The object, if it is written as a whole, and this handle as one that writes it.
    pub(super) fn whole(&self) -> Option<(&Arc<Whole>, Writer<'_>)> {
        let whole = self.entry.whole.get()?;
        let appends = self.access == Access::Append;
        Some((whole, Writer { entry: &self.entry, handle: self.handle, appends }))
    }

    /// The error for what cannot be done with objects, if this is one.
    pub(super) fn refused_for_whole(&self, what: &str) -> Option<StoreError> {
        self.entry.whole.get().map(|whole| whole.unsupported(what))
    }
}
