//! Which bytes are fetched, by reads.

use super::*;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

/// Places of a file in which a program reads 80 KiB each, in this order.
const PLACES: [u64; 10] = [0, 40, 3, 38, 5, 7, 60, 30, 20, 10];

fn open(trails: &mut SiblingTrails, files: Range<u64>) {
    for file in files {
        trails.opened(file, SIZE);
    }
}

/// Reads these places of a file; returns the offsets of what is fetched after each.
fn read(trails: &mut SiblingTrails, file: u64, places: &[u64]) -> Vec<Vec<(u64, u64)>> {
    let each = places.iter().map(|place| {
        let mut out = Vec::new();
        trails.read(file, place * MIB, 80 << 10, &mut out);
        out.iter().map(|fetch| (fetch.file, fetch.bytes.start / MIB)).collect()
    });
    each.collect()
}

fn with_one_read() -> SiblingTrails {
    let mut trails = SiblingTrails::new(u64::MAX);
    trails.opened(1, SIZE);
    assert!(read(&mut trails, 1, &PLACES).concat().is_empty());
    trails
}

#[test]
fn reads_of_one_file_predict_those_of_the_next() {
    let mut trails = with_one_read();
    trails.closed(1, 0);
    trails.opened(2, SIZE);
    let fetched = read(&mut trails, 2, &PLACES);
    assert_eq!(fetched[0], [40, 3, 38, 5].map(|place| (2, place)), "what followed the first read");
    let mut all: Vec<u64> = fetched.concat().iter().map(|&(_, place)| place).collect();
    all.dedup();
    assert_eq!(all, PLACES[1..], "each once");
    assert_eq!((trails.out, trails.left), (0, trails.left.max(FIRST)), "all was used");
    trails.opened(3, SIZE);
    assert!(!trails.follows(3), "nothing was read");
    assert!(read(&mut trails, 3, &PLACES[..1])[0].len() > FURTHER && trails.follows(3));
    read(&mut trails, 3, &[63]);
    assert!(!trails.follows(3), "no other file had this");
}

#[test]
fn the_next_open_files_are_fetched_with_the_one_that_is_read() {
    let mut trails = with_one_read();
    for file in 2..12 {
        // So that the budget suffices.
        trails.opened(file, SIZE);
        read(&mut trails, file, &PLACES);
    }
    open(&mut trails, 12..20);
    let fetched = read(&mut trails, 12, &PLACES).concat();
    for place in PLACES {
        assert_eq!(fetched.iter().filter(|&&fetched| fetched == (13, place)).count(), 1, "{fetched:?}");
    }
    assert!(fetched.contains(&(16, 0)) && !fetched.contains(&(17, 0)), "the others are too far away");
    assert!(read(&mut trails, 13, &PLACES).concat().contains(&(17, 0)));
}

#[test]
fn files_that_were_not_opened_get_the_reads_of_files_alike() {
    let mut trails = with_one_read();
    assert_eq!((trails.room(SIZE), trails.ahead(9, SIZE, SIZE)), (0, Vec::new()), "one file shows nothing");
    for file in 20..24 {
        // So that the budget suffices.
        trails.opened(file, SIZE);
        read(&mut trails, file, &PLACES);
    }
    assert_eq!(trails.room(SIZE + 1), 0, "of other files");
    assert!(trails.room(SIZE) > 0);
    let ahead: Vec<u64> = trails.ahead(3, SIZE, SIZE).iter().map(|bytes| bytes.start / MIB).collect();
    assert_eq!(ahead, PLACES);
    trails.opened(3, SIZE);
    assert!(read(&mut trails, 3, &PLACES).concat().is_empty(), "it has all");
    assert_eq!(trails.ahead(4, SIZE, 30 * PAGE), [0..80 << 10, 40 * MIB..40 * MIB + 10 * PAGE]);
    trails.dropped(4);
    trails.opened(4, SIZE);
    assert_eq!(trails.out, 0);
}

/// Chunks that lie one behind another are one run: the budget comes back while it is read.
#[test]
fn a_long_run_is_fetched_of_the_next_files_as_the_budget_allows() {
    let mut trails = SiblingTrails::new(u64::MAX);
    let mut waits = Vec::new();
    open(&mut trails, 0..12);
    for file in 0..12 {
        let mut found = Vec::new();
        let header = [(0, 4096), (40 * MIB, 4096)];
        for (offset, bytes) in header.into_iter().chain((0..32).map(|at| (9 * MIB + at * 65_536, 65_536))) {
            let has = trails.trails[&file].unread.common(offset / PAGE..(offset + bytes) / PAGE);
            found.push(has * PAGE == bytes);
            trails.read(file, offset, bytes, &mut Vec::new());
        }
        waits.push(found.iter().filter(|has| !*has).count());
    }
    assert!(waits[0] == 34 && waits[8..] == [0; 4], "{waits:?}");
}

