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

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowwave_engine::StreamBudget;

use crate::parquet::{ColumnChunk, column_chunks, footer_range};

/// Bytes. Larger footers are not parsed: the program would wait for that.
const FOOTER_MAX: u64 = 16 << 20;
/// Bytes at the end of a file that are kept when they are read before the last ones, and the most
/// files of which some are.
const TAIL_BYTES: u64 = 512 << 10;
const UNFINISHED_MAX: usize = 32;
/// Windows of the budget before any bytes were used, and of one request, as `file_windows` of
/// `stream`. Larger: programs that read one row group waste more. Smaller: columns of later row
/// groups are requested late.
const FILE_WINDOWS: u64 = 16;
/// Windows that each begun chunk adds to the budget, as `stream_windows` of `stream`, and the most
/// chunks that do. Larger: programs that read the first page of each chunk waste more. Smaller:
/// programs with many threads wait.
const STREAM_WINDOWS: u64 = 2;
const BEGUN_MAX: u64 = 64;
/// Chunks ahead of readers are at most one part in this many of the cache, as `memory_share` of
/// `stream`.
const MEMORY_SHARE: u64 = 4;
/// Chunks that are examined when a program begins one. Smaller: of very wide tables, only the
/// current row group is requested.
const EXAMINED_MAX: usize = 2048;
/// Chunks of one file, and of all files that no program has open, at about 100 bytes each. The
/// kernel retains a footer, so a program that opens its file again reads none from the mount.
const CHUNKS_MAX: usize = 1 << 18;
/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;

/// The columns of the files that programs have open, and of some that they had.
#[derive(Debug, Default)]
pub(super) struct AllColumns {
    known: Mutex<Known>,
    /// Files with reads before their end, oldest first.
    unfinished: Mutex<VecDeque<Weak<Columns>>>,
}

#[derive(Debug, Default)]
struct Known {
    by_inode: HashMap<u64, Entry>,
    /// Opens so far.
    opens: u64,
    /// Chunks of all these files.
    chunks: usize,
    /// Files at which closed ones without chunks are dropped.
    sweep_at: usize,
}

#[derive(Debug)]
struct Entry {
    columns: Arc<Columns>,
    /// Number of its last open.
    opened: u64,
    chunks: usize,
}

impl AllColumns {
    /// The columns of a version of an inode's file, which a program opens to read.
    pub(super) fn open(&self, inode: u64, version: u64) -> Arc<Columns> {
        let mut known = lock(&self.known);
        known.opens += 1;
        let opened = known.opens;
        if let Some(entry) = known.by_inode.get_mut(&inode)
            && entry.columns.version == version
        {
            entry.opened = opened;
            if entry.is_closed() {
                // Its pages may have left the kernel's cache since it was closed.
                entry.columns.state().forget_reads();
            }
            return Arc::clone(&entry.columns);
        }
        if known.by_inode.len() >= known.sweep_at {
            known.by_inode.retain(|_, entry| !entry.is_closed() || entry.columns.is_known());
            known.sweep_at = (2 * known.by_inode.len()).max(64);
        }
        let columns = Arc::new(Columns { inode, version, ..Columns::default() });
        known.remove(inode);
        known.by_inode.insert(inode, Entry { columns: Arc::clone(&columns), opened, chunks: 0 });
        columns
    }

    /// The file is written.
    pub(super) fn forget(&self, inode: u64) {
        lock(&self.known).remove(inode);
    }

    /// A program has read `data` at `offset` of a file of `size` bytes.
    pub(super) fn read(&self, columns: &Arc<Columns>, offset: u64, data: &[u8], size: u64) {
        match columns.read(offset, data, size) {
            Progress::None => {}
            Progress::Kept => {
                let mut unfinished = lock(&self.unfinished);
                unfinished.push_back(Arc::downgrade(columns));
                if unfinished.len() > UNFINISHED_MAX
                    && let Some(oldest) = unfinished.pop_front().and_then(|oldest| oldest.upgrade())
                {
                    oldest.state().before_end.clear();
                }
            }
            Progress::Known(chunks) => {
                let mut known = lock(&self.known);
                let entry = known.by_inode.get_mut(&columns.inode);
                // It may have been forgotten since.
                if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.columns, columns)) {
                    entry.chunks = chunks;
                    known.chunks += chunks;
                    known.drop_oldest();
                }
            }
        }
    }
}

impl Entry {
    fn is_closed(&self) -> bool {
        Arc::strong_count(&self.columns) == 1
    }
}

impl Known {
    fn remove(&mut self, inode: u64) {
        if let Some(Entry { columns, chunks, .. }) = self.by_inode.remove(&inode) {
            let _no_read_stores_another = columns.state();
            columns.stage.store(NO_FOOTER, Ordering::Release);
            self.chunks -= chunks;
        }
    }

