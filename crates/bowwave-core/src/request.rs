//! Requests of readers.

use crate::id::HandleId;
use crate::page::{PageIndex, PageRange};

/// A read in pages; [`PageSize::request_of`](crate::PageSize::request_of) converts from bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// All pages that contain a byte of it; may extend past the end of the file.
    pub range: PageRange,
    /// Whether it ends inside its last page, so that the next sequential byte is on that page.
    /// Linux recognises sequential reads by that byte's page.
    pub ends_inside: bool,
}

/// A part of a read, to be read now. See [`Cache::read_part`](crate::Cache::read_part).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The handle.
    pub handle: HandleId,
    /// The whole request.
    pub request: Request,
    /// The pages to read now, within the request.
    pub pages: PageRange,
}

/// A touch of a mapped page that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The page.
    pub page: PageIndex,
    /// Advice of the mapping (`madvise`); a handle's advice applies to reads only.
    pub pattern: Pattern,
}

/// Advice on the order of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// No advice.
    #[default]
    Normal,
    /// Sequential.
    Sequential,
    /// Random.
    Random,
}

impl Part {
    /// The whole request at once.
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
