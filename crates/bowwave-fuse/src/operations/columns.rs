//! Readahead of the columns of Parquet files.
//!
//! A program first reads the footer of such a file. From then on the mount knows where the column
//! chunks are, and needs no evidence of a pattern:
//!
//! - A program that begins a column chunk reads all of it, so all of it is requested.
//! - A program reads the same columns of each row group. While it reads one row group, these
//!   columns of the next ones are requested.
//!
//! Both have a budget (`State::may_request`): some programs read only the first page of each chunk.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::parquet::{ColumnChunk, column_chunks, footer_range};

/// Bytes. Larger footers are not parsed: the program would wait for that.
const FOOTER_MAX: u64 = 16 << 20;
/// Bytes at the end of a file that are kept when they are read before the last ones, and the most
/// files of which some are.
const TAIL_BYTES: u64 = 512 << 10;
const UNFINISHED_MAX: usize = 32;
/// Bytes of one chunk that are requested at once. The rest of a longer one is read sequentially,
/// which the policy recognizes.
const REQUEST_MAX: u64 = 16 << 20;
/// Bytes of the budget before any were used, as `file_windows` of `stream`. Larger: programs that
/// read one row group waste more. Smaller: columns of later row groups are requested late.
const FREE_BYTES: u64 = 16 << 20;
/// Bytes that each begun chunk adds to the budget, as `stream_windows` of `stream`, and the most
/// chunks that do. Larger: programs that read the first page of each chunk waste more. Smaller:
/// programs with many threads wait.
const FREE_BYTES_BEGUN: u64 = 2 << 20;
const BEGUN_MAX: u64 = 64;
/// One part in this many of the used bytes is added to the budget: `waste_percent` of `stream`.
const WASTE_SHARE: u64 = 4;
/// Chunks that are examined for a request when a program begins one.
const EXAMINED_MAX: u32 = 256;
/// Chunks of one file, and of all files that no program has open, at about 100 bytes each. The
/// kernel retains a footer, so a program that opens its file again reads none from the mount.
const CHUNKS_MAX: usize = 1 << 18;
const PAGE: u64 = 4096;

/// The columns of the files that programs have open, and of some that they had.
#[derive(Debug, Default)]
pub(super) struct AllColumns {
    /// By inode and version.
    known: Mutex<HashMap<(u64, u64), Arc<Columns>>>,
    /// Files with reads before their end, oldest first.
    unfinished: Mutex<VecDeque<Weak<Columns>>>,
}

impl AllColumns {
    /// The columns of a version of an inode's file.
    pub(super) fn of(&self, inode: u64, version: u64) -> Arc<Columns> {
        let mut known = lock(&self.known);
        if let Some(columns) = known.get(&(inode, version)) {
            return Arc::clone(columns);
        }
        let mut left = CHUNKS_MAX;
        known.retain(|_, columns| {
            let is_open = Arc::strong_count(columns) > 1;
            let size = if is_open { 0 } else { columns.count() };
            let stays = is_open || size > 0 && size <= left;
            left -= if stays { size } else { 0 };
            stays
        });
        let new = Arc::<Columns>::default();
        known.insert((inode, version), Arc::clone(&new));
        new
    }

