//! Scenarios: what happens, and what the cache does about it, in one line each.
//!
//! ```text
//! initial 0+4/3 mark 1       a decision: reason, start+size/async_size, the mark
//! fill 0..4 demand           a fill, with its urgency
//! wake 7 ok 1                reader 7 continues with one page
//! ```

use bowwave_baselines::{LEGACY, LINUX, ON_DEMAND_PATCH};
use bowwave_core::{
    Action, Advice, Cache, Config, Eviction, FileId, FillError, FillId, FrameId, HandleId, Instant,
    PageAccess, PageCount, PageIndex, PageRange, Policy, ReadOutcome, Reason, Urgency, Waiter,
};

const FILE: FileId = FileId(0);
const HANDLE: HandleId = HandleId(0);
const NOW: Instant = Instant(0);

/// A cache with one file of 1000 pages, open once.
struct Scene {
    cache: Cache,
    /// Fills in flight, oldest first, with their first pages.
    fills: Vec<(FillId, u64)>,
    /// Pinned frames.
    held: Vec<Vec<FrameId>>,
}

impl Scene {
    fn new(config: Config) -> Self {
        let mut cache = Cache::new(config).expect("valid");
        cache.open_file(FILE, PageCount(1000));
        cache.open_handle(HANDLE, FILE);
        Self { cache, fills: Vec::new(), held: Vec::new() }
    }

    fn with_frames(frames: u32, reserve_frames: u32, policy: Policy) -> Self {
        Self::new(Config { frames, reserve_frames, policy, ..Config::default() })
    }

    /// Reads pages; returns `hit` or the effects.
    fn read(&mut self, start: u64, end: u64) -> Vec<String> {
        let (mut frames, mut out) = (Vec::new(), Vec::new());
        let range = PageRange::new(start, end);
        match self.cache.access(NOW, Waiter(start), PageAccess::read(HANDLE, range), &mut frames, &mut out) {
            ReadOutcome::Hit => {
                self.held.push(frames);
                let mut said = ["hit".to_string()].into();
                Vec::append(&mut said, &mut self.tell(out));
                said
            }
            ReadOutcome::Wait => self.tell(out),
        }
    }

    /// The oldest fill whose first page is `start` ends.
    fn fill(&mut self, start: u64, result: Result<(), FillError>) -> Vec<String> {
        let place =
            self.fills.iter().position(|&(_, first)| first == start).expect("such a fill is in flight");
        let (fill, _) = self.fills.remove(place);
        let mut out = Vec::new();
        self.cache.filled(NOW, fill, result, &mut out);
        self.tell(out)
    }

    fn advise(&mut self, start: u64, end: u64, advice: Advice) -> Vec<String> {
        let mut out = Vec::new();
        self.cache.advise(NOW, HANDLE, PageRange::new(start, end), advice, &mut out);
        self.tell(out)
    }

    /// Unpins all frames.
    fn unpin(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        for frames in std::mem::take(&mut self.held) {
            self.cache.unpin(NOW, &frames, &mut out);
        }
        self.tell(out)
    }

