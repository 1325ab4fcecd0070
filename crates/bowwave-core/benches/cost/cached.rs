//! Reads through the cache: hits, and decisions with all that the cache does for them.

use std::hint::black_box;

use bowwave_core::{
    Action, Advice, Cache, Config, Eviction, FileId, FrameId, HandleId, Instant, PageAccess, PageCount,
    PageRange, Pins, Policy, ReadOutcome, Waiter,
};

use crate::{Calls, Random, case};

const HANDLE: HandleId = HandleId(0);
const FRAMES: u32 = 4096;
/// Pages that all hits go to.
const CACHED: u64 = 1024;
const CALLS: u64 = 1000;

/// Those that differ in what they cost.
const POLICIES: [Policy; 6] = [
    Policy::None,
    bowwave_baselines::LEGACY,
    Policy::OnDemand,
    bowwave_baselines::LINUX,
    Policy::Range,
    Policy::Stream,
];
/// Policies that set marks and are not called at other hits.
const MARKING: [Policy; 3] = [Policy::OnDemand, bowwave_baselines::LINUX, Policy::Stream];

pub(crate) fn cases() {
    for policy in POLICIES {
        case(&format!("hit of a page, {policy}"), |calls| hits(calls, policy, 1));
        case(&format!("hit of 32 pages, {policy}"), |calls| hits(calls, policy, 32));
    }
    for eviction in Eviction::ALL {
        case(&format!("second use of a page, {eviction}"), |calls| second_uses(calls, eviction));
    }
    case("first use of a page read ahead", first_uses);
    for policy in MARKING {
        case(&format!("mark with its window, {policy}"), |calls| marks(calls, policy));
    }
    for policy in POLICIES {
        case(&format!("miss in order, {policy}"), |calls| misses_in_order(calls, policy));
        case(&format!("miss in no order, {policy}"), |calls| misses_in_no_order(calls, policy));
        case(&format!("page in order with its fill, {policy}"), |calls| whole_reads(calls, policy));
    }
}

/// A cache that is a reader's alone.
struct Reader {
    cache: Cache,
    frames: Vec<FrameId>,
    out: Vec<Action>,
}

impl Reader {
    fn new(config: Config, file_pages: u64) -> Self {
        let mut cache = Cache::new(config).expect("within bounds");
        cache.open_file(FileId(0), PageCount(file_pages));
        cache.open_handle(HANDLE, FileId(0));
        Self { cache, frames: Vec::with_capacity(64), out: Vec::with_capacity(64) }
    }

    /// What a decision is measured on: memory is used up.
    fn of_policy(policy: Policy) -> Self {
        let config = Config { frames: FRAMES, reserve_frames: 256, policy, ..Config::default() };
        let mut reader = Self::new(config, 1 << 50);
        let mut random = Random(1);
        for _ in 0..2 * FRAMES {
            let page = (1 << 40) + random.below(1 << 30);
            reader.instantly(PageRange::new(page, page + 1));
        }
        reader
    }

    /// All of a small file is cached, each page used so often.
    fn warm(policy: Policy, eviction: Eviction, uses: u32) -> Self {
        let mut reader = Self::new(Config { policy, eviction, ..Config::default() }, CACHED);
        for _ in 0..uses {
            // One that was read just before would be the same use.
            for page in (0..CACHED).step_by(2).chain((1..CACHED).step_by(2)) {
                reader.instantly(PageRange::new(page, page + 1));
            }
        }
        reader
    }

    fn instantly(&mut self, range: PageRange) -> ReadOutcome {
        self.cache
            .access_instant(Instant(0), PageAccess::read(HANDLE, range), &mut ())
            .expect("there are frames enough")
    }

    /// A hit as in the engine, unpinned at once; policies that run on every access are called.
    fn hit(&mut self, range: PageRange) {
        if range.count() == PageCount(1)
            && self.cache.try_hit(PageAccess::read(HANDLE, range), Pins::Skipped, &mut self.frames)
        {
            return;
        }
        self.whole(range);
    }

