//! Random writes to a file of constant size with occasional syncs, as a database does with its
//! tables.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::actor::Actor;
use crate::common::cells::{CELL, cells, version_of};
use crate::common::rng::Rng;

/// Cells of a table: 512 KiB, more than the dirty limit of the smallest caches.
const CELLS: u64 = 1024;

/// A table.
pub(crate) struct Table {
    name: String,
    file: File,
    id: u64,
    rng: Rng,
    version: u64,
    /// Per cell the durable version, and later ones.
    allowed: Vec<Vec<u64>>,
}

impl Table {
    pub(crate) fn new(at: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let file = File::create_new(at.join(name))?;
        file.write_all_at(&cells(seed, 0, CELLS, 0), 0)?;
        file.sync_all()?;
        let allowed = vec![vec![0]; CELLS as usize];
        Ok(Self { name: name.to_owned(), file, id: seed, rng: Rng(seed), version: 0, allowed })
    }
}

impl Actor for Table {
    fn step(&mut self) -> io::Result<()> {
        let len = 1 + self.rng.below(32);
        let from = self.rng.below(CELLS - len);
        self.version += 1;
        for versions in &mut self.allowed[from as usize..(from + len) as usize] {
            versions.push(self.version);
        }
        self.file.write_all_at(&cells(self.id, from, from + len, self.version), from * CELL as u64)?;
        if self.rng.chance(15) {
            if self.rng.chance(50) {
                self.file.sync_all()?
            } else {
                self.file.sync_data()?
            };
            for versions in &mut self.allowed {
                versions.drain(..versions.len() - 1);
            }
        }
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
        let (name, is) = (&self.name, found.len());
        if is != CELLS as usize * CELL {
            return vec![format!("{name}: {is} bytes are there")];
        }
        let mut faults = Vec::new();
        for (index, (bytes, allowed)) in found.chunks_exact(CELL).zip(&self.allowed).enumerate() {
            match version_of(bytes, self.id, index as u64) {
                Some(version) if allowed.contains(&version) => {}
                other => {
                    faults.push(format!("{name}: cell {index} has version {other:?}; may have {allowed:?}"));
                }
            }
        }
        faults
    }
}
