//! Threads that read through one descriptor, as Arrow does: it announces the columns of a table by
//! `posix_fadvise`, and its threads read them.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bowwave_backend::pattern;
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{mounting, run, umount};

const COLUMN: usize = 2 << 20;
const COLUMNS: u64 = 36;

/// Where a column begins: on no page that a stride would predict.
fn start(column: u64) -> u64 {
    column * (7 << 20) + column * column * 4096
}

/// The kernel passes 256 KiB of each announcement on.
#[test]
fn announced_columns_are_fetched_once_and_little_more() {
    let Some(_alone) = mounting() else { return };
    for threads in [2, 8] {
        let place = Place::new(&format!("threads-{threads}"));
        let options = ["--stats-on-exit", "--json", "--cache", "192MiB"];
        let served = Served::start("emulate:s3,latency=10ms,metadata=0:pattern:/", &place.at(), &options);
        let file = File::open(place.at().join("256MiB")).expect("a made-up file");
        for column in 0..COLUMNS {
            let len = NonZeroU64::new(COLUMN as u64);
            fadvise(&file, start(column), len, Advice::WillNeed).expect("a file takes advice");
        }
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let column = next.fetch_add(1, Ordering::Relaxed) as u64;
                        if column >= COLUMNS {
                            return;
                        }
                        read(&file, start(column));
                    }
                });
            }
        });
        drop(file);
        run(&mut umount(&place.at()));
        let (status, output, said) = served.output();
        assert!(status.success(), "{said}");
        let counters: Value = serde_json::from_str(&output).expect("an object");
        let fetched = counters["bytes_fetched"].as_u64().expect("a count");
        let wanted = COLUMNS * COLUMN as u64;
        assert!(fetched >= wanted && fetched * 2 <= wanted * 3, "{threads} threads: {fetched} of {wanted}");
    }
}

fn read(file: &File, at: u64) {
    let (mut seen, mut expected) = (vec![0; COLUMN], vec![0; COLUMN]);
    file.read_exact_at(&mut seen, at).expect("within the file");
    pattern::fill(pattern::seed("256MiB".as_ref()), at, &mut expected);
    assert!(seen == expected, "{at}");
}
