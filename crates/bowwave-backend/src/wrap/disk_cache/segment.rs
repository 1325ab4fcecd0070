//! A segment: up to 4 MiB of one version of an object, in a file of its own.
//!
//! ```text
//!   0     magic, checksum and length of the key, the key        one page
//!   4096  a checksum for each page of data; 0: not there        one page
//!   8192  the pages, each at its place; the file is sparse
//! ```
//!
//! Nothing is synced: bytes that a crash has lost, torn or mixed do not have their checksum, and count as not there. Two
//! processes that fill one segment write the same bytes, for the key names the version.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use md5::{Digest as _, Md5};

use crate::{Identity, ReadBuf};

/// Bytes of a page, the unit that is there or not.
pub(super) const PAGE: u64 = 4096;
/// Bytes of data in a segment.
pub(super) const SEGMENT: u64 = 4 << 20;
/// What a segment takes at the most.
pub(super) const SEGMENT_FILE: u64 = SEGMENT + 2 * PAGE;
const PAGES: usize = (SEGMENT / PAGE) as usize;
const MAGIC: &[u8; 8] = b"bowwavd1";
const SUMS: u64 = PAGE;
const DATA: u64 = 2 * PAGE;

/// What makes the bytes of an object these bytes: where it is, and which version.
#[derive(Clone, Debug)]
pub(super) struct Key {
    text: String,
    /// Bytes of the object.
    size: u64,
}

impl Key {
    /// `None` if the version cannot be told, or the name is too long to be written down.
    pub(super) fn new(url: &str, path: &Path, identity: &Identity) -> Option<Self> {
        if identity.etag.is_none() && identity.modified_ns.is_none() {
            return None;
        }
        let text = format!(
            "{url}\n{path:?}\n{:?} {:?} {:?} {:?} {}",
            identity.etag, identity.modified_ns, identity.device, identity.inode, identity.size
        );
        (text.len() + 16 + 24 <= PAGE as usize).then_some(Self { text, size: identity.size })
    }

    /// The key of a segment, and where in `folder` it lies.
    fn place(&self, folder: &Path, segment: u64) -> (String, PathBuf) {
        let text = format!("{}\n{segment}", self.text);
        let name: String = Md5::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        (text, folder.join(&name[..2]).join(&name[2..]))
    }

    /// Bytes of the page that begins at `offset` of the object.
    fn page_len(&self, offset: u64) -> usize {
        PAGE.min(self.size.saturating_sub(offset)) as usize
    }

    /// The bytes at `offset`, of which there are to be `len`, as whole pages: the end of the object ends a page, too.
    pub(super) fn pages(&self, offset: u64, len: usize) -> Option<Range<u64>> {
        let end = offset.checked_add(len as u64)?.min(self.size);
        let whole = offset.is_multiple_of(PAGE) && (end.is_multiple_of(PAGE) || end == self.size);
        (whole && offset < end).then_some(offset..end)
    }
}

/// Part of a request that lies in one segment: the segment, and the bytes of the object.
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

/// A segment that is there.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    sums: Box<[u32; PAGES]>,
}

