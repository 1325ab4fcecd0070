//! Files whose records are read in random order, each once or with replacement.

use super::*;

/// A reader of records of 25 pages, in a file of 1500 of them.
fn reader_of_records(records: impl Iterator<Item = u64>) -> Reader {
    reader_of_records_with(Config::UNLIMITED, records)
}

fn reader_of_records_with(frames: u32, records: impl Iterator<Item = u64>) -> Reader {
    let config = Config { policy: Policy::Stream, ra_pages: 256, frames, ..Config::default() };
    let mut reader = Reader::with(FAR_NS, config);
    reader.cache.set_pages(FileId(0), PageCount(1500 * 25));
    records.for_each(|record| reader.read(record * 25, 25));
    reader
}

/// Without readahead, 1500 reads would wait. Even if the whole waste budget were used from the
/// first read on, 660 would.
#[test]
fn the_next_records_of_a_file_that_is_read_once_come_with_the_misses() {
    let reader = reader_of_records(scattered(1500));
    assert!(reader.waits <= 760, "{} waits", reader.waits);
    assert_eq!(reader.cache.stats().pages_filled, 1500 * 25, "each page once");
}

/// A program that decodes each record for 4 ms waits 30 ms for it, too.
#[test]
fn a_program_that_works_on_each_record_of_a_file_that_is_read_once_waits_for_few() {
    let mut reader = reader_of_records(core::iter::empty());
    for record in scattered(1500) {
        reader.now += 4_000_000;
        reader.read(record * 25, 25);
    }
    assert!(reader.waits <= 900, "{} waits", reader.waits);
    assert_eq!(reader.cache.stats().pages_filled, 1500 * 25, "each page once");
}

#[test]
fn of_a_file_that_is_read_in_part_the_waste_budget_bounds_what_is_unread() {
    for records in (100..1500).step_by(200) {
        let reader = reader_of_records(scattered(1500).take(records));
        let unread = reader.waste().unread;
        assert!(unread <= (records as u64 * 25) / 4 + 18 * 256, "{unread} pages after {records} records");
    }
}

/// The less memory there is, the more pages are evicted before they are read.
#[test]
fn a_file_larger_than_memory_is_read_once() {
    for (times, waits, percent) in [(2, 800, 102), (3, 800, 102), (4, 800, 102), (6, 950, 106)] {
        let reader = reader_of_records_with(1500 * 25 / times, scattered(1500));
        assert!(reader.waits <= waits, "{times}: {} waits", reader.waits);
        let read = reader.cache.stats().pages_filled;
        assert!(read <= 1500 * 25 * percent / 100, "{times}: {read} pages");
    }
}

/// Most repeated pages are no longer in memory, and have no shadow.
#[test]
fn in_little_memory_records_chosen_with_replacement_are_hardly_read_ahead() {
    for seed in 0..20 {
        let mut random = crate::Random::new(seed);
        let reader = reader_of_records_with(1500 * 25 / 16, (0..3000).map(|_| random.below(1500)));
        let stats = reader.cache.stats();
        let ahead = stats.pages_readahead;
        assert!(ahead <= 1500, "seed {seed}: {ahead} of {} pages", stats.pages_filled);
    }
}

/// Records that are adjacent by chance begin a stream, which is read ahead: up to 314 pages for
/// these seeds, without regard to repetitions.
#[test]
fn records_chosen_with_replacement_are_hardly_read_ahead() {
    for seed in 0..20 {
        let mut random = crate::Random::new(seed);
        let reader = reader_of_records((0..1500).map(|_| random.below(1500)));
        let unread = reader.waste().unread;
        assert!(unread <= 375, "seed {seed}: {unread} of 37500 pages");
    }
}