    /// Reads pages one by one and unpins them, with an instant device.
    fn walk(&mut self, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.read(page, page + 1);
            while let Some(&(_, first)) = self.fills.first() {
                self.fill(first, Ok(()));
            }
            self.unpin();
        }
    }

    fn cached(&self, pages: impl IntoIterator<Item = u64>) -> Vec<u64> {
        pages.into_iter().filter(|&page| self.cache.is_cached(FILE, PageIndex(page))).collect()
    }

    fn tell(&mut self, actions: Vec<Action>) -> Vec<String> {
        self.cache.check().expect("the invariants hold");
        let mut lines = Vec::new();
        for action in actions {
            lines.push(match action {
                Action::Decided(decided) => {
                    let window = decided.plan.window;
                    let mark = decided.mark.map_or(String::new(), |mark| format!(" mark {}", mark.0));
                    let (start, size, ahead) = (window.start.0, window.size.0, window.async_size.0);
                    format!("{} {start}+{size}/{ahead}{mark}", decided.plan.reason.name())
                }
                Action::Fill(fill) => {
                    self.fills.push((fill.id, fill.range.start.0));
                    let urgency = if fill.urgency == Urgency::Demand { "demand" } else { "readahead" };
                    format!("fill {} {urgency}", fill.range)
                }
                Action::Promote { fill } => format!("promote {}", self.first_page(fill)),
                Action::Cancel { fill } => format!("cancel {}", self.first_page(fill)),
                Action::Wake { waiter, result: Ok(frames) } => {
                    let line = format!("wake {} ok {}", waiter.0, frames.len());
                    self.held.push(frames);
                    line
                }
                Action::Wake { waiter, result: Err(error) } => format!("wake {} error {}", waiter.0, error.0),
                Action::Unmap { range, .. } => format!("unmap {range}"),
                Action::Released { range, .. } => format!("released {range}"),
                Action::Retired { frames } => format!("retired {}", frames.len()),
                Action::Accepted { .. } | Action::WriteOut(_) | Action::PromoteWrite { .. } => {
                    unreachable!("nobody writes here")
                }
                Action::Weighed(_) => unreachable!("without `explain`"),
            });
        }
        lines
    }

    fn first_page(&self, fill: FillId) -> u64 {
        self.fills.iter().find(|&&(id, _)| id == fill).map_or(u64::MAX, |&(_, first)| first)
    }
}

#[test]
fn a_mark_hit_starts_the_next_window() {
    let mut scene = Scene::new(Config::default());
    assert_eq!(scene.read(0, 1), ["initial 0+4/3 mark 1", "fill 0..4 demand"]);
    assert_eq!(scene.fill(0, Ok(())), ["wake 0 ok 1"]);
    assert_eq!(scene.read(1, 2), ["lookahead 4+8/8 mark 4", "fill 4..12 readahead", "wake 1 ok 1"]);
    assert_eq!(scene.read(2, 3), ["hit"]);
    assert_eq!(scene.cache.stats().pages_readahead, 3 + 8);
    assert_eq!(scene.cache.stats().pages_used, 2);
}

#[test]
fn a_window_of_0_pages_reads_single_pages_or_the_request() {
    for policy in [Policy::OnDemand, ON_DEMAND_PATCH, LEGACY, LINUX] {
        let mut scene = Scene::new(Config { ra_pages: 0, policy, ..Config::default() });
        let read = scene.read(0, 2);
        assert_eq!(
            read,
            ["demand 0+1/0", "fill 0..1 demand", "demand 1+1/0", "fill 1..2 demand"],
            "{policy}"
        );
    }
    for policy in [Policy::None, Policy::Range, Policy::Stream] {
        let mut scene = Scene::new(Config { ra_pages: 0, policy, ..Config::default() });
        assert_eq!(scene.read(0, 2)[1..], ["fill 0..2 demand"], "{policy}");
        scene.fill(0, Ok(()));
        scene.walk(2..64);
        assert_eq!(scene.cache.stats().pages_readahead, 0, "{policy}");
    }
}

#[test]
fn the_lookahead_size_places_the_mark() {
    let config = |la_size| Config { la_size, ..Config::default() };
    let mut scene = Scene::new(config(0));
    assert_eq!(scene.read(0, 1), ["initial 0+4/0", "fill 0..4 demand"]);
    scene.fill(0, Ok(()));
    assert_eq!(scene.read(1, 2), ["hit"]);
    scene.walk(2..4);
    // Without a mark, the next window begins when the reader misses its first page.
    assert_eq!(scene.read(4, 5), ["lookahead 4+8/0", "fill 4..12 demand"]);
    let mut scene = Scene::new(config(2));
    assert_eq!(scene.read(0, 1), ["initial 0+4/2 mark 2", "fill 0..4 demand"]);
    scene.fill(0, Ok(()));
    assert_eq!(scene.read(1, 2), ["hit"]);
    assert_eq!(scene.read(2, 3), ["lookahead 4+8/2 mark 10", "fill 4..12 readahead", "wake 2 ok 1"]);
}

