//! Layout of the file: encodes and decodes header and trailer.

use crate::bytes::{u32_at, u64_at};

/// First and last bytes of the file. The high bit prevents tools from treating it as text.
pub(super) const MAGIC: [u8; 8] = *b"\x89BWTRACE";
/// Version of the layout; readers reject others.
pub(super) const VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const ROW_BYTES: usize = 24;
pub(super) const FILE_BYTES: usize = 16;
pub(super) const STREAM_BYTES: usize = 16;
pub(super) const LONG_BYTES: usize = 8;
pub(super) const TRAILER_BYTES: usize = 80;
/// Flag in a row's length: the other bits are an index into the long lengths.
pub(super) const LONG: u32 = 1 << 31;
/// Maximum number of streams.
pub(super) const STREAMS_MAX: u32 = 1 << 28;

/// Content of the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) rows: u64,
    pub(super) files: u64,
    pub(super) streams: u64,
    pub(super) longs: u64,
    pub(super) name_bytes: u64,
    pub(super) rows_crc: u32,
    pub(super) tables_crc: u32,
}

pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(ROW_BYTES as u32).to_le_bytes());
    bytes
}

/// Checks a header.
pub(super) fn check_header(bytes: &[u8]) -> Result<(), String> {
    if !bytes.starts_with(&MAGIC) {
        return Err("this is not a binary trace".to_owned());
    }
    if bytes.len() < HEADER_BYTES {
        return Err(format!("{} bytes end within the header", bytes.len()));
    }
    let (version, row_bytes) = (u32_at(bytes, 8), u32_at(bytes, 12));
    if (version, row_bytes) != (VERSION, ROW_BYTES as u32) {
        return Err(format!(
            "version {version} with rows of {row_bytes} bytes; this program reads version {VERSION} with {ROW_BYTES}"
        ));
    }
    Ok(())
}

impl Trailer {
    pub(super) fn to_bytes(self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        let counts = [self.rows, self.files, self.streams, self.longs, self.name_bytes];
        for (place, count) in bytes.chunks_exact_mut(8).zip(counts) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&self.rows_crc.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.tables_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..68]);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
        bytes[72..].copy_from_slice(&MAGIC);
        bytes
    }

    /// Parses the trailer of a file whose header was checked.
    pub(super) fn of_file(file: &[u8]) -> Result<Self, String> {
        const CUT: &str = "the end is missing: the file was cut, or its writer was stopped (write it again)";
        let start =
            file.len().checked_sub(TRAILER_BYTES).filter(|&start| start >= HEADER_BYTES).ok_or(CUT)?;
        let bytes = &file[start..];
        if bytes[72..] != MAGIC {
            return Err(CUT.to_owned());
        }
        if crc32fast::hash(&bytes[..68]) != u32_at(bytes, 68) {
            return Err("the trailer is damaged: its checksum differs".to_owned());
        }
        let trailer = Self {
            rows: u64_at(bytes, 0),
            files: u64_at(bytes, 8),
            streams: u64_at(bytes, 16),
            longs: u64_at(bytes, 24),
            name_bytes: u64_at(bytes, 32),
            rows_crc: u32_at(bytes, 40),
            tables_crc: u32_at(bytes, 44),
        };
        if trailer.size() == Some(file.len() as u64) {
            return Ok(trailer);
        }
        Err(format!(
            "the file has {} bytes, but its trailer tells of {} rows, {} files and {} streams: a part is missing or added",
            file.len(),
            trailer.rows,
            trailer.files,
            trailer.streams
        ))
    }

    /// Size of the whole file in bytes; `None` on overflow.
    fn size(&self) -> Option<u64> {
        let fixed = (HEADER_BYTES + TRAILER_BYTES) as u64;
        [
            (self.rows, ROW_BYTES),
            (self.files, FILE_BYTES),
            (self.streams, STREAM_BYTES),
            (self.longs, LONG_BYTES),
            (self.name_bytes, 1),
        ]
        .into_iter()
        .try_fold(fixed, |sum, (count, bytes)| count.checked_mul(bytes as u64)?.checked_add(sum))
    }
}
