//! Programs read a Parquet file from its end: it is requested with the lookup, or at the open.
//!
//! ```text
//!   lookup    HEAD          -> size, version     one round trip,
//!             GET bytes=-N  -> its end           with the HEAD
//!   open      -
//!   read      from memory
//! ```
//!
//! The name tells such a file before a byte of it is read. A name that a listing has shown is
//! looked up without a request; then its end is requested at the open.

use std::ffi::OsStr;
use std::path::Path;

use bowwave_engine::backend::{EntryKind, SMALL_BYTES, WillRead};
use bowwave_engine::{Advice, File, Policy};

use super::{OpenHandle, Operations};

impl Operations {
    /// What programs read first of a file of this name that the kernel looks up; `Any` for a file
    /// that was read before.
    pub(crate) fn will_read_of(&self, parent: u64, name: &OsStr) -> WillRead {
        let store = self.layout.store();
        let may_request = self.opens_known_versions()
            && is_read_from_its_end(name)
            // Its end may be on the disk.
            && store.backend().disk().is_none()
            && store.policy() == Policy::Stream
            && self.inodes.peek_kind(parent, name) != Some(EntryKind::Directory)
            && self.inodes.peek(parent, name).is_none_or(|inode| !self.inodes.was_read(inode));
        if may_request { WillRead::Last { bytes: LOOKED_UP_BYTES } } else { WillRead::Any }
    }

    /// A program has opened a file to read it: requests its end, if the kernel has no byte of it.
    pub(super) fn read_end(&self, open: &OpenHandle, file: &File) {
        let may_request = self.opens_known_versions()
            && is_read_from_its_end(name_of(&open.path))
            && !self.inodes.was_read(open.inode)
            && file.stream_budget().is_some();
        if may_request && file.size() > 0 {
            let start = file.size().saturating_sub(END_BYTES);
            file.advise(start, END_BYTES, Advice::WillNeed);
            self.tell_ahead(open, open.process, start..file.size());
        }
    }
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Whether programs read files with this name from the end.
fn is_read_from_its_end(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"))
}

/// Bytes at the end of a file that are requested: as many as of its beginning by a store that is
/// told to ([`WillRead::START`]). Readers read 8 to 64 KiB, and the kernel up to a window around
/// them. Fewer: longer footers take another round trip. More: 90 MB/s take 3 ms for these.
const END_BYTES: u64 = SMALL_BYTES;
/// Of a lookup, which does not know where the last pages begin: with the largest page.
const LOOKED_UP_BYTES: u64 = END_BYTES + (64 << 10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_read_from_their_end_are_told_by_their_names() {
        let is = |name: &str| is_read_from_its_end(name.as_ref());
        assert!(is("a.parquet") && is("part-0.snappy.PARQUET"));
        assert!(!is("parquet") && !is(".parquet") && !is("a.parquet.crc") && !is("a.csv") && !is(""));
    }
}
