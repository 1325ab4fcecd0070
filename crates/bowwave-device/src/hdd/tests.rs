//! Behaviour of the disk's buffer, head and command queue; `published_tests.rs` has the figures.

use bowwave_core::schedule::Algorithm;
use bowwave_core::{Instant, Urgency};

use super::HddParameters;
use crate::{Device, DeviceSpec, Direction, Request, RequestId};
use bowwave_core::Random;

struct Disk {
    device: Box<dyn Device>,
    now: u64,
}

impl Disk {
    fn open(text: &str) -> Self {
        Self { device: DeviceSpec::open(text, &Algorithm::ALL).unwrap().build(0), now: 0 }
    }

    /// Time of one request, in microseconds.
    fn one(&mut self, direction: Direction, start: u64, bytes: u64) -> u64 {
        self.submit(0, direction, start, bytes);
        let ended = self.device.next_event().unwrap();
        self.device.advance(ended, &mut Vec::new());
        let taken = ended.0 - self.now;
        self.now = ended.0;
        taken / 1000
    }

    fn read(&mut self, start: u64, bytes: u64) -> u64 {
        self.one(Direction::Read, start, bytes)
    }

    fn submit(&mut self, id: u64, direction: Direction, start: u64, bytes: u64) {
        let (id, urgency) = (RequestId(id), Urgency::Demand);
        let request = Request { id, direction, start, bytes, urgency, owner: 0, object: 0 };
        self.device.submit(Instant(self.now), &request);
    }
}

impl HddParameters {
    /// Average seek time in nanoseconds, between uniform cylinders and between uniform sectors
    /// (outer cylinders have more). Summed over 400 rings of cylinders.
    pub(crate) fn seek_averages_ns(&self) -> (f64, f64) {
        const RINGS: u64 = 400;
        let (outer, inner) = (self.track_sectors_outer as f64, self.track_sectors_inner as f64);
        let weight = |ring: u64| outer - (outer - inner) * (ring as f64 + 0.5) / RINGS as f64;
        let (mut even, mut sectors, mut sectors_sum) = (0.0, 0.0, 0.0);
        for from in 0..RINGS {
            for to in 0..RINGS {
                // Two places in one ring are a third of its width apart on average.
                let width = self.cylinders / RINGS;
                let seek = self.seek_ns(if from == to { width / 3 } else { from.abs_diff(to) * width });
                even += seek;
                sectors += seek * weight(from) * weight(to);
                sectors_sum += weight(from) * weight(to);
            }
        }
        (even / (RINGS * RINGS) as f64, sectors / sectors_sum)
    }

    /// Service time of a random read that follows another one, in nanoseconds: the sum of command,
    /// seek, rotation and transfer. A reference for the model, which has tracks and a clock.
    pub(crate) fn random_read_ns(&self, random: &mut Random, sectors: u64) -> f64 {
        let (outer, inner) = (self.track_sectors_outer as f64, self.track_sectors_inner as f64);
        // A place (0 outside, 1 inside), uniform over sectors: outer tracks have more of them.
        let mut place = || {
            let (fall, share) = (outer - inner, random.unit());
            if fall == 0.0 {
                share
            } else {
                (outer - (outer * outer - fall * (outer + inner) * share).sqrt()) / fall
            }
        };
        let (from, to) = (place(), place());
        let seek = self.seek_ns(((from - to).abs() * self.cylinders as f64) as u64);
        let track = outer - (outer - inner) * to;
        let turns = random.unit() + sectors as f64 / track;
        self.command_media_ns + seek + turns * self.revolution_ns
    }
}

const KB: u64 = 1 << 10;
const GB: u64 = 1 << 30;

#[test]
fn what_was_read_ahead_comes_from_the_buffer_and_the_rest_waits_for_the_medium() {
    let mut disk = Disk::open("hdd");
    assert!(disk.read(GB, 64 * KB) > 1_000);
    disk.now += 20_000_000;
    // 97 us of command and 262 us on the bus.
    assert_eq!(disk.read(GB + 64 * KB, 64 * KB), 359);
    assert_eq!(disk.device.service().buffer_hits, 1);
    // During a pause, look-ahead continues up to its limit.
    disk.now += 20_000_000;
    assert_eq!(disk.read(GB + 128 * KB, 128 * KB), 97 + 524);
    disk.now += 20_000_000;
    assert!(disk.read(GB + 512 * KB, 64 * KB) > 1_000, "past the limit");
}

#[test]
fn a_reader_that_goes_on_at_once_loses_no_turn() {
    let mut disk = Disk::open("hdd");
    disk.read(GB, 512 * KB);
    for index in 1..20 {
        let taken = disk.read(GB + index * 512 * KB, 512 * KB);
        assert!((6_800..9_900).contains(&taken), "{taken} us for 512 KiB");
    }
    assert_eq!(disk.device.service().continued, 19);
}

#[test]
fn sectors_that_passed_before_the_first_are_kept() {
    let mut kept = 0;
    let mut random = Random::from_state(1);
    for _ in 0..50 {
        let mut disk = Disk::open("hdd:look_ahead_kb=0");
        disk.now = random.below(8_333_333);
        let start = GB + random.below(1000) * 64 * KB;
        disk.read(start, 64 * KB);
        kept += usize::from(disk.read(start - 64 * KB, 64 * KB) < 400);
    }
    // Of about 1200 sectors per track, 128 must have passed, and the track must not start within
    // them.
    assert!((32..48).contains(&kept), "{kept} of 50 times");
    let mut disk = Disk::open("hdd:look_ahead_kb=0,read_on_arrival_kb=0");
    disk.read(GB, 64 * KB);
    assert!(disk.read(GB - 4 * KB, 4 * KB) > 1_000);
}

