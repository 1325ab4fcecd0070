//! Writes, and the effects of each as lines.
//!
//! ```text
//! took 4          4 pages became dirty                  out 0..4 demand   a write-out
//! copy 3          page 3 gets a copy of its old frame   promote 0         a sync waits for the write-out from page 0
//! wake 7 ok       writer or sync 7 continues            wait, read 3, failed 5
//! ```

use bowwave_core::{
    Action, Base, Cache, Config, FileId, FillError, HandleId, Instant, PageCount, PageIndex, PageRange,
    Policy, ReadOutcome, SyncFor, Urgency, Waiter, Write, WriteBackConfig, WriteOutId, WriteOutcome,
};

const FILE: FileId = FileId(0);
const OTHER: FileId = FileId(1);

/// A cache with two files of 100 pages, with nothing cached.
struct Scene {
    cache: Cache,
    now: Instant,
    /// Write-outs in flight, with their first pages.
    outs: Vec<(WriteOutId, FileId, u64)>,
}

impl Scene {
    /// At most 8 dirty pages, write-back from 4 on, in write-outs of 4 pages, 8 pages in flight.
    fn new() -> Self {
        Self::with(WriteBackConfig {
            dirty_max: 8,
            background: 4,
            expire_ns: 30,
            out_pages_max: 4,
            in_flight_max: 8,
        })
    }

    fn with(write_back: WriteBackConfig) -> Self {
        let config = Config { frames: 64, policy: Policy::None, write_back, ..Config::default() };
        let mut cache = Cache::new(config).expect("valid");
        for (number, file) in [FILE, OTHER].into_iter().enumerate() {
            cache.open_file(file, PageCount(100));
            cache.open_handle(HandleId(number as u32), file);
        }
        Self { cache, now: Instant(0), outs: Vec::new() }
    }

    /// Writer `waiter` writes whole pages.
    fn write(&mut self, waiter: u64, file: FileId, start: u64, end: u64) -> Vec<String> {
        self.write_as(waiter, file, PageRange::new(start, end), false, false)
    }

    fn write_as(
        &mut self,
        waiter: u64,
        file: FileId,
        range: PageRange,
        head: bool,
        woken: bool,
    ) -> Vec<String> {
        let (mut targets, mut out) = (Vec::new(), Vec::new());
        let write = Write { file, range, keeps_head: head, keeps_tail: false, woken };
        let outcome = self.cache.write(self.now, Waiter(waiter), write, &mut targets, &mut out);
        let mut lines = vec![match outcome {
            WriteOutcome::Accepted(pages) => format!("took {pages}"),
            WriteOutcome::Read(page) => format!("read {}", page.0),
            WriteOutcome::Wait => "wait".into(),
            WriteOutcome::Failed(error) => format!("failed {}", error.0),
        }];
        for (target, page) in targets.iter().zip(range.start.0..) {
            if matches!(target.base, Base::Copy(_)) {
                lines.push(format!("copy {page}"));
            }
        }
        lines.extend(self.tell(out));
        lines
    }

    fn sync(&mut self, waiter: u64, file: FileId) -> Vec<String> {
        self.sync_for(waiter, file, SyncFor::Safety)
    }

    fn sync_for(&mut self, waiter: u64, file: FileId, why: SyncFor) -> Vec<String> {
        let mut out = Vec::new();
        let all = PageRange::new(0, u64::MAX);
        let outcome = self.cache.sync(self.now, Waiter(waiter), file, all, why, &mut out);
        let mut lines = vec![if outcome == ReadOutcome::Hit { "synced".into() } else { "wait".into() }];
        lines.extend(self.tell(out));
        lines
    }

    /// The write-out of `file` whose first page is `start` ends.
    fn written(&mut self, file: FileId, start: u64, result: Result<(), u16>) -> Vec<String> {
        let place = self.outs.iter().position(|&(_, of, first)| (of, first) == (file, start));
        let (id, ..) = self.outs.remove(place.expect("such a write-out is in flight"));
        let mut out = Vec::new();
        self.cache.written_out(self.now, id, result.map_err(FillError), &mut out);
        self.tell(out)
    }

    fn expire(&mut self, now: u64) -> Vec<String> {
        self.now = Instant(now);
        let mut out = Vec::new();
        self.cache.expire(self.now, &mut out);
        self.tell(out)
    }

