//! How much of the next files is read ahead: as much as programs read of the files before them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// What programs have read of the files that they opened last. The driver numbers directories and
/// files.
#[derive(Clone, Debug, Default)]
pub struct SiblingUses {
    /// In the order of their last opens.
    recent: VecDeque<Recent>,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    directory: u64,
    file: u64,
    read: FileUse,
    is_closed: bool,
}

impl Recent {
    /// A closed file of which nothing was read says that nothing is wanted, or that the kernel has
    /// it.
    fn says_something(&self) -> bool {
        self.read.bytes > 0 || self.is_closed && self.read.size > 0
    }
}

impl SiblingUses {
    /// A program opens a file of `size` bytes.
    pub fn opened(&mut self, directory: u64, file: u64, size: u64) {
        let before = self.recent.iter().position(|recent| recent.file == file);
        let before = before.and_then(|at| self.recent.remove(at));
        let read = before.map(|recent| recent.read).filter(|read| read.size == size);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        let read = read.unwrap_or_else(|| FileUse::new(size));
        self.recent.push_back(Recent { directory, file, read, is_closed: false });
    }

    /// A program reads bytes of a file. Returns whether further reads of it matter: not if it was
    /// read whole, or if many others were opened since.
    pub fn read(&mut self, file: u64, offset: u64, bytes: u64) -> bool {
        self.find(file).is_some_and(|recent| {
            recent.read.read(offset, bytes);
            recent.read.head() < u64::MAX
        })
    }

    /// A program closes a file: it has read what it wants of it.
    pub fn closed(&mut self, file: u64) {
        if let Some(recent) = self.find(file) {
            recent.is_closed = true;
        }
    }

    fn find(&mut self, file: u64) -> Option<&mut Recent> {
        self.recent.iter_mut().rev().find(|recent| recent.file == file)
    }

    /// How much of the next files in a directory is read ahead, when a program has opened `file`,
    /// or without an open there.
    pub fn extent(&self, directory: u64, file: Option<u64>) -> SiblingExtent {
        let read = || {
            let recent = self.recent.iter().rev();
            recent.filter(move |recent| recent.says_something() && Some(recent.file) != file)
        };
        // A program that walks a tree comes to directories of which it has read nothing.
        let is_new = !read().any(|recent| recent.directory == directory);
        let known = || read().filter(move |recent| is_new || recent.directory == directory);
        let closed = known().filter(|recent| recent.is_closed).take(CLOSED_MAX);
        let closed: Vec<FileUse> = closed.map(|recent| recent.read).collect();
        // Several open files are of readers that have not ended.
        let mut open = known();
        let extent = match (open.next(), open.next()) {
            _ if !closed.is_empty() => SiblingExtent::of(&closed),
            (Some(one), None) => SiblingExtent::of(&[one.read]),
            _ => SiblingExtent::GUESS,
        };
        let of_closed = !closed.is_empty();
        SiblingExtent { is_shown: extent.is_shown && !is_new, of_closed, ..extent }
    }
}

/// What programs have read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileUse {
    /// Bytes of the file.
    size: u64,
    /// End of what was read from its first byte on.
    head: u64,
    /// First byte read after the head.
    from: u64,
    /// Bytes read after the head, each as often as it was read.
    apart: u64,
    /// First byte of the last reads, which go to the end.
    last: u64,
    /// All bytes read, each as often as it was read.
    bytes: u64,
}

impl FileUse {
    /// Of a file of `size` bytes, of which nothing was read.
    fn new(size: u64) -> Self {
        Self { size, head: 0, from: size, apart: 0, last: size, bytes: 0 }
    }

    /// A program reads `bytes` from `offset` on. The order of calls does not matter if the bytes
    /// are read in order.
    fn read(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes).min(self.size);
        let bytes = end.saturating_sub(offset);
        self.bytes = self.bytes.saturating_add(bytes);
        if bytes == 0 {
            return;
        }
        if offset > self.head {
            if end >= self.last {
                self.last = self.last.min(offset);
            }
            self.from = self.from.min(offset);
            self.apart = self.apart.saturating_add(bytes);
            return;
        }
        self.head = self.head.max(end);
        if self.head >= self.from {
            self.head = self.head.max(self.from.saturating_add(self.apart).min(self.size));
            (self.from, self.apart) = (self.size, 0);
        }
    }

    /// Length of the head; `u64::MAX` if the file was read whole. Reads in order that are counted
    /// in another order may leave a gap.
    fn head(&self) -> u64 {
        let is_whole = self.head >= self.size || self.bytes >= self.size && self.head >= self.size / 2;
        if is_whole { u64::MAX } else { self.head }
    }

    /// Bytes at the end of the file: all after the head if at least half of them were read, else
    /// those that were read up to the end.
    fn tail(&self) -> u64 {
        let all = self.size - self.from.min(self.size);
        if self.apart.saturating_mul(2) >= all { all } else { self.size - self.last }
    }
}