#[test]
fn readahead_persists_on_cache_hits_if_so_configured() {
    for persist in [false, true] {
        let mut scene = Scene::new(Config { persist, ..Config::default() });
        // A page of an earlier random read lies where the mark of the second window goes.
        scene.walk([4]);
        scene.walk(0..2);
        let calls = scene.cache.stats().policy_calls;
        let missed = scene.cache.stats().misses;
        scene.walk(2..200);
        let stats = scene.cache.stats();
        assert_eq!(stats.misses - missed, u64::from(!persist), "the pipeline breaks at a cached mark");
        assert!(stats.policy_calls > calls);
    }
}

#[test]
fn a_demand_read_joins_a_fill_in_flight_and_promotes_it_once() {
    let mut scene = Scene::new(Config::default());
    scene.walk([0]);
    assert_eq!(scene.read(1, 2), ["lookahead 4+8/8 mark 4", "fill 4..12 readahead", "wake 1 ok 1"]);
    assert_eq!(scene.read(6, 7), ["promote 4"]);
    assert_eq!(scene.read(7, 9), Vec::<String>::new());
    assert_eq!(scene.fill(4, Ok(())), ["wake 6 ok 1", "wake 7 ok 2"]);
    let stats = scene.cache.stats();
    assert_eq!((stats.late, stats.fills_promoted, stats.misses), (3, 1, 1));
}

#[test]
fn a_failed_readahead_leaves_a_counter_and_nothing_else() {
    let mut scene = Scene::new(Config::default());
    scene.walk([0]);
    scene.read(1, 2);
    assert_eq!(scene.fill(4, Err(FillError(5))), Vec::<String>::new());
    assert_eq!(scene.cached(4..12), []);
    assert_eq!(scene.cache.stats().fills_failed, 1);
    scene.walk([2, 3]);
    assert_eq!(
        scene.read(4, 5),
        ["lookahead 12+16/16 mark 12", "fill 12..28 readahead", "demand 4+1/0", "fill 4..5 demand"],
        "what failed is read when it is wanted"
    );
}

#[test]
fn a_reader_of_a_failed_readahead_gets_its_pages_alone() {
    let mut scene = Scene::new(Config::default());
    assert_eq!(scene.read(0, 1), ["initial 0+4/3 mark 1", "fill 0..4 demand"]);
    assert_eq!(scene.fill(0, Err(FillError(5))), ["fill 0..1 demand"], "pages 1 to 3 were readahead");
    assert_eq!(scene.cached(0..4), [0]);
    assert_eq!(scene.fill(0, Ok(())), ["wake 0 ok 1"]);
}

/// The reader came while the driver dropped the readahead, and waits for all of its pages.
#[test]
fn a_reader_of_dropped_readahead_gets_its_pages_and_no_error() {
    let mut scene = Scene::new(Config::default());
    scene.walk([0]);
    scene.read(1, 2);
    assert_eq!(scene.read(4, 12), ["lookahead 12+16/16 mark 12", "fill 12..28 readahead", "promote 4"]);
    assert_eq!(scene.fill(4, Err(FillError::DROPPED)), ["fill 4..12 demand"]);
    assert_eq!(scene.fill(4, Ok(())), ["wake 4 ok 8"]);
    assert_eq!(scene.cache.stats().fills_failed, 0);
}

#[test]
fn a_failed_demand_read_wakes_with_the_error_and_a_later_read_tries_again() {
    let mut scene = Scene::with_frames(64, 0, Policy::None);
    assert_eq!(scene.read(10, 12), ["demand 10+2/0", "fill 10..12 demand"]);
    assert_eq!(scene.fill(10, Err(FillError(5))), ["wake 10 error 5"]);
    assert_eq!((scene.cache.frames_used(), scene.cached(10..12)), (0, [].into()));
    assert_eq!(scene.read(10, 12), ["demand 10+2/0", "fill 10..12 demand"]);
    assert_eq!(scene.fill(10, Ok(())), ["wake 10 ok 2"]);
}

