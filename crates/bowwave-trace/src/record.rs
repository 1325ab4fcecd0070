//! One row of a trace.

/// One access.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Record {
    /// Time in nanoseconds of the tracer's clock.
    pub time_ns: u64,
    /// The process, or another number that distinguishes readers.
    pub pid: u64,
    /// Operation.
    pub op: Op,
    /// Name of the file: any text, including commas, quotes and line ends.
    pub file: String,
    /// First byte accessed.
    pub offset: u64,
    /// Number of bytes accessed; `offset + length` never passes [`u64::MAX`] in a record that was
    /// read.
    pub length: u64,
}

bowwave_core::named_enum! {
    /// Operation of an access. Its name is its word in a trace.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub enum Op {
        /// A read through a descriptor.
        #[default]
        Read = "read",
        /// A write through a descriptor.
        Write = "write",
        /// A read through a memory mapping.
        Load = "load",
        /// A write through a memory mapping.
        Store = "store",
        /// A request to make earlier writes durable.
        Fsync = "fsync",
        /// Advice: the range will be needed soon.
        WillNeed = "willneed",
        /// Advice: the range will not be needed again soon.
        DontNeed = "dontneed",
        /// Advice: reads will be at random.
        Random = "random",
        /// Advice: reads will be in sequence.
        Sequential = "sequential",
        /// The pages of the range left the cache.
        Evict = "evict",
        /// A read plan: the reader announces that it will read this range after those announced
        /// before. No bytes: the plan ends.
        Plan = "plan",
        /// The earlier read of this process and range has ended: in traces that have the time from
        /// the end of a read to the next one.
        Done = "done",
    }
}

impl Op {
    /// Whether it accesses bytes, which therefore exist: a read, write, load or store.
    pub const fn is_access(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Load | Self::Store)
    }

    /// The operation of a `word`.
    pub(crate) fn from_bytes(word: &[u8]) -> Option<Self> {
        if word == b"read" {
            return Some(Self::Read);
        }
        Self::ALL.into_iter().find(|op| op.name().as_bytes() == word)
    }
}
