//! Columns of Parquet files and tensors of safetensors files are read ahead once a program has read
//! the footer or the header.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::{Advice, Policy};
use bowwave_fuse::{AdviceRequest, AdviceScope, Mount, MountOptions};

use crate::common::{Dir, Memory, pattern};

/// The end of a file of pyarrow 26: four row groups of four columns of 131,072 doubles each,
/// without compression.
const TAIL: &[u8] = include_bytes!("../samples/pyarrow.footer");
const CHUNK: u64 = 1_049_115;
/// The kernel's largest readahead request.
const WINDOW: u64 = 256 << 10;

fn chunk(row_group: u64, column: u64) -> Range<u64> {
    let start = 4 + (4 * row_group + column) * CHUNK;
    start..start + CHUNK
}

/// A mount with the file, opened.
struct Mounted {
    memory: Memory,
    data: Vec<u8>,
    file: File,
    _mount: Mount,
    _dir: Dir,
}

impl Mounted {
    fn new(policy: Policy, damaged: bool) -> Option<Self> {
        let mut data = pattern(chunk(3, 3).end as usize, 0);
        data.extend(TAIL);
        if damaged {
            let at = data.len() - TAIL.len() + 700;
            data[at..at + 100].fill(0xff);
        }
        Self::of(policy, data)
    }

    fn of(policy: Policy, data: Vec<u8>) -> Option<Self> {
        let (dir, memory) = (Dir::new("columns")?, Memory::new());
        memory.file("table", &data);
        let mount = Mount::new(memory.store_with(policy), dir.path(), MountOptions::default());
        let mount = mount.expect("mounts can be made here");
        let file = File::open(dir.path().join("table")).expect("readable");
        Some(Self { memory, data, file, _mount: mount, _dir: dir })
    }

    fn read(&self, range: Range<u64>) {
        let mut buf = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut buf, range.start).expect("readable");
        assert!(buf == self.data[range.start as usize..range.end as usize], "{range:?}");
    }

    fn read_footer(&self) {
        let size = self.data.len() as u64;
        self.read(size - 8..size);
        self.read(size - TAIL.len() as u64..size - 8);
        self.memory.requested();
    }

    /// What is requested until all of `ranges` are; fails if that takes long.
    fn requested(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let (begin, mut all) = (Instant::now(), Vec::new());
        let has = |all: &[Range<u64>], range: &Range<u64>| {
            all.iter().any(|one| one.start <= range.start && range.end <= one.end)
        };
        while !ranges.iter().all(|range| has(&all, range)) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{ranges:?} of {all:?}");
            thread::sleep(Duration::from_millis(5));
            all.extend(self.memory.requested());
            all = merged(all);
        }
        all
    }
}

fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[test]
fn the_first_read_of_a_column_chunk_requests_all_of_it_and_nothing_else() {
    let Some(mounted) = Mounted::new(Policy::Stream, false) else { return };
    mounted.read_footer();
    let wanted = chunk(1, 2);
    mounted.read(wanted.start..wanted.start + 1000);
    let requested = mounted.requested(&[wanted]);
    let bytes: u64 = requested.iter().map(|range| range.end - range.start).sum();
    assert!(bytes <= CHUNK + WINDOW + 4096, "{requested:?}");
}

#[test]
fn columns_of_one_row_group_are_requested_in_the_next_one() {
    let Some(mounted) = Mounted::new(Policy::Stream, false) else { return };
    mounted.read_footer();
    mounted.read(chunk(0, 0));
    mounted.read(chunk(0, 2));
    // After one column, the budget may be a few bytes short of another: the kernel's requests of a
    // read come in any order, and count only after that of their chunk.
    mounted.read(chunk(1, 0).start..chunk(1, 0).start + 1000);
    mounted.requested(&[chunk(0, 0), chunk(0, 2), chunk(1, 0), chunk(1, 2)]);
}

#[test]
fn the_first_read_of_a_tensor_requests_all_of_it_and_nothing_else() {
    let tensor = |number: u64| {
        let end = (number + 1) * CHUNK;
        format!(
            "\"layer{number}\":{{\"dtype\":\"U8\",\"shape\":[{CHUNK}],\"data_offsets\":[{},{end}]}}",
            number * CHUNK
        )
    };
    let header = format!("{{{}}}", (0..8).map(tensor).collect::<Vec<_>>().join(","));
    let mut data = (header.len() as u64).to_le_bytes().to_vec();
    data.extend(header.as_bytes());
    let start = data.len() as u64;
    data.extend(pattern((8 * CHUNK) as usize, 0));
    let Some(mounted) = Mounted::of(Policy::Stream, data) else { return };
    mounted.read(0..start);
    mounted.memory.requested();
    let wanted = start + 5 * CHUNK..start + 6 * CHUNK;
    mounted.read(wanted.start..wanted.start + 1000);
    let requested = mounted.requested(&[wanted]);
    let bytes: u64 = requested.iter().map(|range| range.end - range.start).sum();
    assert!(bytes <= CHUNK + WINDOW + 4096, "{requested:?}");
}

#[test]
fn without_a_footer_or_with_another_policy_only_windows_are_requested() {
    for (policy, damaged, random) in
        [(Policy::None, false, false), (Policy::Stream, true, false), (Policy::Stream, false, true)]
    {
        let Some(mounted) = Mounted::new(policy, damaged) else { return };
        mounted.read_footer();
        if random {
            let (advice, scope) = (Advice::Random, AdviceScope::File);
            let request = AdviceRequest { offset: 0, len: 0, advice, scope };
            bowwave_fuse::advise(&mounted.file, request).expect("of our own mount");
        }
        mounted.read(chunk(1, 2).start..chunk(1, 2).start + 1000);
        // Reads are served in order, so a request ahead of this one was sent before.
        let requested = mounted.memory.requested();
        let bytes: u64 = requested.iter().map(|range| range.end - range.start).sum();
        assert!(bytes <= WINDOW, "{policy:?}: {requested:?}");
    }
}