#[test]
fn one_failed_fill_of_two_fails_the_read_and_keeps_the_other() {
    let mut scene = Scene::new(Config { policy: Policy::None, fill_pages_max: 2, ..Config::default() });
    assert_eq!(scene.read(0, 4), ["demand 0+4/0", "fill 0..2 demand", "fill 2..4 demand"]);
    assert_eq!(
        scene.fill(0, Err(FillError(5))),
        Vec::<String>::new(),
        "the read still waits for the other fill"
    );
    assert_eq!(scene.fill(2, Ok(())), ["wake 0 error 5"]);
    assert_eq!(scene.cached(0..4), [2, 3]);
    assert_eq!(scene.cache.frames_used(), 2);
}

#[test]
fn readahead_leaves_the_reserve_alone_and_demand_takes_it() {
    let mut scene = Scene::with_frames(16, 6, Policy::OnDemand);
    assert_eq!(scene.read(0, 4), ["initial 0+8/4 mark 4", "fill 0..8 demand"]);
    assert_eq!(scene.read(100, 101), ["random 100+1/0", "fill 100..101 demand"]);
    assert_eq!(
        scene.read(101, 102),
        ["miss 101+4/3", "fill 101..102 demand"],
        "10 of 16 frames are in flight"
    );
    assert_eq!(scene.cache.stats().pages_refused, 3);
    assert_eq!(scene.read(200, 206), ["random 200+6/0", "fill 200..206 demand"], "demand takes the rest");
}

#[test]
fn a_read_that_finds_no_frames_waits_in_line_for_them() {
    let mut scene = Scene::with_frames(4, 0, Policy::None);
    scene.read(0, 3);
    assert_eq!(scene.read(10, 12), Vec::<String>::new(), "one frame is left");
    assert_eq!(scene.read(20, 21), Vec::<String>::new(), "there is a frame, but others wait longer");
    assert_eq!(scene.cache.reads_starved(), 2);
    assert_eq!(scene.fill(0, Ok(())), ["wake 0 ok 3"], "still pinned");
    assert_eq!(scene.unpin(), ["demand 10+2/0", "fill 10..12 demand", "demand 20+1/0", "fill 20..21 demand"]);
    assert_eq!(scene.cache.reads_starved(), 0);
}

#[test]
fn a_read_larger_than_the_cache_fails_at_once() {
    let mut scene = Scene::with_frames(4, 0, Policy::None);
    assert_eq!(scene.read(0, 5), [format!("wake 0 error {}", FillError::TOO_LARGE.0)]);
}

#[test]
fn the_second_touch_protects_a_page_from_a_scan() {
    let mut scene = Scene::with_frames(10, 0, Policy::None);
    scene.walk([0, 1, 2]);
    scene.walk([500]);
    scene.walk([0, 1, 2]);
    scene.walk(100..140);
    assert_eq!(scene.cached(0..3), [0, 1, 2], "used twice, so a scan of 40 pages does not push them out");
}

#[test]
fn scanning_in_proportion_protects_pages_touched_twice_for_a_while_only() {
    let kept = |eviction, scanned: u64| {
        let mut scene =
            Scene::new(Config { frames: 100, policy: Policy::None, eviction, ..Config::default() });
        scene.walk((0..60).chain(0..60).chain(200..200 + scanned));
        scene.cached(0..60).len()
    };
    assert_eq!(
        kept(Eviction::TwoList, 700),
        50,
        "as many as there are inactive pages, however long the scan"
    );
    assert_eq!(kept(Eviction::Scan, 40), 60, "into free frames");
    assert!((1..60).contains(&kept(Eviction::Scan, 110)), "{}", kept(Eviction::Scan, 110));
    assert_eq!(kept(Eviction::Scan, 700), 0);
    assert_eq!(kept(Eviction::Lru, 110), 0);
}

#[test]
fn reads_within_one_page_count_as_one_touch() {
    let mut scene = Scene::with_frames(10, 0, Policy::None);
    scene.walk([0, 0, 0, 0]);
    scene.walk(100..140);
    assert_eq!(scene.cached(0..1), []);
}

#[test]
fn a_page_that_comes_back_soon_is_active_at_once() {
    let mut scene = Scene::with_frames(10, 0, Policy::None);
    scene.walk([0, 1, 2, 3, 4]);
    scene.walk([900]);
    scene.walk([0, 1, 2, 3, 4]);
    scene.walk(100..107);
    assert_eq!(scene.cached([100]), [], "evicted by the pages behind it");
    scene.walk([100]);
    let stats = scene.cache.stats();
    assert_eq!(
        (stats.refaults, stats.refaults_activated),
        (1, 1),
        "fewer evictions since than there are active pages"
    );
}

