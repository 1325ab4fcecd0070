//! Access patterns of processes.

use std::ops::Range;

use bowwave_core::PageIndex;
use bowwave_core::swap::pager::{PageId, RegionId, Touch};

use super::Access;
use bowwave_core::Random;

/// Writes the pages of a region in order, repeatedly, as vm-scalability's sequential case. The
/// first pass counts in the first class, later ones in the second.
pub fn sequential(
    region: RegionId,
    pages: u64,
    work_ns: u64,
    classes: [usize; 2],
) -> impl Iterator<Item = Access> + Send {
    let turn = move |class| pass(region, 0..pages, Touch::Store, work_ns, class);
    turn(classes[0]).chain(std::iter::repeat_with(move || turn(classes[1])).flatten())
}

/// Writes pages of a region at random, as vm-scalability's random case.
pub fn random(
    region: RegionId,
    pages: u64,
    work_ns: u64,
    class: usize,
    seed: u64,
) -> impl Iterator<Item = Access> + Send {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || Access {
        page: PageId { region, page: PageIndex(random.below(pages)) },
        touch: Touch::Store,
        work_ns,
        class,
    })
}

/// Touches each page of a range once, in order.
pub fn pass(
    region: RegionId,
    pages: Range<u64>,
    touch: Touch,
    work_ns: u64,
    class: usize,
) -> impl Iterator<Item = Access> + Send {
    pages.map(move |page| Access { page: PageId { region, page: PageIndex(page) }, touch, work_ns, class })
}

/// Copies pages: reads each and writes the page the same distance above.
pub fn copy(
    region: RegionId,
    pages: Range<u64>,
    above: u64,
    work_ns: u64,
    class: usize,
) -> impl Iterator<Item = Access> + Send {
    let access =
        move |page, touch| Access { page: PageId { region, page: PageIndex(page) }, touch, work_ns, class };
    pages.flat_map(move |page| [access(page, Touch::Load), access(page + above, Touch::Store)])
}
