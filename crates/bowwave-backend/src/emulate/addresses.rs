//! Addresses of objects on an emulated disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Identity;

/// Objects lie one after the other, in order of first opening, each at a 1 GiB boundary. One that
/// grows past its end overlaps its neighbour; then some emulated seeks are too short.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    by_key: BTreeMap<Key, u64>,
    end: u64,
}

/// The inode if the object has one, so a renamed file keeps its address; else the path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File(Option<u64>, u64),
    Path(PathBuf),
}

impl Addresses {
    /// The address of an object, by its path in the store and its identity.
    pub(super) fn of(&mut self, path: &Path, identity: &Identity) -> u64 {
        let key = match identity.inode {
            Some(inode) => Key::File(identity.device, inode),
            None => Key::Path(path.to_owned()),
        };
        if let Some(&address) = self.by_key.get(&key) {
            return address;
        }
        if self.by_key.len() >= OBJECTS_MAX {
            self.by_key.clear();
        }
        let address = self.end;
        let size = identity.size.max(1);
        self.end = address.saturating_add(size).checked_next_multiple_of(ALIGN_BYTES).unwrap_or(0);
        self.by_key.insert(key, address);
        address
    }
}

const ALIGN_BYTES: u64 = 1 << 30;
/// Objects whose address is remembered. One more forgets all: every object gets a new address.
const OBJECTS_MAX: usize = 1 << 16;
