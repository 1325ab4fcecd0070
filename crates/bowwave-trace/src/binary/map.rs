//! A file's bytes without a copy: the one place with `unsafe` in this crate.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use memmap2::Mmap;

/// The bytes of a file: mapped if it is a regular one, else read into memory.
#[derive(Debug)]
pub struct Bytes(Inner);

#[derive(Debug)]
enum Inner {
    Mapped { map: Mmap, _locked: File },
    Read(Vec<u8>),
}

impl Bytes {
    /// Opens the file at `path`.
    ///
    /// While it is mapped, the file must not be changed by others: a file that becomes shorter ends this process with
    /// SIGBUS when the missing part is touched (never with wrong memory), and one whose bytes change gives rows of old and
    /// new, which are checked as they are read. Replacing the file (write another, rename it) is safe. A shared lock
    /// (`flock`) is held while it is mapped, for writers that ask; where the file system has none, it goes without.
    ///
    /// # Errors
    /// As the system says, and if the file is too large for this machine's addresses.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() || metadata.len() == 0 {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            return Ok(Self(Inner::Read(bytes)));
        }
        // Advice to other programs, not a condition: not every file system has locks.
        let _only_advice = file.try_lock_shared();
        // SAFETY: a map is sound as long as no process changes the file. Nothing of Rust can hold another process to that, so
        // we lean on what is left if someone does. Shrinking the file raises SIGBUS at the touch, which ends the process
        // before any byte is returned. Changing bytes can only give other bytes: they are plain `u8`s, every value is
        // valid, and readers copy each number out once (a row is loaded whole and then checked; tables are copied to the
        // heap before they are checked), so that no check is undone by a later change.
        #[expect(unsafe_code, reason = "a memory map cannot be made without; see SAFETY")]
        let map = unsafe { Mmap::map(&file)? };
        // Rows are mostly streamed; without the advice it works as well, only slower from a cold disk.
        #[cfg(unix)]
        let _only_advice = map.advise(memmap2::Advice::Sequential);
        Ok(Self(Inner::Mapped { map, _locked: file }))
    }

    /// Whether the bytes are mapped, not read.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Inner::Mapped { .. })
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Inner::Mapped { map, .. } => map,
            Inner::Read(bytes) => bytes,
        }
    }
}

/// Bytes that are in memory already, such as those a [`Writer`](super::Writer) has made.
impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Read(bytes))
    }
}
