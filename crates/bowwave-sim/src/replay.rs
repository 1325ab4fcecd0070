//! Replays a trace on a machine: its files laid out on the device, one reader per process.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_core::{Advice, Config, FileId, Instant};
use bowwave_trace::binary::{self, Trace};
use bowwave_trace::import::{self, Import, Repair};
use bowwave_trace::{Error, Op, Record};

use crate::fast::{self, Writes};
use crate::machine::{Access, AccessOp, Explained, Host, Links, Machine, Pace, Process, Walk};
use crate::record::Run;
use crate::sweep::{Case, Common, SweepError};
use crate::think;

/// Alignment of files on the device: no two share a track or an erase block.
const FILE_ALIGNMENT: u64 = 1 << 20;
/// Maximum bytes of a machine's files: larger addresses would overflow 64 bits soon.
pub(crate) const DEVICE_BYTES_MAX: u64 = 1 << 62;
/// Longest span of a trace whose times matter, in nanoseconds: 146 years.
pub(crate) const SPAN_NS_MAX: u64 = Machine::END.0;
/// Maximum bytes a row reads, as in the fast replay, or announces.
const ROW_BYTES_MAX: u64 = 4 << 30;
/// Rows between two progress updates.
const ROWS_A_REPORT: u64 = 1 << 16;

/// A trace, ready for any number of machines.
#[derive(Clone, Debug)]
pub struct Workload {
    trace: Arc<Trace>,
    /// Rows per process, in trace order.
    readers: Arc<[Rows]>,
    files: Arc<[Place]>,
    /// Time of the earliest row.
    first_ns: u64,
    counts: Counts,
    /// Whether each file ends with its last access.
    ends_with_rows: bool,
    /// By row; empty if the trace has no end of a read.
    links: Arc<Links>,
}

/// Options of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// When each access starts; see [`Pace`].
    pub pace: ReplayPace,
    /// Maximum reads in flight per process (not for [`ReplayPace::Open`]).
    pub depth: u32,
    /// How writes are treated.
    pub writes: Writes,
    /// Nanoseconds from the end of an access to the next of its process, for
    /// [`ReplayPace::Closed`].
    pub think_ns: u64,
}

bowwave_core::named_enum! {
    /// When an access of a trace starts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ReplayPace {
        /// When the previous access of the process has ended: measures the maximum speed.
        #[default]
        Closed = "closed",
        /// At its own time, but not before the previous access of the process has ended.
        Trace = "trace",
        /// At its own time, however many are in flight.
        Open = "open",
        /// As long after the end of the read before it, of any process, as in the trace, which has
        /// the end of each read: predicts a program on another store.
        Think = "think",
    }
}

/// Contents of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows.
    pub rows: u64,
    /// Reads, and loads from mappings.
    pub reads: u64,
    /// Bytes they request.
    pub bytes: u64,
    /// Writes and stores.
    pub writes: u64,
    /// Syncs, which are not replayed.
    pub left_out: u64,
    /// Nanoseconds from the first row to the last.
    pub span_ns: u64,
}

/// The rows of a process.
#[derive(Clone, Debug)]
enum Rows {
    /// The whole trace: it has one process.
    All,
    /// These rows.
    Some(Arc<[u64]>),
}

#[derive(Clone, Debug)]
struct Place {
    name: String,
    bytes: u64,
    address: u64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { pace: ReplayPace::Closed, depth: 1, writes: Writes::LeftOut, think_ns: 0 }
    }
}