#[test]
fn thrashing_and_waste_are_counted_separately() {
    let mut scene = Scene::with_frames(16, 0, Policy::OnDemand);
    scene.walk([0]);
    assert_eq!(scene.cached(0..4), [0, 1, 2, 3]);
    scene.advise(0, 0, Advice::Random);
    scene.walk((100..132).step_by(2));
    assert_eq!(scene.cached(0..4), []);
    scene.walk([2]);
    assert_eq!(scene.cache.stats().pages_thrashed, 1, "page 2 was evicted unused and is wanted now");
    scene.walk((200..300).step_by(2));
    let stats = scene.cache.stats();
    assert_eq!((stats.pages_thrashed, stats.pages_wasted), (1, 2), "pages 1 and 3 never were");
}

#[test]
fn congestion_defers_async_readahead_which_comes_back_as_sync() {
    let mut scene = Scene::new(Config::default());
    scene.walk([0]);
    scene.cache.set_congested(true);
    assert_eq!(scene.read(1, 2), ["deferred 1+0/0", "wake 1 ok 1"]);
    assert_eq!(scene.read(2, 4), ["hit"]);
    assert_eq!(scene.read(4, 5), ["readahead 4+8/8 mark 4", "fill 4..12 demand", "deferred 4+0/0"]);
}

#[test]
fn sequential_advice_doubles_the_window_and_random_advice_ends_it() {
    let mut scene = Scene::new(Config::default());
    scene.advise(0, 0, Advice::Sequential);
    assert_eq!(scene.read(0, 40)[0], "initial 0+64/24 mark 40");
    scene.advise(0, 0, Advice::Random);
    assert_eq!(scene.read(64, 70), ["forced 64+6/0", "fill 64..70 demand"]);
    scene.advise(0, 0, Advice::Normal);
    assert_eq!(scene.read(70, 71)[0], "miss 70+4/3 mark 71");
}

#[test]
fn willneed_reads_the_range_and_dontneed_drops_what_is_idle() {
    let mut scene = Scene::new(Config::default());
    assert_eq!(scene.advise(10, 60, Advice::WillNeed), ["forced 10+50/0", "fill 10..60 readahead"]);
    scene.fill(10, Ok(()));
    assert_eq!(scene.read(10, 12), ["hit"]);
    scene.advise(0, 1000, Advice::DontNeed);
    assert_eq!(scene.cached(0..1000), [10, 11], "pinned pages stay");
    assert_eq!(scene.cache.stats().pages_wasted, 48);
}

#[test]
fn copied_pages_give_their_frames_to_the_next_fill() {
    let mut scene = Scene::new(Config::default());
    scene.advise(10, 18, Advice::WillNeed);
    scene.fill(10, Ok(()));
    scene.read(10, 12);
    scene.advise(10, 18, Advice::Copied);
    assert_eq!(scene.cached(0..1000), [10, 11, 12, 13, 14, 15, 16, 17], "pinned, or not read yet");
    scene.unpin();
    scene.advise(10, 18, Advice::Copied);
    assert_eq!(scene.cached(0..1000), [12, 13, 14, 15, 16, 17]);
    let used = scene.cache.frames_used();
    scene.walk([500, 501]);
    scene.advise(500, 502, Advice::Copied);
    assert_eq!(scene.cache.frames_used() - used, scene.cached(502..1000).len() as u32);
    let stats = scene.cache.stats();
    assert_eq!((stats.pages_evicted, stats.pages_wasted), (0, 0), "nothing was short of memory");
    scene.read(10, 11);
    assert_eq!(scene.cache.stats().refaults, 1, "its shadow says that it was used");
}

#[test]
fn noreuse_drops_pages_behind_the_reader() {
    let mut scene = Scene::new(Config::default());
    scene.advise(0, 0, Advice::NoReuse);
    scene.walk(0..20);
    assert_eq!(scene.cached(0..21), [19, 20]);
}

