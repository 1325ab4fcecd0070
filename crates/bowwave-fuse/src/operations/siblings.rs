//! Readahead of files that a program will open next: what the mount tells
//! [`SiblingReadahead`](bowwave_engine::SiblingReadahead).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use bowwave_engine::backend::{Entry, WillRead};
use bowwave_engine::{Advice, File, Result, SiblingFile, SiblingJournal, SiblingOpen, SiblingTree, Store};

use super::Operations;

impl SiblingTree for Operations {
    fn store(&self) -> &Store {
        self.layout.store()
    }

    fn known(&self, directory: &Path) -> Option<Vec<Entry>> {
        self.layout.known(directory)
    }

    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        Ok(self.layout.list(directory)?)
    }

    fn open(&self, path: &Path, will_read: WillRead) -> Result<File> {
        Ok(self.layout.open_to_read(path, will_read)?)
    }

    fn is_resident(&self, path: &Path) -> bool {
        self.inodes.at(path).is_some_and(|inode| self.inodes.is_read(inode))
    }

    fn has_some(&self, path: &Path) -> bool {
        self.inodes.at(path).is_some_and(|inode| self.inodes.was_read(inode))
    }
}

impl Operations {
    /// Starts readahead across files.
    pub(crate) fn start_siblings(self: &Arc<Self>) {
        if let Some(siblings) = &self.siblings {
            siblings.start(Arc::downgrade(self) as Weak<dyn SiblingTree>);
        }
    }

    /// The events of readahead across files, if a journal is requested.
    pub(crate) fn sibling_journal(&self) -> Option<SiblingJournal> {
        self.siblings.as_ref()?.journal()
    }

    /// A program will open these files in this order, after those announced before if `append`.
    ///
    /// # Errors
    /// Why none is read ahead.
    pub(crate) fn announce(&self, paths: Vec<PathBuf>, append: bool) -> std::result::Result<(), String> {
        let Some(siblings) = &self.siblings else {
            return Err(
                "files are read ahead on mounts of object stores with --consistency ttl and a --ttl \
                        of more than 0"
                    .to_owned(),
            );
        };
        siblings.announce(paths, append).map_err(|error| error.to_string())
    }

    /// Requests what a program probably reads of a small file that it opens. Returns where that
    /// begins.
    pub(super) fn request_small(&self, path: &Path, file: &File) -> u64 {
        match &self.siblings {
            Some(siblings) => siblings.request(path, file),
            None => {
                file.advise(0, 0, Advice::WillNeed);
                0
            }
        }
    }

    /// A program lists a directory.
    pub(super) fn note_list(&self, directory: &Path) {
        if let Some(siblings) = &self.siblings {
            siblings.listed(directory);
        }
    }

    /// A program opens a file that the kernel has not cached.
    pub(super) fn note_open(&self, path: &Path, file: &File) -> Option<SiblingOpen> {
        self.siblings.as_ref()?.opened(self, path, file)
    }

    /// A program reads bytes of a file, or the kernel does for it.
    pub(super) fn note_read(&self, number: SiblingFile, file: &File, offset: u64, bytes: u64) {
        if let Some(siblings) = &self.siblings {
            siblings.read(number, file, offset, bytes);
        }
    }

    /// A program closes a file.
    pub(super) fn note_close(&self, file: SiblingFile) {
        if let Some(siblings) = &self.siblings {
            siblings.closed(file);
        }
    }
}
