//! Names of things that cross the border between the cache and its driver.

/// A file of the cache; a small number that the driver picks and may use again after closing the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// An open handle: one readahead state. A small number that the driver picks and may use again after closing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u32);

/// Memory that holds one page; the driver maps it to an address. Numbers are dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// A fill in flight. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FillId(pub u64);

/// A write-out in flight. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteOutId(pub u64);

/// Whoever waits for a read, a write or a sync; the driver's own number, handed back in [`Action::Wake`](crate::Action::Wake).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter(pub u64);
