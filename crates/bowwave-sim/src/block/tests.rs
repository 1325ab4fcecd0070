//! Interaction of writers, write-back and the journal.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::Instant;
use bowwave_core::schedule::Algorithm;

use super::*;
use crate::device::DeviceSpec;

const MS: u64 = 1_000_000;

fn world(limits: Limits) -> World {
    let device = DeviceSpec::open("hdd", &ALGORITHMS).unwrap();
    let config = unlimited(device.queue(), Elevator::Scheduler(Algorithm::Deadline));
    World::new(Queue::new(device.build(0), config).unwrap(), limits)
}

const LIMITS: Limits = Limits {
    throttling: Throttling::WritesBack,
    background_pages: 1000,
    hard_pages: 4000,
    requests_max: 16,
    congested_on: 12,
    congested_off: 8,
};

/// Writes pages in bursts and records the maximum of dirty pages and pages in flight.
struct Watch<P> {
    process: P,
    most: u64,
}

impl<P: Process> Process for Watch<P> {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        let wait = self.process.step(me, world);
        self.most = self.most.max(world.files.dirty + world.writeback);
        wait
    }
}

#[test]
fn a_writer_is_throttled_at_the_hard_limit_and_all_is_written() {
    let mut world = world(LIMITS);
    let file = world.files.add(1 << 30);
    let mut writer = Watch { process: Tio::new(file, 20_000, None), most: 0 };
    let end = run(&mut world, &mut [&mut writer], 1, Instant(u64::MAX));
    // A writer checks the limit every 1024 pages.
    assert!((4000..5100).contains(&writer.most), "{} pages", writer.most);
    assert_eq!(
        (world.files.dirty, world.writeback, world.written.iter().sum::<u64>()),
        (0, 0, 20_000 * PAGE_BYTES)
    );
    assert_eq!(writer.process.latencies_ns.len(), 20_000);
    // 80 MB: no faster than the medium, no slower than a lost revolution per request.
    assert!((1000 * MS..4000 * MS).contains(&end.0), "{end:?}");
}

#[test]
fn writers_in_line_wait_once_a_page_in_order_and_memory_does_not_grow() {
    let limits = Limits { throttling: Throttling::WaitsInLine, ..LIMITS };
    let mut world = world(limits);
    let files: Vec<_> = (0..4).map(|n| world.files.add((n + 1) << 30)).collect();
    let mut writers: Vec<_> = files.iter().map(|&file| Tio::new(file, 20_000, None)).collect();
    let mut watched = MostDirty(0);
    let mut processes: Vec<&mut dyn Process> =
        writers.iter_mut().map(|one| one as &mut dyn Process).collect();
    processes.push(&mut watched);
    // Long enough; without a journal their syncs never end.
    run(&mut world, &mut processes, 4, Instant(20_000 * MS));
    // Each has written the page it waits for.
    assert!(watched.0 <= limits.hard_pages + 4, "{} pages", watched.0);
    assert!(watched.0 >= limits.hard_pages, "they did wait");
    let longest = writers.iter().flat_map(|writer| writer.latencies_ns.iter().copied()).max();
    assert!(longest.is_some_and(|ns| ns < 500 * MS), "{longest:?}: no longer than the requests before it");
    let ends = writers.iter().map(|writer| writer.wrote_until.0);
    let (first, last) = (ends.clone().min().unwrap_or(0), ends.max().unwrap_or(0));
    assert!(last - first < last / 10, "they have equal shares: {first} to {last}");
    assert!(writers.iter().all(|writer| writer.latencies_ns.len() == 20_000));
}

/// The maximum of dirty pages and pages in flight.
struct MostDirty(u64);

impl Process for MostDirty {
    fn step(&mut self, _: usize, world: &mut World) -> Wait {
        self.0 = self.0.max(world.files.dirty + world.writeback);
        Wait::Until(Instant(world.now().0 + MS / 4))
    }
}

