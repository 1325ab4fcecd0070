//! libCacheSim's oracleGeneral: 24 bytes per request, with the time of the object's next request.
//!
//! ```text
//!   0        4               12      16                    24
//!   │ time   │ object        │ size  │ next                │     little-endian
//!   │ u32, s │ u64           │ u32   │ i64, -1 for never   │
//! ```
//!
//! `next` is the number of the object's next request; the first request has number 1, as in
//! libCacheSim's own samples. Readers also accept the largest `i64` for never.
//!
//! The format has objects and sizes, but neither files nor operations. Here an object is a file
//! that is read in full, or, for disk traces, a block of one file (see [`Objects`]). There is no
//! header, so any file whose size is a multiple of 24 bytes looks valid.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use crate::bytes::{fill, u32_at, u64_at};
use crate::error::Place;
use crate::{Error, ErrorKind, Op, Record, Result};

const ROW_BYTES: usize = 24;

/// File name extension of this format.
pub const EXTENSION: &str = "oracleGeneral";

/// Meaning of an object number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// A block of this many bytes in one file called `objects`; its offset is number times size.
    /// 512 for disk traces, whose objects are sectors.
    Blocks(u64),
    /// A file of its own, named by the number.
    Files,
}

/// One request in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time in seconds.
    pub time_s: u32,
    /// The object.
    pub object: u64,
    /// Size in bytes.
    pub size: u32,
    /// Index of the object's next request, from 0; `None` if there is none.
    pub next: Option<u64>,
}

/// Streams the requests of a file of this form.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    name: String,
    objects: Objects,
    rows: u64,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader of `input`; errors name it `name`, such as its path.
    pub fn new(input: R, name: impl Into<String>, objects: Objects) -> Self {
        Self { input, name: name.into(), objects, rows: 0, ended: false }
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// The error and its row; the trace ends there.
    pub fn request(&mut self) -> Result<Option<Request>> {
        if self.ended {
            return Ok(None);
        }
        let request = self.next_request();
        self.ended = !matches!(request, Ok(Some(_)));
        self.rows += u64::from(!self.ended);
        request
    }

    /// Reads the next request into `record` as a read; false at the end.
    ///
    /// # Errors
    /// As [`request`](Self::request), and if an offset would pass [`u64::MAX`].
    pub fn read(&mut self, record: &mut Record) -> Result<bool> {
        let Some(Request { time_s, object, size, .. }) = self.request()? else { return Ok(false) };
        (record.time_ns, record.pid, record.op) = (u64::from(time_s) * 1_000_000_000, 0, Op::Read);
        record.length = size.into();
        record.file.clear();
        match self.objects {
            Objects::Files => {
                record.file.push_str(&object.to_string());
                record.offset = 0;
            }
            Objects::Blocks(bytes) => {
                record.file.push_str("objects");
                let offset = object.checked_mul(bytes).filter(|&at| at.checked_add(record.length).is_some());
                record.offset = offset.ok_or_else(|| {
                    self.ended = true;
                    let message = format!(
                        "object {object} as a block of {bytes} bytes lies past byte {} (read objects as files)",
                        u64::MAX
                    );
                    Error::at(ErrorKind::Value, &self.name, Place::Row(self.rows - 1), message)
                })?;
            }
        }
        Ok(true)
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.rows * ROW_BYTES as u64
    }

    fn next_request(&mut self) -> Result<Option<Request>> {
        let mut bytes = [0; ROW_BYTES];
        let filled = fill(&mut self.input, &mut bytes)
            .map_err(|error| Error::from_io(&self.name, Place::Row(self.rows), error))?;
        let wrong = |kind, message| Error::at(kind, &self.name, Place::Row(self.rows), message);
        if filled == 0 {
            return Ok(None);
        }
        if filled < ROW_BYTES {
            let message =
                format!("the file ends after {filled} of {ROW_BYTES} bytes: cut, or not oracleGeneral");
            return Err(wrong(ErrorKind::Row, message));
        }
        let next = match u64_at(&bytes, 16).cast_signed() {
            -1 | i64::MAX => None,
            next @ 1.. => Some(next.cast_unsigned() - 1),
            next => {
                let message = format!("the next request is {next}; it must be -1 or a number from 1");
                return Err(wrong(ErrorKind::Value, message));
            }
        };
        Ok(Some(Request {
            time_s: u32_at(&bytes, 0),
            object: u64_at(&bytes, 4),
            size: u32_at(&bytes, 12),
            next,
        }))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        let mut record = Record::default();
        self.read(&mut record).map(|more| more.then_some(record)).transpose()
    }
}