#[test]
fn files_may_be_read_backwards() {
    let mut trails = SiblingTrails::new(u64::MAX);
    open(&mut trails, 1..4);
    read(&mut trails, 3, &PLACES);
    let fetched = read(&mut trails, 2, &PLACES).concat();
    assert!(fetched.contains(&(2, 40)) && fetched.contains(&(1, 0)), "{fetched:?}");
    open(&mut trails, 4..20);
    for file in (5..18).rev() {
        read(&mut trails, file, &PLACES);
    }
    let all = read(&mut trails, 4, &PLACES).concat();
    assert!(all.iter().all(|&(file, _)| file != 4), "it had all: {all:?}");
}

#[test]
fn a_file_that_leaves_out_reads_of_another_is_fetched_little() {
    let mut trails = SiblingTrails::new(u64::MAX);
    let places: Vec<u64> = (0..60).map(|at| at * 7 % 60).collect();
    trails.opened(1, SIZE);
    read(&mut trails, 1, &places);
    trails.opened(2, SIZE);
    let some: Vec<u64> = places.iter().copied().step_by(6).collect();
    let fetched = read(&mut trails, 2, &some).concat();
    // The budget before any was read in the order of the first one.
    assert!(fetched.len() as u64 <= FIRST / 20 + 1, "{fetched:?}");
    trails.opened(3, SIZE);
    let fetched = read(&mut trails, 3, &places[..8]).concat();
    assert!(fetched.contains(&(3, places[16])), "as far as the budget allows, {fetched:?}");
}

#[test]
fn files_of_another_size_have_the_same_beginning_by_their_format() {
    let mut trails = with_one_read();
    trails.opened(2, SIZE / 2);
    let fetched = read(&mut trails, 2, &PLACES);
    assert!(fetched[0].is_empty() && fetched[2].contains(&(2, 5)), "{fetched:?}");
    assert!(fetched.concat().iter().all(|&(_, place)| place < 32), "what lies behind its end is not");
}

#[test]
fn reads_in_order_are_one_run() {
    let mut trails = SiblingTrails::new(u64::MAX);
    for file in 1..3 {
        trails.opened(file, SIZE);
        for at in 0..100 {
            trails.read(file, at * 5000, 5000, &mut Vec::new());
        }
    }
    assert!(trails.trails.values().all(|trail| trail.runs.len() == 1));
    assert!(trails.out <= FIRST);
}

#[test]
fn waste_is_bounded_by_what_was_read_alike() {
    // Each file begins as the others, and goes on elsewhere.
    let mut trails = SiblingTrails::new(u64::MAX);
    let (mut fetched, mut alike) = (0, 0);
    for file in 0..200 {
        let number = trails.opened(file, SIZE);
        for place in (0..2).chain((0..8).map(|at| 2 + (file * 7 + at * at) % 60)) {
            let mut out = Vec::new();
            alike += u64::from(place < 2) * (80 << 10) / PAGE;
            trails.read(file, place * MIB, 80 << 10, &mut out);
            fetched += out.iter().map(|fetch| (fetch.bytes.end - fetch.bytes.start) / PAGE).sum::<u64>();
        }
        trails.closed(file, number);
    }
    // Of all that is fetched, what is used returns its cost.
    assert!(fetched <= FIRST + 2 * alike, "{fetched} pages, {alike} alike");
}

#[test]
fn unused_pages_are_bounded_by_those_that_were_read_in_order_and_counted() {
    for seed in 0..50 {
        let mut random = crate::random::Random::new(seed);
        let mut trails = SiblingTrails::new(u64::MAX);
        let (mut out, mut next) = (Vec::new(), [0_u64; 30]);
        // Pages that were fetched and not used, and pages that were read in the order of another
        // file.
        let (mut unused, mut alike) = (0, 0);
        for _ in 0..600 {
            let (file, size) = (random.below(30), SIZE + u64::from(random.below(9) == 0));
            match random.below(20) {
                0..3 => drop(trails.opened(file, size)),
                3 => trails.closed(file, random.below(trails.opens + 1)),
                4 => {
                    let ahead = trails.ahead(file, size, random.below(SIZE));
                    unused += ahead.iter().map(|bytes| (bytes.end - bytes.start).div_ceil(PAGE)).sum::<u64>();
                }
                5 => trails.dropped(file),
                _ => {
                    let at = if random.below(4) == 0 { random.below(40) } else { next[file as usize] };
                    next[file as usize] = at + 1;
                    let (offset, bytes) = (at * 7 % 40 * MIB, 1 + random.below(200 << 10));
                    let pages = offset / PAGE..(offset + bytes).div_ceil(PAGE);
                    let trail = |trails: &SiblingTrails| trails.open.get(&file).map(|open| open.trail);
                    let before = trail(&trails).map(|number| &trails.trails[&number]);
                    let (used, read) =
                        before.map_or((0, 0), |trail| (trail.unread.common(pages), trail.read.count()));
                    trails.read(file, offset, bytes, &mut out);
                    unused -= used;
                    if let Some(after) = trail(&trails).map(|number| &trails.trails[&number]) {
                        alike += if after.is_alike { after.read.count() - read } else { 0 };
                    }
                }
            }
            for SiblingFetch { file, bytes } in out.drain(..) {
                let size = trails.trails[&trails.open[&file].trail].size;
                assert!(bytes.start < bytes.end && bytes.end <= size, "seed {seed}: {bytes:?} of {size}");
                unused += (bytes.end - bytes.start).div_ceil(PAGE);
            }
            assert!(unused <= FIRST + alike, "seed {seed}: {unused} unused, {alike} in order");
            let unread: u64 = trails.trails.values().map(|trail| trail.unread.count()).sum();
            assert_eq!(trails.out, unread, "seed {seed}");
            let closed = |trail: &&Trail| !trail.is_open;
            assert!(trails.trails.values().filter(closed).all(|trail| trail.unread.count() == 0));
            assert!(trails.left <= trails.most);
        }
        assert!(alike > 0, "seed {seed}");
    }
}

