//! A complete readahead policy of another crate, and a cache that runs it.
//!
//! `cargo run -p bowwave-core --example policy`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use bowwave_core::{
    Access, Cache, Config, FileId, FileMemory, HandleId, Instant, PageAccess, PageCount, PageIndex,
    PageRange, Plan, Plans, Policy, PolicyKind, Readahead, Reason, Trigger, View,
};

/// The policy: `Config { policy: DOUBLING, .. }` turns it on.
pub(crate) const DOUBLING: Policy = Policy::Other(&Doubling);

#[derive(Debug)]
struct Doubling;

impl PolicyKind for Doubling {
    fn name(&self) -> &'static str {
        "doubling"
    }

    fn build(&self, _config: &Config, _file: &mut FileMemory) -> Box<dyn Readahead> {
        Box::new(Handle::default())
    }
}

/// The last window of a handle.
#[derive(Clone, Debug, Default)]
struct Handle {
    end: PageIndex,
    size: u64,
}

impl Readahead for Handle {
    /// A miss reads the request and as much behind it; a mark reads a window of twice the size.
    fn on_access(&mut self, access: Access, view: View<'_>, plans: &mut Plans) {
        let (start, request, reason) = match access.trigger {
            Trigger::Mark => (self.end, 0, Reason::Lookahead),
            _ => (access.page, access.req_pages(), Reason::Miss),
        };
        let largest = view.ra_pages.max(request);
        self.size = if request > 0 { request * 2 } else { self.size * 2 }.min(largest);
        self.end = start + PageCount(self.size);
        plans.push(Plan::new(start, self.size, self.size - request, reason));
    }
}

fn main() {
    let config = Config { policy: DOUBLING, ..Config::default() };
    let mut cache = Cache::new(config).expect("the default configuration is valid");
    cache.open_file(FileId(0), PageCount(1000));
    cache.open_handle(HandleId(0), FileId(0));
    for page in 0..1000 {
        let page = PageRange::new(page, page + 1);
        cache
            .access_instant(Instant(0), PageAccess::read(HandleId(0), page), &mut ())
            .expect("the cache has frames");
    }
    let stats = cache.stats();
    println!("{} hits and {} misses in {} fills", stats.hits, stats.misses, stats.fills);
}
