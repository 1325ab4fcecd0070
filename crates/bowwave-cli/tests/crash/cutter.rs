//! Writes, truncates, extends, punches holes, and occasionally syncs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use super::actor::Actor;
use crate::common::cells::{CELL, cell, cells, version_of};
use crate::common::rng::Rng;

const CELLS: u64 = 160;

/// Content of a cell: a version, or zeros.
type Content = Option<u64>;

/// A file of changing size.
pub(crate) struct Cutter {
    name: String,
    file: File,
    id: u64,
    rng: Rng,
    version: u64,
    /// Current size in cells.
    size: u64,
    /// Minimum and maximum size since the last sync.
    sizes: (u64, u64),
    /// Possible contents per cell: the one at the last sync, and later ones, newest last.
    allowed: Vec<Vec<Content>>,
}

impl Cutter {
    pub(crate) fn new(at: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let file = File::create_new(at.join(name))?;
        let allowed = vec![vec![None]; CELLS as usize];
        let (name, rng) = (name.to_owned(), Rng(seed));
        Ok(Self { name, file, id: seed, rng, version: 0, size: 0, sizes: (0, 0), allowed })
    }

    /// Records that cells are about to change.
    fn note(&mut self, from: u64, to: u64, content: Content) {
        for contents in &mut self.allowed[from as usize..to as usize] {
            contents.push(content);
        }
    }

    /// Records that the size is about to change.
    fn resize(&mut self, size: u64) {
        self.sizes = (self.sizes.0.min(size), self.sizes.1.max(size));
        self.size = size;
    }

    fn write(&mut self) -> io::Result<()> {
        let len = 1 + self.rng.below(24);
        let from = self.rng.below(CELLS - len);
        self.version += 1;
        self.note(from, from + len, Some(self.version));
        self.resize(self.size.max(from + len));
        self.file.write_all_at(&cells(self.id, from, from + len, self.version), from * CELL as u64)
    }

    fn cut(&mut self) -> io::Result<()> {
        let size = self.rng.below(CELLS);
        // Truncated or extended ranges read as zeros if they reappear.
        self.note(size.min(self.size), CELLS, None);
        self.resize(size);
        self.file.set_len(size * CELL as u64)
    }

    fn punch(&mut self) -> io::Result<()> {
        let len = 1 + self.rng.below(24);
        let from = self.rng.below(CELLS - len);
        self.note(from, from + len, None);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, from * CELL as u64, len * CELL as u64)?)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.sizes = (self.size, self.size);
        for (index, contents) in self.allowed.iter_mut().enumerate() {
            let now = if (index as u64) < self.size { contents.pop().flatten() } else { None };
            *contents = vec![now];
        }
        Ok(())
    }

    /// Whether the bytes of a cell, possibly truncated at the end of the file, are allowed.
    fn is_allowed(&self, index: usize, bytes: &[u8]) -> bool {
        let contents = &self.allowed[index];
        let zeros = bytes.iter().all(|&byte| byte == 0);
        // A cell past the synced size is a hole until its write arrives.
        let hole = contents.contains(&None);
        let whole = version_of(bytes, self.id, index as u64);
        (zeros && hole)
            || whole.is_some_and(|version| contents.contains(&Some(version)))
            || (bytes.len() < CELL
                && contents
                    .iter()
                    .flatten()
                    .any(|&version| cell(self.id, index as u64, version).starts_with(bytes)))
    }
}

impl Actor for Cutter {
    fn step(&mut self) -> io::Result<()> {
        match self.rng.below(10) {
            0..5 => self.write(),
            5..7 => self.cut(),
            7 => self.punch(),
            _ => self.sync(),
        }
    }

    fn doing(&self) -> String {
        self.name.clone()
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let found = match fs::read(root.join(&self.name)) {
            Ok(found) => found,
            Err(error) => return vec![format!("{}: {error}", self.name)],
        };
        let (name, is, (least, most)) = (&self.name, found.len() as u64, self.sizes);
        if is < least * CELL as u64 || is > most * CELL as u64 {
            return vec![format!("{name}: {is} bytes are there, not {least} to {most} cells")];
        }
        let bad = found.chunks(CELL).enumerate().filter(|(index, bytes)| !self.is_allowed(*index, bytes));
        let told = bad.map(|(index, bytes)| {
            let version = bytes.get(16..24);
            format!("{name}: cell {index} holds {version:?}; may hold {:?}", self.allowed[index])
        });
        told.collect()
    }
}
