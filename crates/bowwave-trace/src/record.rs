//! One row of a trace.

use std::fmt;
use std::str::FromStr;

/// One access.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Record {
    /// When it happened, in nanoseconds of the tracer's clock.
    pub time_ns: u64,
    /// Who did it: the process, or whatever tells one reader from another.
    pub pid: u64,
    /// What was done.
    pub op: Op,
    /// Name of the file; any text, also with commas, quotes and line ends.
    pub file: String,
    /// First byte touched.
    pub offset: u64,
    /// Number of bytes touched; `offset + length` never passes [`u64::MAX`] in a record that was read.
    pub length: u64,
}

/// What an access did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Op {
    /// A read through a descriptor.
    #[default]
    Read,
    /// A write through a descriptor.
    Write,
    /// A read through a memory mapping.
    Load,
    /// A write through a memory mapping.
    Store,
    /// A request to make earlier writes durable.
    Fsync,
    /// Advice: the range will be needed soon.
    WillNeed,
    /// Advice: the range will not be needed again soon.
    DontNeed,
    /// Advice: reads will be at random.
    Random,
    /// Advice: reads will be in sequence.
    Sequential,
    /// The pages of the range left the cache.
    Evict,
    /// The reader says that it will read the range after those that it has named before; no bytes: its plan ends.
    Plan,
}

impl Op {
    /// Whether it uses bytes, and so tells that they exist: a read, write, load or store.
    #[must_use]
    pub const fn is_access(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Load | Self::Store)
    }

    /// Every operation, in the order of the format's description.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::Write,
        Self::Load,
        Self::Store,
        Self::Fsync,
        Self::WillNeed,
        Self::DontNeed,
        Self::Random,
        Self::Sequential,
        Self::Evict,
        Self::Plan,
    ];

    /// The word that stands for it in a trace.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Load => "load",
            Self::Store => "store",
            Self::Fsync => "fsync",
            Self::WillNeed => "willneed",
            Self::DontNeed => "dontneed",
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::Evict => "evict",
            Self::Plan => "plan",
        }
    }

    /// The operation that `word` stands for.
    pub(crate) fn from_bytes(word: &[u8]) -> Option<Self> {
        if word == b"read" {
            return Some(Self::Read);
        }
        Self::ALL.into_iter().find(|op| op.as_str().as_bytes() == word)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Op {
    type Err = UnknownOp;

    fn from_str(word: &str) -> Result<Self, UnknownOp> {
        Self::from_bytes(word.as_bytes()).ok_or(UnknownOp)
    }
}

/// The word is not an operation of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOp;

impl fmt::Display for UnknownOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is not an operation (one of ")?;
        for (index, op) in Op::ALL.into_iter().enumerate() {
            write!(f, "{}{op}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for UnknownOp {}
