//! Requests of readers.

use crate::id::HandleId;
use crate::page::{PageCount, PageIndex, PageRange};

/// A read in pages; [`PageSize::request_of`](crate::PageSize::request_of) converts from bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// All pages that contain a byte of it; may extend past the end of the file.
    pub range: PageRange,
    /// Whether it ends inside its last page, so that the next sequential byte is on that page.
    /// Linux recognises sequential reads by that byte's page.
    pub ends_inside: bool,
}

/// A part of a read, for a reader that reads its pages one after the other, as a kernel's buffered
/// read does. Such a reader waits at each page that is not up to date, and looks up the next page
/// only then. Policies see the whole request, and decide at the pages of the part.
///
/// Parts of a request come in order and together cover it. Other reads through the handle come
/// before or after all of them. Frames, wakes and errors are those of the part.
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

/// A demand for pages: a read, a part of a read, or a fault. See
/// [`Cache::access`](crate::Cache::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageAccess {
    /// The handle and the pages.
    pub(crate) part: Part,
    /// For a fault: the advice of its mapping. `None` for a read.
    pub(crate) mapped: Option<Pattern>,
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

impl PageAccess {
    /// A read of all of a request; it may reach past the end of the file.
    #[inline]
    pub fn read(handle: HandleId, request: impl Into<Request>) -> Self {
        Part::whole(handle, request.into()).into()
    }

    /// A fault of one page.
    #[inline]
    pub fn fault(handle: HandleId, fault: Fault) -> Self {
        let page = PageRange::from_start(fault.page, PageCount(1));
        Self { part: Part::whole(handle, page.into()), mapped: Some(fault.pattern) }
    }
}

/// A read of a part of a request.
impl From<Part> for PageAccess {
    #[inline]
    fn from(part: Part) -> Self {
        Self { part, mapped: None }
    }
}

impl Part {
    /// The whole request at once.
    pub const fn whole(handle: HandleId, request: Request) -> Self {
        Self { handle, request, pages: request.range }
    }

    /// Whether it is the first part of its request.
    pub(crate) fn is_first(self) -> bool {
        self.pages.start == self.request.range.start
    }

    /// Whether it is all of its request.
    #[inline]
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
