//! A file's bytes without a copy: the only `unsafe` code in this crate.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use memmap2::Mmap;

/// The bytes of a file: mapped if it is a regular file, otherwise read into memory.
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
    /// Other programs must not change the file while it is mapped. If it is truncated, accessing
    /// the missing part ends this process with SIGBUS; it never reads wrong memory. If its bytes
    /// change, rows may be old or new; each is checked when it is read. Replacing the file (write
    /// another, rename it) is safe. A shared lock (`flock`) is held while it is mapped, if the file
    /// system supports locks.
    ///
    /// # Errors
    /// The system's error, and if the file is too large for this machine's address space.
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
        // Advisory only: not every file system has locks.
        let _only_advice = file.try_lock_shared();
        // SAFETY: a map is sound while no process changes the file, which Rust cannot enforce. The
        // possible violations are harmless. Truncation raises SIGBUS on access, which ends the
        // process before a byte is returned. Changed bytes are plain `u8`s, for which every value
        // is valid. Readers copy each number once before they check it: rows are loaded whole,
        // tables are copied to the heap. So a later change cannot invalidate a check.
        #[expect(unsafe_code, reason = "a memory map has no safe interface; see SAFETY")]
        let map = unsafe { Mmap::map(&file)? };
        // Rows are mostly streamed; without the advice, reads from a cold disk are slower.
        #[cfg(unix)]
        let _only_advice = map.advise(memmap2::Advice::Sequential);
        Ok(Self(Inner::Mapped { map, _locked: file }))
    }

    /// Whether the bytes are mapped instead of read.
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

/// Bytes already in memory, such as the output of a [`Writer`](super::Writer).
impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Read(bytes))
    }
}
