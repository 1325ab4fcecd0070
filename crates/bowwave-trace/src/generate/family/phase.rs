//! One phase of a pattern: what a single reader does.

use std::fmt;

use super::super::Random;
use super::draw::{between, bytes, counted, log_uniform, one_in, one_of, request, shuffle};
use super::starts::{Jumps, Lengths};
use super::{READS_MIN, Read, Share};

/// Most bytes that all readers of a phase request, so that replays stay short.
const PHASE_BYTES_MAX: u64 = 64 << 20;

/// What a reader does. All amounts are in bytes, unless a field says otherwise.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Runs of adjacent requests.
    Runs { request: u64, span: u64, lengths: Lengths, jumps: Jumps, course: Course },
    /// One direction, without some of the blocks.
    Skips { request: u64, block: u64, kept_percent: u64, course: Course },
    /// A block of `requests` every `step`, each up to `jitter` late.
    Stride { request: u64, requests: u64, step: u64, jitter: u64, course: Course },
    /// Clusters of `size` anywhere; of each, `density_percent` of its pieces are read.
    Clusters {
        request: u64,
        size: u64,
        clusters: u64,
        density_percent: u64,
        is_shuffled: bool,
        is_sorted: bool,
    },
    /// Records of adjacent places, in random order.
    Sample { record: u64, records: u64, with_replacement: bool },
    /// Cells of a table, one column after the other.
    Columns { cell: u64, row: u64, rows: u64, are_random: bool },
    /// The same range again and again.
    Passes { request: u64, range: u64, is_zigzag: bool },
    /// A header, then `body_percent` of the bodies that follow it, in requests.
    Headers { header: u64, body: u64, request: u64, pitch: u64, body_percent: u64, is_sorted: bool },
    /// Files one after the other.
    Files { request: u64, least: u64, most: u64, order: FileOrder, is_whole: bool },
}

/// Direction of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    Up,
    Down,
    /// In turn.
    Zigzag,
    /// Either.
    Random,
}

/// Order of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOrder {
    Names,
    Backward,
    Random,
}

/// Collects the reads of a reader.
struct Reads {
    reads: Vec<Read>,
    most: usize,
    file: u32,
    base: u64,
}

impl Reads {
    fn is_full(&self) -> bool {
        self.reads.len() >= self.most
    }

    fn push(&mut self, offset: u64, length: u64) {
        if !self.is_full() {
            let Self { file, base, .. } = *self;
            self.reads.push(Read { pid: 1, file, offset: base + offset, length });
        }
    }

    /// `count` requests from `start`, upward or downward.
    fn run(&mut self, start: u64, request: u64, count: u64, is_down: bool) {
        for number in 0..count {
            let at = if is_down { count - 1 - number } else { number };
            self.push(start + at * request, request);
        }
    }

    /// The bytes `start..end` in requests.
    fn all(&mut self, start: u64, end: u64, request: u64) {
        let mut at = start;
        while at < end {
            self.push(at, request.min(end - at));
            at += request;
        }
    }
}

impl Course {
    fn draw(random: &mut Random) -> Self {
        one_of(random, &[Self::Up, Self::Up, Self::Up, Self::Down, Self::Zigzag, Self::Random])
    }

    /// Up or down only.
    fn one_way(random: &mut Random) -> Self {
        one_of(random, &[Self::Up, Self::Up, Self::Up, Self::Down])
    }

    fn is_down(self, number: u64, random: &mut Random) -> bool {
        match self {
            Self::Up => false,
            Self::Down => true,
            Self::Zigzag => number % 2 == 1,
            Self::Random => one_in(random, 2),
        }
    }
}

