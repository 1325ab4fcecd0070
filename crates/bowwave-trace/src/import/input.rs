//! Opening a trace: the source of its bytes, and decompression.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::binary;
use crate::error::Place;
use crate::{Error, Result};

/// Read size in bytes, and the bytes used for format detection.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// The uncompressed bytes of a trace from any source.
pub(super) type Bytes = Box<dyn BufRead + Send>;

/// Bytes of the compressed input read so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Position(Arc<AtomicU64>);

impl Position {
    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Opens the file at `path`, if it can be a trace.
pub(super) fn open(path: &Path, name: &str) -> Result<File> {
    let refused = |error| Error::from_io(name, Place::Whole, error);
    let file = File::open(path).map_err(refused)?;
    if file.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory.into()));
    }
    Ok(file)
}

/// Whether a regular file starts like the binary form; restores its offset.
pub(super) fn is_binary(file: &mut File) -> io::Result<bool> {
    const MAGIC_BYTES: u64 = 8;
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let mut head = Vec::new();
    file.by_ref().take(MAGIC_BYTES).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(binary::is_binary(&head))
}

/// Decompresses `input` if it is gzip or zstd, and returns its first bytes for detection.
pub(super) fn unpack(
    input: impl Read + Send + 'static,
    name: &str,
    position: &Position,
) -> Result<(Bytes, Vec<u8>)> {
    let refused = |error| Error::from_io(name, Place::Whole, error);
    let counted = Counted { input, position: position.clone() };
    let (head, rest) = peek(counted, 4).map_err(refused)?;
    let packed = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head.clone()).chain(rest));
    let plain: Box<dyn Read + Send> = match head.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(packed)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(Zstd::new(packed)),
        _ => Box::new(packed),
    };
    let (head, rest) = peek(plain, BUFFER_BYTES).map_err(refused)?;
    let bytes = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head.clone()).chain(rest));
    Ok((Box::new(bytes), head))
}

/// The first `count` bytes of `input`, fewer if it ends, and the remaining input.
fn peek<R: Read>(mut input: R, count: usize) -> io::Result<(Vec<u8>, R)> {
    let mut head = Vec::with_capacity(count);
    input.by_ref().take(count as u64).read_to_end(&mut head)?;
    Ok((head, input))
}

struct Counted<R> {
    input: R,
    position: Position,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.position.0.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A sequence of zstd frames.
struct Zstd<R> {
    packed: R,
    decoder: FrameDecoder,
    /// Whether the current frame is incomplete.
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(packed: R) -> Self {
        Self { packed, decoder: FrameDecoder::new(), in_frame: false }
    }

    /// Starts the next frame with data; false at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.packed) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.packed.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(damaged(&error)),
            }
        }
        Ok(false)
    }

    /// Ends the frame and checks its checksum.
    fn end(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "damaged zstd data: wrong checksum"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() && (self.in_frame || self.begin()?) {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.packed, one).map_err(|error| damaged(&error))?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            self.end()?;
        }
        Ok(0)
    }
}

fn damaged(error: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd data: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hello\n` compressed by `zstd`, with its checksum.
    const PACKED: &[u8] = &[
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x31, 0x00, 0x00, b'h', b'e', b'l', b'l', b'o', b'\n', 0x53,
        0x88, 0xbd, 0x91,
    ];

    fn unpacked(packed: &[u8]) -> Result<String> {
        let (mut bytes, _) = unpack(Cursor::new(packed.to_vec()), "x.zst", &Position::default())?;
        let mut text = String::new();
        bytes.read_to_string(&mut text).map_err(|error| Error::from_io("x.zst", Place::Whole, error))?;
        Ok(text)
    }

    #[test]
    fn zstd_frames_in_a_row_are_read_and_skippable_ones_skipped() {
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
        let packed = [PACKED, &skippable, PACKED].concat();
        assert_eq!(unpacked(&packed).unwrap(), "hello\nhello\n");
    }

    #[test]
    fn gzip_members_in_a_row_are_read() {
        let mut packed = Vec::new();
        for part in ["hello\n", "world\n"] {
            let mut writer = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
            io::Write::write_all(&mut writer, part.as_bytes()).unwrap();
            writer.finish().unwrap();
        }
        assert_eq!(unpacked(&packed).unwrap(), "hello\nworld\n");
    }

    #[test]
    fn truncated_or_damaged_compressed_data_is_one_error() {
        for length in 5..PACKED.len() {
            let error = unpacked(&PACKED[..length]).expect_err("cut short");
            assert!(error.to_string().starts_with("x.zst: damaged zstd data"), "{length}: {error}");
        }
        let mut damaged = PACKED.to_vec();
        damaged[10] ^= 1;
        assert!(unpacked(&damaged).unwrap_err().to_string().ends_with("wrong checksum"));
        let error = unpacked(&[0x1f, 0x8b, 8, 0, 0]).expect_err("cut short");
        assert!(error.to_string().starts_with("x.zst: "), "{error}");
    }
}
