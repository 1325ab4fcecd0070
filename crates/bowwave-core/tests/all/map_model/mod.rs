//! Threads that touch a mapped file of a high-latency store, in virtual time: a model of regions
//! without memory.
//!
//! A touch of an unmapped page is a fault. If the page is cached, it is mapped with its neighbours:
//! of unused readahead at most as many pages as the thread has touched in order. Otherwise the
//! thread waits. A request takes a constant time plus a time for each page, however many are in
//! flight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bowwave_core::{
    Action, Cache, Config, Fault, FileId, FillId, FrameId, HandleId, Instant, PageAccess, PageCount,
    PageIndex, PageRange, Pattern, Waiter,
};

const FILE: FileId = FileId(0);
/// Pages mapped on either side of a touch, and the least number of unused ones.
const AROUND: u64 = 64;
const UNREAD_MIN: u64 = 16;
/// Nanoseconds of a touch, and of a fault that finds its page.
const TOUCH_NS: u64 = 500;
const FAULT_NS: u64 = 10_000;

/// A store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Far {
    pub(crate) request_ns: u64,
    pub(crate) page_ns: u64,
}

/// Results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) touches: u64,
    pub(crate) faults: u64,
    /// Faults that waited for the store.
    pub(crate) waits: u64,
    pub(crate) requests: u64,
    pub(crate) pages: u64,
    pub(crate) ns: u64,
}

#[derive(Debug)]
struct Toucher {
    pages: Vec<u64>,
    at: usize,
    /// Start of the last sequential run, and the end of the pages mapped for it.
    run: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Filled(u64),
    Touch(usize),
}

struct Model {
    cache: Cache,
    store: Far,
    touchers: Vec<Toucher>,
    mapped: Vec<bool>,
    agenda: BinaryHeap<Reverse<(u64, u64, Next)>>,
    /// Events at the same time run in the order of their planning.
    planned: u64,
    cost: Cost,
}

/// Each thread touches its pages in order, all at once.
pub(crate) fn touch(config: Config, store: Far, file_pages: u64, threads: Vec<Vec<u64>>) -> Cost {
    let mut cache = Cache::new(config).expect("valid");
    cache.open_file(FILE, PageCount(file_pages));
    cache.map_by_offset(FILE);
    for thread in 0..threads.len() {
        cache.open_handle(handle(thread), FILE);
    }
    let touchers = threads.into_iter().map(|pages| Toucher { pages, at: 0, run: (0, 0) }).collect();
    let mut model = Model {
        cache,
        store,
        touchers,
        mapped: vec![false; usize::try_from(file_pages).expect("a small file")],
        agenda: BinaryHeap::new(),
        planned: 0,
        cost: Cost::default(),
    };
    for thread in 0..model.touchers.len() {
        model.plan(0, Next::Touch(thread));
    }
    model.run();
    model.cost
}

impl Model {
    fn run(&mut self) {
        while let Some(Reverse((now, _, next))) = self.agenda.pop() {
            self.cost.ns = now;
            let mut out = Vec::new();
            match next {
                Next::Filled(fill) => self.cache.filled(Instant(now), FillId(fill), Ok(()), &mut out),
                Next::Touch(thread) => self.touch(now, thread, &mut out),
            }
            self.act(now, out);
        }
        assert!(
            self.touchers.iter().all(|toucher| toucher.at == toucher.pages.len()),
            "a thread still waits"
        );
    }

    fn plan(&mut self, at: u64, next: Next) {
        self.agenda.push(Reverse((at, self.planned, next)));
        self.planned += 1;
    }

    /// A thread touches all pages that it has mapped, and then an unmapped one.
    fn touch(&mut self, now: u64, thread: usize, out: &mut Vec<Action>) {
        let toucher = &mut self.touchers[thread];
        let mut spent = 0;
        while let Some(&page) = toucher.pages.get(toucher.at) {
            if !self.mapped[page as usize] {
                break;
            }
            toucher.at += 1;
            self.cost.touches += 1;
            spent += TOUCH_NS;
        }
        let Some(&page) = toucher.pages.get(toucher.at) else { return };
        if spent > 0 {
            return self.plan(now + spent, Next::Touch(thread));
        }
        self.cost.faults += 1;
        let fault = Fault { page: PageIndex(page), pattern: Pattern::Normal };
        self.cache.access(
            Instant(now),
            Waiter(thread as u64),
            PageAccess::fault(handle(thread), fault),
            &mut Vec::new(),
            out,
        );
        let found =
            |action: &Action| matches!(action, Action::Wake { waiter, .. } if waiter.0 == thread as u64);
        self.cost.waits += u64::from(!out.iter().any(found));
    }

    fn act(&mut self, now: u64, mut out: Vec<Action>) {
        self.cache.report_mappings(&mut out);
        while !out.is_empty() {
            for action in std::mem::take(&mut out) {
                match action {
                    Action::Fill(fill) => {
                        self.cost.requests += 1;
                        self.cost.pages += fill.range.count().0;
                        let took = self.store.request_ns + self.store.page_ns * fill.range.count().0;
                        self.plan(now + took, Next::Filled(fill.id.0));
                    }
                    Action::Wake { waiter, result } => {
                        self.map(now, waiter.0 as usize, &result.expect("nothing fails"), &mut out);
                    }
                    Action::Unmap { .. } | Action::Released { .. } => {
                        panic!("the cache has a frame for every page")
                    }
                    _ => {}
                }
            }
        }
    }

    /// The page that a thread waited for has arrived.
    fn map(&mut self, now: u64, thread: usize, frames: &[FrameId], out: &mut Vec<Action>) {
        let toucher = &mut self.touchers[thread];
        let page = toucher.pages[toucher.at];
        let (start, end) = toucher.run;
        let start = if page == end { start } else { page };
        let around = PageRange::new(page.saturating_sub(AROUND), page + AROUND);
        let unread = PageCount((page - start).max(UNREAD_MIN));
        let mut range = self.cache.mappable(FILE, PageIndex(page), around, unread);
        if range.is_empty() {
            // Another thread was faster.
            range = PageRange::new(page, page + 1);
        }
        self.cache.mapped(handle(thread), PageIndex(page), range);
        toucher.run = (start, range.end.0);
        self.mapped[range.start.0 as usize..range.end.0 as usize].fill(true);
        self.cache.unpin(Instant(now), frames, out);
        self.plan(now + FAULT_NS, Next::Touch(thread));
    }
}

fn handle(thread: usize) -> HandleId {
    HandleId(u32::try_from(thread).expect("few threads"))
}
