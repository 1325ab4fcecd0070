//! Time as the core sees it: a number that the driver passes in.

/// Nanoseconds since an epoch that the driver picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);
