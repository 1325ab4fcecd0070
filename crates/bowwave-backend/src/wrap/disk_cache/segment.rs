//! A segment: up to 4 MiB of one version of an object, in a file of its own.
//!
//! ```text
//!   0     magic, checksum and length of the key, the key        one page
//!   4096  a checksum for each page of data; 0: not there        one page
//!   8192  the pages, each at its place; the file is sparse
//! ```
//!
//! Nothing is synced: bytes that a crash lost, tore or mixed do not match their checksum, and count
//! as damaged. The checksum of a page is a CRC-32 of the key, the page's number and its bytes, so a
//! page of another object, version or position does not match either. Checksums detect accidents,
//! not forgeries: a process that can write the file can also write the checksum. Processes that
//! fill one segment write the same bytes, because the key names the version. No number in a file
//! determines a read or an allocation: the head is compared with the expected one, and all sizes
//! are constants.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use crc32fast::Hasher;
use rustix::fs::OFlags;

use super::directory::{Directory, Fault};
use super::key::Key;

/// Bytes of a page, the unit of presence.
pub(super) const PAGE: u64 = 4096;
/// Bytes of data in a segment.
pub(super) const SEGMENT: u64 = 4 << 20;
/// Bytes of the largest segment.
pub(super) const SEGMENT_FILE: u64 = SEGMENT + 2 * PAGE;
/// Bytes read and verified at a time: few system calls, and small enough for the processor's cache.
pub(super) const CHUNK: usize = 256 << 10;
/// First bytes of a segment, with the version of the format.
const MAGIC: &[u8; 8] = b"bowwavd2";
/// Offset of the checksums in a segment.
pub(super) const SUMS: u64 = PAGE;
/// Offset of the data in a segment.
pub(super) const DATA: u64 = 2 * PAGE;
/// Age at which the time of the last use is updated.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// Splits a request by segment: the segment's number, and the bytes of the object.
pub(super) fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end).then(|| {
            let segment = start / SEGMENT;
            let part = start..range.end.min((segment + 1) * SEGMENT);
            start = part.end;
            (segment, part)
        })
    })
}

/// Result of reading a part from a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here,
    Absent,
    /// The contents differ from the written bytes.
    Damaged,
    /// The reader takes no more bytes: it gave up the disk.
    Abandoned,
}

