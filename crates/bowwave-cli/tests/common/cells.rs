//! Bytes that say whose they are: cells of 512 bytes, each made from the file it is in, its place there and a version.
//! No cell of a file is like another one, nor like itself in another version, in any word.

#![allow(dead_code, reason = "each test program uses its part of this")]

use super::rng::Rng;

/// Bytes of a cell. A page holds whole cells, so that nothing can write half of one.
pub(crate) const CELL: usize = 512;

/// Cell `index` of file `file` in `version`.
pub(crate) fn cell(file: u64, index: u64, version: u64) -> [u8; CELL] {
    let mut bytes = [0; CELL];
    let mut words = Rng(Rng(file).next() ^ Rng(index ^ 0x5bd1_e995).next().rotate_left(17) ^ version);
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let word_of = match at {
            0 => file,
            1 => index,
            2 => version,
            _ => words.next(),
        };
        word.copy_from_slice(&word_of.to_le_bytes());
    }
    bytes
}

/// Cells `from..to` of a file in one version.
pub(crate) fn cells(file: u64, from: u64, to: u64, version: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((to - from) as usize * CELL);
    for index in from..to {
        bytes.extend_from_slice(&cell(file, index, version));
    }
    bytes
}

/// The version of what should be cell `index` of `file`; `None` if it is no version of it.
pub(crate) fn version_of(bytes: &[u8], file: u64, index: u64) -> Option<u64> {
    let version = u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
    (bytes == cell(file, index, version)).then_some(version)
}

/// Whether each byte is the one expected, or 0, as where writes have not arrived.
pub(crate) fn is_partly(bytes: &[u8], expected: &[u8]) -> bool {
    bytes.len() <= expected.len() && bytes.iter().zip(expected).all(|(&is, &should)| is == should || is == 0)
}
