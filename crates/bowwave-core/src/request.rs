//! What readers ask for.

use crate::id::HandleId;
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

/// A part of a read: what a reader gets to now. See [`Cache::read_part`](crate::Cache::read_part).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Through which handle.
    pub handle: HandleId,
    /// The whole request.
    pub request: Request,
    /// The pages to walk now, within it.
    pub pages: PageRange,
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

impl Part {
    /// All of a request at once.
    #[must_use]
    pub const fn whole(handle: HandleId, request: Request) -> Self {
        Self { handle, request, pages: request.range }
    }

    /// Whether it is the first part of its request.
    pub(crate) fn is_first(self) -> bool {
        self.pages.start == self.request.range.start
    }

    /// Whether it is all of its request.
    pub(crate) fn is_whole(self) -> bool {
        self.pages == self.request.range
    }
}

/// A request for whole pages.
impl From<PageRange> for Request {
    fn from(range: PageRange) -> Self {
        Self { range, ends_inside: false }
    }
}
