//! Identifiers that the cache and its driver exchange.

/// A file of the cache: a small number that the driver chooses, and may reuse after it closes the
/// file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// An open handle with one readahead state: a small number that the driver chooses, and may reuse
/// after it closes the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u32);

/// Memory that holds one page; the driver maps it to an address. Numbers are dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// A fill in flight. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FillId(pub u64);

/// A write-out in flight. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteOutId(pub u64);

/// The waiter of a read, a write or a sync: a number of the driver, returned in
/// [`Action::Wake`](crate::Action::Wake).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter(pub u64);
