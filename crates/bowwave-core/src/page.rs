//! Pages: index, count, range and size, each a type of its own.

use core::fmt;
use core::ops::{Add, Sub};

use crate::config::ConfigError;
use crate::request::Request;

/// Position of a page in its file, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u64);

/// A number of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageCount(pub u64);

/// Pages `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PageRange {
    /// First page.
    pub start: PageIndex,
    /// One past the last page; not below `start`.
    pub end: PageIndex,
}

/// Bytes of a page: a power of two from 4 KiB to 2 MiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize {
    shift: u8,
}

/// Saturates: no file reaches the last page index, and a policy may plan past any end.
impl Add<PageCount> for PageIndex {
    type Output = Self;
    fn add(self, count: PageCount) -> Self {
        Self(self.0.saturating_add(count.0))
    }
}

/// Pages from `other` up to `self`.
///
/// # Panics
/// If `other` is above `self`.
impl Sub for PageIndex {
    type Output = PageCount;
    fn sub(self, other: Self) -> PageCount {
        assert!(other <= self, "page {} is above page {}", other.0, self.0);
        PageCount(self.0 - other.0)
    }
}

impl PageRange {
    /// The range `start..end`.
    ///
    /// # Panics
    /// If `end` is below `start`.
    pub const fn new(start: u64, end: u64) -> Self {
        assert!(start <= end, "a page range must not end before it starts");
        Self { start: PageIndex(start), end: PageIndex(end) }
    }

    /// `count` pages from `start`.
    pub fn from_start(start: PageIndex, count: PageCount) -> Self {
        Self { start, end: start + count }
    }

    /// Number of pages.
    pub const fn count(self) -> PageCount {
        PageCount(self.end.0 - self.start.0)
    }

    /// Whether the range has no page.
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// Whether `page` is in the range.
    pub fn contains(self, page: PageIndex) -> bool {
        self.start <= page && page < self.end
    }

    /// The part before `end`; empty (at its own start) if there is none.
    #[must_use]
    pub fn clip(self, end: PageIndex) -> Self {
        Self { start: self.start, end: self.end.min(end).max(self.start) }
    }

    /// The pages of both.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start.0, self.end.0)
    }
}

impl PageSize {
    /// The page of `explain` and of most kernels.
    pub const KIB_4: Self = Self { shift: 12 };
    /// The smallest page.
    pub const MIN: Self = Self::KIB_4;
    /// The largest page.
    pub const MAX: Self = Self { shift: 21 };

    /// A page of `bytes` bytes.
    ///
    /// # Errors
    /// Names the bound if `bytes` is not a power of two from 4 KiB to 2 MiB.
    pub fn new(bytes: u64) -> Result<Self, ConfigError> {
        if bytes.is_power_of_two() && (Self::MIN.bytes()..=Self::MAX.bytes()).contains(&bytes) {
            // A power of two in these bounds has 12 to 21 trailing zeros.
            Ok(Self { shift: bytes.trailing_zeros().to_le_bytes()[0] })
        } else {
            Err(ConfigError {
                field: "page_size",
                value: bytes,
                bound: "a power of two from 4096 to 2097152 bytes",
            })
        }
    }

    /// Bytes of a page.
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// Base-2 logarithm of the bytes of a page.
    pub const fn shift(self) -> u32 {
        self.shift as u32
    }

    /// The page that holds byte `offset`.
    pub const fn index_of(self, offset: u64) -> PageIndex {
        PageIndex(offset >> self.shift)
    }

    /// Pages that `bytes` bytes take, the last one perhaps in part.
    pub const fn count_for(self, bytes: u64) -> PageCount {
        PageCount(bytes.div_ceil(1 << self.shift))
    }

    /// The pages that the bytes `offset..offset + length` touch; empty if `length` is 0.
    pub const fn range_of(self, offset: u64, length: u64) -> PageRange {
        let start = offset >> self.shift;
        let end = if length == 0 { start } else { (offset.saturating_add(length - 1) >> self.shift) + 1 };
        PageRange { start: PageIndex(start), end: PageIndex(end) }
    }

    /// The request for the bytes `offset..offset + length`.
    pub const fn request_of(self, offset: u64, length: u64) -> Request {
        let ends_inside = length > 0 && offset.saturating_add(length) & (self.bytes() - 1) != 0;
        Request { range: self.range_of(offset, length), ends_inside }
    }
}

impl fmt::Debug for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageSize({})", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_powers_of_two_in_bounds() {
        for bad in [0, 1, 2048, 4095, 4097, 12288, 4 << 20, u64::MAX] {
            assert_eq!(PageSize::new(bad).expect_err("out of bounds").value, bad);
        }
        assert_eq!(
            (PageSize::new(4096).expect("4 KiB").shift(), PageSize::new(2 << 20).expect("2 MiB").shift()),
            (12, 21)
        );
    }

    #[test]
    fn byte_ranges_cover_the_pages_they_touch() {
        let page = PageSize::KIB_4;
        assert_eq!(page.range_of(0, 0), PageRange::new(0, 0));
        assert_eq!(page.range_of(4095, 2), PageRange::new(0, 2));
        assert_eq!(page.range_of(10000, 10000), PageRange::new(2, 5));
        assert_eq!(page.range_of(u64::MAX, 1), PageRange::new(u64::MAX >> 12, (u64::MAX >> 12) + 1));
    }

    #[test]
    fn requests_tell_whether_they_end_inside_a_page() {
        let ends_inside = |offset, length| PageSize::KIB_4.request_of(offset, length).ends_inside;
        assert!(ends_inside(0, 10_000) && ends_inside(4095, 2));
        assert!(!ends_inside(0, 4096) && !ends_inside(100, 3996) && !ends_inside(100, 0));
        assert_eq!(PageSize::KIB_4.request_of(0, 8192), Request::from(PageRange::new(0, 2)));
    }
}
