//! Readahead of the columns of Parquet files, and of the tensors of safetensors files.
//!
//! A program first reads the table of such a file: a footer, or a header. From then on the mount
//! knows where the chunks are, and needs no evidence of a pattern:
//!
//! - A program that begins a chunk reads all of it, so all of it is requested: a long one in parts,
//!   as far as the budget allows.
//! - A program reads the same columns of each row group. While it reads one row group, these
//!   columns of the next ones are requested. Tensors are like row groups of one column.
//! - A program may copy a mapped tensor. The C library then reads its last bytes first.
//!
//! All have a budget (`State::room`): some programs read only the first page of each chunk.

mod chunk;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, MutexGuard, Weak};

use bowwave_engine::StreamBudget;
use bowwave_engine::backend::sync::Mutex;

use self::chunk::{Chunk, PAGE, merged};
use crate::tables::parquet::{column_chunks, footer_range};
use crate::tables::safetensors::{header_range, tensors};

/// Bytes. Larger tables are not parsed: the program would wait for that.
const TABLE_MAX: u64 = 16 << 20;
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
/// `stream`; and no more is requested of a chunk that has half as much unread.
const MEMORY_SHARE: u64 = 4;
/// Chunks that are examined when a program begins one. Smaller: of very wide tables, only the
/// current row group is requested.
const EXAMINED_MAX: usize = 2048;
/// Chunks of one file, and of all files that no program has open, at about 100 bytes each. The
/// kernel retains a footer, so a program that opens its file again reads none from the mount.
const CHUNKS_MAX: usize = 1 << 18;
/// How many of the kernel's largest requests a reader may be from the end of its last one: they
/// come in any order. Larger: random reads of a tensor look like a reader in order.
const REORDERED: u64 = 4;
/// Bytes of a chunk, read in order, after which more is requested. Larger: the rest of a long chunk
/// and the next chunks come late. Smaller: more and shorter requests.
const STEP_BYTES: u64 = 4 << 20;

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
        let mut known = self.known.lock();
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
        self.known.lock().remove(inode);
    }

    /// A program has read `data` at `offset` of a file of `size` bytes.
    pub(super) fn read(&self, columns: &Arc<Columns>, offset: u64, data: &[u8], size: u64) {
        match columns.read(offset, data, size) {
            Progress::None => {}
            Progress::Kept => {
                let mut unfinished = self.unfinished.lock();
                unfinished.push_back(Arc::downgrade(columns));
                if unfinished.len() > UNFINISHED_MAX
                    && let Some(oldest) = unfinished.pop_front().and_then(|oldest| oldest.upgrade())
                {
                    oldest.state().before_end.clear();
                }
            }
            Progress::Known(chunks) => {
                let mut known = self.known.lock();
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
            columns.stage.store(NO_TABLE, Ordering::Release);
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

/// The columns of one version of a file.
#[derive(Debug, Default)]
pub(super) struct Columns {
    inode: u64,
    /// As [`File::version`](bowwave_engine::File::version).
    pub(super) version: u64,
    stage: AtomicU8,
    state: Mutex<State>,
}

/// The table was not read.
const UNSEEN: u8 = 0;
/// The table was read in part.
const PARTIAL: u8 = 1;
/// The chunks are known.
const KNOWN: u8 = 2;
/// There is no table, or it is damaged or too large; or the file is written.
const NO_TABLE: u8 = 3;

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
    format: Format,
    table: Vec<u8>,
    table_start: u64,
    /// Offsets of the table that were not read yet.
    missing: Vec<Range<u64>>,
    /// In the order of their offsets.
    chunks: Vec<Chunk>,
    /// Row group, column, and index in `chunks`, in order.
    by_group: Vec<(u32, u32, usize)>,
    /// The kernel's requests: bytes of the first one before the first page of a chunk, and bytes of
    /// each. `None` if programs bypass the kernel's cache.
    window: Option<(u64, u64)>,
    /// A copy of a mapped tensor was seen.
    copies: bool,
    /// Bytes of the kernel's largest request.
    largest: u64,
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Parquet,
    Safetensors,
}

impl Columns {
    /// A program reads `bytes` of the file. Returns the ranges to request ahead of it, without
    /// overlaps; none without a budget.
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
            UNSEEN => offset == 0 || offset + data.len() as u64 + TAIL_BYTES > size,
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
            UNSEEN if offset == 0 && state.begin_header(data, size) => state.read_table(offset, data, size),
            UNSEEN => state.read_tail(offset, data, size),
            PARTIAL => state.read_table(offset, data, size),
            other => other,
        };
        self.stage.store(stage, Ordering::Release);
        match stage {
            KNOWN if before != KNOWN => {
                // A header is read together with the first bytes of a tensor.
                state.use_bytes(&(offset..offset + data.len() as u64));
                Progress::Known(state.chunks.len())
            }
            UNSEEN if had_none && !state.before_end.is_empty() => Progress::Kept,
            _ => Progress::None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Whether the first bytes of a file are those of a header.
    fn begin_header(&mut self, first: &[u8], size: u64) -> bool {
        let header = header_range(first, size).filter(|header| header.end - header.start <= TABLE_MAX);
        if let Some(header) = header.clone() {
            self.begin_table(Format::Safetensors, header);
        }
        header.is_some()
    }

    fn begin_table(&mut self, format: Format, place: Range<u64>) {
        self.format = format;
        self.table = vec![0; (place.end - place.start) as usize];
        self.table_start = place.start;
        self.missing = Some(place).filter(|place| !place.is_empty()).into_iter().collect();
    }

    /// Looks for the footer's place, and keeps what was read before its last bytes. Returns the
    /// next stage.
    fn read_tail(&mut self, offset: u64, data: &[u8], size: u64) -> u8 {
        if offset + data.len() as u64 + TAIL_BYTES <= size {
            return UNSEEN;
        }
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
        let footer = footer_range(&last, size).filter(|footer| footer.end - footer.start <= TABLE_MAX);
        let Some(footer) = footer else { return NO_TABLE };
        self.begin_table(Format::Parquet, footer);
        let mut stages = parts.map(|(offset, data)| self.read_table(offset, data, size));
        stages.find(|&stage| stage != PARTIAL).unwrap_or(PARTIAL)
    }

    /// Adds what was read of the table, and parses it once it is complete. Returns the next stage.
    fn read_table(&mut self, offset: u64, data: &[u8], size: u64) -> u8 {
        let read = offset..offset + data.len() as u64;
        let (start, end) = (self.table_start, self.table_start + self.table.len() as u64);
        let (from, to) = (read.start.max(start), read.end.min(end));
        if from < to {
            let source = &data[(from - offset) as usize..(to - offset) as usize];
            self.table[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
            let parts = self
                .missing
                .iter()
                .flat_map(|range| [range.start..range.end.min(from), range.start.max(to)..range.end]);
            self.missing = parts.filter(|range| !range.is_empty()).collect();
        }
        if !self.missing.is_empty() {
            return PARTIAL;
        }
        let table = std::mem::take(&mut self.table);
        let chunks = match self.format {
            Format::Parquet => column_chunks(&table, start, CHUNKS_MAX),
            Format::Safetensors => tensors(&table, end..size, CHUNKS_MAX),
        };
        let mut chunks = chunks.unwrap_or_default();
        chunks.retain(|chunk| !chunk.bytes.is_empty());
        if chunks.is_empty() {
            return NO_TABLE;
        }
        chunks.sort_by_key(|chunk| chunk.bytes.start);
        self.chunks = chunks.into_iter().map(Chunk::new).collect();
        let places = self.chunks.iter().enumerate();
        self.by_group = places.map(|(index, chunk)| (chunk.group, chunk.column, index)).collect();
        self.by_group.sort_unstable();
        KNOWN
    }

    /// Forgets what was read and requested, but neither the chunks nor the budget.
    fn forget_reads(&mut self) {
        for chunk in &mut self.chunks {
            chunk.forget_reads();
            chunk.next = 0;
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
        self.largest = self.largest.max(bytes.end - bytes.start);
        let begun = self.begun_by(bytes);
        let continued = self.continued(bytes).filter(|&index| begun.iter().all(|&(of, _)| of != index));
        let requests = match if begun.is_empty() && continued.is_none() { None } else { budget() } {
            Some(budget) => self.requests_of(begun, continued, bytes, budget),
            None => Vec::new(),
        };
        self.use_bytes(bytes);
        requests
    }

    /// The requests for the chunks that a read begins, the next part of a chunk that it continues,
    /// and what is ahead of them.
    fn requests_of(
        &mut self,
        begun: Vec<(usize, u64)>,
        continued: Option<usize>,
        bytes: &Range<u64>,
        budget: StreamBudget,
    ) -> Vec<Range<u64>> {
        let mut requests = Vec::new();
        let mut last = None;
        if let Some(index) = continued {
            self.chunks[index].read_on = 0;
            requests.extend(self.request(index, bytes.start, budget));
            last = Some(self.chunks[index].group);
        }
        for (index, at) in begun {
            let chunk = &mut self.chunks[index];
            chunk.is_begun = true;
            last = Some(chunk.group);
            self.begun += u64::from(!std::mem::replace(&mut chunk.is_counted, true));
            self.columns.insert(chunk.column);
            self.unread_ahead -= chunk.unread;
            self.unread_begun += chunk.unread;
            let of_pages = bytes.start.is_multiple_of(PAGE) && bytes.end.is_multiple_of(PAGE);
            self.window = match chunk.first_page().checked_sub(bytes.start) {
                _ if !of_pages => None,
                Some(before) => Some((before, bytes.end - bytes.start)),
                None => self.window,
            };
            let request = self.request(index, at, budget);
            requests.extend(request.is_some().then(|| self.around_end(index)).flatten());
            requests.extend(request);
        }
        if let Some(group) = last {
            self.request_ahead(group, &mut requests, budget);
        }
        merged(requests)
    }

    /// Indices of the chunks that a read begins, and from where on each is read. A chunk that was
    /// requested ahead is begun by any read; a begun one again by another read of its first page,
    /// which the kernel no longer has.
    fn begun_by(&mut self, bytes: &Range<u64>) -> Vec<(usize, u64)> {
        let start = bytes.start / PAGE * PAGE;
        // A fault of a mapped page reads the pages around it.
        let middle = start + (bytes.end - start) / 2 / PAGE * PAGE;
        let held = self.holding(bytes.start);
        let continues = held.is_some_and(|index| self.chunks[index].next == bytes.start);
        let from = self.chunks.partition_point(|chunk| chunk.first_page() < start);
        let to = self.chunks.partition_point(|chunk| chunk.first_page() < bytes.end);
        let is_tensors = self.format == Format::Safetensors;
        let ends = held.filter(|&index| is_tensors && !continues && self.is_end(index, start, middle));
        // The page may have the first bytes of the next tensor, too.
        let ended = ends.map(|index| self.chunks[index].last_page());
        // Before a copy was seen, the fault may be for the next tensor. The next read shows which.
        let ends = ends.filter(|_| self.copies);
        let next = held.and_then(|index| self.chunks.get(index + 1));
        let next_begun = next.filter(|next| next.is_begun).map(Chunk::first_page);
        let mut begun = Vec::new();
        for index in held.filter(|&index| index < from).into_iter().chain(from..to) {
            let chunk = &mut self.chunks[index];
            // A kernel reads ahead past the end of a chunk, and so into the next one.
            let overlaps = chunk.bytes.start < bytes.end && bytes.start < chunk.bytes.end;
            let first = chunk.first_page();
            let is_first = overlaps && !continues && [start, middle].contains(&first) && ended != Some(first);
            let begins_later = chunk.requested.as_ref().is_some_and(|requested| requested.start > first);
            if chunk.is_begun && is_first && (chunk.has_first || begins_later) {
                self.unread_begun -= chunk.unread;
                self.lost += chunk.unread;
                chunk.forget_reads();
            }
            let is_held = held == Some(index);
            let is_second = is_tensors && chunk.has_first && chunk.next == bytes.start;
            let is_copy = is_tensors && is_held && chunk.has_last && bytes.end < chunk.last_page();
            // A kernel's last request for the chunk before is no read of this one.
            let is_ahead = chunk.requested.is_some()
                && (is_held || !continues)
                // A fault of the next chunk's first page reads pages before it.
                && (chunk.is_requested() || bytes.end <= chunk.bytes.end);
            if chunk.is_begun {
                continue;
            }
            if is_first || ends == Some(index) {
                begun.push((index, 0));
            } else if is_second || is_copy || is_ahead {
                self.copies |= is_copy && !is_second && next_begun != Some(chunk.last_page());
                begun.push((index, bytes.start));
            }
        }
        begun
    }

    /// Whether a fault is of a tensor's last page, as a copy of a mapped tensor begins. A read that
    /// begins in this page is for the next tensor.
    fn is_end(&self, index: usize, start: u64, middle: u64) -> bool {
        let (chunk, next) = (&self.chunks[index], self.chunks.get(index + 1));
        let page = chunk.last_page();
        let awaits_first =
            next.is_some_and(|next| next.first_page() == page && next.is_begun && !next.has_first);
        !chunk.has_last && page == middle && page > start && !awaits_first
    }

    /// A begun chunk that is read on, once as many bytes as a step were read in order.
    fn continued(&self, bytes: &Range<u64>) -> Option<usize> {
        let index = self.holding(bytes.start)?;
        let chunk = &self.chunks[index];
        // The kernel's requests come in any order.
        let is_read_on = chunk.next.abs_diff(bytes.start) <= REORDERED * self.largest;
        let may_request = match chunk.requested {
            Some(_) => chunk.read_on >= STEP_BYTES,
            // The budget did not allow it. Of a column chunk, the kernel may have any bytes by now.
            None => self.format == Format::Safetensors,
        };
        (chunk.is_begun && is_read_on && may_request).then_some(index)
    }

    /// Index of the chunk that has a byte.
    fn holding(&self, offset: u64) -> Option<usize> {
        let index = self.chunks.partition_point(|chunk| chunk.bytes.start <= offset).checked_sub(1)?;
        (offset < self.chunks[index].bytes.end).then_some(index)
    }

    /// Requests the same columns of this group and the next ones.
    fn request_ahead(&mut self, group: u32, requests: &mut Vec<Range<u64>>, budget: StreamBudget) {
        let columns: Vec<u32> = self.columns.iter().copied().take(EXAMINED_MAX).collect();
        let mut examined = 0;
        let mut from = self.by_group.partition_point(|&(of, _, _)| of < group);
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
                if !chunk.is_requested() && (!chunk.is_begun || chunk.is_just_begun(REORDERED * self.largest))
                {
                    let is_first = chunk.requested.is_none();
                    let Some(request) = self.request(index, 0, budget) else { return };
                    requests.push(request);
                    requests.extend(self.around_end(index).filter(|_| is_first));
                }
            }
            from = end;
        }
    }

    /// The next request of a chunk, if a part of it from byte `at` on was not requested and the
    /// budget allows it. A tensor is requested as far as the budget allows, a column chunk whole.
    fn request(&mut self, index: usize, at: u64, budget: StreamBudget) -> Option<Range<u64>> {
        let chunk = &self.chunks[index];
        // What is requested must not leave the cache before it is read.
        let most_unread = budget.cache_bytes / MEMORY_SHARE / 2;
        if chunk.is_requested() || chunk.unread > most_unread {
            return None;
        }
        let (first, start) = (chunk.first_page(), chunk.next_request(at));
        let room = self.room(chunk.is_begun, budget);
        let most = FILE_WINDOWS * budget.window_bytes;
        let end = match self.format {
            Format::Parquet => start.max(chunk.bytes.start) + most,
            Format::Safetensors => start + room.min(most) / PAGE * PAGE,
        };
        let end = end.min(chunk.bytes.end);
        // A program waits for all pages of the kernel's last request, also for those past the end.
        let end = match self.window {
            Some((before, window)) if self.format == Format::Parquet && end - first >= window => {
                first + (end - first + before).next_multiple_of(window) - before
            }
            _ => end,
        };
        let is_little = end - start < budget.window_bytes && end < chunk.bytes.end;
        if end - start > room || is_little {
            return None;
        }
        let chunk = &mut self.chunks[index];
        let unread_of = if chunk.is_begun { &mut self.unread_begun } else { &mut self.unread_ahead };
        let from = match &chunk.requested {
            Some(requested) if requested.end == start => requested.start,
            // The reader has left what was requested.
            Some(_) => {
                let left = std::mem::take(&mut chunk.unread);
                *unread_of -= left;
                self.lost += left;
                start
            }
            None => start,
        };
        chunk.requested = Some(from..end);
        let used = std::mem::take(&mut chunk.used_before).min(if start > first { 0 } else { end - start });
        let unread = end - start - used;
        chunk.unread += unread;
        *unread_of += unread;
        self.used += used;
        Some(start..end)
    }

    /// What a fault of a tensor's last page reads: half a request of the kernel on either side. It
    /// is little, and not counted.
    fn around_end(&self, index: usize) -> Option<Range<u64>> {
        let (page, half) = (self.chunks[index].last_page(), self.largest / 2);
        let is_long = self.format == Format::Safetensors && self.chunks[index].len() >= self.largest;
        is_long.then(|| page.saturating_sub(half)..page + half)
    }

    /// Bytes that the budget allows to request for a chunk.
    fn room(&self, is_begun: bool, budget: StreamBudget) -> u64 {
        let earned = self.used / 100 * u64::from(budget.waste_percent);
        let first = FILE_WINDOWS * budget.window_bytes;
        let begun = STREAM_WINDOWS * budget.window_bytes * self.begun.min(BEGUN_MAX);
        let unused = self.lost + self.unread_begun + self.unread_ahead;
        let room = (first + begun + earned).saturating_sub(unused);
        if is_begun {
            return room;
        }
        // Ahead of readers at most what they have used, so that a program that reads one row group
        // wastes at most another.
        let ahead = (self.used.min(first) + earned).min(budget.cache_bytes / MEMORY_SHARE);
        room.min(ahead.saturating_sub(self.unread_ahead))
    }

    fn use_bytes(&mut self, bytes: &Range<u64>) {
        let window = self.window.map_or(0, |(_, window)| window);
        let from = self.chunks.partition_point(|chunk| chunk.bytes.end + window <= bytes.start);
        for chunk in self.chunks[from..].iter_mut().take_while(|chunk| chunk.first_page() < bytes.end) {
            let overlap = |start: u64, end: u64| end.min(bytes.end).saturating_sub(start.max(bytes.start));
            let read = overlap(chunk.bytes.start, chunk.bytes.end);
            let is_read_on = chunk.next.abs_diff(bytes.start) <= REORDERED * self.largest;
            if read > 0 {
                chunk.next = bytes.end;
                chunk.has_first |= bytes.start <= chunk.bytes.start;
                chunk.has_last |= bytes.end >= chunk.bytes.end;
            }
            chunk.read_on += if chunk.is_begun && is_read_on { read } else { 0 };
            let read = read.min(chunk.len() - chunk.used);
            chunk.used += read;
            let Some(requested) = &chunk.requested else {
                chunk.used_before = read + if is_read_on { chunk.used_before } else { 0 };
                continue;
            };
            let (from, to) = (requested.start, requested.end);
            self.used += overlap(from.max(chunk.bytes.start), to.min(chunk.bytes.end)).min(read);
            let read = overlap(from, to).min(chunk.unread);
            chunk.unread -= read;
            *(if chunk.is_begun { &mut self.unread_begun } else { &mut self.unread_ahead }) -= read;
        }
    }
}