impl Segment {
    /// Opens a segment for reading; `None` if there is none.
    pub(super) fn open(folder: &Path, key: &Key, segment: u64) -> io::Result<Option<Self>> {
        let (text, path) = key.place(folder, segment);
        match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
            Ok(file) => Self::of(file, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of(file: File, text: &str) -> io::Result<Option<Self>> {
        let mut head = vec![0; DATA as usize];
        let count = read_up_to(&file, &mut head)?;
        // One that was cut off here has no data either.
        if count < head.len() || head[..16 + text.len()] != header(text) {
            return Ok(None);
        }
        let mut sums = Box::new([0; PAGES]);
        for (sum, bytes) in sums.iter_mut().zip(head[SUMS as usize..].chunks_exact(4)) {
            *sum = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        }
        Ok(Some(Self { file, sums }))
    }

    /// Reads a part of the object to `at` of the buffer; `false` if some of it is not there.
    pub(super) fn read(
        &self,
        key: &Key,
        part: &Range<u64>,
        buf: &mut ReadBuf,
        at: usize,
    ) -> io::Result<Found> {
        let (first, sums) = self.sums_of(part);
        if sums.contains(&0) {
            return Ok(Found::Absent);
        }
        let range = at..at + (part.end - part.start) as usize;
        let mut done = range.start;
        while done < range.end {
            let offset = DATA + first as u64 * PAGE + (done - range.start) as u64;
            match buf.read_from(&self.file, offset, done..range.end)? {
                0 => return Ok(Found::Damaged),
                count => done += count,
            }
        }
        let mut check = Check::new(key, part.start);
        let mut found = Vec::with_capacity(sums.len());
        buf.fill_with(range, |_, bytes| check.add(bytes, &mut found));
        Ok(if found == sums { Found::Here } else { Found::Damaged })
    }

    fn sums_of(&self, part: &Range<u64>) -> (usize, &[u32]) {
        let first = (part.start % SEGMENT / PAGE) as usize;
        let count = (part.end - part.start).div_ceil(PAGE) as usize;
        (first, &self.sums[first..first + count])
    }

    /// Notes that the segment is of use, so that it is kept longer than others. Not more often than matters.
    pub(super) fn touch(&self) -> io::Result<()> {
        let old = self.file.metadata()?.modified()?.elapsed().is_ok_and(|age| age > TOUCH_EVERY);
        if old { self.file.set_modified(std::time::SystemTime::now()) } else { Ok(()) }
    }
}

/// What a segment has of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here,
    Absent,
    /// What is there is not what was written.
    Damaged,
}

/// Writes pages of an object that a segment does not have; says how many bytes.
pub(super) fn write(
    folder: &Path,
    key: &Key,
    segment: u64,
    part: &Range<u64>,
    bytes: &[u8],
) -> io::Result<u64> {
    let (text, path) = key.place(folder, segment);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = match options.open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            super::room::make_folder(path.parent().expect("in a folder"))?;
            options.open(&path)?
        }
        opened => opened?,
    };
    let known = match Segment::of(file.try_clone()?, &text)? {
        Some(known) => known,
        None => {
            file.set_len(0)?;
            file.write_all_at(&header(&text), 0)?;
            Segment { file: file.try_clone()?, sums: Box::new([0; PAGES]) }
        }
    };
    let mut sums = Vec::new();
    Check::new(key, part.start).add(bytes, &mut sums);
    let (first, old) = known.sums_of(part);
    let mut written = 0;
    let mut page = 0;
    while page < sums.len() {
        if old[page] == sums[page] {
            page += 1;
            continue;
        }
        let run = page..page + (page..sums.len()).take_while(|&page| old[page] != sums[page]).count();
        let range = run.start * PAGE as usize..bytes.len().min(run.end * PAGE as usize);
        let place = (first + run.start) as u64;
        file.write_all_at(&bytes[range.clone()], DATA + place * PAGE)?;
        let table: Vec<u8> = sums[run.clone()].iter().flat_map(|sum| sum.to_le_bytes()).collect();
        file.write_all_at(&table, SUMS + place * 4)?;
        written += range.len() as u64;
        page = run.end;
    }
    Ok(written)
}

/// Removes a segment.
pub(super) fn remove(folder: &Path, key: &Key, segment: u64) -> io::Result<()> {
    std::fs::remove_file(key.place(folder, segment).1)
}

/// Checksums of the pages of bytes that come in pieces.
struct Check<'a> {
    key: &'a Key,
    /// Where the page begins, in the object.
    page: u64,
    len: usize,
    hasher: Hasher,
}

impl<'a> Check<'a> {
    fn new(key: &'a Key, offset: u64) -> Self {
        Self { key, page: offset, len: 0, hasher: Hasher::new() }
    }

    fn add(&mut self, mut bytes: &[u8], sums: &mut Vec<u32>) {
        while !bytes.is_empty() {
            let count = bytes.len().min(self.key.page_len(self.page) - self.len);
            self.hasher.update(&bytes[..count]);
            bytes = &bytes[count..];
            self.len += count;
            if self.len == self.key.page_len(self.page) {
                // 0 says that a page is not there.
                sums.push(std::mem::take(&mut self.hasher).finalize().max(1));
                self.page += PAGE;
                self.len = 0;
            }
        }
    }
}

fn header(text: &str) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend(crc32fast::hash(text.as_bytes()).to_le_bytes());
    head.extend(u32::try_from(text.len()).expect("less than a page").to_le_bytes());
    head.extend(text.as_bytes());
    head
}

fn read_up_to(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

const TOUCH_EVERY: std::time::Duration = std::time::Duration::from_secs(60);