impl Phase {
    pub(super) fn draw(random: &mut Random) -> Self {
        let size = request(random);
        match random.below(10) {
            0 | 1 => {
                let span = size * log_uniform(random, 256, 65_536);
                let jumps = Jumps::draw(random, span / size);
                Self::Runs {
                    request: size,
                    span,
                    lengths: Lengths::draw(random),
                    jumps,
                    course: Course::draw(random),
                }
            }
            2 => Self::Skips {
                request: size,
                block: size * log_uniform(random, 1, 8),
                kept_percent: between(random, 20, 95),
                course: Course::one_way(random),
            },
            3 => {
                let requests = log_uniform(random, 1, 16);
                let step = size * requests * log_uniform(random, 2, 64);
                let jitter = if one_in(random, 2) { 0 } else { log_uniform(random, 1, step / 2) };
                Self::Stride { request: size, requests, step, jitter, course: Course::one_way(random) }
            }
            4 => {
                let cluster = log_uniform(random, 64 << 10, 16 << 20).next_multiple_of(size);
                Self::Clusters {
                    request: size.min(cluster / 4).max(512),
                    size: cluster,
                    clusters: log_uniform(random, 64, 4096),
                    density_percent: between(random, 5, 100),
                    is_shuffled: one_in(random, 2),
                    is_sorted: one_in(random, 4),
                }
            }
            number => Self::draw_records(number, size, random),
        }
    }

    /// The phases that read records, tables and files.
    fn draw_records(number: u64, size: u64, random: &mut Random) -> Self {
        match number {
            5 => Self::Sample {
                record: log_uniform(random, 4 << 10, 256 << 10),
                records: log_uniform(random, 200, 4000),
                with_replacement: one_in(random, 3),
            },
            6 => {
                let rows = log_uniform(random, 16, 512);
                Self::Columns {
                    cell: size,
                    row: size * log_uniform(random, 2, 128),
                    rows,
                    are_random: one_in(random, 2),
                }
            }
            7 => Self::Passes {
                request: size,
                range: size * log_uniform(random, 32, 1024),
                is_zigzag: one_in(random, 2),
            },
            8 => {
                let body = log_uniform(random, 8 << 10, 1 << 20);
                let header = log_uniform(random, 64, 4096);
                Self::Headers {
                    header,
                    body,
                    request: one_of(random, &[body, size.min(body)]),
                    pitch: (header + body) * log_uniform(random, 1, 32),
                    body_percent: one_of(random, &[100, 100, 50, 10]),
                    is_sorted: one_in(random, 2),
                }
            }
            _ => {
                let least = log_uniform(random, 2 << 10, 1 << 20);
                Self::Files {
                    request: size,
                    least,
                    most: least * log_uniform(random, 1, 8),
                    order: one_of(
                        random,
                        &[FileOrder::Names, FileOrder::Names, FileOrder::Backward, FileOrder::Random],
                    ),
                    is_whole: !one_in(random, 4),
                }
            }
        }
    }

    /// About this many bytes a request.
    fn request(&self) -> u64 {
        match *self {
            Self::Runs { request, .. }
            | Self::Skips { request, .. }
            | Self::Stride { request, .. }
            | Self::Clusters { request, .. }
            | Self::Passes { request, .. }
            | Self::Files { request, .. }
            | Self::Headers { request, .. } => request,
            Self::Sample { record, .. } => record,
            Self::Columns { cell, .. } => cell,
        }
    }

    /// Bytes of the file that `reads` reads cover, at most.
    fn span(&self, reads: u64) -> u64 {
        match *self {
            Self::Runs { request, span, .. } => span + 512 * request,
            Self::Skips { block, kept_percent, .. } => (reads + 2) * block * 100 / kept_percent * 2,
            Self::Stride { step, requests, .. } => (reads / requests + 3) * step,
            Self::Clusters { size, clusters, .. } => size * (clusters + 1),
            Self::Sample { record, records, .. } => record * records,
            Self::Columns { row, rows, .. } => row * rows,
            Self::Passes { range, .. } => range,
            Self::Headers { pitch, .. } => pitch * (reads + 2),
            Self::Files { .. } => 0,
        }
    }