/// Regression: the budget was earned only by files of which something was fetched.
#[test]
fn a_spent_budget_is_earned_again_by_files_that_are_read_alike() {
    let mut trails = with_one_read();
    for file in 2..40 {
        let number = trails.opened(file, SIZE);
        read(&mut trails, file, &PLACES[..1]);
        trails.closed(file, number);
    }
    assert_eq!(trails.left, 0, "wasted");
    for file in 40..44 {
        trails.opened(file, SIZE);
        let fetched = read(&mut trails, file, &PLACES).concat();
        assert!(!fetched.is_empty(), "{file}");
    }
}

/// Regression: files of which nothing was read pushed out all others, and then each other.
#[test]
fn files_that_are_opened_and_not_read_push_out_no_others() {
    let mut trails = with_one_read();
    trails.closed(1, 0);
    for file in 2..2000 {
        let number = trails.opened(file, SIZE);
        trails.closed(file, number);
    }
    trails.opened(2000, SIZE);
    assert!(!read(&mut trails, 2000, &PLACES).concat().is_empty());
}

/// Regression: a reader went on beyond the run of the other file, or the budget ended.
#[test]
fn a_file_follows_another_one_only_as_long_as_its_pages_are_fetched() {
    let mut trails = SiblingTrails::new(u64::MAX);
    let array: Vec<(u64, u64)> = (0..400).map(|at| (9 * MIB + at * 65_536, 65_536)).collect();
    for file in 0..6 {
        trails.opened(file, SIZE);
        for &(offset, bytes) in [(0, 4096), (40 * MIB, 4096)].iter().chain(&array[..4]) {
            trails.read(file, offset, bytes, &mut Vec::new());
        }
    }
    assert!(trails.follows(5));
    for &(offset, bytes) in &array[4..] {
        trails.read(5, offset, bytes, &mut Vec::new());
        assert!(!trails.follows(5), "{offset}");
    }
    assert!(!trails.read(5, 0, SIZE, &mut Vec::new()), "all of it was read");
}

/// Segments of a database: the same pages by chance, in no order.
#[test]
fn pages_that_files_have_in_common_by_chance_pay_for_nothing() {
    let (mut trails, mut random) = (SiblingTrails::new(u64::MAX), crate::random::Random::new(7));
    open(&mut trails, 0..8);
    let mut out = Vec::new();
    for _ in 0..8000 {
        trails.read(random.below(8), random.below(1000) * (64 << 10), 64 << 10, &mut out);
    }
    let fetched: u64 = out.iter().map(|fetch| fetch.bytes.end - fetch.bytes.start).sum();
    // 16 pages a read, of 8,000 reads.
    assert!(fetched < 16 * MIB, "{} KiB of 512,000", fetched >> 10);
}

#[test]
fn a_file_is_predicted_by_itself_once_its_reads_come_again() {
    let mut trails = with_one_read();
    trails.closed(1, 0);
    assert_eq!([trails.opened(1, SIZE), trails.opened(1, SIZE)], [1, 1]);
    let fetched = read(&mut trails, 1, &PLACES);
    assert!(fetched[0].is_empty() && !fetched[1].is_empty(), "the kernel may have had the rest, {fetched:?}");
    trails.closed(1, 1);
    assert!(trails.is_open(1), "through the second handle");
    trails.opened(1, SIZE + 1);
    trails.closed(1, 1);
    assert!(trails.is_open(1), "in another version");
    trails.closed(1, 2);
    trails.closed(1, 2);
    assert!(!trails.is_open(1) && !trails.read(1, 0, 1, &mut Vec::new()));
}

#[test]
fn little_is_remembered() {
    let mut trails = SiblingTrails::new(u64::MAX);
    for file in 0..2000 {
        trails.opened(file, SIZE);
        for at in 0..100 {
            trails.read(file, (at * 7919 + file * 31) % 10_000 * 6 * PAGE, PAGE, &mut Vec::new());
        }
    }
    assert!(trails.runs <= RUNS_OF_ALL_MAX && trails.trails.len() <= FILES_MAX);
    assert_eq!(trails.runs, trails.trails.values().map(|trail| trail.runs.len()).sum::<usize>());
    assert_eq!(trails.open.len(), trails.trails.len());
    let having: usize = trails.having.values().map(Vec::len).sum();
    assert!(having <= trails.runs && trails.having.values().all(|having| !having.is_empty()));
    assert!(trails.out <= trails.most);
    assert!(!trails.read(0, 0, 1, &mut Vec::new()), "forgotten");
}