/// Source of a segment's bytes.
pub(super) trait Source {
    /// Reads some bytes at `offset`; 0 at the end.
    fn read_some(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills the buffer from `offset`; `false` if the end comes first.
    fn read_all(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_some(&mut buffer[done..], offset + done as u64) {
                Ok(0) => return Ok(false),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Source for File {
    fn read_some(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
}

/// Checksums of the pages of one segment.
pub(super) struct Sums(Hasher);

impl Sums {
    pub(super) fn of(text: &str) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(text.as_bytes());
        Self(hasher)
    }

    /// The checksum of page number `at`. 0 marks a missing page.
    pub(super) fn sum(&self, at: u64, page: &[u8]) -> u32 {
        let mut hasher = self.0.clone();
        hasher.update(&at.to_le_bytes());
        hasher.update(page);
        hasher.finalize().max(1)
    }
}

/// The first two pages of a segment's file.
struct Head(Box<[u8]>);

/// State of the first two pages.
enum State {
    /// The file ends before them: its creator has not finished.
    Begun,
    /// They belong to another key.
    Foreign,
    Ours(Head),
}

impl Head {
    fn read(file: &impl Source, text: &str) -> io::Result<State> {
        let mut head = vec![0; DATA as usize].into_boxed_slice();
        if !file.read_all(&mut head, 0)? {
            return Ok(State::Begun);
        }
        Ok(if head.starts_with(&header(text)) { State::Ours(Self(head)) } else { State::Foreign })
    }

    /// The checksum of a page of the segment; 0 if the page is not there.
    fn sum(&self, page: u64) -> u32 {
        let at = (SUMS + 4 * page) as usize;
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }
}

pub(super) fn header(text: &str) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend(crc32fast::hash(text.as_bytes()).to_le_bytes());
    head.extend(u32::try_from(text.len()).expect("less than a page").to_le_bytes());
    head.extend(text.as_bytes());
    head
}

/// Pages from the beginning of the segment to a byte of the object that begins a page.
pub(super) fn page_of(offset: u64) -> u64 {
    offset % SEGMENT / PAGE
}

/// Reads a part of the object from its segment. `deliver` gets verified bytes in order, with their
/// offset in the object, and returns whether it accepts more.
pub(super) fn read(
    directory: &Directory,
    key: &Key,
    (number, part): (u64, &Range<u64>),
    scratch: &mut [u8],
    deliver: &mut dyn FnMut(u64, &[u8]) -> bool,
) -> io::Result<Found> {
    let (text, subdirectory, name) = key.place(number);
    let opened = directory.subdirectory(&subdirectory).and_then(|found| found.file(&name, OFlags::RDONLY));
    let file = match opened {
        Ok(file) => file,
        Err(Fault::Absent) => return Ok(Found::Absent),
        Err(Fault::Foreign) => return Ok(Found::Damaged),
        Err(Fault::Os(error)) => return Err(error),
    };
    let found = read_from(&file, &text, part, scratch, deliver)?;
    if found == Found::Here {
        // The bytes are valid even if the time cannot be written.
        let _best_effort = touch(&file);
    }
    Ok(found)
}

/// As [`read`], from arbitrary bytes of a segment's file.
pub(super) fn read_from(
    file: &impl Source,
    text: &str,
    part: &Range<u64>,
    scratch: &mut [u8],
    deliver: &mut dyn FnMut(u64, &[u8]) -> bool,
) -> io::Result<Found> {
    let head = match Head::read(file, text)? {
        State::Begun => return Ok(Found::Absent),
        State::Foreign => return Ok(Found::Damaged),
        State::Ours(head) => head,
    };
    let last = page_of(part.end - 1);
    if (page_of(part.start)..=last).any(|page| head.sum(page) == 0) {
        return Ok(Found::Absent);
    }
    let sums = Sums::of(text);
    let mut offset = part.start;
    while offset < part.end {
        let len = (part.end - offset).min(scratch.len() as u64);
        let bytes = &mut scratch[..len as usize];
        let first = page_of(offset);
        let whole = file.read_all(bytes, DATA + first * PAGE)?;
        let mut pages = bytes.chunks(PAGE as usize).zip(first..);
        if !whole || !pages.all(|(page, at)| sums.sum(at, page) == head.sum(at)) {
            return Ok(Found::Damaged);
        }
        if !deliver(offset, bytes) {
            return Ok(Found::Abandoned);
        }
        offset += len;
    }
    Ok(Found::Here)
}

/// Updates the segment's time of use for eviction, at most every [`TOUCH_EVERY`].
fn touch(file: &File) -> io::Result<()> {
    let old = file.metadata()?.modified()?.elapsed().is_ok_and(|age| age > TOUCH_EVERY);
    if old { file.set_modified(SystemTime::now()) } else { Ok(()) }
}

/// Result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) bytes: u64,
    /// Foreign entries and contents in the segment's place, which were replaced.
    pub(super) replaced: u64,
}

/// Writes pages of an object that a segment lacks.
pub(super) fn write(
    directory: &Directory,
    key: &Key,
    (number, part): (u64, &Range<u64>),
    bytes: &[u8],
) -> Result<Written, Fault> {
    let (text, subdirectory, name) = key.place(number);
    let (subdirectory, replaced_directory) = directory.own_subdirectory(&subdirectory)?;
    let (file, replaced_file) = subdirectory.own_file(&name)?;
    let mut replaced = u64::from(replaced_directory) + u64::from(replaced_file);
    let head = match Head::read(&file, &text)? {
        State::Ours(head) => head,
        state => {
            replaced += u64::from(matches!(state, State::Foreign));
            // Another process that creates the same segment has written the same header, and
            // perhaps pages.
            if file.metadata()?.len() > 0 {
                file.set_len(0)?;
            }
            file.write_all_at(&header(&text), 0)?;
            Head(vec![0; DATA as usize].into_boxed_slice())
        }
    };
    let first = page_of(part.start);
    let table = Sums::of(&text);
    let sums: Vec<u32> =
        bytes.chunks(PAGE as usize).zip(first..).map(|(page, at)| table.sum(at, page)).collect();
    let is_new = |page: usize| head.sum(first + page as u64) != sums[page];
    let mut written = 0;
    let mut page = 0;
    while page < sums.len() {
        if !is_new(page) {
            page += 1;
            continue;
        }
        let run = page..(page..sums.len()).find(|&page| !is_new(page)).unwrap_or(sums.len());
        let range = run.start * PAGE as usize..bytes.len().min(run.end * PAGE as usize);
        let place = first + run.start as u64;
        file.write_all_at(&bytes[range.clone()], DATA + place * PAGE)?;
        let table: Vec<u8> = sums[run.clone()].iter().flat_map(|sum| sum.to_le_bytes()).collect();
        file.write_all_at(&table, SUMS + place * 4)?;
        written += range.len() as u64;
        page = run.end;
    }
    Ok(Written { bytes: written, replaced })
}

/// Removes a segment, or what is in its place.
pub(super) fn remove(directory: &Directory, key: &Key, number: u64) -> io::Result<()> {
    let (_, subdirectory, name) = key.place(number);
    match directory.subdirectory(&subdirectory) {
        Ok(found) => found.remove(&name),
        Err(Fault::Foreign) => directory.remove(&subdirectory),
        Err(fault) => Err(fault.into()),
    }
}
