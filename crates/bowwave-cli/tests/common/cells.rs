//! Self-identifying bytes: cells of 512 bytes, each derived from its file, index and version. Every
//! word differs between cells and between versions of a cell.

#![allow(dead_code, reason = "each test program uses its part of this")]

use super::rng::Rng;

/// Bytes of a cell. Pages hold whole cells, so no write is half a cell.
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

/// The version of the bytes of cell `index` of `file`; `None` if they are no version of it.
pub(crate) fn version_of(bytes: &[u8], file: u64, index: u64) -> Option<u64> {
    let version = u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
    (bytes == cell(file, index, version)).then_some(version)
}

/// Whether each byte is the expected one, or 0 where a write has not arrived.
pub(crate) fn is_partly(bytes: &[u8], expected: &[u8]) -> bool {
    bytes.len() <= expected.len() && bytes.iter().zip(expected).all(|(&is, &should)| is == should || is == 0)
}
