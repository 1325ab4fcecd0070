//! What the cache reports to a policy of another crate.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bowwave_core::{
    Access, Cache, Capabilities, Config, FileId, FileMemory, HandleId, Instant, PageAccess, PageCount,
    PageIndex, PageRange, Plan, Plans, Policy, PolicyKind, Readahead, Reason, View,
};

/// Evicted pages, and whether they were used.
static EVICTED: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Eight;

impl PolicyKind for Eight {
    fn name(&self) -> &'static str {
        "eight"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { per_file: true, evictions: true, ..Capabilities::default() }
    }

    fn build(&self, _config: &Config, _file: &mut FileMemory) -> Box<dyn Readahead> {
        Box::new(State)
    }
}

#[derive(Clone, Debug)]
struct State;

impl Readahead for State {
    /// A miss reads eight pages.
    fn on_access(&mut self, access: Access, _view: View<'_>, plans: &mut Plans) {
        plans.push(Plan::new(access.page, 8, 0, Reason::Miss));
    }

    fn on_evict(&mut self, page: PageIndex, used: bool) {
        EVICTED.lock().unwrap_or_else(PoisonError::into_inner).push((page.0, used));
    }
}

#[test]
fn a_policy_learns_of_each_evicted_page_and_of_its_use() {
    let config = Config { policy: Policy::Other(&Eight), frames: 64, reserve_frames: 0, ..Config::default() };
    let mut cache = Cache::new(config).expect("a valid configuration");
    cache.open_file(FileId(0), PageCount(8000));
    cache.open_handle(HandleId(0), FileId(0));
    let mut read = BTreeSet::new();
    for step in 0..400 {
        // Two of eight pages each time.
        for page in [step * 8, step * 8 + 3] {
            read.insert(page);
            let page = PageRange::new(page, page + 1);
            cache
                .access_instant(Instant(0), PageAccess::read(HandleId(0), page), &mut ())
                .expect("the cache has frames");
        }
    }
    let evicted = EVICTED.lock().expect("no test fails with it");
    assert_eq!(evicted.len() as u64, cache.stats().pages_evicted);
    assert!(evicted.len() > 3000, "{}", evicted.len());
    assert!(evicted.iter().all(|&(page, used)| used == read.contains(&page)), "{evicted:?}");
}