impl Workload {
    /// Creates a workload. `file_bytes` is the length of every file; with `None`, each ends with
    /// its last access.
    ///
    /// # Errors
    ///
    /// An invalid row, a read of more than 4 GiB, or files larger than any device.
    pub fn new(trace: Trace, file_bytes: Option<u64>) -> Result<Self, Error> {
        let mut counts = Counts { rows: trace.len(), ..Counts::default() };
        let mut first = u64::MAX;
        let mut last = 0;
        let mut pids: Vec<u64> = trace.streams().iter().map(|stream| stream.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let reader_of = |stream: u32| pids.binary_search(&trace.stream(stream).pid).unwrap_or_default();
        let readers_of: Vec<usize> = (0..).take(trace.streams().len()).map(reader_of).collect();
        let mut lists = vec![Vec::new(); pids.len()];
        for (number, row) in (0u64..).zip(trace.rows()) {
            let row = row.map_err(|bad| trace.error(bad))?;
            (first, last) = (first.min(row.time_ns), last.max(row.time_ns));
            if row.op.is_access() && row.length > ROW_BYTES_MAX {
                let what =
                    format!("row {number}: {} bytes at once; a row may touch 4 GiB at most", row.length);
                return Err(Error::unfit(trace.name(), what));
            }
            match row.op {
                Op::Read | Op::Load => {
                    counts.reads += 1;
                    counts.bytes = counts.bytes.saturating_add(row.length);
                }
                Op::Write | Op::Store => counts.writes += 1,
                Op::Fsync => counts.left_out += 1,
                _ => {}
            }
            // A trace of one process needs no list.
            if lists.len() > 1 {
                lists[readers_of[row.stream as usize]].push(number);
            }
        }
        counts.span_ns = last.saturating_sub(first);
        let readers = if lists.len() > 1 {
            lists.into_iter().map(|list| Rows::Some(list.into())).collect()
        } else {
            lists.into_iter().map(|_| Rows::All).collect()
        };
        let files = places(&trace, file_bytes)?;
        let ends_with_rows = file_bytes.is_none();
        let links = Arc::new(think::links(&trace)?);
        Ok(Self { trace: Arc::new(trace), readers, files, first_ns: first, counts, ends_with_rows, links })
    }

    /// Checks whether the trace can be replayed with these options.
    ///
    /// # Errors
    ///
    /// Times that matter and span more than 146 years, as mixed-up columns do. For
    /// [`ReplayPace::Think`], a trace without the ends of its reads.
    pub fn check(&self, options: ReplayOptions) -> Result<(), Error> {
        if options.pace == ReplayPace::Think && self.links.of.is_empty() {
            let what = "it has no row `done`, the end of a read, and `think` needs them: record with \
                        `bowwave mount --trace`";
            return Err(Error::unfit(self.name(), what.to_owned()));
        }
        let Counts { span_ns, .. } = self.counts;
        if options.pace != ReplayPace::Closed && span_ns > SPAN_NS_MAX {
            let what = format!("its times span {span_ns} ns; at its own times a trace may span 146 years");
            return Err(Error::unfit(self.name(), what));
        }
        Ok(())
    }

    /// Bytes its files take on the device.
    pub fn device_bytes(&self) -> u64 {
        self.files.last().map_or(0, |file| file.address + file.bytes).next_multiple_of(FILE_ALIGNMENT)
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Replays the trace in one case. If nothing takes time and nothing is recorded, [`fast`] does
    /// it, in trace order and several times faster; for one process the counts are equal.
    ///
    /// # Errors
    ///
    /// An invalid configuration or device, a violated invariant, or a trace that does not fit.
    pub fn run(
        &self,
        case: &Case,
        common: &Common,
        options: ReplayOptions,
        progress: &Arc<AtomicU64>,
    ) -> Result<Run, SweepError> {
        if !self.is_timeless(case, common, options) {
            return case.run(common, &|machine, _| self.add_to(machine, options), progress);
        }
        let setup = fast::Setup {
            policy: case.policy,
            cache_pages: case.frames(),
            eviction: common.eviction,
            ra_pages: case.ra_pages,
            page_size: Config::default().page_size,
            writes: options.writes,
        };
        let outcome = fast::replay(&self.trace, &setup)?;
        progress.fetch_add(outcome.reads, Ordering::Relaxed);
        let mut row = outcome.row(&setup);
        row.cache_bytes = case.cache_bytes;
        row.seed = case.seed;
        row.scheduler.clone_from(&case.scheduler);
        Ok(Run { row, ..Run::default() })
    }

    /// Replays the trace in one case, one read of a process at a time, and returns the decisions of
    /// the policy in order, each with the number of the row that led to it.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn explain(
        &self,
        case: &Case,
        common: &Common,
        progress: &Arc<AtomicU64>,
    ) -> Result<Vec<(u64, Explained)>, SweepError> {
        let mut machine = case.machine(&Common { explain: true, ..common.clone() })?;
        machine.count_reads_in(Arc::clone(progress));
        self.add_to(&mut machine, ReplayOptions::default());
        machine.run(common.until)?;
        // Linked accesses have the numbers of their rows in place of times.
        let numbers = |rows: &Rows| self.source(rows, 0, Writes::LeftOut, true).map(|access| access.at.0);
        let rows: Vec<Vec<u64>> = self.readers.iter().map(|rows| numbers(rows).collect()).collect();
        let of_row = |decided: Explained| {
            let begun = usize::try_from(decided.accesses).unwrap_or(usize::MAX);
            let row = rows[decided.process.0 as usize].get(begun.wrapping_sub(1));
            (row.copied().unwrap_or_default(), decided)
        };
        Ok(machine.take_explained().into_iter().map(of_row).collect())
    }

    /// Whether no part of the replay depends on time.
    fn is_timeless(&self, case: &Case, common: &Common, options: ReplayOptions) -> bool {
        let Common { host, walk, failing, check, ref record, until, .. } = *common;
        let free = host == Host::FREE && walk == Walk::AtOnce && failing <= 0.0;
        case.device == "instant"
            && free
            && !check
            && record.is_none()
            && until.is_none()
            && self.ends_with_rows
            && options.depth == 1
            && options.pace == ReplayPace::Closed
            && options.think_ns == 0
    }

    /// Counts of its contents.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.trace.name()
    }

