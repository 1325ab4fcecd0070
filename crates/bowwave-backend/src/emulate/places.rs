//! Where objects lie on an emulated disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Identity;

/// Objects lie one behind the other in order of first opening, from 1 GiB boundaries. One that
/// grows past the next boundary lies over its neighbour, which costs no more than a shorter seek.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_name: BTreeMap<Name, u64>,
    end: u64,
}

/// What an object is remembered by: as a file it keeps its place when it gets another name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    File(Option<u64>, u64),
    Path(PathBuf),
}

impl Places {
    /// The place of an object, by its name in the store and its identity.
    pub(super) fn of(&mut self, path: &Path, identity: &Identity) -> u64 {
        let name = match identity.inode {
            Some(inode) => Name::File(identity.device, inode),
            None => Name::Path(path.to_owned()),
        };
        if let Some(&address) = self.by_name.get(&name) {
            return address;
        }
        if self.by_name.len() >= PLACES_MAX {
            self.by_name.clear();
        }
        let address = self.end;
        let size = identity.size.max(1);
        self.end = address.saturating_add(size).checked_next_multiple_of(PLACE_BYTES).unwrap_or(0);
        self.by_name.insert(name, address);
        address
    }
}

const PLACE_BYTES: u64 = 1 << 30;
/// Objects whose place is remembered; beyond, places are given anew.
const PLACES_MAX: usize = 1 << 16;