    /// If there are more than [`CHUNKS_MAX`] chunks, drops the closed files that were opened least
    /// recently, until half as many are left: so that it is seldom done.
    fn drop_oldest(&mut self) {
        if self.chunks <= CHUNKS_MAX {
            return;
        }
        let closed = self.by_inode.iter().filter(|(_, entry)| entry.is_closed());
        let mut oldest: Vec<(u64, u64)> = closed.map(|(&inode, entry)| (entry.opened, inode)).collect();
        oldest.sort_unstable();
        for (_, inode) in oldest {
            if self.chunks <= CHUNKS_MAX / 2 {
                return;
            }
            self.remove(inode);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The columns of one version of a file.
#[derive(Debug, Default)]
pub(super) struct Columns {
    inode: u64,
    /// As [`File::version`](bowwave_engine::File::version).
    pub(super) version: u64,
    stage: AtomicU8,
    state: Mutex<State>,
}

/// The end of the file was not read.
const UNSEEN: u8 = 0;
/// The footer was read in part.
const PARTIAL: u8 = 1;
/// The chunks are known.
const KNOWN: u8 = 2;
/// There is no footer, or it is damaged or too large; or the file is written.
const NO_FOOTER: u8 = 3;

/// What a read has changed.
#[derive(PartialEq, Eq)]
enum Progress {
    None,
    /// It is the first one before the end that is kept.
    Kept,
    /// The chunks are known now: their number.
    Known(usize),
}

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
    /// Row group, column, and index in `chunks`, in order.
    by_group: Vec<(u32, u32, usize)>,
    /// The kernel's requests: bytes of the first one before the first page of a chunk, and bytes of
    /// each. `None` if programs bypass the kernel's cache.
    window: Option<(u64, u64)>,
    /// Columns of which a reader has begun a chunk.
    columns: BTreeSet<u32>,
    /// Chunks that a reader has begun.
    begun: u64,
    /// Bytes of requested chunks that were used, and that were not: of chunks that a reader has
    /// begun, and of others.
    used: u64,
    unread_begun: u64,
    unread_ahead: u64,
    /// Bytes that were requested and will not be used.
    lost: u64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Range<u64>,
    row_group: u32,
    column: u32,
    /// A reader has begun it.
    is_begun: bool,
    /// Where its request ends, if it has one.
    requested_to: Option<u64>,
    /// Bytes of the request that were not read.
    unread: u64,
    /// Bytes of it that were read, each once.
    used: u64,
    /// Those of them that were read before its request. The kernel's requests for one read come in
    /// any order.
    used_before: u64,
    /// End of the last read that overlaps it.
    next: u64,
}

impl Chunk {
    fn new(ColumnChunk { bytes, row_group, column }: ColumnChunk) -> Self {
        Self {
            bytes,
            row_group,
            column,
            is_begun: false,
            requested_to: None,
            unread: 0,
            used: 0,
            used_before: 0,
            next: 0,
        }
    }

    fn first_page(&self) -> u64 {
        self.bytes.start / PAGE * PAGE
    }
}

impl Columns {
    /// A program reads `bytes` of the file. Returns the ranges to request ahead of it, without
    /// overlaps.
    /// Without a budget, nothing is.
    pub(super) fn requests(
        &self,
        bytes: Range<u64>,
        budget: impl FnOnce() -> Option<StreamBudget>,
    ) -> Vec<Range<u64>> {
        if self.is_known() { self.state().requests(&bytes, budget) } else { Vec::new() }
    }

    /// Whether the chunks are known.
    fn is_known(&self) -> bool {
        self.stage.load(Ordering::Acquire) == KNOWN
    }

    fn read(&self, offset: u64, data: &[u8], size: u64) -> Progress {
        let is_needed = match self.stage.load(Ordering::Acquire) {
            UNSEEN => offset + data.len() as u64 + TAIL_BYTES > size,
            PARTIAL => true,
            _ => false,
        };
        if !is_needed || data.is_empty() {
            return Progress::None;
        }
        let mut state = self.state();
        let had_none = state.before_end.is_empty();
        let before = self.stage.load(Ordering::Relaxed);
        let stage = match before {
            UNSEEN => state.read_tail(offset, data, size),
            PARTIAL => state.read_footer(offset, data),
            other => other,
        };
        self.stage.store(stage, Ordering::Release);
        match stage {
            KNOWN if before != KNOWN => Progress::Known(state.chunks.len()),
            UNSEEN if had_none && !state.before_end.is_empty() => Progress::Kept,
            _ => Progress::None,
        }
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
        let mut parts = std::mem::take(&mut self.before_end);
        parts.sort_by_key(|(offset, _)| *offset);
        let parts = parts.iter().map(|(offset, data)| (*offset, &data[..])).chain([(offset, data)]);
        // The last page of a file may have fewer bytes than the trailer.
        let mut last: Vec<u8> =
            parts.clone().rev().flat_map(|(_, data)| data.iter().rev()).copied().take(8).collect();
        last.reverse();
        let footer = footer_range(&last, size).filter(|footer| footer.end - footer.start <= FOOTER_MAX);
        let Some(footer) = footer else { return NO_FOOTER };
        self.footer = vec![0; (footer.end - footer.start) as usize];
        self.footer_start = footer.start;
        self.missing = vec![footer];
        let mut stages = parts.map(|(offset, data)| self.read_footer(offset, data));
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
        let mut chunks = column_chunks(&footer, start, CHUNKS_MAX).unwrap_or_default();
        if chunks.is_empty() {
            return NO_FOOTER;
        }
        chunks.sort_by_key(|chunk| chunk.bytes.start);
        self.chunks = chunks.into_iter().map(Chunk::new).collect();
        let places = self.chunks.iter().enumerate();
        self.by_group = places.map(|(index, chunk)| (chunk.row_group, chunk.column, index)).collect();
        self.by_group.sort_unstable();
        KNOWN
    }

    /// Forgets what was read and requested, but neither the chunks nor the budget.
    fn forget_reads(&mut self) {
        for chunk in &mut self.chunks {
            (chunk.is_begun, chunk.requested_to, chunk.unread, chunk.next) = (false, None, 0, 0);
            chunk.used_before = 0;
        }
        self.columns.clear();
        self.window = None;
        self.lost += self.unread_begun + self.unread_ahead;
        (self.unread_begun, self.unread_ahead) = (0, 0);
    }

    fn requests(
        &mut self,
        bytes: &Range<u64>,
        budget: impl FnOnce() -> Option<StreamBudget>,
    ) -> Vec<Range<u64>> {
        let begun = self.begun_by(bytes);
        let requests = match if begun.is_empty() { None } else { budget() } {
            Some(budget) => self.requests_of(begun, bytes, budget),
            None => Vec::new(),
        };
        self.use_bytes(bytes);
        requests
    }

    /// The requests for the chunks that a read begins, and ahead of them.
    fn requests_of(
        &mut self,
        begun: Vec<usize>,
        bytes: &Range<u64>,
        budget: StreamBudget,
    ) -> Vec<Range<u64>> {
        let mut requests = Vec::new();
        let mut last = None;
        for index in begun {
            let chunk = &mut self.chunks[index];
            chunk.is_begun = true;
            last = Some(chunk.row_group);
            self.begun += u64::from(chunk.used == 0);
            self.columns.insert(chunk.column);
            self.unread_ahead -= chunk.unread;
            self.unread_begun += chunk.unread;
            let of_pages = bytes.start.is_multiple_of(PAGE) && bytes.end.is_multiple_of(PAGE);
            self.window = match chunk.first_page().checked_sub(bytes.start) {
                _ if !of_pages => None,
                Some(before) => Some((before, bytes.end - bytes.start)),
                None => self.window,
            };
            requests.extend(self.request(index, budget));
        }
        if let Some(row_group) = last {
            self.request_ahead(row_group, &mut requests, budget);
        }
        merged(requests)
    }

    /// Indices of the chunks that a read begins. A chunk that was requested ahead is begun by any
    /// read; a begun one again by another read of its first page, which the kernel no longer has.
    fn begun_by(&mut self, bytes: &Range<u64>) -> Vec<usize> {
        let start = bytes.start / PAGE * PAGE;
        // A fault of a mapped page reads the pages around it.
        let middle = start + (bytes.end - start) / 2 / PAGE * PAGE;
        let held = self.holding(bytes.start);
        let continues = held.is_some_and(|index| self.chunks[index].next == bytes.start);
        let from = self.chunks.partition_point(|chunk| chunk.first_page() < start);
        let to = self.chunks.partition_point(|chunk| chunk.first_page() < bytes.end);
        let mut begun = Vec::new();
        for index in held.filter(|&index| index < from).into_iter().chain(from..to) {
            let chunk = &mut self.chunks[index];
            // A kernel reads ahead past the end of a chunk, and so into the next one.
            let overlaps = chunk.bytes.start < bytes.end && bytes.start < chunk.bytes.end;
            let is_first = overlaps && !continues && [start, middle].contains(&chunk.first_page());
            if chunk.is_begun && is_first {
                self.unread_begun -= chunk.unread;
                self.lost += chunk.unread;
                (chunk.is_begun, chunk.requested_to, chunk.unread) = (false, None, 0);
                chunk.used_before = 0;
            }
            if !chunk.is_begun && (is_first || chunk.requested_to.is_some()) {
                begun.push(index);
            }
        }
        begun
    }

    /// Index of the chunk that has a byte.
    fn holding(&self, offset: u64) -> Option<usize> {
        let index = self.chunks.partition_point(|chunk| chunk.bytes.start <= offset).checked_sub(1)?;
        (offset < self.chunks[index].bytes.end).then_some(index)
    }

    /// Requests the same columns of this row group and the next ones.
    fn request_ahead(&mut self, row_group: u32, requests: &mut Vec<Range<u64>>, budget: StreamBudget) {
        let columns: Vec<u32> = self.columns.iter().copied().take(EXAMINED_MAX).collect();
        let mut examined = 0;
        let mut from = self.by_group.partition_point(|&(of, _, _)| of < row_group);
        while examined < EXAMINED_MAX
            && let Some(&(group, _, _)) = self.by_group.get(from)
        {
            let end = from + self.by_group[from..].partition_point(|&(of, _, _)| of == group);
            examined += columns.len();
            for column in &columns {
                let of_group = &self.by_group[from..end];
                let found = of_group.binary_search_by_key(column, |&(_, column, _)| column);
                let Ok(found) = found else { continue };
                let (_, _, index) = of_group[found];
                let chunk = &self.chunks[index];
                if chunk.requested_to.is_none() && !chunk.is_begun {
                    let Some(request) = self.request(index, budget) else { return };
                    requests.push(request);
                }
            }
            from = end;
        }
    }

    /// The request of a chunk, if it has none and the budget allows it.
    fn request(&mut self, index: usize, budget: StreamBudget) -> Option<Range<u64>> {
        let chunk = &self.chunks[index];
        let length = (chunk.bytes.end - chunk.bytes.start).min(FILE_WINDOWS * budget.window_bytes);
        let (start, end) = (chunk.first_page(), chunk.bytes.start + length);
        // A program waits for all pages of the kernel's last request, also for those past the end.
        let end = match self.window {
            Some((before, window)) if length >= window => {
                start + (end - start + before).next_multiple_of(window) - before
            }
            _ => end,
        };
        if chunk.requested_to.is_some() || !self.may_request(end - start, chunk.is_begun, budget) {
            return None;
        }
        let chunk = &mut self.chunks[index];
        let used = std::mem::take(&mut chunk.used_before);
        (chunk.requested_to, chunk.unread) = (Some(end), (end - start).saturating_sub(used));
        self.used += used;
        *(if chunk.is_begun { &mut self.unread_begun } else { &mut self.unread_ahead }) += chunk.unread;
        Some(start..end)
    }

    fn may_request(&self, length: u64, is_begun: bool, budget: StreamBudget) -> bool {
        let earned = self.used / 100 * u64::from(budget.waste_percent);
        let first = FILE_WINDOWS * budget.window_bytes;
        let begun = STREAM_WINDOWS * budget.window_bytes * self.begun.min(BEGUN_MAX);
        // Ahead of readers at most what they have used, so that a program that reads one row group
        // wastes at most another.
        let ahead = (self.used.min(first) + earned).min(budget.cache_bytes / MEMORY_SHARE);
        let unused = self.lost + self.unread_begun + self.unread_ahead;
        (is_begun || self.unread_ahead + length <= ahead) && unused + length <= first + begun + earned
    }

    fn use_bytes(&mut self, bytes: &Range<u64>) {
        let window = self.window.map_or(0, |(_, window)| window);
        let from = self.chunks.partition_point(|chunk| chunk.bytes.end + window <= bytes.start);
        for chunk in self.chunks[from..].iter_mut().take_while(|chunk| chunk.first_page() < bytes.end) {
            let overlap = |start: u64, end: u64| end.min(bytes.end).saturating_sub(start.max(bytes.start));
            let used = overlap(chunk.bytes.start, chunk.bytes.end);
            if used > 0 {
                chunk.next = bytes.end;
            }
            let used = used.min(chunk.bytes.end - chunk.bytes.start - chunk.used);
            chunk.used += used;
            *(if chunk.requested_to.is_some() { &mut self.used } else { &mut chunk.used_before }) += used;
            let read = overlap(chunk.first_page(), chunk.requested_to.unwrap_or(0)).min(chunk.unread);
            chunk.unread -= read;
            *(if chunk.is_begun { &mut self.unread_begun } else { &mut self.unread_ahead }) -= read;
        }
    }
}

/// The same bytes in order, each once. The kernel's requests for small chunks overlap.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let overlaps = next.start <= last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
    ranges
}