#[test]
fn the_buffer_forgets_the_least_recently_used_and_what_is_overwritten() {
    let mut disk = Disk::open("hdd:buffer_segments=2,look_ahead_kb=0,read_on_arrival_kb=0");
    let places = [GB, 2 * GB, 3 * GB];
    disk.read(places[0], 4 * KB);
    disk.read(places[1], 4 * KB);
    assert!(disk.read(places[0], 4 * KB) < 200, "still there, and now the last used");
    disk.read(places[2], 4 * KB);
    assert!(disk.read(places[0], 4 * KB) < 200, "the other one went");
    assert!(disk.read(places[1], 4 * KB) > 1_000);
    disk.one(Direction::Write, places[0], 4 * KB);
    assert!(disk.read(places[0], 4 * KB) > 1_000, "overwritten");
}

#[test]
fn a_segment_keeps_its_end_when_it_is_full() {
    let mut disk = Disk::open("hdd:read_on_arrival_kb=0");
    for index in 0..3 {
        disk.read(GB + index * 256 * KB, 256 * KB);
    }
    assert!(disk.read(GB + 512 * KB, 64 * KB) < 500);
    assert!(disk.read(GB, 64 * KB) > 1_000, "the first of 768 KB made room in 512");
}

#[test]
fn a_queue_of_commands_shortens_the_way_and_forgets_nobody() {
    let time = |device: &str| {
        let mut disk = Disk::open(device);
        let mut random = Random::from_state(5);
        let (mut ended, mut held) = (Vec::new(), 0);
        for id in 0..2000 {
            disk.submit(id, Direction::Read, random.below(150 * GB), 4 * KB);
            held += 1;
            if held == disk.device.depth() {
                disk.now = disk.device.next_event().unwrap().0;
                disk.device.advance(Instant(disk.now), &mut ended);
                held -= 1;
            }
        }
        while let Some(next) = disk.device.next_event() {
            disk.device.advance(next, &mut ended);
        }
        assert_eq!(ended.len(), 2000);
        assert!(ended.is_sorted_by_key(|done| done.ended));
        (ended[1999].ended.0, ended)
    };
    let (alone, _) = time("hdd");
    let (queued, _) = time("hdd:depth=31");
    assert!(queued * 2 < alone, "{queued} against {alone} ns");
}

#[test]
fn the_parts_of_service_add_up_to_the_busy_time() {
    let mut disk = Disk::open("hdd");
    let mut random = Random::from_state(2);
    let mut busy = 0;
    let mut place = 0;
    for _ in 0..5000 {
        let direction = if random.below(5) == 0 { Direction::Write } else { Direction::Read };
        place = if random.below(2) == 0 { place + 64 * KB } else { random.below(150 * GB) / KB * KB };
        let before = disk.now;
        disk.one(direction, place, (1 + random.below(128)) * 4 * KB);
        busy += disk.now - before;
        disk.now += random.below(3_000_000);
    }
    let parts = disk.device.service().total_ns();
    assert!(parts.abs_diff(busy) < 5000 * 8, "{parts} against {busy}");
    assert_eq!(disk.device.service().requests, 5000);
}

#[test]
fn any_place_and_length_within_or_past_the_disk_ends() {
    let mut disk = Disk::open("hdd:sector_bytes=4096,zones=7");
    let mut random = Random::from_state(3);
    let capacity = disk.device.capacity_bytes().unwrap();
    for index in 0..2000 {
        let start = if index % 3 == 0 { capacity - 1 - random.below(1 << 20) } else { random.bits() / 2 };
        disk.read(start, 1 + random.below(4 << 20));
        disk.now += random.below(30_000_000);
    }
}

#[test]
fn a_write_cache_ends_writes_early_until_it_is_full_and_then_keeps_the_pace_of_the_medium() {
    let mut disk = Disk::open("hdd:write_cache_kb=2048");
    let times: Vec<_> =
        (0..40).map(|index| disk.one(Direction::Write, GB + index * 512 * KB, 512 * KB)).collect();
    // 97 us of command and 2.1 ms on the bus.
    assert_eq!(times[0], 97 + 2097);
    let settled = &times[20..];
    let average = settled.iter().sum::<u64>() / settled.len() as u64;
    // 64.8 MB/s sustained in the outer zones: no revolution is lost.
    assert!((7_500..8_600).contains(&average), "{average} us for 512 KiB");
    let mut without = Disk::open("hdd");
    without.one(Direction::Write, GB, 512 * KB);
    let lost = without.one(Direction::Write, GB + 512 * KB, 512 * KB);
    assert!(lost > 14_000, "{lost} us: a turn is lost");
    // A read waits until the cache is empty.
    assert!(disk.read(20 * GB, 4 * KB) > 20_000);
}

#[test]
fn a_flush_costs_a_command_or_waits_for_the_write_cache() {
    let flush = |disk: &Disk| (disk.device.flush_end(Instant(disk.now)).0 - disk.now) / 1000;
    let mut without = Disk::open("hdd");
    without.one(Direction::Write, 80 * GB, 4 * KB);
    assert_eq!(flush(&without), 97);
    let mut disk = Disk::open("hdd:write_cache_kb=2048");
    assert!(disk.one(Direction::Write, 80 * GB, 4 * KB) < 200);
    let waited = flush(&disk);
    assert!((7_000..25_000).contains(&waited), "{waited} us");
    disk.now += 1_000_000_000;
    assert_eq!(flush(&disk), 97, "nothing is left");
}