    /// Opens the trace at `path`, in any format [`import`] knows; `file_bytes` as in
    /// [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If it cannot be read or is not a trace, with the line.
    pub fn open(path: &Path, file_bytes: Option<u64>) -> Result<Self, Error> {
        let import = import::open(path, None, &import::Options::default())?;
        Self::new(compact(import, path, |_| ())?.0, file_bytes)
    }

    /// Adds the files and processes of the trace to a machine.
    pub fn add_to(&self, machine: &mut Machine, options: ReplayOptions) {
        self.add_at(machine, 0, options);
    }

    /// The accesses of these rows.
    fn source(&self, rows: &Rows, first_file: u32, writes: Writes, is_linked: bool) -> Source {
        Source {
            first_file,
            writes,
            trace: Arc::clone(&self.trace),
            rows: rows.clone(),
            next: 0,
            first_ns: self.first_ns,
            is_linked,
        }
    }

    /// As [`add_to`](Self::add_to), with files from `address` of the device on; returns where the
    /// next file may start.
    pub fn add_at(&self, machine: &mut Machine, address: u64, options: ReplayOptions) -> u64 {
        let first_file = machine.file_count();
        let is_linked = options.pace == ReplayPace::Think;
        if is_linked {
            machine.set_links(Arc::clone(&self.links));
        }
        for file in self.files.iter() {
            machine.add_file(&file.name, file.bytes, address.saturating_add(file.address));
        }
        for reader in self.readers.iter() {
            let source = self.source(reader, first_file, options.writes, is_linked);
            let pace = match options.pace {
                ReplayPace::Closed => Pace::Closed { think_ns: options.think_ns },
                ReplayPace::Trace => Pace::Trace,
                ReplayPace::Open => Pace::Open,
                ReplayPace::Think => Pace::Linked,
            };
            // In a closed loop all processes start at once, however late they start in the trace.
            let start = Instant(0);
            let counted = (machine.reads_siblings() && self.files.len() > 1).then(|| source.clone());
            let process =
                machine.add_process(Process { start, source: Box::new(source), pace, depth: options.depth });
            for access in counted.into_iter().flatten() {
                machine.note_future(process, &access);
            }
        }
        let end = self.files.last().map_or(0, |file| file.address.saturating_add(file.bytes));
        address.saturating_add(end).next_multiple_of(FILE_ALIGNMENT)
    }
}

