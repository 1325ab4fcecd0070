//! Requests in the scheduler, and faults of swapped memory.

use std::hint::black_box;

use bowwave_core::schedule::{Algorithm, Direction, Priority, Request, Scheduler, SchedulerConfig};
use bowwave_core::swap::SwapPolicy;
use bowwave_core::swap::pager::{PageId, Pager, PagerAction, PagerConfig, RegionId, Touch};
use bowwave_core::{Instant, PageCount, PageIndex, Urgency, Waiter};

use crate::{Calls, Random, case};

const CALLS: u64 = 1000;
/// Requests that wait.
const WAITING: u64 = 32;
/// Bytes of a request.
const BYTES: u64 = 1 << 17;

const FRAMES: u64 = 1024;
/// Pages of the region: four times what there is memory for.
const PAGES: u64 = 4096;

pub(crate) fn cases() {
    for algorithm in [Algorithm::Noop, bowwave_baselines::DEADLINE_RW, Algorithm::Deadline] {
        case(&format!("request added, {algorithm}"), |calls| {
            requests(algorithm, |scheduler, now, request| {
                assert!(!calls.count(|| scheduler.add(now, black_box(request))).merged, "it stands alone");
                assert!(serve(scheduler, now), "one waits");
            });
        });
        case(&format!("request dispatched and completed, {algorithm}"), |calls| {
            requests(algorithm, |scheduler, now, request| {
                scheduler.add(now, request);
                assert!(calls.count(|| serve(scheduler, now)), "one waits");
            });
        });
    }
    case("request merged, deadline", merged);
    for policy in [bowwave_baselines::CLUSTER, SwapPolicy::Vma, SwapPolicy::Adaptive] {
        let name = policy.name();
        case(&format!("fault in order, {name}"), |calls| faults(calls, policy, true));
        case(&format!("fault in no order, {name}"), |calls| faults(calls, policy, false));
    }
}

/// Arrivals equal completions: three of four are demand reads, the others write-back.
fn requests(algorithm: Algorithm, mut step: impl FnMut(&mut Scheduler, Instant, Request)) {
    let mut scheduler = scheduler(algorithm);
    let mut random = Random(3);
    for number in 0..CALLS + WAITING {
        let now = Instant(number * 100_000);
        let (urgency, direction) = match number % 4 {
            0 => (Urgency::Readahead, Direction::Write),
            _ => (Urgency::Demand, Direction::Read),
        };
        // Every second place, so that none lies next to another.
        let start = random.below(1 << 20) * 2 * BYTES;
        let request = request(start, urgency, direction);
        if number < WAITING {
            scheduler.add(now, request);
        } else {
            step(&mut scheduler, now, request);
        }
    }
}

fn serve(scheduler: &mut Scheduler, now: Instant) -> bool {
    let dispatch = scheduler.dispatch(now);
    dispatch.is_some_and(|dispatch| scheduler.complete(now, dispatch.id))
}

/// Each request lies behind the one before, up to what a request may have.
fn merged(calls: &mut Calls) {
    let mut scheduler = scheduler(Algorithm::Deadline);
    for number in 0..CALLS {
        let now = Instant(number * 100_000);
        let start = number * 4096;
        let request = Request { end: start + 4096, ..request(start, Urgency::Demand, Direction::Read) };
        if number % 8 == 0 {
            serve(&mut scheduler, now);
            scheduler.add(now, request);
        } else {
            assert!(calls.count(|| scheduler.add(now, black_box(request))).merged, "it lies behind another");
        }
    }
}

fn scheduler(algorithm: Algorithm) -> Scheduler {
    Scheduler::new(SchedulerConfig::of(algorithm)).expect("within bounds")
}

fn request(start: u64, urgency: Urgency, direction: Direction) -> Request {
    Request { start, end: start + BYTES, direction, object: 1, urgency, priority: Priority::BestEffort }
}

/// Touches of pages that are on the store: up to the read that each asks for, and the making of
/// room.
fn faults(calls: &mut Calls, policy: SwapPolicy, in_order: bool) {
    let mut memory = Memory::new(policy);
    let mut random = Random(4);
    for number in 0..2 * PAGES {
        memory.touch(number % PAGES, None);
    }
    for number in 0..4 * CALLS {
        let page = if in_order { number % PAGES } else { random.below(PAGES) };
        memory.touch(page, Some(&mut *calls));
    }
}

const REGION: RegionId = RegionId(0);

/// A driver whose store takes a tenth of a millisecond.
struct Memory {
    pager: Pager,
    now: u64,
    out: Vec<PagerAction>,
}

impl Memory {
    fn new(policy: SwapPolicy) -> Self {
        let config = PagerConfig { policy, ..PagerConfig::own(FRAMES, 2 * PAGES) };
        let mut pager = Pager::new(config).expect("within bounds");
        pager.add_region(REGION, PageIndex(0), PageCount(PAGES)).expect("the first");
        Self { pager, now: 0, out: Vec::with_capacity(256) }
    }

    /// A store to a page with all that follows, counted if the page is on the store.
    fn touch(&mut self, page: u64, calls: Option<&mut Calls>) {
        let id = PageId { region: REGION, page: PageIndex(page) };
        self.now += 1000;
        if self.pager.is_mapped(id, Touch::Store) {
            return;
        }
        let calls = calls.filter(|_| !self.pager.is_in_memory(id));
        let mut touch =
            || self.pager.touch(Instant(self.now), Waiter(0), black_box(id), Touch::Store, &mut self.out);
        match calls {
            Some(calls) => calls.count(touch),
            None => touch(),
        };
        self.now += 100_000;
        self.act();
    }

    fn act(&mut self) {
        let now = Instant(self.now);
        while !self.out.is_empty() {
            for action in std::mem::take(&mut self.out) {
                let out = &mut self.out;
                match action {
                    PagerAction::Read(read) => assert!(self.pager.read_done(now, read.id, Ok(()), out)),
                    PagerAction::Write(write) => {
                        assert!(self.pager.written(now, write.id, Ok(()), &[], out));
                    }
                    PagerAction::Unmap { region, pages } => {
                        self.pager.unmapped(now, region, pages, None, out);
                    }
                    _ => {}
                }
            }
        }
    }
}
