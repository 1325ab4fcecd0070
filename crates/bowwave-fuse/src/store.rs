//! A store behind the cache is a tree that can be mounted.

use std::path::{Path, PathBuf};

use bowwave_engine::backend::{Entry, Identity, Result};
use bowwave_engine::{File, Store};

use crate::tree::{OpenFile, Tree};

impl Tree for Store {
    type File = File;

    fn url(&self) -> &str {
        Self::url(self)
    }

    fn stat(&self, path: &Path) -> Result<Entry> {
        Ok(Self::stat(self, path)?)
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        Ok(Self::list(self, path)?)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Ok(Self::read_link(self, path)?)
    }

    fn open(&self, path: &Path) -> Result<File> {
        Ok(Self::open(self, path)?)
    }
}

impl OpenFile for File {
    fn size(&self) -> u64 {
        Self::size(self)
    }

    fn identity(&self) -> Identity {
        Self::identity(self)
    }

    fn version(&self) -> u64 {
        Self::version(self)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(Self::read_at(self, offset, buf)?)
    }
}
