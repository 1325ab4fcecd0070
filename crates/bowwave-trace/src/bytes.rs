//! Little-endian numbers and records of a fixed size.

use std::io::{self, BufRead};

/// The little-endian number at `at`, which must be inside `bytes`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("inside, as the caller knows"))
}

/// The little-endian number at `at`, which must be inside `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside, as the caller knows"))
}

/// The little-endian number at `at`, which must be inside `bytes`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside, as the caller knows"))
}

/// Fills `record`. Returns fewer bytes only at the end of the input.
pub(crate) fn fill(input: &mut impl BufRead, record: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < record.len() {
        match input.read(&mut record[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