    /// The reads of one of `readers` readers, at most `reads` of them.
    pub(super) fn of_reader(
        &self,
        reader: u64,
        readers: u64,
        share: Share,
        reads: u64,
        random: &mut Random,
    ) -> Vec<Read> {
        let most = reads.min(PHASE_BYTES_MAX / readers / self.request()).max(READS_MIN);
        let (file, base) = match share {
            Share::Same => (0, 0),
            Share::Parts => (0, reader * self.span(most).next_multiple_of(4096)),
            Share::Files => (reader as u32, 0),
        };
        let mut out = Reads { reads: Vec::new(), most: most as usize, file, base };
        if let Self::Files { .. } = self {
            // Files are shared only if the range is.
            let first = if share == Share::Same { 0 } else { reader as u32 * most as u32 };
            self.files(first, most, random, &mut out);
        } else {
            // A phase that ends early begins again.
            while !out.is_full() {
                self.round(random, &mut out);
            }
        }
        out.reads
    }

    /// One round, to the natural end of the phase.
    fn round(&self, random: &mut Random, out: &mut Reads) {
        match *self {
            Self::Runs { request, span, lengths, ref jumps, course } => {
                let span = span / request;
                let mut starts = jumps.starts(span, random);
                let (mut end, mut number) = (0, 0);
                while !out.is_full() {
                    let (start, length) = (starts.next(end, random), lengths.next(random));
                    out.run(start * request, request, length, course.is_down(number, random));
                    (end, number) = (start + length, number + 1);
                }
            }
            Self::Skips { request, block, kept_percent, course } => {
                let blocks = out.most as u64 * 100 / kept_percent + 2;
                for number in 0..blocks {
                    if random.below(100) < kept_percent {
                        let at = if course == Course::Down { blocks - 1 - number } else { number };
                        out.run(at * block, request, block / request, course == Course::Down);
                    }
                }
            }
            Self::Stride { request, requests, step, jitter, course } => {
                let blocks = out.most as u64 / requests + 1;
                for number in 0..blocks {
                    let at = if course == Course::Down { blocks - 1 - number } else { number };
                    out.run(at * step + random.below(jitter + 1), request, requests, false);
                }
            }
            _ => self.round_of_records(random, out),
        }
    }

    /// One round of the phases that do not read runs.
    fn round_of_records(&self, random: &mut Random, out: &mut Reads) {
        match *self {
            Self::Clusters { request, size, clusters, density_percent, is_shuffled, is_sorted } => {
                let mut order: Vec<u64> = (0..clusters).collect();
                if !is_sorted {
                    shuffle(random, &mut order);
                }
                let pieces = (size / request).max(1);
                // Every other cluster is never read, so that clusters are apart.
                for cluster in order.into_iter().filter(|cluster| cluster % 2 == 0) {
                    if out.is_full() {
                        return;
                    }
                    let mut read: Vec<u64> =
                        (0..pieces).filter(|_| random.below(100) < density_percent).collect();
                    if is_shuffled {
                        shuffle(random, &mut read);
                    }
                    read.into_iter().for_each(|piece| out.push(cluster * size + piece * request, request));
                }
            }
            Self::Sample { record, records, with_replacement } => {
                let mut order: Vec<u64> = (0..records).collect();
                if with_replacement {
                    order.iter_mut().for_each(|place| *place = random.below(records));
                } else {
                    shuffle(random, &mut order);
                }
                order.into_iter().for_each(|place| out.push(place * record, record));
            }
            Self::Columns { cell, row, rows, are_random } => {
                let columns = row / cell;
                for number in 0..columns {
                    let column = if are_random { random.below(columns) } else { number };
                    (0..rows).for_each(|at| out.push(at * row + column * cell, cell));
                }
            }
            Self::Passes { request, range, is_zigzag } => {
                out.run(0, request, range / request, false);
                if is_zigzag {
                    out.run(0, request, range / request, true);
                }
            }
            Self::Headers { header, body, request, pitch, body_percent, is_sorted } => {
                let mut order: Vec<u64> = (0..out.most as u64 / 2 + 1).collect();
                if !is_sorted {
                    shuffle(random, &mut order);
                }
                for at in order.into_iter().map(|number| number * pitch) {
                    out.push(at, header);
                    if random.below(100) < body_percent {
                        out.all(at + header, at + header + body, request);
                    }
                }
            }
            // Runs end in `round`; files have no rounds.
            Self::Runs { .. } | Self::Skips { .. } | Self::Stride { .. } | Self::Files { .. } => {}
        }
    }

