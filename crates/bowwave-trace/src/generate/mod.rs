//! Synthetic traces: the access patterns for comparing readahead and caches, from a seed.
//!
//! ```text
//!   blocks read of a file of 8
//!   sequential    0 1 2 3 4 5 6 7 0 1 …
//!   backward      7 6 5 4 3 2 1 0 7 6 …
//!   interleaved   0 4 1 5 2 6 3 7 0 4 …     2 streams
//!   strided       0 3 6 1 4 7 2 5 0 3 …     3 blocks
//!   clustered     2 3 4 5 0 1 2 4 5 6 …     runs at random places
//!   random, zipf, oltp                      see Pattern
//! ```
//!
//! One process reads one file, block by block, at constant intervals. The same [`Spec`] gives the
//! same trace on every run. [`Pattern::Zipf`] and [`Pattern::Oltp`] use powers and logarithms:
//! their traces are equal on machines whose mathematical libraries round alike. A partial last
//! block is never read. [`Family`] draws the pattern itself from a seed.
//!
//! ```
//! use bowwave_trace::generate::{Pattern, Spec};
//!
//! let spec = Spec { file_bytes: 12 << 10, rows: 4, pattern: Pattern::Backward, ..Spec::default() };
//! let pages: Vec<u64> = spec.generate()?.map(|row| row.offset / 4096).collect();
//! assert_eq!(pages, [2, 1, 0, 2]);
//! # Ok::<(), bowwave_trace::generate::SpecError>(())
//! ```

mod family;
mod pattern;
mod zipf;

pub use bowwave_core::Random;
pub use family::{DEVELOPMENT, Family, Read, held_out};
pub use zipf::{Scatter, Zipf};

use std::fmt;

use crate::binary::Row;
use crate::{Op, Record};
use pattern::State;

/// The process of every generated row.
pub const PID: u64 = 1;
/// The name of the file of every generated row.
pub const FILE: &str = "data";

/// Maximum blocks of a file: `f64` must represent them and their sums exactly.
const BLOCKS_MAX: u64 = 1 << 48;

/// Parameters of a generated trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The order of reads.
    pub pattern: Pattern,
    /// Number of rows.
    pub rows: u64,
    /// File size in bytes.
    pub file_bytes: u64,
    /// Bytes per read; offsets are multiples of it.
    pub block_bytes: u64,
    /// Nanoseconds from one read to the next; the first is at 0.
    pub gap_ns: u64,
    /// Two traces that differ in nothing but this are independent draws.
    pub seed: u64,
}

/// The order of reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Block after block, from the start again at the end.
    Sequential,
    /// Each block as likely as any other, with replacement.
    Random,
    /// Sequential readers of equal parts of the file, one block of each in turn, all through one
    /// descriptor.
    Interleaved {
        /// Readers, from 1.
        streams: u32,
    },
    /// A block, then the one `stride_bytes` on; past the end, from the start again one block
    /// further in.
    Strided {
        /// Stride in bytes, rounded up to whole blocks.
        stride_bytes: u64,
    },
    /// Block before block, from the end again at the start.
    Backward,
    /// Runs of adjacent blocks at random places. The length is uniform from a quarter of
    /// `cluster_bytes` to all of it; the place is uniform.
    Clustered {
        /// Longest run, rounded up to whole blocks.
        cluster_bytes: u64,
    },
    /// The block of rank k has a probability proportional to k^-exponent; ranks are scattered over
    /// the file.
    Zipf {
        /// 0 (uniform) to 10; around 1 in measured caches.
        exponent: f64,
    },
    /// A database under many small queries, as the patch of on-demand readahead
    /// (2007) describes InnoDB. It reads database
    /// pages at random (use blocks of 16 KiB, 4 pages), prefers some parts of the file, and
    /// sometimes reads two adjacent pages.
    ///
    /// The file is divided into 64 regions, or fewer if it has fewer blocks. A region is drawn by
    /// Zipf's law with `exponent` over regions in random order, then a uniform block of it. After
    /// one in 8 such reads, the next block is read too.
    Oltp {
        /// 0 (all regions equal) to 10.
        exponent: f64,
    },
    /// One pattern after the other, each for an equal share of the rows.
    Phases(Vec<Self>),
}

/// An invalid field of a [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// Its valid range.
    pub bound: String,
}

impl Default for Spec {
    /// A hundred thousand sequential reads of 4 KiB in a file of 1 GiB, 100 µs apart.
    fn default() -> Self {
        Self {
            pattern: Pattern::Sequential,
            rows: 100_000,
            file_bytes: 1 << 30,
            block_bytes: 4096,
            gap_ns: 100_000,
            seed: 0,
        }
    }
}

impl Spec {
    /// The rows, one by one, in constant memory.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn generate(&self) -> Result<Generator, SpecError> {
        let wrong = |field, value: &dyn fmt::Display, bound: &str| {
            Err(SpecError { field, value: value.to_string(), bound: bound.to_owned() })
        };
        if self.block_bytes == 0 {
            return wrong("block_bytes", &0, "at least 1");
        }
        let blocks = self.file_bytes / self.block_bytes;
        if !(1..=BLOCKS_MAX).contains(&blocks) {
            let bound = format!("from one block of {} bytes to 2^48 blocks", self.block_bytes);
            return wrong("file_bytes", &self.file_bytes, &bound);
        }
        let phases = match &self.pattern {
            Pattern::Phases(phases) if phases.is_empty() => {
                return wrong("phases", &"none", "at least one pattern");
            }
            Pattern::Phases(phases) => phases.clone(),
            other => vec![other.clone()],
        };
        let mut random = Random::new(self.seed);
        let mut states = Vec::with_capacity(phases.len());
        for phase in &phases {
            states.push(State::new(phase, blocks, self.block_bytes, &mut random)?);
        }
        Ok(Generator { spec: self.clone(), states, random, row: 0 })
    }

    /// The rows as records.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn records(&self) -> Result<impl Iterator<Item = Record> + use<>, SpecError> {
        let record = |Row { time_ns, op, offset, length, .. }| Record {
            time_ns,
            pid: PID,
            op,
            file: FILE.to_owned(),
            offset,
            length,
        };
        Ok(self.generate()?.map(record))
    }
}

/// The rows of a [`Spec`]; each has stream 0, which stands for [`PID`] and [`FILE`].
#[derive(Clone, Debug)]
pub struct Generator {
    spec: Spec,
    /// One state per phase.
    states: Vec<State>,
    random: Random,
    row: u64,
}

impl Iterator for Generator {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let Spec { rows, block_bytes, gap_ns, .. } = self.spec;
        if self.row == rows {
            return None;
        }
        let phase = if self.states.len() == 1 {
            0
        } else {
            // Less than their number, because row is less than rows.
            (u128::from(self.row) * self.states.len() as u128 / u128::from(rows)) as usize
        };
        let block = self.states[phase].next(&mut self.random);
        let time_ns = self.row.saturating_mul(gap_ns);
        self.row += 1;
        Some(Row { time_ns, op: Op::Read, stream: 0, offset: block * block_bytes, length: block_bytes })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.spec.rows - self.row);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.field, self.value, self.bound)
    }
}

impl std::error::Error for SpecError {}