    fn tell(&mut self, out: Vec<Action>) -> Vec<String> {
        self.cache.check().expect("whole");
        let mut lines = Vec::new();
        for action in out {
            lines.push(match action {
                Action::WriteOut(write) => {
                    self.outs.push((write.id, write.file, write.range.start.0));
                    let urgency = if write.urgency == Urgency::Demand { " demand" } else { "" };
                    let other = if write.file == OTHER { "other " } else { "" };
                    format!("{other}out {}..{}{urgency}", write.range.start.0, write.range.end.0)
                }
                Action::PromoteWrite { id } => {
                    let (.., first) = self.outs.iter().find(|out| out.0 == id).expect("it is in flight");
                    format!("promote {first}")
                }
                Action::Wake { waiter, result } => {
                    let result = result.map_or_else(|error| format!("error {}", error.0), |_| "ok".into());
                    format!("wake {} {result}", waiter.0)
                }
                other => format!("{other:?}"),
            });
        }
        lines
    }
}

#[test]
fn write_back_begins_beyond_the_background_limit_in_file_order_and_in_few_requests() {
    let mut scene = Scene::new();
    assert_eq!(scene.write(0, FILE, 10, 12), ["took 2"]);
    assert_eq!(scene.write(0, FILE, 12, 14), ["took 2"]);
    assert_eq!(scene.write(0, FILE, 8, 9), ["took 1", "out 8..9",]);
    assert_eq!(scene.write(0, FILE, 14, 16), ["took 2", "out 10..14"]);
    assert_eq!(scene.cache.pages_unwritten(), (2, 5));
    assert!(scene.written(FILE, 10, Ok(())).is_empty());
    assert!(scene.written(FILE, 8, Ok(())).is_empty(), "two dirty pages are within the limit");
}

#[test]
fn too_many_dirty_pages_make_writers_wait_in_line() {
    let mut scene = Scene::new();
    assert_eq!(scene.write(1, FILE, 0, 20), ["took 8", "out 0..4"]);
    assert_eq!(scene.write(1, FILE, 8, 20), ["wait", "out 4..8"]);
    assert_eq!(scene.write(2, OTHER, 0, 1), ["wait"]);
    assert_eq!(scene.written(FILE, 4, Ok(())), ["wake 1 ok"], "there is room for one of them");
    assert_eq!(scene.write(3, OTHER, 5, 6), ["wait"], "writers wait in order");
    assert_eq!(scene.write_as(1, FILE, PageRange::new(8, 20), false, true), ["took 4", "out 8..12"]);
    assert_eq!(scene.written(FILE, 0, Ok(())), ["wake 2 ok"]);
}

#[test]
fn pages_in_flight_do_not_change_and_a_sync_waits_for_later_writes() {
    let mut scene = Scene::new();
    assert_eq!(scene.write(1, FILE, 0, 6), ["took 6", "out 0..4"]);
    assert_eq!(scene.write(1, FILE, 2, 3), ["took 1", "copy 2"], "a frame of its own");
    assert_eq!(scene.write(1, FILE, 2, 3), ["took 1"], "the new frame is not in flight");
    assert_eq!(scene.sync(2, FILE), ["wait", "out 4..6 demand", "promote 0"]);
    assert!(scene.written(FILE, 4, Ok(())).is_empty());
    assert_eq!(scene.written(FILE, 0, Ok(())), ["out 2..3 demand"], "one page at a time");
    assert_eq!(scene.write(1, FILE, 50, 51), ["took 1"], "not for this sync");
    assert_eq!(scene.written(FILE, 2, Ok(())), ["wake 2 ok"]);
}

#[test]
fn a_large_close_runs_as_write_back_until_a_sync_needs_its_pages() {
    let mut scene = Scene::new();
    assert_eq!(scene.write(1, FILE, 0, 4), ["took 4"]);
    assert_eq!(
        scene.sync_for(2, FILE, SyncFor::Close),
        ["wait", "out 0..4 demand"],
        "one write-out is no bulk"
    );
    assert_eq!(scene.written(FILE, 0, Ok(())), ["wake 2 ok"]);
    assert_eq!(scene.write(1, FILE, 0, 6), ["took 6", "out 0..4"]);
    assert_eq!(scene.sync_for(3, FILE, SyncFor::Close), ["wait", "out 4..6"], "nothing is promoted");
    assert_eq!(scene.write(1, FILE, 5, 6), ["took 1", "copy 5"]);
    assert_eq!(scene.sync(4, FILE), ["wait", "promote 0", "promote 4"]);
    assert_eq!(scene.written(FILE, 4, Ok(())), ["out 5..6 demand"]);
    assert_eq!(scene.written(FILE, 0, Ok(())), ["wake 3 ok"]);
    assert_eq!(scene.written(FILE, 5, Ok(())), ["wake 4 ok"]);
}

