//! The bytes of a file in memory: chunks where something was written, holes elsewhere.

use std::collections::BTreeMap;
use std::ops::Range;

/// Sparse bytes.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    size: u64,
    /// By number; missing chunks, and missing bytes at the end of a chunk, are zeros.
    chunks: BTreeMap<u64, Vec<u8>>,
}

impl Bytes {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Allocated bytes.
    pub(super) fn used(&self) -> u64 {
        self.chunks.values().map(|chunk| chunk.len() as u64).sum()
    }

    /// Copies the bytes at `offset`; zeros past the end.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        for (number, within, place) in pieces(offset, out.len()) {
            let Some(chunk) = self.chunks.get(&number) else { continue };
            let found = chunk.get(within.start..within.end.min(chunk.len())).unwrap_or_default();
            out[place.start..place.start + found.len()].copy_from_slice(found);
        }
    }

    /// Writes bytes at `offset`; they end before 2^63.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, within, place) in pieces(offset, bytes.len()) {
            let chunk = self.chunks.entry(number).or_default();
            if chunk.len() < within.end {
                chunk.resize(within.end, 0);
            }
            chunk[within].copy_from_slice(&bytes[place]);
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    pub(super) fn set_len(&mut self, size: u64) {
        self.chunks.split_off(&size.div_ceil(CHUNK_BYTES));
        if let Some(last) = self.chunks.get_mut(&(size / CHUNK_BYTES)) {
            last.truncate((size % CHUNK_BYTES) as usize);
        }
        self.size = size;
    }

    /// Makes a range a hole, as far as it is within the file.
    pub(super) fn punch(&mut self, range: Range<u64>) {
        let end = range.end.min(self.size);
        if range.start >= end {
            return;
        }
        let touched: Vec<u64> = self
            .chunks
            .range(range.start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES))
            .map(|(number, _)| *number)
            .collect();
        for number in touched {
            let start = number * CHUNK_BYTES;
            let from = range.start.max(start) - start;
            let to = end.min(start + CHUNK_BYTES) - start;
            if from == 0 && to == CHUNK_BYTES {
                self.chunks.remove(&number);
            } else if let Some(chunk) = self.chunks.get_mut(&number) {
                let len = chunk.len();
                let (from, to) = ((from as usize).min(len), (to as usize).min(len));
                chunk[from..to.max(from)].fill(0);
            }
        }
    }

    /// The first data or hole at or after `offset`; the end is a hole. `None` if there is none.
    pub(super) fn seek(&self, offset: u64, data: bool) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut number = offset / CHUNK_BYTES;
        if data {
            number = *self.chunks.range(number..).next()?.0;
        } else {
            while self.chunks.contains_key(&number) {
                number += 1;
            }
        }
        Some((number * CHUNK_BYTES).clamp(offset, self.size))
    }
}

/// The pieces of chunks that cover `len` bytes at `offset`: chunk number, range in the chunk, range
/// of the bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % CHUNK_BYTES) as usize;
        let count = (len - done).min(CHUNK_BYTES as usize - within);
        let place = done..done + count;
        done += count;
        (count > 0).then_some((at / CHUNK_BYTES, within..within + count, place))
    })
}

/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance;

    /// The same random operations on a plain vector.
    #[test]
    fn sparse_bytes_are_those_of_a_plain_vector() {
        for seed in 0..20 {
            let (mut sparse, mut plain) = (Bytes::default(), Vec::<u8>::new());
            for step in 0..200 {
                let draw = |salt: u64, below: u64| chance::draw(seed * 1000 + salt, step) % below;
                let (offset, len) = (draw(1, 300_000), draw(2, 100_000));
                let (from, to) = (offset as usize, (offset + len) as usize);
                match draw(3, 4) {
                    0 => {
                        sparse.set_len(offset);
                        plain.resize(from, 0);
                    }
                    1 => {
                        sparse.punch(offset..offset + len);
                        let to = to.min(plain.len());
                        plain[from.min(to)..to].fill(0);
                    }
                    _ => {
                        sparse.write(offset, &vec![step as u8; len as usize]);
                        if len > 0 {
                            plain.resize(plain.len().max(to), 0);
                            plain[from..to].fill(step as u8);
                        }
                    }
                }
                assert_eq!(sparse.size(), plain.len() as u64, "seed {seed}, step {step}");
                let mut all = vec![9; plain.len() + 10];
                sparse.read(0, &mut all);
                assert!(
                    all[..plain.len()] == plain && all[plain.len()..] == [0; 10],
                    "seed {seed}, step {step}"
                );
                let mut part = vec![9; len as usize];
                sparse.read(offset, &mut part);
                let found = plain.get(from..to.min(plain.len())).unwrap_or_default();
                assert!(part[..found.len()] == *found, "seed {seed}, step {step}");
            }
        }
    }
}