    /// Reads files from number `first` on.
    fn files(&self, first: u32, reads: u64, random: &mut Random, out: &mut Reads) {
        let Self::Files { request, least, most, order, is_whole } = *self else { return };
        let sizes: Vec<u64> = (0..reads).map(|_| between(random, least, most)).collect();
        let per_file = if is_whole { ((least + most) / 2).div_ceil(request) } else { 1 };
        let mut files: Vec<u32> = (0..(reads / per_file).max(2) as u32).collect();
        match order {
            FileOrder::Names => {}
            FileOrder::Backward => files.reverse(),
            FileOrder::Random => shuffle(random, &mut files),
        }
        for file in files {
            out.file = first + file;
            let size = sizes[file as usize];
            out.all(0, if is_whole { size } else { size.min(request) }, request);
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Runs { request, span, lengths, ref jumps, course } => {
                write!(f, "{lengths} of {} {course}, {jumps} in {}", bytes(request), bytes(span))
            }
            Self::Skips { request, block, kept_percent, course } => {
                write!(f, "{kept_percent} % of blocks of {} {course}, by {}", bytes(block), bytes(request))
            }
            Self::Stride { request, requests, step, jitter, course } => {
                let each = counted(requests, "request");
                write!(f, "{each} of {} every {} {course}", bytes(request), bytes(step))?;
                if jitter > 0 { write!(f, ", up to {} late", bytes(jitter)) } else { Ok(()) }
            }
            Self::Clusters { request, size, clusters, density_percent, is_shuffled, is_sorted } => write!(
                f,
                "{density_percent} % of each cluster of {} by {}{}, {} in {}",
                bytes(size),
                bytes(request),
                if is_shuffled { ", shuffled" } else { "" },
                if is_sorted { "sorted" } else { "anywhere" },
                bytes(size * clusters)
            ),
            Self::Sample { record, records, with_replacement } => write!(
                f,
                "{records} records of {} in random order, {} replacement",
                bytes(record),
                if with_replacement { "with" } else { "without" }
            ),
            Self::Columns { cell, row, rows, are_random } => write!(
                f,
                "columns of {rows} cells of {}, {} apart, {}",
                bytes(cell),
                bytes(row),
                if are_random { "in random order" } else { "in order" }
            ),
            Self::Passes { request, range, is_zigzag } => write!(
                f,
                "{} by {} {}",
                bytes(range),
                bytes(request),
                if is_zigzag { "up and down" } else { "again and again" }
            ),
            Self::Headers { header, body, request, pitch, body_percent, is_sorted } => write!(
                f,
                "headers of {} with {body_percent} % of their bodies of {} by {}, {} apart, {}",
                bytes(header),
                bytes(body),
                bytes(request),
                bytes(pitch),
                if is_sorted { "in order" } else { "in random order" }
            ),
            Self::Files { request, least, most, order, is_whole } => write!(
                f,
                "{} files of {} to {} by {}, {}",
                if is_whole { "all of" } else { "the first request of" },
                bytes(least),
                bytes(most),
                bytes(request),
                match order {
                    FileOrder::Names => "in order of names",
                    FileOrder::Backward => "in reverse order of names",
                    FileOrder::Random => "in random order",
                }
            ),
        }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "upward",
            Self::Down => "downward",
            Self::Zigzag => "up and down in turn",
            Self::Random => "upward or downward",
        })
    }
}
