//! Writes new files and renames them over the old ones, as editors and package managers do.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::actor::Actor;
use crate::common::cells::{CELL, cells, is_partly};
use crate::common::rng::Rng;

const TARGETS: u64 = 3;

/// A replacer of files.
pub(crate) struct Replacer {
    at: PathBuf,
    name: String,
    id: u64,
    /// Whether the new file is synced before the rename.
    synced: bool,
    rng: Rng,
    generation: u64,
    targets: [Target; TARGETS as usize],
    doing: &'static str,
}

/// Permitted contents of a file.
#[derive(Clone, Copy, Default)]
struct Target {
    /// The generation whose rename got a reply.
    now: Option<u64>,
    /// A generation whose rename got no reply.
    next: Option<u64>,
}

impl Replacer {
    pub(crate) fn new(at: &Path, name: &str, synced: bool, seed: u64) -> Self {
        let targets = Default::default();
        Self {
            at: at.to_owned(),
            name: name.to_owned(),
            id: seed,
            synced,
            rng: Rng(seed),
            generation: 0,
            targets,
            doing: "not begun",
        }
    }

    fn target(&self, root: &Path, index: usize) -> PathBuf {
        root.join(format!("{}-{index}", self.name))
    }

    /// Content of a generation: 0 to 40 cells.
    fn content(&self, index: usize, generation: u64) -> Vec<u8> {
        cells(self.id ^ index as u64, 0, Rng(self.id ^ generation).below(41), generation)
    }

    fn is(&self, found: &[u8], index: usize, generation: u64) -> bool {
        let expected = self.content(index, generation);
        if self.synced { found == expected } else { is_partly(found, &expected) }
    }
}

impl Actor for Replacer {
    fn step(&mut self) -> io::Result<()> {
        let index = self.rng.below(TARGETS) as usize;
        self.generation += 1;
        let generation = self.generation;
        let target = self.target(&self.at, index);
        let new = target.with_extension("new");
        self.doing = "make";
        let mut file = File::create(&new)?;
        self.doing = "write";
        // In several writes, so that some may be in flight before the rest is written.
        for piece in self.content(index, generation).chunks(7 * CELL) {
            file.write_all(piece)?;
        }
        self.doing = "sync";
        if self.synced {
            file.sync_all()?;
        }
        drop(file);
        self.targets[index].next = Some(generation);
        self.doing = "rename";
        fs::rename(&new, &target)?;
        self.targets[index] = Target { now: Some(generation), next: None };
        self.doing = "sync the directory";
        if self.rng.chance(10) {
            File::open(&self.at)?.sync_all()?;
        }
        Ok(())
    }

    fn doing(&self) -> String {
        format!("{}, generation {}, {}", self.name, self.generation, self.doing)
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let mut faults = Vec::new();
        for (index, target) in self.targets.iter().enumerate() {
            let path = self.target(root, index);
            let may_be = [target.now, target.next];
            let fine = match fs::read(&path) {
                Ok(found) => {
                    may_be.into_iter().flatten().any(|generation| self.is(&found, index, generation))
                }
                Err(error) => error.kind() == io::ErrorKind::NotFound && target.now.is_none(),
            };
            if !fine {
                let is = describe(&path);
                faults.push(format!("{}-{index}: neither generation of {may_be:?}, but {is}", self.name));
            }
        }
        faults
    }
}

/// The versions in the cells of a file, for a message.
fn describe(path: &Path) -> String {
    let found = match fs::read(path) {
        Ok(found) => found,
        Err(error) => return error.to_string(),
    };
    let versions = found.chunks(CELL).map(|bytes| {
        bytes.get(16..24).map(|eight| eight.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte)))
    });
    format!("{} bytes with versions {:?}", found.len(), versions.collect::<Vec<_>>())
}
