//! Appends to a file with occasional syncs, as a database does with its log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::actor::Actor;
use crate::common::cells::{CELL, cells, is_partly};
use crate::common::rng::Rng;

/// How appended data reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// fsync or fdatasync after some writes.
    Called,
    /// The file is open with `O_DSYNC`: every write.
    Always,
}

/// A log.
pub(crate) struct Log {
    name: String,
    file: File,
    id: u64,
    sync: Sync,
    rng: Rng,
    /// Durable cells.
    synced: u64,
    /// Cells written or in flight.
    written: u64,
}

impl Log {
    pub(crate) fn new(at: &Path, name: &str, sync: Sync, seed: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if sync == Sync::Always {
            options.custom_flags(libc::O_DSYNC);
        }
        let file = options.open(at.join(name))?;
        Ok(Self { name: name.to_owned(), file, id: seed, sync, rng: Rng(seed), synced: 0, written: 0 })
    }
}

impl Actor for Log {
    fn step(&mut self) -> io::Result<()> {
        let from = self.written;
        self.written += 1 + self.rng.below(24);
        self.file.write_all_at(&cells(self.id, from, self.written, 1), from * CELL as u64)?;
        match self.sync {
            Sync::Always => {}
            Sync::Called if self.rng.chance(15) => self.file.sync_data()?,
            Sync::Called if self.rng.chance(10) => self.file.sync_all()?,
            Sync::Called => return Ok(()),
        }
        self.synced = self.written;
        Ok(())
    }

    fn doing(&self) -> String {
        self.name.clone()
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let found = match fs::read(root.join(&self.name)) {
            Ok(found) => found,
            Err(error) => return vec![format!("{}: {error}", self.name)],
        };
        let expected = cells(self.id, 0, self.written, 1);
        let certain = self.synced as usize * CELL;
        let (is, name) = (found.len(), &self.name);
        if is < certain {
            return vec![format!("{name}: {certain} bytes were synced, {is} are there")];
        }
        let mut faults = Vec::new();
        if let Some(at) = (0..certain).find(|&at| found[at] != expected[at]) {
            faults.push(format!("{name}: byte {at} of {certain} that were synced is not what was written"));
        }
        if !is_partly(&found[certain..], &expected[certain..]) {
            faults.push(format!("{name}: after {certain} bytes that were synced there is what nobody wrote"));
        }
        faults
    }
}