    /// A program has read `data` at `offset` of a file of `size` bytes.
    pub(super) fn read(&self, columns: &Arc<Columns>, offset: u64, data: &[u8], size: u64) {
        if !columns.read(offset, data, size) {
            return;
        }
        let mut unfinished = lock(&self.unfinished);
        unfinished.push_back(Arc::downgrade(columns));
        if unfinished.len() > UNFINISHED_MAX
            && let Some(oldest) = unfinished.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.state().before_end.clear();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The columns of one version of a file.
#[derive(Debug, Default)]
pub(super) struct Columns {
    stage: AtomicU8,
    state: Mutex<State>,
}

/// The end of the file was not read.
const UNSEEN: u8 = 0;
/// The footer was read in part.
const PARTIAL: u8 = 1;
/// The chunks are known.
const KNOWN: u8 = 2;
/// There is no footer, or it is damaged or too large.
const UNKNOWN: u8 = 3;

#[derive(Debug, Default)]
struct State {
    /// Reads shortly before the end, until the end is read: a kernel reads the pages of a footer in
    /// their order.
    before_end: Vec<(u64, Vec<u8>)>,
    footer: Vec<u8>,
    footer_start: u64,
    /// Offsets of the footer that were not read yet.
    missing: Vec<Range<u64>>,
    /// In the order of their offsets.
    chunks: Vec<Chunk>,
    /// Places in `chunks`, by row group and column.
    by_group: Vec<(u32, u32, usize)>,
    /// The kernel's requests: bytes of the first one before the first page of a chunk, and bytes of
    /// each. 0 if programs read past the kernel's cache.
    window: (u64, u64),
    /// Columns of which a reader has begun a chunk.
    columns: BTreeSet<u32>,
    /// Chunks that a reader has begun.
    begun: u64,
    /// Bytes of requested chunks that were used, and that were not: of chunks that a reader has
    /// begun, and of others.
    used: u64,
    unread_begun: u64,
    unread_ahead: u64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Range<u64>,
    row_group: u32,
    column: u32,
    /// A reader has begun it.
    is_begun: bool,
    /// What was requested: its first pages or all, and the rest of the kernel's last request.
    requested: Range<u64>,
    /// Bytes of that which were not read.
    unread: u64,
    /// End of the last read that overlaps it.
    next: u64,
}

impl Chunk {
    fn first_page(&self) -> u64 {
        self.bytes.start / PAGE * PAGE
    }

    fn is_requested(&self) -> bool {
        !self.requested.is_empty()
    }
}

impl Columns {
    /// A program reads `bytes` of the file. Returns the ranges to request ahead of it.
    pub(super) fn requests(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        match self.stage.load(Ordering::Acquire) {
            KNOWN => self.state().requests(bytes),
            _ => Vec::new(),
        }
    }

    /// A program has read `data` at `offset` of a file of `size` bytes. Returns whether this is the
    /// first read that is kept.
    fn read(&self, offset: u64, data: &[u8], size: u64) -> bool {
        let is_missed = match self.stage.load(Ordering::Acquire) {
            UNSEEN => offset + TAIL_BYTES >= size,
            PARTIAL => true,
            _ => false,
        };
        if !is_missed {
            return false;
        }
        let mut state = self.state();
        let had_none = state.before_end.is_empty();
        let stage = match self.stage.load(Ordering::Relaxed) {
            UNSEEN => state.read_tail(offset, data, size),
            PARTIAL => state.read_footer(offset, data),
            other => other,
        };
        self.stage.store(stage, Ordering::Release);
        had_none && !state.before_end.is_empty()
    }

    fn count(&self) -> usize {
        self.state().chunks.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Looks for the footer's place, and keeps what was read before its last bytes. Returns the
    /// next stage.
    fn read_tail(&mut self, offset: u64, data: &[u8], size: u64) -> u8 {
        if offset + data.len() as u64 != size {
            let kept: usize = self.before_end.iter().map(|(_, data)| data.len()).sum();
            if kept + data.len() <= TAIL_BYTES as usize {
                self.before_end.push((offset, data.to_vec()));
            }
            return UNSEEN;
        }
        let parts = std::mem::take(&mut self.before_end);
        let footer = footer_range(data, size).filter(|footer| footer.end - footer.start <= FOOTER_MAX);
        let Some(footer) = footer else { return UNKNOWN };
        self.footer = vec![0; (footer.end - footer.start) as usize];
        self.footer_start = footer.start;
        self.missing = vec![footer];
        let parts = parts.iter().map(|(offset, data)| (*offset, &data[..]));
        let mut stages = parts.chain([(offset, data)]).map(|(offset, data)| self.read_footer(offset, data));
        stages.find(|&stage| stage != PARTIAL).unwrap_or(PARTIAL)
    }

    /// Adds what was read of the footer, and parses it once it is complete. Returns the next stage.
    fn read_footer(&mut self, offset: u64, data: &[u8]) -> u8 {
        let read = offset..offset + data.len() as u64;
        let (start, end) = (self.footer_start, self.footer_start + self.footer.len() as u64);
        let (from, to) = (read.start.max(start), read.end.min(end));
        if from < to {
            let source = &data[(from - offset) as usize..(to - offset) as usize];
            self.footer[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
            let parts = self
                .missing
                .iter()
                .flat_map(|range| [range.start..range.end.min(from), range.start.max(to)..range.end]);
            self.missing = parts.filter(|range| !range.is_empty()).collect();
        }
        if !self.missing.is_empty() {
            return PARTIAL;
        }
        let footer = std::mem::take(&mut self.footer);
        let mut chunks = column_chunks(&footer, start).unwrap_or_default();
        if chunks.len() > CHUNKS_MAX {
            return UNKNOWN;
        }
        chunks.sort_by_key(|chunk| chunk.bytes.start);
        let chunk = |ColumnChunk { bytes, row_group, column }| Chunk {
            bytes,
            row_group,
            column,
            is_begun: false,
            requested: 0..0,
            unread: 0,
            next: 0,
        };
        self.chunks = chunks.into_iter().map(chunk).collect();
        self.by_group =
            self.chunks.iter().enumerate().map(|(at, chunk)| (chunk.row_group, chunk.column, at)).collect();
        self.by_group.sort_unstable();
        if self.chunks.is_empty() { UNKNOWN } else { KNOWN }
    }

    fn requests(&mut self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let mut requests = Vec::new();
        for at in self.begun_by(&bytes) {
            let chunk = &mut self.chunks[at];
            if !chunk.is_begun {
                chunk.is_begun = true;
                self.begun += 1;
                self.columns.insert(chunk.column);
                self.unread_ahead -= chunk.unread;
                self.unread_begun += chunk.unread;
                let (row_group, first_page) = (chunk.row_group, chunk.first_page());
                let of_pages = bytes.start.is_multiple_of(PAGE) && bytes.end.is_multiple_of(PAGE);
                self.window = match first_page.checked_sub(bytes.start) {
                    _ if !of_pages => (0, 0),
                    Some(before) => (before, bytes.end - bytes.start),
                    None => self.window,
                };
                requests.extend(self.request(at));
                self.request_ahead(row_group, &mut requests);
            }
        }
        self.use_bytes(&bytes);
        requests
    }

    /// Places of the chunks that a read begins. A requested chunk counts wherever it is read.
    fn begun_by(&self, bytes: &Range<u64>) -> Vec<usize> {
        // A fault of a mapped page reads the pages around it.
        let start = bytes.start / PAGE * PAGE;
        let middle = start + (bytes.end - start) / 2 / PAGE * PAGE;
        let continues = self.holding(bytes.start).is_some_and(|at| self.chunks[at].next == bytes.start);
        let from = self.chunks.partition_point(|chunk| chunk.first_page() < start);
        let to = self.chunks.partition_point(|chunk| chunk.first_page() < bytes.end);
        let begins = |at: &usize| {
            let chunk = &self.chunks[*at];
            // A kernel reads ahead past the end of a chunk, and so into the next one.
            let page = chunk.first_page();
            chunk.is_requested() || !continues && (page == start || page == middle)
        };
        let held = self.holding(bytes.start).filter(|&at| self.chunks[at].is_requested());
        held.into_iter().chain((from..to).filter(begins)).collect()
    }

    /// Place of the chunk that has a byte.
    fn holding(&self, offset: u64) -> Option<usize> {
        let at = self.chunks.partition_point(|chunk| chunk.bytes.start <= offset).checked_sub(1)?;
        (offset < self.chunks[at].bytes.end).then_some(at)
    }

    /// Requests the same columns of this row group and the next ones.
    fn request_ahead(&mut self, row_group: u32, requests: &mut Vec<Range<u64>>) {
        let columns: Vec<u32> = self.columns.iter().copied().collect();
        let mut examined = 0;
        let mut from = self.by_group.partition_point(|&(of, _, _)| of < row_group);
        while let Some(&(group, _, _)) = self.by_group.get(from) {
            let end = from + self.by_group[from..].partition_point(|&(of, _, _)| of == group);
            for column in &columns {
                examined += 1;
                if examined > EXAMINED_MAX {
                    return;
                }
                let of_group = &self.by_group[from..end];
                let Ok(found) = of_group.binary_search_by_key(column, |&(_, column, _)| column) else {
                    continue;
                };
                let (_, _, at) = of_group[found];
                if !self.chunks[at].is_requested() {
                    let Some(request) = self.request(at) else { return };
                    requests.push(request);
                }
            }
            from = end;
        }
    }

    /// The request of a chunk, if it has none and the budget allows it.
    fn request(&mut self, at: usize) -> Option<Range<u64>> {
        let chunk = &self.chunks[at];
        let (start, end) = (chunk.first_page(), chunk.bytes.end.min(chunk.bytes.start + REQUEST_MAX));
        let (before, window) = self.window;
        // A program waits for all pages of the kernel's last request, also for those past the end.
        let end = match window {
            0 => end,
            _ => start + (end - start + before).next_multiple_of(window) - before,
        };
        if chunk.is_requested() || !self.may_request(end - start, chunk.is_begun) {
            return None;
        }
        let chunk = &mut self.chunks[at];
        (chunk.requested, chunk.unread) = (start..end, end - start);
        *(if chunk.is_begun { &mut self.unread_begun } else { &mut self.unread_ahead }) += end - start;
        Some(start..end)
    }

    fn may_request(&self, length: u64, is_begun: bool) -> bool {
        let earned = self.used / WASTE_SHARE;
        let free = FREE_BYTES + FREE_BYTES_BEGUN * self.begun.min(BEGUN_MAX);
        // Ahead of readers at most what they have used, so that a program that reads one row group
        // wastes at most another.
        let is_near = is_begun || self.unread_ahead + length <= self.used.min(FREE_BYTES) + earned;
        is_near && self.unread_begun + self.unread_ahead + length <= free + earned
    }

    fn use_bytes(&mut self, bytes: &Range<u64>) {
        let (_, window) = self.window;
        let from = self.chunks.partition_point(|chunk| chunk.bytes.end + window <= bytes.start);
        for chunk in self.chunks[from..].iter_mut().take_while(|chunk| chunk.first_page() < bytes.end) {
            if chunk.bytes.end > bytes.start {
                chunk.next = bytes.end;
            }
            let (start, end) = (chunk.requested.start.max(bytes.start), chunk.requested.end.min(bytes.end));
            let used = chunk.unread.min(end.saturating_sub(start));
            chunk.unread -= used;
            self.used += used;
            *(if chunk.is_begun { &mut self.unread_begun } else { &mut self.unread_ahead }) -= used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet::tests::tail;

    const MIB: u64 = 1 << 20;
    /// A request of the kernel.
    const WINDOW: u64 = 256 << 10;

    /// A file of row groups with five columns each, all of a size; and its size.
    fn file(row_groups: u64, chunk: u64) -> (Arc<Columns>, u64) {
        let columns = AllColumns::default().of(1, 1);
        let groups: Vec<Vec<_>> =
            (0..row_groups).map(|group| (0..5).map(|column| place(group, column, chunk)).collect()).collect();
        let tail = tail(&groups);
        let start = place(row_groups, 0, chunk).start;
        let size = start + tail.len() as u64;
        columns.read(start, &tail, size);
        (columns, size)
    }

    fn place(group: u64, column: u64, chunk: u64) -> Range<u64> {
        let start = 4 + (group * 5 + column) * chunk;
        start..start + chunk
    }

    /// What is requested for a chunk of 1 MiB that begins with a request of the kernel: it begins
    /// four bytes after a page, so the fifth request has its last bytes.
    fn request(group: u64, column: u64) -> Range<u64> {
        let start = place(group, column, MIB).start / PAGE * PAGE;
        start..start + 5 * WINDOW
    }

    /// Reads a range as a kernel does; returns what is requested ahead.
    fn read(columns: &Columns, bytes: Range<u64>) -> Vec<Range<u64>> {
        let start = bytes.start / PAGE * PAGE;
        let requests = (start..bytes.end).step_by(WINDOW as usize);
        requests.flat_map(|at| columns.requests(at..at + WINDOW)).collect()
    }

    #[test]
    fn the_first_read_of_a_chunk_requests_all_of_it() {
        let (columns, _) = file(4, MIB);
        let start = place(0, 3, MIB).start / PAGE * PAGE;
        assert_eq!(columns.requests(start..start + WINDOW), [request(0, 3)]);
        assert!(columns.requests(start + WINDOW..start + 2 * WINDOW).is_empty());
        let middle = place(1, 3, MIB).start + 100 * PAGE;
        assert!(columns.requests(middle..middle + WINDOW).is_empty(), "a read within a chunk says nothing");
    }

    /// By `O_DIRECT`, or without the kernel's cache.
    #[test]
    fn a_program_that_reads_past_the_kernel_gets_no_more_than_the_chunk() {
        let (columns, _) = file(4, MIB);
        let chunk = place(0, 3, MIB);
        let first_page = chunk.start / PAGE * PAGE;
        let whole = first_page..chunk.end;
        assert_eq!(columns.requests(chunk.start..chunk.start + 1000), [whole]);
    }

    #[test]
    fn columns_of_a_row_group_are_requested_of_the_next_ones() {
        let (columns, _) = file(100, MIB);
        let mut requested = Vec::new();
        for (group, column) in [(0, 1), (0, 3), (1, 1), (1, 3), (2, 1)] {
            requested.extend(read(&columns, place(group, column, MIB)));
        }
        let expected = [(0, 1), (0, 3), (1, 1), (1, 3), (2, 1), (2, 3), (3, 1), (3, 3), (4, 1), (4, 3)];
        assert_eq!(requested, expected.map(|(group, column)| request(group, column)));
    }

    /// Kernels read past the end of a chunk, and so the begin of the next one.
    #[test]
    fn readahead_of_the_kernel_begins_no_chunk() {
        let (columns, _) = file(4, MIB);
        let chunk = place(0, 1, MIB);
        assert_eq!(read(&columns, chunk.start..chunk.end + WINDOW / 2), [request(0, 1)]);
    }

    #[test]
    fn a_fault_at_the_begin_of_a_chunk_requests_it() {
        let (columns, _) = file(4, MIB);
        let chunk = place(2, 1, MIB);
        let start = chunk.start / PAGE * PAGE - WINDOW / 2;
        let request = start + WINDOW / 2..start + 5 * WINDOW;
        assert_eq!(columns.requests(start..start + WINDOW), [request]);
    }

    #[test]
    fn a_footer_is_read_in_parts_and_in_any_order() {
        let groups: Vec<Vec<_>> =
            (0..400).map(|group| (0..5).map(|column| place(group, column, 1000)).collect()).collect();
        let tail = tail(&groups);
        let start = place(400, 0, 1000).start;
        let size = start + tail.len() as u64;
        let columns = Columns::default();
        let parts: Vec<(usize, &[u8])> =
            tail.chunks(4096).enumerate().map(|(at, part)| (at * 4096, part)).collect();
        assert!(parts.len() > 8, "{}", parts.len());
        let last = parts.len() - 1;
        for at in [1, last, 3, 0, 3].into_iter().chain((4..last).chain([2])) {
            assert!(columns.requests(0..4096).is_empty());
            columns.read(start + parts[at].0 as u64, parts[at].1, size);
        }
        assert_eq!(columns.requests(0..4096).len(), 5, "the page has the begin of five chunks");
    }

    /// What is requested and not used is bounded, whatever is read.
    #[test]
    fn readers_that_leave_each_chunk_waste_little() {
        let (columns, _) = file(1000, 3 * MIB);
        let mut requested = 0;
        for group in 0..1000 {
            for column in [0, 2, 4] {
                let start = place(group, column, 3 * MIB).start / PAGE * PAGE;
                let requests = columns.requests(start..start + WINDOW);
                requested += requests.iter().map(|range| range.end - range.start).sum::<u64>();
            }
        }
        let used = columns.state().used;
        let bound = FREE_BYTES + FREE_BYTES_BEGUN * BEGUN_MAX + used / WASTE_SHARE;
        assert!(requested - used <= bound, "{requested} requested, {used} used");
        assert!(requested > 32 * MIB, "{requested}");
    }

    /// Footers of others may say anything: chunks that overlap, or of no row group in order.
    #[test]
    fn wrong_footers_are_no_danger() {
        let mut random = bowwave_core::Random::new(1);
        for _ in 0..300 {
            let groups: Vec<Vec<_>> = (0..random.below(20))
                .map(|_| {
                    let chunk = |_| {
                        let start = 4 + random.below(4 * MIB);
                        start..start + 1 + random.below(2 * MIB)
                    };
                    (0..20).map(chunk).collect()
                })
                .collect();
            let (tail, columns) = (tail(&groups), Columns::default());
            columns.read(8 * MIB, &tail, 8 * MIB + tail.len() as u64);
            for _ in 0..200 {
                let start = random.below(2048) * PAGE;
                columns.requests(start..start + 1 + random.below(WINDOW));
            }
            let state = columns.state();
            let unread: u64 = state.chunks.iter().map(|chunk| chunk.unread).sum();
            assert_eq!(unread, state.unread_begun + state.unread_ahead);
        }
    }

    #[test]
    fn few_files_keep_reads_before_their_end() {
        let (all, tail) = (AllColumns::default(), tail(&[vec![4..50, 50..100]]));
        let size = 100 + tail.len() as u64;
        let columns: Vec<_> = (0..=UNFINISHED_MAX as u64).map(|inode| all.of(inode, 1)).collect();
        for columns in &columns {
            all.read(columns, 100, &tail[..tail.len() - 8], size);
        }
        for columns in &columns {
            all.read(columns, size - 8, &tail[tail.len() - 8..], size);
        }
        let known = columns.iter().map(|columns| columns.count());
        assert!(known.eq([0].into_iter().chain([2; UNFINISHED_MAX])), "the oldest one has lost its read");
    }

    #[test]
    fn versions_are_remembered_while_there_is_room() {
        let all = AllColumns::default();
        let known = all.of(1, 1);
        let tail = tail(&[vec![4..50, 50..100]]);
        known.read(100, &tail, 100 + tail.len() as u64);
        drop(known);
        assert_eq!(all.of(2, 1).count(), 0);
        assert_eq!((all.of(1, 1).count(), all.of(1, 2).count()), (2, 0));
    }
}