#[test]
fn a_partial_page_write_needs_the_rest_unless_the_file_ends_before() {
    let mut scene = Scene::new();
    assert_eq!(scene.write_as(1, FILE, PageRange::new(7, 8), true, false), ["read 7"]);
    assert_eq!(scene.write_as(1, FILE, PageRange::new(100, 101), true, false), ["took 1"]);
    assert_eq!(scene.cache.unwritten_pages(FILE), PageCount(1));
    assert!(scene.cache.is_cached(FILE, PageIndex(100)), "the file is longer now");
}

#[test]
fn rejected_pages_stay_dirty_fail_once_and_are_retried_later() {
    let mut scene = Scene::new();
    scene.write(1, FILE, 0, 3);
    assert_eq!(scene.sync(2, FILE), ["wait", "out 0..3 demand"]);
    assert_eq!(scene.written(FILE, 0, Err(28)), ["wake 2 error 28"]);
    assert_eq!(scene.cache.unwritten_pages(FILE), PageCount(3), "nothing is lost");
    assert!(scene.write(1, FILE, 10, 14).ends_with(&["took 4".into()]), "write-back leaves the file alone");
    assert_eq!(scene.write(1, FILE, 14, 16), ["took 1"], "up to the limit");
    assert_eq!(scene.write(1, FILE, 15, 16), ["failed 28"], "waiting would be in vain");
    assert_eq!(scene.expire(30), ["out 0..3", "out 10..14", "out 14..15"]);
    assert!(scene.written(FILE, 0, Ok(())).is_empty());
    assert!(scene.written(FILE, 10, Ok(())).is_empty());
    assert!(scene.written(FILE, 14, Ok(())).is_empty());
    assert_eq!(scene.sync(3, FILE), ["synced"]);
}

#[test]
fn stalled_writers_fail_if_the_store_accepts_nothing() {
    let mut scene = Scene::new();
    assert_eq!(scene.write(1, FILE, 0, 8), ["took 8", "out 0..4"]);
    assert_eq!(scene.write(2, OTHER, 0, 1), ["wait", "out 4..8"]);
    assert!(scene.written(FILE, 0, Err(28)).is_empty(), "another write-out may make room");
    assert_eq!(scene.written(FILE, 4, Err(28)), ["wake 2 error 28"]);
}

#[test]
fn old_dirty_pages_are_written_however_few_and_files_take_turns() {
    let mut scene = Scene::new();
    scene.write(1, FILE, 5, 6);
    scene.now = Instant(10);
    scene.write(1, OTHER, 5, 6);
    assert_eq!(scene.cache.next_expiry(), Some(Instant(30)));
    assert_eq!(scene.expire(30), ["out 5..6"]);
    assert_eq!(scene.cache.next_expiry(), Some(Instant(40)));
    assert_eq!(scene.expire(40), ["other out 5..6"]);
}

#[test]
fn discarded_pages_never_reach_the_store_unless_in_flight() {
    let mut scene = Scene::new();
    scene.write(1, FILE, 0, 6);
    let mut out = Vec::new();
    let cut = PageRange::new(2, u64::MAX);
    assert_eq!(scene.cache.discard(scene.now, Waiter(9), FILE, cut, &mut out), ReadOutcome::Wait);
    assert_eq!(scene.tell(out), ["promote 0"]);
    assert_eq!(scene.cache.pages_unwritten(), (0, 4));
    assert!(!scene.cache.is_cached(FILE, PageIndex(5)) && !scene.cache.is_cached(FILE, PageIndex(3)));
    assert_eq!(scene.written(FILE, 0, Ok(())), ["wake 9 ok"]);
    assert!(scene.cache.is_cached(FILE, PageIndex(1)));
}