#[test]
fn below_the_background_limit_only_a_sync_writes() {
    let mut world = world(LIMITS);
    let file = world.files.add(1 << 30);
    let mut writer = Tio::new(file, 1 << 20, Some((1, 500)));
    run(&mut world, &mut [&mut writer], 1, Instant(4 * MS));
    assert_eq!((world.written, writer.latencies_ns.len()), ([0; 2], 400));
    let longest = writer.latencies_ns.iter().max();
    assert_eq!(longest, Some(&10_000), "a copy, and no wait");
    run(&mut world, &mut [&mut writer], 1, Instant(u64::MAX));
    assert_eq!(world.written[1], 0, "an fsync is sync");
    assert!(world.written[0] > 450 * PAGE_BYTES);
}

#[test]
fn a_write_waits_while_the_journal_writes_the_same_inode() {
    let mut world = world(Limits { hard_pages: 1 << 40, background_pages: 1 << 40, ..LIMITS });
    let file = world.files.add(1 << 30);
    let mut writer = Tio::new(file, 1 << 20, Some((1, 600_000)));
    let mut journal = Journal::new(100 << 30);
    run(&mut world, &mut [&mut writer, &mut journal], 2, Instant(6_000 * MS));
    assert_eq!((journal.commits, world.journal.done), (1, 1));
    let held: Vec<_> = writer.latencies_ns.iter().filter(|&&ns| ns > 10_000).collect();
    assert!(held.len() == 1 && *held[0] > 5 * MS, "{held:?}: one write, for as long as the blocks took");
}

#[test]
fn a_commit_waits_for_changes_that_have_begun_and_none_begins_meanwhile() {
    let mut world = world(LIMITS);
    let files: Vec<_> = (0..4).map(|n| world.files.add((n + 1) << 30)).collect();
    let mut writers: Vec<_> = files.iter().map(|&file| Tio::new(file, 20_000, None)).collect();
    let mut journal = Watched { journal: Journal::new(100 << 30), held: Vec::new() };
    let mut processes: Vec<&mut dyn Process> =
        writers.iter_mut().map(|one| one as &mut dyn Process).collect();
    processes.push(&mut journal);
    run(&mut world, &mut processes, 4, Instant(u64::MAX));
    assert!(writers.iter().all(|writer| writer.latencies_ns.len() == 20_000));
    assert_eq!(world.journal.handles, 0, "a writer with a pool entry holds no handle");
    // Each thread ends with an fsync, which waits for a commit; several may share one.
    assert!((1..=10).contains(&world.journal.done), "{:?}", world.journal);
    assert!(journal.held.iter().any(|&handles| handles > 0), "a handle was open when a commit began");
    assert!(!world.journal.is_held());
}

/// A journal, and the open handles each time it starts to wait for them.
struct Watched {
    journal: Journal,
    held: Vec<usize>,
}

impl Process for Watched {
    fn step(&mut self, me: usize, world: &mut World) -> Wait {
        let wait = self.journal.step(me, world);
        if wait == Wait::Handles {
            self.held.push(world.journal.handles);
        }
        wait
    }
}

#[test]
fn an_fsync_waits_for_each_phase_and_a_stream_writes_its_file_each_round() {
    let mut times = Vec::new();
    for phases in 1..=3 {
        let mut world = world(LIMITS);
        let file = world.files.add(1 << 30);
        let mut tester = FsyncTester::new(file, 2 << 30, phases, Instant(0));
        run(&mut world, &mut [&mut tester], 1, Instant(2_500 * MS));
        assert_eq!(tester.latencies_ns.len(), 3);
        assert_eq!(
            world.written[0] / 3,
            [1 << 20, (1 << 20) + 8 * PAGE_BYTES, (1 << 20) + 9 * PAGE_BYTES][phases as usize - 1]
        );
        times.push(tester.latencies_ns[1]);
    }
    assert!(times.is_sorted() && times[0] < times[2], "{times:?}");

    let mut world = world(LIMITS);
    let file = world.files.add(1 << 30);
    let mut stream = Stream::new(file, 64 << 20);
    run(&mut world, &mut [&mut stream], 1, Instant(10_000 * MS));
    assert!(stream.rounds >= 3 && world.written[1] >= stream.rounds * (64 << 20));
}
