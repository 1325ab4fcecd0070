//! Accesses for a policy without a cache: those that its own plans lead to.

use bowwave_core::{Access, PageIndex, PageRange, Trigger};

/// Calls the policy; returns the mark of its plan.
pub(crate) type Decide<'a> = dyn FnMut(Access) -> Option<PageIndex> + 'a;

/// Pages of the largest window.
pub(crate) const WINDOW: u64 = 32;

/// Streams in turns; each reaches the mark of its last plan.
pub(crate) fn upward(streams: u64, calls: u64, decide: &mut Decide<'_>) {
    let mut marks: Vec<u64> = (0..streams).map(|n| (1 + n) * 1_000_003_000 + n * n * 77_777).collect();
    for mark in &mut marks {
        decide(access(*mark, None, Trigger::Miss));
        *mark = marked(decide(access(*mark + 1, Some(*mark), Trigger::Miss)), *mark + 2);
    }
    for call in 0..calls {
        let mark = &mut marks[(call % streams) as usize];
        *mark = marked(decide(access(*mark, Some(*mark - 1), Trigger::Mark)), *mark + WINDOW);
    }
}

/// One stream downward.
pub(crate) fn backward(calls: u64, decide: &mut Decide<'_>) {
    let mut page = 1 << 40;
    for _ in 0..3 {
        page -= 1;
        decide(access(page, Some(page + 1), Trigger::Miss));
    }
    for _ in 0..calls {
        page = marked(decide(access(page - 1, Some(page), Trigger::Mark)), page - WINDOW);
    }
}

/// Readers of 4 pages each 1000, by turns.
pub(crate) fn strided(readers: u64, calls: u64, decide: &mut Decide<'_>) {
    let mut at: Vec<u64> = (0..readers).map(|n| (1 + n) * 3_000_000_000 + n * n * 12_345).collect();
    for call in 0..calls {
        let page = &mut at[(call % readers) as usize];
        let request = PageRange::new(*page, *page + 4);
        let mark = decide(Access::read(request, Some(PageIndex(*page - 900)), Trigger::Miss));
        *page = marked(mark, *page) + 1000;
    }
}

/// Random reads, in clusters of `cluster` reads.
pub(crate) fn random(cluster: u64, calls: u64, decide: &mut Decide<'_>) {
    let mut state = 1u64;
    for call in 0..calls {
        if call % cluster == 0 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        let page = state >> 24;
        decide(access(page + call % cluster * 3, Some(page / 2), Trigger::Miss));
    }
}

fn access(page: u64, prev: Option<u64>, trigger: Trigger) -> Access {
    Access::read(PageRange::new(page, page + 1), prev.map(PageIndex), trigger)
}

fn marked(mark: Option<PageIndex>, otherwise: u64) -> u64 {
    mark.map_or(otherwise, |mark| mark.0)
}