/// The rows of an imported trace in binary form, which replays need: mapped if the file is binary,
/// else in memory, 24 bytes per row; and the repairs made. `progress` receives the bytes read.
///
/// # Errors
///
/// An invalid trace, with its line.
pub fn compact(
    import: Import,
    path: &Path,
    mut progress: impl FnMut(u64),
) -> Result<(Trace, Vec<(Repair, u64)>), Error> {
    let mut import = match import.into_trace() {
        Ok(trace) => return Ok((trace, Vec::new())),
        Err(import) => import,
    };
    let name = path.display().to_string();
    // Writing to memory does not fail; exceeding a limit (too many names) does.
    let refused = |error: io::Error| Error::unfit(&name, error.to_string());
    let mut writer = binary::Writer::new(Vec::new()).map_err(refused)?;
    let mut record = Record::default();
    while import.read(&mut record)? {
        writer.write(&record).map_err(refused)?;
        if writer.rows().is_multiple_of(ROWS_A_REPORT) {
            progress(import.bytes_read());
        }
    }
    let bytes = writer.finish().map_err(refused)?;
    Ok((Trace::new(bytes.into(), name.as_str())?, import.repairs().iter().collect()))
}

/// Lays out files one after the other, in trace order.
fn places(trace: &Trace, file_bytes: Option<u64>) -> Result<Arc<[Place]>, Error> {
    let mut address = 0u64;
    let mut places = Vec::new();
    for file in 0..trace.file_count() {
        let bytes = file_bytes.unwrap_or_else(|| trace.file_end(file));
        let name = trace.file_name(file);
        places.push(Place { name: name.to_owned(), bytes, address });
        if bytes > DEVICE_BYTES_MAX - address {
            let what =
                format!("file '{}' ends at byte {bytes}, where no device reaches", name.escape_debug());
            return Err(Error::unfit(trace.name(), what));
        }
        address = (address + bytes).next_multiple_of(FILE_ALIGNMENT);
    }
    Ok(places.into())
}

/// The accesses of one process.
#[derive(Clone)]
struct Source {
    trace: Arc<Trace>,
    rows: Rows,
    next: u64,
    first_ns: u64,
    first_file: u32,
    writes: Writes,
    /// Accesses have the numbers of their rows in place of times.
    is_linked: bool,
}

impl Iterator for Source {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        loop {
            let number = match &self.rows {
                Rows::All => self.next,
                Rows::Some(rows) => *rows.get(usize::try_from(self.next).ok()?)?,
            };
            self.next += 1;
            // Every row was read once when the workload was created.
            let row = self.trace.rows_from(number).next()?.ok()?;
            let op = match row.op {
                Op::Read => AccessOp::Read,
                Op::Load => AccessOp::Load,
                Op::WillNeed => AccessOp::Advise(Advice::WillNeed),
                Op::DontNeed => AccessOp::Advise(Advice::DontNeed),
                Op::Random => AccessOp::Advise(Advice::Random),
                Op::Sequential => AccessOp::Advise(Advice::Sequential),
                Op::Plan => AccessOp::Plan,
                Op::Evict => AccessOp::Evict,
                Op::Write | Op::Store if self.writes == Writes::AsReads => AccessOp::Read,
                Op::Write | Op::Store | Op::Fsync | Op::Done => continue,
            };
            let file = FileId(self.first_file + self.trace.stream(row.stream).file);
            let time = row.time_ns.saturating_sub(self.first_ns);
            let at = Instant(if self.is_linked { number } else { time });
            // Announced ranges are read ahead and held in memory all at once.
            let bytes = if row.op == Op::WillNeed { row.length.min(ROW_BYTES_MAX) } else { row.length };
            return Some(Access { at, op, file, offset: row.offset, bytes });
        }
    }
}