#[test]
fn the_end_of_the_file_cuts_windows_and_reads() {
    let mut scene = Scene::new(Config::default());
    assert_eq!(scene.read(996, 1010), ["random 996+14/0", "fill 996..1000 demand"]);
    assert_eq!(scene.fill(996, Ok(())), ["wake 996 ok 4"]);
    assert_eq!(scene.read(1000, 1001), ["hit"], "nothing is there, and nothing is missing");
    assert_eq!(scene.held.pop().map(|frames| frames.len()), Some(0));
}

#[test]
fn invalidated_pages_are_read_again_while_old_readers_keep_theirs() {
    let mut scene = Scene::with_frames(64, 0, Policy::None);
    scene.read(0, 2);
    scene.cache.invalidate(FILE, PageRange::new(0, 1000));
    assert_eq!(scene.read(1, 2), ["demand 1+1/0", "fill 1..2 demand"], "not joined to the fill from before");
    assert_eq!(scene.fill(0, Ok(())), ["wake 0 ok 2"]);
    assert_eq!(scene.fill(1, Ok(())), ["wake 1 ok 1"]);
    scene.unpin();
    assert_eq!((scene.cached(0..2), scene.cache.frames_used()), ([1].into(), 1));
}

#[test]
fn closing_the_last_handle_cancels_readahead_without_waiters() {
    let mut scene = Scene::new(Config::default());
    scene.walk([0]);
    scene.read(1, 2);
    let mut out = Vec::new();
    scene.cache.close_handle(NOW, HANDLE, &mut out);
    assert_eq!(scene.tell(out), ["cancel 4"]);
    scene.cache.open_handle(HANDLE, FILE);
    assert_eq!(scene.read(5, 6), ["promote 4"], "someone wants it after all");
    assert_eq!(scene.fill(4, Err(FillError::CLOSED)), ["fill 5..6 demand"], "the driver had dropped it");
    assert_eq!(scene.fill(5, Ok(())), ["wake 5 ok 1"]);
}

#[test]
fn frames_are_lent_and_given_back() {
    let mut scene = Scene::with_frames(8, 1, Policy::None);
    scene.walk(0..8);
    let mut out = Vec::new();
    scene.cache.grant(NOW, 4, &mut out);
    assert_eq!(scene.cache.frame_limit(), 12);
    scene.cache.revoke(6, &mut out);
    assert_eq!(scene.tell(out), ["retired 2"], "four were never used and have no memory");
    assert_eq!((scene.cache.frame_limit(), scene.cache.frames_used()), (6, 6));
    let mut out = Vec::new();
    scene.cache.revoke(100, &mut out);
    assert_eq!(scene.cache.frame_limit(), 2, "the reserve and one more stay");
}

#[test]
fn long_plans_become_several_fills() {
    let mut scene = Scene::new(Config { fill_pages_max: 8, ..Config::default() });
    let lines = scene.read(0, 9);
    assert_eq!(
        lines,
        [
            "initial 0+32/23 mark 9",
            "fill 0..8 demand",
            "fill 8..16 demand",
            "fill 16..24 readahead",
            "fill 24..32 readahead"
        ]
    );
    scene.fill(8, Ok(()));
    assert_eq!(scene.fill(0, Ok(())), ["wake 0 ok 9"], "without waiting for the rest");
    assert_eq!(scene.cache.stats().decided(Reason::Initial), 1);
}

#[test]
fn a_policy_that_runs_on_every_access_reads_ahead_at_hits_too() {
    let mut scene = Scene::with_frames(Config::UNLIMITED, 0, LEGACY);
    assert_eq!(scene.read(0, 1), ["initial 0+4/0", "fill 0..4 demand"]);
    assert_eq!(scene.fill(0, Ok(())), ["wake 0 ok 1"]);
    assert_eq!(scene.read(1, 2), ["hit", "ahead 4+8/0", "fill 4..12 readahead"]);
    // In flight, so no hit: it waits, and the policy is still called.
    assert_eq!(scene.read(2, 5), ["ahead 12+16/0", "fill 12..28 readahead", "promote 4"]);
    assert_eq!(scene.fill(4, Ok(())), ["wake 2 ok 3"]);
}

