//! Little-endian numbers, records of a fixed size, and lines of a bounded size.

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

/// Why a line could not be read.
#[derive(Debug)]
pub(crate) enum LineError {
    Io(io::Error),
    TooLong,
}

/// Appends a line with its end to `line`, which then has at most `bytes_max` bytes. Returns whether
/// it has an end; only a last line may lack it.
pub(crate) fn append_line(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<bool, LineError> {
    loop {
        let chunk = match input.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(LineError::Io(error)),
        };
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let count = end.map_or(chunk.len(), |end| end + 1);
        if count > bytes_max - line.len() {
            return Err(LineError::TooLong);
        }
        line.extend_from_slice(&chunk[..count]);
        input.consume(count);
        if end.is_some() || count == 0 {
            return Ok(end.is_some());
        }
    }
}

/// `line` without its end.
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
