//! Files of a bucket that programs open several times.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_file_that_the_kernel_has_is_opened_without_a_request() {
    for (mode, requests) in [("ttl", 0..=0), ("open", 1..=1), ("strict", 1..=8)] {
        let arguments = ["--ttl", "1h", "--consistency", mode];
        for bytes in [100_000, 2_000_000] {
            let Some(bucket) = Bucket::new("many-again", 0, &arguments) else { return };
            bucket.server.put(&key(0), content(&key(0), 1, bytes));
            let path = bucket.place.at().join(key(0));
            let read = || assert!(fs::read(&path).expect("a file") == content(&key(0), 1, bytes), "{bytes}");
            read();
            let again = || {
                // A lookup confirms the version for a second.
                thread::sleep(Duration::from_millis(1100));
                let before = bucket.server.requests();
                read();
                bucket.server.requests().since(&before)
            };
            // The kernel may drop pages at any time, also where much memory is free.
            let sent = (0..8).map(|_| again()).find(|sent| sent.get == 0).expect("the kernel has no pages");
            assert!(requests.contains(&sent.total()), "{mode} {bytes}: {sent:?}");
            bucket.end();
        }
    }
}

/// Readers of Parquet open a file several times within milliseconds.
#[test]
fn a_file_that_was_read_in_part_is_looked_up_again_after_a_second() {
    for (mode, soon) in [("ttl", 0), ("open", 1)] {
        let arguments = ["--ttl", "1h", "--consistency", mode];
        let Some(bucket) = Bucket::new("many-part", 0, &arguments) else { return };
        bucket.server.put(&key(0), content(&key(0), 1, 900_000));
        let path = bucket.place.at().join(key(0));
        let lookups = |file: &fs::File| {
            file.read_exact_at(&mut [0; 100], 0).expect("a file");
            let before = bucket.server.requests();
            fs::File::open(&path).expect("a file");
            let sent = bucket.server.requests().since(&before);
            sent.total() - sent.get
        };
        let begin = Instant::now();
        let file = fs::File::open(&path).expect("a file");
        let sent = lookups(&file);
        // On a machine this slow, the second has passed.
        assert!(sent == soon || begin.elapsed() > Duration::from_secs(1), "{mode}: {sent}");
        thread::sleep(Duration::from_millis(1100));
        assert_eq!(lookups(&file), 1, "{mode}");
        drop(file);
        bucket.end();
    }
}

/// Regression: each open but the first sent a HEAD, and requested again what the kernel had.
/// ImageMagick opens each image three times.
#[test]
fn files_that_are_opened_three_times_in_a_row_are_one_request_each() {
    let Some(bucket) = Bucket::new("many-thrice", FILES as usize, &[]) else { return };
    let before = bucket.server.requests();
    let begin = Instant::now();
    for number in 0..FILES as usize {
        let path = bucket.place.at().join(key(number));
        let open = || fs::File::open(&path).expect("a file of the bucket");
        (0..2).for_each(|_| open().read_exact(&mut [0; 100]).expect("its beginning"));
        assert!(read_all(open()) == content(&key(number), 1, BYTES), "{number}");
    }
    let sent = bucket.server.requests().since(&before);
    // The first one is read in two parts, and the kernel may drop pages of some at any time.
    assert!(sent.get <= FILES + FILES / 4, "{sent:?}\n{}", bucket.log());
    // On a machine this slow, a second has passed since a file was read ahead.
    assert!(sent.total() <= FILES + 12 || begin.elapsed() > Duration::from_secs(1), "{sent:?}");
    bucket.end();
}
