//! What readers ask for.

use crate::page::{PageIndex, PageRange};

/// A read, in pages; [`PageSize::request_of`](crate::PageSize::request_of) makes one from bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// Every page that holds a byte of it; may reach past the end of the file.
    pub range: PageRange,
    /// Whether it ends before its last page does, so that the next byte in order is on that page. Linux tells reads in
    /// order by where that byte lies.
    pub ends_inside: bool,
}

/// A touch of a mapped page that the hardware could not serve alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The page.
    pub page: PageIndex,
    /// How the mapping is advised to be used (`madvise`); a handle's advice concerns reads only.
    pub pattern: Pattern,
}

/// How the user said something will be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Nothing was said.
    #[default]
    Normal,
    /// In order.
    Sequential,
    /// In no order.
    Random,
}

/// A request for whole pages.
impl From<PageRange> for Request {
    fn from(range: PageRange) -> Self {
        Self { range, ends_inside: false }
    }
}
