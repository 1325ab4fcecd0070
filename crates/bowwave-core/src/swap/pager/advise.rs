//! Advice on memory.

use alloc::vec::Vec;

use super::event::{PageId, PagerAction, RegionAdvice, RegionId};
use super::table::{Kind, flag};
use super::{Pager, push, single};
use crate::page::{PageIndex, PageRange};
use crate::time::Instant;

/// Remembered advice ranges of a region; the oldest is forgotten first.
const ADVICE_MAX: usize = 64;

impl Pager {
    /// Applies advice to a range of a region. Pages outside of the region are ignored.
    pub fn advise(
        &mut self,
        now: Instant,
        region: RegionId,
        range: PageRange,
        advice: RegionAdvice,
        out: &mut Vec<PagerAction>,
    ) {
        let Some(state) = self.table.region(region).filter(|region| !region.dying) else { return };
        let range = range.intersect(state.all());
        match advice {
            RegionAdvice::Normal | RegionAdvice::Sequential | RegionAdvice::Random => {
                let advised = &mut self.table.region_mut(region).advised;
                advised.retain(|(other, _)| other.intersect(range) != *other);
                if !range.is_empty() && (advice != RegionAdvice::Normal || !advised.is_empty()) {
                    if advised.len() == ADVICE_MAX {
                        advised.remove(0);
                    }
                    advised.push((range, advice));
                }
            }
            RegionAdvice::WillNeed => {
                let room = usize::try_from(self.room_ahead()).unwrap_or(usize::MAX);
                let pages = state.known(range).map(|page| PageId { region, page });
                let is_out = |id: &PageId| {
                    let page = state.page(id.page);
                    page.slot != 0 && !page.any(flag::HERE | flag::COMING)
                };
                let pages = pages.filter(is_out).take(room).collect();
                self.submit(now, None, pages, out);
            }
            RegionAdvice::DontNeed => self.discard(region, range, out),
            RegionAdvice::PageOut => self.page_out_range(region, range, out),
        }
        self.balance(now, out);
    }

    /// Discards the contents of pages.
    pub(super) fn discard(&mut self, region: RegionId, range: PageRange, out: &mut Vec<PagerAction>) {
        self.each_known(region, range, |pager, id| {
            let state = pager.table.page(id);
            if state.any(flag::COMING | flag::UNMAPPING | flag::WRITING) {
                // Its memory or slot is in use: it is discarded when that ends, and unmapped now.
                if state.is(flag::WRITING | flag::MAPPED) && !state.is(flag::UNMAPPING) {
                    pager.start_unmapping(id, out);
                }
                pager.unlist_here(id);
                pager.table.page_mut(id).set(flag::DISCARD);
            } else if state.any(flag::HERE) || state.slot != 0 {
                pager.forget(id, out);
            }
        });
    }

    /// Calls a function for each page of a range that was ever touched, in order.
    fn each_known(
        &mut self,
        region: RegionId,
        mut range: PageRange,
        mut change: impl FnMut(&mut Self, PageId),
    ) {
        while let Some(known) = self.table.region(region).and_then(|region| region.next_known(range)) {
            (known.start.0..known.end.0)
                .for_each(|page| change(self, PageId { region, page: PageIndex(page) }));
            range.start = known.end;
        }
    }

    /// Pages out a range, as if reclaim had chosen it.
    fn page_out_range(&mut self, region: RegionId, range: PageRange, out: &mut Vec<PagerAction>) {
        self.each_known(region, range, |pager, id| {
            let state = pager.table.page(id);
            if state.is(flag::HERE)
                && !state.any(flag::UNMAPPING | flag::WRITING | flag::EVICTING | flag::DISCARD)
            {
                pager.choose(id, out);
            }
        });
    }

    /// Chooses a page for eviction: removes it from its list, and unmaps it if it is mapped.
    pub(super) fn choose(&mut self, id: PageId, out: &mut Vec<PagerAction>) {
        self.unlist(id);
        self.freeing += 1;
        let page = self.table.page_mut(id);
        page.set(flag::EVICTING);
        page.clear(flag::REFERENCED);
        if page.is(flag::MAPPED) {
            self.unmapping += 1;
            self.start_unmapping(id, out);
        } else {
            self.outgoing.push(id);
        }
    }

    pub(super) fn start_unmapping(&mut self, id: PageId, out: &mut Vec<PagerAction>) {
        self.table.page_mut(id).set(flag::UNMAPPING);
        self.table.region_mut(id.region).in_flight += 1;
        push(out, PagerAction::Unmap { region: id.region, pages: single(id.page) });
    }

    fn unlist_here(&mut self, id: PageId) {
        if self.table.page(id).list != Kind::No {
            self.unlist(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageCount;
    use crate::swap::pager::PagerConfig;

    /// Regression: advice on pages outside the region made the region forget its oldest advice.
    #[test]
    fn advice_outside_the_region_changes_nothing() {
        let mut pager = Pager::new(PagerConfig::own(1000, 10_000)).expect("within bounds");
        let region = RegionId(0);
        pager.add_region(region, PageIndex(0), PageCount(1000)).expect("a new region");
        let mut out = Vec::new();
        for at in 0..ADVICE_MAX as u64 {
            let range = PageRange::new(2 * at, 2 * at + 1);
            pager.advise(Instant(0), region, range, RegionAdvice::Random, &mut out);
        }
        let outside = PageRange::new(5000, 6000);
        pager.advise(Instant(0), region, outside, RegionAdvice::Random, &mut out);
        let advice = pager.table.region(region).map(|region| region.advice(PageIndex(0)));
        assert_eq!(advice, Some(RegionAdvice::Random));
    }
}
