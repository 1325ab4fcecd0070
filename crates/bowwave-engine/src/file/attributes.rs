//! Attributes of an open file, independent of its names.

use bowwave_backend::{Attributes, Entry, EntryKind, Error as StoreError, ErrorKind, Object, SetAttributes};
use bowwave_core::SyncFor;

use super::{ALL, File};
use crate::error::Result;

impl File {
    /// Describes the file, even unlinked, with its current size. Unless the store is a file system,
    /// the rest is as of the open.
    ///
    /// # Errors
    /// As the store says.
    pub fn attributes(&self) -> Result<Entry> {
        let size = || self.size();
        let object = self.entry.object();
        let mut entry = match object.as_deref().and_then(Object::attributes) {
            Some(attributes) => attributes.stat()?,
            None if self.entry.upload.get().is_some() => self.upload_attributes()?,
            None => Entry { identity: Some(self.identity()), ..Entry::new("", EntryKind::File) },
        };
        entry.size = size();
        Ok(entry)
    }

    /// Changes attributes. Before a time of modification is set, earlier writes go to the store, so
    /// that the time stays.
    ///
    /// # Errors
    /// As the store says. `Unsupported` if the store is no file system, except for an object that
    /// is being written to a store with attributes.
    pub fn set_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        if let Some(upload) = self.entry.upload.get() {
            return upload.set_attributes(attributes);
        }
        if attributes.modified.is_none() {
            return self.with_attributes(|object| object.set(attributes));
        }
        // Any handle may have written it.
        self.store.write_out(&self.entry, self.priority(), ALL, SyncFor::Close);
        let before = self.entry.identity();
        self.with_attributes(|object| object.set(attributes))?;
        self.store.touched(&self.entry, &before, &self.entry.path());
        Ok(())
    }

    /// Attributes of an object that is being written; the store has the attributes of other files.
    pub(super) fn upload_attributes(&self) -> Result<Entry> {
        let upload = self.entry.upload.get().filter(|upload| upload.is_pending() || upload.is_unlinked());
        let Some(upload) = upload else {
            let message = format!("{}: this store tells of objects by their names", self.entry.name());
            return Err(StoreError::new(ErrorKind::Unsupported, message).into());
        };
        Ok(Entry { identity: Some(self.identity()), ..upload.describe("".as_ref()) })
    }

    fn with_attributes<T>(
        &self,
        act: impl FnOnce(&dyn Attributes) -> bowwave_backend::Result<T>,
    ) -> Result<T> {
        let object = self.entry.object();
        match object.as_deref().and_then(Object::attributes) {
            Some(attributes) => Ok(act(attributes)?),
            None => {
                let message = format!("{}: this store keeps no attributes", self.entry.name());
                Err(StoreError::new(ErrorKind::Unsupported, message).into())
            }
        }
    }
}
