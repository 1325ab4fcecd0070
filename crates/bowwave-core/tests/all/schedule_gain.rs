//! How many async requests a distant store has at once: as many as are worth it.

use bowwave_core::schedule::{
    Algorithm, Direction, DispatchId, Priority, Request, Scheduler, SchedulerConfig,
};
use bowwave_core::{Instant, Urgency};

const MS: u64 = 1_000_000;
const LENGTH: u64 = 256 << 10;
const SLOTS: usize = 64;

/// What came of some seconds.
#[derive(Debug)]
struct Seen {
    async_bytes: u64,
    /// Average of what sync requests took, queue and device, in ms.
    sync_ms: u64,
    limit: u32,
}

/// Ten seconds of a store that answers after 30 ms and gives each request 90 MB/s, behind a link of
/// `link_mb_s` MB/s, one request's bytes after the other's: readahead that never ends, and a read of 4
/// KiB after the other.
fn ten_seconds(config: SchedulerConfig, link_mb_s: u64) -> Seen {
    let mut scheduler = Scheduler::new(config).expect("it is valid");
    let mut at_store: Vec<(u64, DispatchId, Request, u64)> = Vec::new();
    let (mut now, mut place, mut link_free) = (0, 0, 0);
    let (mut async_bytes, mut sync_ns, mut syncs) = (0, 0, 0);
    let mut add = |scheduler: &mut Scheduler, now, urgency| {
        let bytes = if urgency == Urgency::Demand { 4096 } else { LENGTH };
        // Apart from each other, so that nothing is merged.
        place += 2 * LENGTH;
        let (direction, priority) = (Direction::Read, Priority::default());
        let request =
            Request { start: place, end: place + bytes, direction, object: place, urgency, priority };
        scheduler.add(Instant(now), request);
    };
    add(&mut scheduler, 0, Urgency::Demand);
    for _ in 0..4 * SLOTS {
        add(&mut scheduler, 0, Urgency::Readahead);
    }
    while now < 10_000 * MS {
        while at_store.len() < SLOTS
            && let Some(dispatch) = scheduler.dispatch(Instant(now))
        {
            let bytes = dispatch.request.end - dispatch.request.start;
            let own = now + 30 * MS + bytes * 1000 / 90;
            link_free = u64::max(link_free, now + 30 * MS) + bytes * 1000 / link_mb_s;
            at_store.push((own.max(link_free), dispatch.id, dispatch.request, dispatch.added.0));
        }
        let next = (0..at_store.len()).min_by_key(|&at| at_store[at].0).expect("there is always readahead");
        let (done, id, request, added) = at_store.swap_remove(next);
        now = done;
        assert!(scheduler.complete(Instant(now), id));
        add(&mut scheduler, now, request.urgency);
        if request.urgency == Urgency::Demand {
            (sync_ns, syncs) = (sync_ns + now - added, syncs + 1);
        } else {
            async_bytes += request.end - request.start;
        }
    }
    Seen { async_bytes, sync_ms: sync_ns / syncs / MS, limit: scheduler.async_depth() }
}

fn of_a_store() -> SchedulerConfig {
    SchedulerConfig {
        seeks: false,
        async_depth_max: 62,
        sync_slowdown_max: u32::MAX,
        sync_fast_ns: 60 * MS,
        ..SchedulerConfig::of(Algorithm::Deadline)
    }
}

fn by_gain() -> SchedulerConfig {
    SchedulerConfig { async_depth_start: 15, sync_slowdown_max: 2, ..of_a_store() }
}

#[test]
fn behind_a_link_that_few_requests_fill_demand_does_not_stand_behind_many() {
    let (all, few) = (ten_seconds(of_a_store(), 60), ten_seconds(by_gain(), 60));
    assert!(all.sync_ms > 200, "{all:?}");
    assert!(few.sync_ms < 80 && few.limit < 16, "{few:?}");
    assert!(few.async_bytes >= all.async_bytes * 97 / 100, "{few:?} of {all:?}");
}

#[test]
fn where_each_request_carries_as_much_as_the_last_all_are_used() {
    let (all, found) = (ten_seconds(of_a_store(), 100_000), ten_seconds(by_gain(), 100_000));
    assert_eq!(found.limit, 62);
    assert!(found.async_bytes >= all.async_bytes * 97 / 100, "{found:?} of {all:?}");
    assert_eq!(found.sync_ms, all.sync_ms);
}

/// A store whose answers take longer the more of them it owes, by as much as they bring: no limit
/// is better than another, and without demand the scheduler looks for none.
#[test]
fn without_demand_the_limit_only_grows() {
    let mut scheduler = Scheduler::new(by_gain()).expect("it is valid");
    let mut at_store = Vec::new();
    for at in 0..2000u64 {
        let (direction, priority) = (Direction::Read, Priority::default());
        let (start, end) = (at * 2 * LENGTH, at * 2 * LENGTH + LENGTH);
        let request = Request { start, end, direction, object: at, urgency: Urgency::Readahead, priority };
        scheduler.add(Instant(0), request);
    }
    let (mut now, mut most) = (0, scheduler.async_depth());
    assert_eq!(most, 15);
    for _ in 0..100 {
        at_store.extend(core::iter::from_fn(|| scheduler.dispatch(Instant(now))));
        assert!(at_store.len() <= scheduler.async_depth() as usize);
        now += 30 * MS;
        let oldest = at_store.remove(0);
        scheduler.complete(Instant(now), oldest.id);
        assert!(scheduler.async_depth() >= most);
        most = scheduler.async_depth();
    }
    assert_eq!(most, 62);
}