/// What is read ahead of each of the next files in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiblingExtent {
    /// Bytes from the first one on; `u64::MAX` for all.
    head: u64,
    /// Bytes before the end.
    tail: u64,
    /// Whether files of the same directory show it.
    is_shown: bool,
    /// Whether closed files show it.
    of_closed: bool,
}

impl SiblingExtent {
    /// Of files about which nothing is known.
    pub const GUESS: Self = Self { head: u64::MAX, tail: 0, is_shown: false, of_closed: false };

    /// Of files that are only opened.
    pub const NOTHING: Self = Self { head: 0, tail: 0, is_shown: false, of_closed: false };

    /// As much as programs read of the files that they opened last: as many bytes at the beginning
    /// and at the end that at least half of them would have been used in these files.
    fn of(uses: &[FileUse]) -> Self {
        let head = largest(uses.iter().map(|file| (file.head(), file.size)));
        let tail =
            if head == u64::MAX { 0 } else { largest(uses.iter().map(|file| (file.tail(), file.size))) };
        Self { head, tail, is_shown: true, of_closed: true }
    }

    /// Whether all bytes of small files are read ahead because those of the directory were read so.
    pub fn is_shown_whole(&self) -> bool {
        self.head == u64::MAX && self.is_shown
    }

    /// The bytes that a program reads of a file of `size` bytes, as closed files of the same
    /// directory show.
    pub fn shown(&self, size: u64) -> Option<[Range<u64>; 2]> {
        (self.is_shown && self.of_closed).then(|| self.ranges(size))
    }

    /// The bytes that are read ahead of a file of `size` bytes: the first ones and the last ones.
    /// Of a large file that may be read whole, only what its first reads want.
    pub fn ranges(&self, size: u64) -> [Range<u64>; 2] {
        let head = self.head.min(ahead_max(size));
        let tail = self.tail.min(ahead_max(size)).min(size - head);
        [0..head, size - tail..size]
    }

    /// How many bytes these are.
    pub fn bytes(&self, size: u64) -> u64 {
        self.ranges(size).iter().map(|range| range.end - range.start).sum()
    }

    /// Whether these are all bytes of a file.
    pub fn is_whole(&self, size: u64) -> bool {
        self.bytes(size) == size
    }

    /// How many files may be read ahead now, with `left` bytes of memory for files of `average`
    /// bytes.
    ///
    /// Of a directory of large files none, unless little was read of closed ones. Readers that open
    /// them at once, such as players, need the link for what each has opened, and those that read
    /// anywhere in them do not want their start.
    pub fn room(&self, left: u64, average: u64) -> u32 {
        let bytes = self.bytes(average);
        let is_little = self.of_closed && bytes <= LITTLE_BYTES;
        if average > 0 && bytes == 0 || average > WHOLE_BYTES_MAX && !is_little {
            return 0;
        }
        u32::try_from(left / bytes.max(1)).unwrap_or(u32::MAX)
    }
}

/// Most bytes at one end of a file of `size` bytes.
fn ahead_max(size: u64) -> u64 {
    if size <= WHOLE_BYTES_MAX { size } else { HEAD_BYTES }
}

/// The largest of these lengths of which at least half would have been used, if it had been read
/// ahead of each of the files. `parts` are used lengths, and sizes.
fn largest(parts: impl Iterator<Item = (u64, u64)> + Clone) -> u64 {
    let fits = |length: u64| {
        let (mut used, mut unused) = (0_u64, 0_u64);
        for (part, size) in parts.clone() {
            let ahead = length.min(ahead_max(size));
            let part = part.min(ahead);
            used = used.saturating_add(part);
            unused = unused.saturating_add(ahead - part);
        }
        unused <= used
    };
    parts.clone().map(|(part, _)| part).filter(|&part| fits(part)).max().unwrap_or(0)
}

