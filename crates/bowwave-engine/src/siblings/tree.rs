//! What readahead across files needs of a tree of names.

use std::path::Path;

use bowwave_backend::{Entry, WillRead};

use crate::error::Result;
use crate::file::File;
use crate::store::Store;

/// The names by which a program opens files. [`Store`] implements it; its backend should keep
/// names.
pub trait SiblingTree: Send + Sync {
    /// The store of the files.
    fn store(&self) -> &Store;

    /// The entries of a directory, if a current listing is known without a request.
    fn known(&self, directory: &Path) -> Option<Vec<Entry>>;

    /// Lists a directory.
    ///
    /// # Errors
    /// Errors of the store.
    fn list(&self, directory: &Path) -> Result<Vec<Entry>>;

    /// Opens a file ahead of a program.
    ///
    /// # Errors
    /// Errors of the store.
    fn open(&self, path: &Path, will_read: WillRead) -> Result<File>;

    /// Whether programs have all bytes of a file without a read from the store.
    fn is_resident(&self, _path: &Path) -> bool {
        false
    }

    /// Whether programs have some bytes of a file without a read from the store. Such a file is not
    /// requested whole when it is opened.
    fn has_some(&self, _path: &Path) -> bool {
        false
    }
}

impl SiblingTree for Store {
    fn store(&self) -> &Store {
        self
    }

    fn known(&self, directory: &Path) -> Option<Vec<Entry>> {
        bowwave_backend::Namespace::known(self, directory)
    }

    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        Ok(bowwave_backend::Namespace::list(self, directory)?)
    }

    fn open(&self, path: &Path, will_read: WillRead) -> Result<File> {
        self.open_to_read(path, will_read)
    }
}