/// Writes requests, and computes the next request of each.
///
/// The next request of an object is known only when it arrives. So requests stay in memory (32
/// bytes each) until [`finish`](Self::finish) writes them.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    requests: Vec<Request>,
    last: HashMap<u64, usize>,
}

impl<W: Write> Writer<W> {
    /// A writer to `output`. It needs no buffer: writes are many KiB each.
    pub fn new(output: W) -> Self {
        Self { output, requests: Vec::new(), last: HashMap::new() }
    }

    /// Adds a request.
    pub fn request(&mut self, time_s: u32, object: u64, size: u32) {
        let index = self.requests.len();
        if let Some(before) = self.last.insert(object, index) {
            self.requests[before].next = Some(index as u64);
        }
        self.requests.push(Request { time_s, object, size, next: None });
    }

    /// Writes all requests and returns the output.
    ///
    /// # Errors
    /// The output's error.
    pub fn finish(mut self) -> io::Result<W> {
        let mut bytes = Vec::with_capacity(4096 * ROW_BYTES);
        for chunk in self.requests.chunks(4096) {
            bytes.clear();
            for &Request { time_s, object, size, next } in chunk {
                bytes.extend_from_slice(&time_s.to_le_bytes());
                bytes.extend_from_slice(&object.to_le_bytes());
                bytes.extend_from_slice(&size.to_le_bytes());
                // Indices of a vector are below 2^63.
                bytes.extend_from_slice(&next.map_or(-1, |next| next.cast_signed() + 1).to_le_bytes());
            }
            self.output.write_all(&bytes)?;
        }
        self.output.flush()?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(objects: &[u64]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (time, &object) in (7..).zip(objects) {
            writer.request(time, object, 512);
        }
        writer.finish().expect("memory takes all")
    }

    #[test]
    fn next_requests_round_trip() {
        let bytes = written(&[5, 9, 5, 5, 9]);
        assert_eq!(&bytes[..24], b"\x07\0\0\0\x05\0\0\0\0\0\0\0\0\x02\0\0\x03\0\0\0\0\0\0\0");
        let mut reader = Reader::new(&bytes[..], "t", Objects::Files);
        let requests: Vec<Request> = std::iter::from_fn(|| reader.request().expect("whole")).collect();
        let next: Vec<_> = requests.iter().map(|request| request.next).collect();
        assert_eq!(next, [Some(2), Some(4), Some(3), None, None]);
        assert_eq!(requests[4], Request { time_s: 11, object: 9, size: 512, next: None });
    }

    #[test]
    fn objects_are_blocks_or_files() {
        let bytes = written(&[3]);
        let one = |objects| Reader::new(&bytes[..], "t", objects).next().expect("a row").expect("whole");
        let block = one(Objects::Blocks(512));
        assert_eq!(
            (block.time_ns, block.file.as_str(), block.offset, block.length),
            (7_000_000_000, "objects", 1536, 512)
        );
        assert_eq!((one(Objects::Files).file.as_str(), one(Objects::Files).offset), ("3", 0));
    }

    #[test]
    fn errors_name_the_row() {
        let mut bytes = written(&[1, u64::MAX]);
        let far =
            Reader::new(&bytes[..], "t", Objects::Blocks(512)).nth(1).expect("a row").expect_err("too far");
        assert!(far.to_string().starts_with("t: row 1: object 18446744073709551615"), "{far}");
        bytes[47] = 0x80;
        let next = Reader::new(&bytes[..], "t", Objects::Files).nth(1).expect("a row").expect_err("negative");
        assert!(next.to_string().contains("row 1: the next request is -"), "{next}");
        let mut reader = Reader::new(&bytes[..40], "t", Objects::Files).skip(1);
        let cut = reader.next().expect("a row").expect_err("cut");
        assert!(cut.to_string().contains("row 1: the file ends after 16 of 24 bytes"), "{cut}");
        assert!(reader.next().is_none(), "the first error ends the trace");
    }
}