/// Files whose uses are remembered: those of many readers at once.
const RECENT_MAX: usize = 128;
/// Closed files that show what programs read.
const CLOSED_MAX: usize = 16;
/// Files of at most this size are read ahead whole, of others only [`HEAD_BYTES`].
const WHOLE_BYTES_MAX: u64 = 4 << 20;
/// Bytes at one end of a large file that are read ahead.
const HEAD_BYTES: u64 = 1 << 20;
/// Large files are read ahead if it is no more of each than this.
const LITTLE_BYTES: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `size` bytes, of which these ranges were read in pieces.
    fn file(size: u64, ranges: &[(u64, u64)]) -> FileUse {
        let mut file = FileUse::new(size);
        for &(start, end) in ranges {
            for offset in (start..end).step_by(128 << 10) {
                file.read(offset, (128 << 10).min(end - offset));
            }
        }
        file
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn as_much_is_read_ahead_as_was_read_before() {
        let headers: Vec<FileUse> = (0..5).map(|_| file(3 * MIB, &[(0, 16 << 10)])).collect();
        let extent = SiblingExtent::of(&headers);
        assert_eq!(extent.ranges(3 * MIB)[0], 0..16 << 10);
        assert_eq!(
            (extent.bytes(3 * MIB), extent.bytes(100), extent.is_shown_whole()),
            (16 << 10, 100, false)
        );
        let footers: Vec<FileUse> =
            (0..5).map(|_| file(200 * MIB, &[(0, 4), (200 * MIB - 70_000, 200 * MIB)])).collect();
        let extent = SiblingExtent::of(&footers);
        assert_eq!(extent.ranges(50 * MIB), [0..4, 50 * MIB - 70_000..50 * MIB]);
        assert_eq!(extent.room(70_004 * 10, 200 * MIB), 10, "little of each large file");
        let tables = [file(MIB, &[(MIB - 20_000, MIB), (300_000, 500_000)]); 5];
        assert_eq!(
            SiblingExtent::of(&tables).ranges(MIB),
            [0..0, MIB - 20_000..MIB],
            "and a part in the middle"
        );
    }

    #[test]
    fn files_are_read_ahead_whole_if_most_bytes_of_those_before_were_read() {
        let whole: Vec<FileUse> = (1..6).map(|n| file(n * 100_000, &[(0, n * 100_000)])).collect();
        let extent = SiblingExtent::of(&whole);
        assert!(extent.is_shown_whole());
        assert_eq!((extent.bytes(700_000), extent.bytes(5 * MIB)), (700_000, MIB));
        let one_of = |n: usize| {
            let files: Vec<FileUse> =
                (0..12).map(|at| file(MIB, &[(0, if at % n == 0 { MIB } else { 4096 })])).collect();
            SiblingExtent::of(&files).bytes(MIB)
        };
        assert_eq!([one_of(2), one_of(4)], [MIB, 4096]);
        let mut chunks = [file(2 * MIB, &[(0, 2 * MIB)]); 15].to_vec();
        chunks.push(file(100 * MIB, &[(0, 4096)]));
        assert_eq!(
            SiblingExtent::of(&chunks).bytes(2 * MIB),
            2 * MIB,
            "beside an index of which little is read"
        );
    }

    #[test]
    fn files_read_anywhere_show_that_nothing_is_wanted() {
        let guess = SiblingExtent::GUESS;
        assert_eq!((guess.bytes(100_000), guess.is_shown_whole()), (100_000, false));
        assert_eq!((guess.room(64 * MIB, 256 * MIB), guess.room(MIB, 0)), (0, 1 << 20));
        let mut anywhere = FileUse::new(100 * MIB);
        for at in [40, 3, 90, 77] {
            anywhere.read(at * MIB, 4096);
        }
        let extent = SiblingExtent::of(&[anywhere; 4]);
        assert_eq!((extent.bytes(100 * MIB), extent.room(u64::MAX, 100 * MIB)), (0, 0));
    }

    #[test]
    fn reads_in_order_may_be_counted_in_another_order() {
        let mut file = FileUse::new(1_000_000);
        for piece in [1, 0, 3, 2, 5, 7, 4, 6] {
            file.read(piece * (128 << 10), 128 << 10);
        }
        assert_eq!(SiblingExtent::of(&[file]).bytes(300_000), 300_000);
        assert!(SiblingExtent::of(&[file]).is_shown_whole());
    }

    #[test]
    fn closed_files_count_and_those_of_readers_at_once_do_not() {
        let mut uses = SiblingUses::default();
        let bytes = |uses: &SiblingUses, directory| uses.extent(directory, Some(9)).bytes(MIB);
        assert_eq!(bytes(&uses, 1), MIB, "nothing is known");
        uses.opened(1, 5, MIB);
        assert_eq!(bytes(&uses, 1), MIB, "nothing was read");
        uses.read(5, 0, 4096);
        assert_eq!(
            [bytes(&uses, 1), bytes(&uses, 2)],
            [4096; 2],
            "one reader, the same in the next directory"
        );
        assert_eq!(uses.extent(1, Some(9)).room(MIB, 256 * MIB), 0, "players open large files one by one");
        uses.opened(1, 6, MIB);
        uses.read(6, 0, 8192);
        assert_eq!(bytes(&uses, 1), MIB, "two readers at once");
        uses.closed(5);
        assert_eq!([bytes(&uses, 1), uses.extent(1, Some(5)).bytes(MIB)], [4096, 8192]);
        uses.opened(1, 5, MIB);
        uses.read(5, 4096, MIB);
        uses.closed(5);
        assert!(uses.extent(1, None).is_shown_whole(), "read in two opens");
        assert_eq!((uses.extent(2, None).bytes(MIB), uses.extent(2, None).is_shown_whole()), (MIB, false));
        uses.opened(1, 5, 2 * MIB);
        assert_eq!(bytes(&uses, 1), 8192, "another version, of which nothing was read");
        for file in 100..300 {
            assert!(file < 101 || bytes(&uses, 1) <= 8192, "{file}: the kernel has what is wanted of these");
            uses.opened(1, file, MIB);
            uses.closed(file);
        }
        assert_eq!((uses.recent.len(), bytes(&uses, 1)), (RECENT_MAX, 0));
    }
}
