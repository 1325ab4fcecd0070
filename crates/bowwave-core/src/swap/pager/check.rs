//! Invariants between any two steps.

use alloc::collections::BTreeSet;

use super::Pager;
use super::event::{PageId, RegionId};
use super::table::{Kind, NONE, Page, Region, flag};
use crate::page::PageIndex;

/// A violated invariant, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagerFault {
    /// Description of the violation.
    pub what: &'static str,
    /// The page, if the invariant concerns one.
    pub page: Option<PageId>,
}

/// Sums over all pages.
#[derive(Default)]
struct Sums {
    frames: u64,
    freeing: u64,
    listed: u64,
    slots: BTreeSet<u32>,
}

impl Pager {
    /// Checks every invariant; takes time in proportion to all pages ever touched.
    ///
    /// # Errors
    /// The first violated invariant.
    pub fn check(&self) -> Result<(), PagerFault> {
        let all = |what, holds: bool| if holds { Ok(()) } else { Err(PagerFault { what, page: None }) };
        let mut sums = Sums::default();
        for (index, region) in self.table.regions.iter().enumerate() {
            if let Some(region) = region {
                self.check_region(RegionId(index as u32), region, &mut sums)?;
            }
        }
        all("the frames in use differ from those of pages", sums.frames == self.used)?;
        all("the frames to be freed differ from the pages being evicted", sums.freeing == self.freeing)?;
        all("the slots in use differ from those of pages", sums.slots.len() as u64 == self.slots.used())?;
        all("the lengths of lists differ from the pages on them", sums.listed == self.check_lists()?)?;
        all("more slots are in use than exist", self.slots.used() < self.slots.count())?;
        all("touches wait although memory is free", self.hungry.is_empty() || self.free() == 0)
    }

    fn check_region(&self, id: RegionId, region: &Region, sums: &mut Sums) -> Result<(), PagerFault> {
        let (before, mut away) = (sums.frames, 0);
        for page in region.known(region.all()) {
            let page_id = PageId { region: id, page };
            let state = region.page(page);
            if let Some(what) = page_fault(&state) {
                return Err(PagerFault { what, page: Some(page_id) });
            }
            self.check_page(page_id, &state, sums)?;
            away += u64::from(state.slot != 0 && !state.any(flag::HERE | flag::COMING));
        }
        if away != region.away {
            return Err(PagerFault { what: "a region's count of swapped-out pages is wrong", page: None });
        }
        let waits =
            |page: &u64| region.page(PageIndex(*page)).any(flag::COMING | flag::UNMAPPING | flag::WRITING);
        if let Some(page) = region.waiting.keys().find(|page| !waits(page)) {
            let page = Some(PageId { region: id, page: PageIndex(*page) });
            return Err(PagerFault { what: "a touch waits for a page without I/O in flight", page });
        }
        if sums.frames - before != region.frames {
            return Err(PagerFault { what: "a region's frames differ from those of its pages", page: None });
        }
        Ok(())
    }

    fn check_page(&self, id: PageId, state: &Page, sums: &mut Sums) -> Result<(), PagerFault> {
        let fault = |what| Err(PagerFault { what, page: Some(id) });
        sums.frames += u64::from(state.any(flag::HERE | flag::COMING));
        sums.freeing += u64::from(state.is(flag::EVICTING));
        sums.listed += u64::from(state.list != Kind::No);
        if state.slot != 0 && !sums.slots.insert(state.slot) {
            return fault("two pages have one slot");
        }
        if state.slot != 0 && !self.slots.is_used(state.slot.into()) {
            return fault("a page's slot is free");
        }
        if state.is(flag::COMING) && !self.reads.get(&state.next).is_some_and(|read| read.pages.contains(&id))
        {
            return fault("a page in flight belongs to no read");
        }
        let rests = state.is(flag::HERE)
            && !state.any(flag::UNMAPPING | flag::EVICTING | flag::DISCARD)
            && state.list == Kind::No;
        if rests {
            return fault("an idle page in memory is on no list");
        }
        Ok(())
    }

    /// Total length of all lists, by traversal.
    fn check_lists(&self) -> Result<u64, PagerFault> {
        let mut sum = 0;
        for owner in 0..self.table.regions.len() + 1 {
            for kind in [Kind::Active, Kind::Inactive, Kind::Behind, Kind::Batch] {
                let list = self.table.list(owner, kind);
                let (mut at, mut count, mut last) = (list.head, 0, NONE);
                while at != NONE && count <= list.len {
                    let id = PageId::unpack(at);
                    let page = self.table.page(id);
                    if page.list != kind || page.prev != last {
                        return Err(PagerFault { what: "a list is broken", page: Some(id) });
                    }
                    (last, at, count) = (at, page.next, count + 1);
                }
                if count != list.len || last != list.tail {
                    return Err(PagerFault { what: "a list has a wrong length", page: None });
                }
                sum += count;
            }
        }
        Ok(sum)
    }
}

/// Checks a page by itself.
fn page_fault(page: &Page) -> Option<&'static str> {
    let lives = page.any(flag::MAPPED | flag::DIRTY | flag::UNMAPPING | flag::EVICTING | flag::WRITING);
    let checks = [
        ("a page is in memory and in flight to it", page.is(flag::HERE | flag::COMING)),
        ("a page without memory has flags of one in memory", lives && !page.is(flag::HERE)),
        ("a writable page is not mapped", page.is(flag::WRITABLE) && !page.is(flag::MAPPED)),
        ("a page is written without a slot", page.is(flag::WRITING) && page.slot == 0),
        ("a dirty page has a slot", page.is(flag::DIRTY) && !page.is(flag::WRITING) && page.slot != 0),
        ("a page being evicted is on a list", page.is(flag::EVICTING) && page.list != Kind::No),
        ("a page is read without a slot", page.is(flag::COMING) && page.slot == 0),
    ];
    checks.into_iter().find(|check| check.1).map(|check| check.0)
}
