//! Sizes of requests to the device, by powers of two.

use serde::Serialize;

use crate::record::Run;

/// Counts and bytes of requests by size.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sizes {
    /// Each size class starts at this many bytes and ends before the next.
    from: Vec<u64>,
    demand: Vec<u64>,
    readahead: Vec<u64>,
    #[serde(skip)]
    pub(super) requests: u64,
    #[serde(skip)]
    pub(super) single_page: u64,
    #[serde(skip)]
    pub(super) by_readahead: u64,
    /// Half of the bytes come in requests of at least this size.
    #[serde(skip)]
    pub(super) half_of_bytes: u64,
}

impl Sizes {
    /// Over all recorded requests.
    pub(super) fn of(run: &Run) -> Self {
        let requests = &run.requests;
        let Some(most) = requests.pages.iter().max() else { return Self::default() };
        let classes = class(*most) + 1;
        let mut sizes = Self {
            from: (0..classes).map(|class| run.page_bytes.saturating_mul(1 << class)).collect(),
            demand: vec![0; classes],
            readahead: vec![0; classes],
            requests: requests.pages.len() as u64,
            ..Self::default()
        };
        for (&pages, &readahead) in requests.pages.iter().zip(&requests.readahead) {
            let list = if readahead { &mut sizes.readahead } else { &mut sizes.demand };
            list[class(pages)] += 1;
            sizes.single_page += u64::from(pages <= 1);
            sizes.by_readahead += u64::from(readahead);
        }
        sizes.half_of_bytes = run.page_bytes.saturating_mul(half(&requests.pages));
        sizes
    }
}

fn class(pages: u32) -> usize {
    pages.max(1).ilog2() as usize
}

/// The size in pages at or above which half of all pages are.
fn half(pages: &[u32]) -> u64 {
    let mut sorted = pages.to_vec();
    sorted.sort_unstable();
    let all: u64 = sorted.iter().map(|&size| u64::from(size)).sum();
    let mut above = 0;
    for &size in sorted.iter().rev() {
        above += u64::from(size);
        if above * 2 >= all {
            return u64::from(size);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_pages_are_in_requests_of_the_middle_size_or_more() {
        assert_eq!(half(&[1, 1, 1, 1, 4]), 4);
        assert_eq!(half(&[2, 2, 2]), 2);
        assert_eq!(half(&[]), 0);
    }
}