    /// A read with all that follows.
    fn whole(&mut self, range: PageRange) {
        let Self { cache, frames, out } = self;
        let now = Instant(0);
        cache.access(now, Waiter(0), PageAccess::read(HANDLE, range), frames, out);
        // A hit may lead to readahead, too.
        for at in 0.. {
            match out.get_mut(at) {
                Some(&mut Action::Fill(fill)) => cache.filled(now, fill.id, Ok(()), out),
                Some(Action::Wake { result: Ok(pinned), .. }) => *frames = std::mem::take(pinned),
                Some(_) => {}
                None => break,
            }
        }
        out.clear();
        cache.unpin(now, frames, out);
    }
}

fn hits(calls: &mut Calls, policy: Policy, pages: u64) {
    let mut reader = Reader::warm(policy, Eviction::TwoList, 3);
    for call in 0..CALLS {
        let page = call * 7 % (CACHED - pages);
        calls.count(|| reader.hit(black_box(PageRange::new(page, page + pages))));
    }
}

fn second_uses(calls: &mut Calls, eviction: Eviction) {
    let mut reader = Reader::warm(Policy::None, eviction, 1);
    for call in 0..CACHED {
        // 7 and the number of pages have no common divisor: each page once.
        let page = call * 7 % CACHED;
        calls.count(|| reader.hit(black_box(PageRange::new(page, page + 1))));
    }
}

fn first_uses(calls: &mut Calls) {
    let mut reader = Reader::new(Config::default(), CACHED);
    let Reader { cache, frames, out } = &mut reader;
    cache.advise(Instant(0), HANDLE, PageRange::new(0, CACHED), Advice::WillNeed, out);
    for action in std::mem::take(out) {
        if let Action::Fill(fill) = action {
            cache.filled(Instant(0), fill.id, Ok(()), out);
        }
    }
    for page in 0..CACHED {
        let range = PageRange::new(page, page + 1);
        assert!(
            calls.count(|| cache.try_hit(PageAccess::read(HANDLE, black_box(range)), Pins::Skipped, frames)),
            "a plain hit"
        );
    }
}

/// Reads in order; what is no plain hit, once windows are large.
fn marks(calls: &mut Calls, policy: Policy) {
    let mut reader = Reader::of_policy(policy);
    for page in 0..CALLS * 20 {
        let range = PageRange::new(page, page + 1);
        if reader.cache.try_hit(PageAccess::read(HANDLE, range), Pins::Skipped, &mut reader.frames) {
            continue;
        }
        if page < CALLS {
            reader.instantly(range);
        } else {
            let misses = reader.cache.stats().misses;
            calls.count(|| reader.instantly(black_box(range)));
            assert_eq!(reader.cache.stats().misses, misses, "the page was there");
        }
    }
}

/// The second of two pages read one after the other, somewhere new each time.
fn misses_in_order(calls: &mut Calls, policy: Policy) {
    let mut reader = Reader::of_policy(policy);
    let mut random = Random(3);
    for _ in 0..CALLS {
        // At even distances that would be another pattern.
        let page = 1000 + random.below(1 << 30);
        reader.instantly(PageRange::new(page, page + 1));
        calls.count(|| reader.instantly(black_box(PageRange::new(page + 1, page + 2))));
    }
}

fn misses_in_no_order(calls: &mut Calls, policy: Policy) {
    let mut reader = Reader::of_policy(policy);
    let mut random = Random(2);
    for _ in 0..CALLS {
        let page = random.below(1 << 30);
        calls.count(|| reader.instantly(black_box(PageRange::new(page, page + 1))));
    }
}

fn whole_reads(calls: &mut Calls, policy: Policy) {
    let mut reader = Reader::of_policy(policy);
    for page in 0..CALLS {
        calls.count(|| reader.whole(black_box(PageRange::new(page, page + 1))));
    }
}