#[test]
fn pages_that_such_a_policy_omits_are_read_page_by_page() {
    let mut scene = Scene::with_frames(Config::UNLIMITED, 0, LEGACY);
    scene.advise(0, 0, Advice::Random);
    let said = scene.read(7, 9);
    assert_eq!(said, ["demand 7+1/0", "fill 7..8 demand", "demand 8+1/0", "fill 8..9 demand"]);
    assert_eq!(scene.cache.stats().policy_calls, 2);
}

#[test]
fn policy_calls_and_lookups_count_as_in_linux() {
    let walk = |policy| {
        let mut scene = Scene::with_frames(Config::UNLIMITED, 0, policy);
        let mut counts = Vec::new();
        for page in [0, 1, 2, 3] {
            scene.read(page, page + 1);
            while let Some(&(_, first)) = scene.fills.first() {
                scene.fill(first, Ok(()));
            }
            let stats = scene.cache.stats();
            counts.push((stats.policy_calls, stats.lookups()));
        }
        counts
    };
    // On demand: a miss looks up the page twice and the window of 4 once; the mark at page 1 only
    // the next window, 8.
    assert_eq!(walk(Policy::OnDemand), [(1, 1 + 1 + 4), (2, 6 + 1 + 8), (2, 16), (2, 17)]);
    // 2.6.20 is called at every read, before the lookup.
    assert_eq!(walk(LEGACY), [(1, 1 + 4), (2, 5 + 1 + 8), (3, 15), (4, 16)]);
}

#[test]
fn reading_a_cached_file_again_costs_2_6_20_calls_and_lookups_and_on_demand_none() {
    let reread = |policy| {
        let mut scene = Scene::with_frames(Config::UNLIMITED, 0, policy);
        scene.advise(0, 1000, Advice::WillNeed);
        while let Some(&(_, first)) = scene.fills.first() {
            scene.fill(first, Ok(()));
        }
        let before = scene.cache.stats();
        for page in (0..800).step_by(4) {
            assert_eq!(scene.read(page, page + 4)[0], "hit");
        }
        let after = scene.cache.stats();
        (after.policy_calls - before.policy_calls, after.lookups() - before.lookups())
    };
    assert_eq!(reread(Policy::OnDemand), (0, 800));
    // Windows of 8, 16 and eight times 32 pages are found cached until they make 256, the last of
    // them when the reader crosses into the window at 216. A call for each read up to that one,
    // then one for each page.
    let windows = 8 + 16 + 8 * 32;
    let reads = (8 + 16 + 6 * 32) / 4 + 1;
    assert_eq!(reread(LEGACY), (reads + (800 - 4 * reads), 800 + windows));
}

#[test]
fn a_copied_handle_continues_from_its_source_and_does_not_change_it() {
    let read = |cache: &mut Cache, handle, start| {
        let (mut frames, mut out) = (Vec::new(), Vec::new());
        cache.access(
            NOW,
            Waiter(start),
            PageAccess::read(handle, PageRange::new(start, start + 2)),
            &mut frames,
            &mut out,
        );
        out.iter().filter(|action| matches!(action, Action::Fill(_))).count()
    };
    for policy in [LEGACY, Policy::OnDemand, ON_DEMAND_PATCH, LINUX] {
        let mut scene = Scene::new(Config { policy, ..Config::default() });
        let copy = HandleId(1);
        scene.cache.open_handle(copy, FILE);
        scene.read(500, 502);
        scene.cache.copy_handle(HANDLE, copy);
        // A new handle would take this for a random read and request only the page.
        read(&mut scene.cache, copy, 502);
        let pages = scene.cache.stats().pages_filled;
        assert!(pages > 4, "{policy}: {pages} pages");
        // The source is unchanged.
        read(&mut scene.cache, copy, 900);
        let before = scene.cache.stats().decided(Reason::Random);
        read(&mut scene.cache, HANDLE, 502);
        assert_eq!(scene.cache.stats().decided(Reason::Random), before, "{policy}");
    }
}
