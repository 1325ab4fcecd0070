//! Random changes of the files: reads return the store's bytes.

use std::time::SystemTime;

use super::*;
use crate::chance;

/// Numbers from a seed.
struct Draws {
    seed: u64,
    count: u64,
}

impl Draws {
    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.count += 1;
        chance::draw(self.seed, self.count) % bound
    }

    fn of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).expect("small")]
    }
}

/// Changes one segment in the directory; describes the change.
fn mutate(paths: &[PathBuf], draws: &mut Draws) -> String {
    let path = draws.of(paths);
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("there");
    let len = file.metadata().expect("there").len();
    // Half of the time in the head or the table of checksums.
    let place = |draws: &mut Draws| {
        let bound = if draws.below(2) == 0 { len.min(8192) } else { len };
        draws.below(bound.max(1))
    };
    match draws.below(8) {
        0 => {
            let at = place(draws);
            let mut byte = [0];
            if file.read_at(&mut byte, at).expect("readable") == 1 {
                file.write_all_at(&[byte[0] ^ 1 << draws.below(8)], at).expect("writable");
            }
            format!("a bit flipped at {at} of {len}")
        }
        1 => {
            let at = place(draws);
            file.set_len(at).expect("writable");
            format!("cut from {len} to {at}")
        }
        2 => {
            let more = draws.below(3 * MIB);
            file.set_len(len + more).expect("writable");
            format!("{more} zeros added to {len}")
        }
        3 => {
            let (at, count) = (place(draws), draws.below(200_000));
            file.write_all_at(&vec![0; usize::try_from(count.min(len - at.min(len))).expect("small")], at)
                .expect("writable");
            format!("{count} zeros at {at} of {len}")
        }
        4 => {
            let (at, noise) = (place(draws), draws.below(256) as u8);
            file.write_all_at(&[noise; 4099], at).expect("writable");
            format!("4099 bytes {noise} at {at} of {len}")
        }
        5 => {
            let other = draws.of(paths);
            let beside = path.with_extension("swap");
            fs::rename(path, &beside).expect("ours");
            if other != path {
                fs::rename(other, path).expect("ours");
            }
            fs::rename(&beside, other).expect("ours");
            format!("swapped with {}", other.display())
        }
        6 => {
            let other = draws.of(paths);
            fs::write(path, fs::read(other).expect("there")).expect("writable");
            format!("replaced by a copy of {}", other.display())
        }
        _ => swap_pages(&file, (len.saturating_sub(8192) / 4096).max(1), draws),
    }
}

/// Swaps two pages of a segment, their checksums, or both.
fn swap_pages(file: &fs::File, pages: u64, draws: &mut Draws) -> String {
    let (one, other, what) = (draws.below(pages), draws.below(pages), draws.below(3));
    let swap = |one: u64, other: u64, count: usize| {
        let (mut a, mut b) = (vec![0; count], vec![0; count]);
        if file.read_exact_at(&mut a, one).is_ok() && file.read_exact_at(&mut b, other).is_ok() {
            file.write_all_at(&a, other).expect("writable");
            file.write_all_at(&b, one).expect("writable");
        }
    };
    if what != 0 {
        swap(4096 + 4 * one, 4096 + 4 * other, 4);
    }
    if what != 1 {
        swap(8192 + 4096 * one, 8192 + 4096 * other, 4096);
    }
    format!("pages {one} and {other} of {pages} swapped, or their checksums: {what}")
}

#[test]
fn mutated_segments_never_serve_a_byte_that_the_store_does_not_have() {
    let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos();
    let seed =
        std::env::var("BOWWAVE_SEED").ok().map_or(begun as u64, |seed| seed.parse().expect("a number"));
    let mut draws = Draws { seed, count: 0 };
    let directory = temporary();
    // Two stores and two versions of their objects, with equal names, share the directory.
    let stores = ["one:", "other:"].map(|source| {
        let memory = MemoryBackend::new();
        let cache = Arc::new(memory.clone());
        let limits = Limits { answer: PATIENCE, ..Limits::over(Duration::ZERO) };
        let cache =
            DiskCache::with_limits(cache, source.to_owned(), directory.path(), 512 * MIB, limits, PATIENCE);
        (memory, cache.expect("a directory of our own"))
    });
    let mut wants = Vec::new();
    for (at, (memory, cache)) in stores.iter().enumerate() {
        for version in 0..2 {
            let content = |name: u64, len| bytes(len, 1 + name + 10 * version + 100 * at as u64);
            wants.retain(|(store, ..): &(usize, String, Vec<u8>)| *store != at);
            for (name, len) in [(0, 4 * MIB + 4097), (1, 5000), (2, 4096), (3, 700_000)] {
                let want = content(name, len);
                memory.insert(format!("{name}"), want.as_slice());
                assert!(read(cache, &format!("{name}"), 0, want.len()) == want);
                wants.push((at, format!("{name}"), want));
                settle(cache);
            }
        }
    }
    for round in 0..250 {
        let mut done = Vec::new();
        for _ in 0..=draws.below(3) {
            done.push(mutate(&segments(directory.path()), &mut draws));
        }
        for (store, name, want) in &wants {
            let offset = draws.below(want.len() as u64) & !4095;
            let count = (draws.below(want.len() as u64 - offset) + 1).next_multiple_of(4096);
            // Mostly the whole object, which replaces damaged segments.
            let (offset, count) = if draws.below(4) > 0 { (0, want.len() as u64) } else { (offset, count) };
            let got = read(&stores[*store].1, name, offset, usize::try_from(count).expect("small"));
            assert!(
                got[..] == *part(want, offset, count),
                "seed {seed}, round {round}: {count} from {offset} of {name}: {done:?}"
            );
        }
        for (_, cache) in &stores {
            settle(cache);
        }
    }
    let stats = stores.each_ref().map(|(_, cache)| stats(cache));
    assert!(stats.iter().all(|stats| stats.errors == 0 && stats.timed_out == 0), "seed {seed}: {stats:?}");
    assert!(stats.iter().any(|stats| stats.damaged > 0 && stats.hits > 0), "seed {seed}: {stats:?}");
}

#[test]
fn a_head_of_one_version_before_the_pages_of_another_serves_none_of_them() {
    let directory = temporary();
    let memory = MemoryBackend::new();
    let (cache, log) = cached(&memory, directory.path(), 64 * MIB);
    let files = [1, 2].map(|version| {
        let before = segments(directory.path());
        memory.insert("x", bytes(MIB, version));
        read(&cache, "x", 0, MIB as usize);
        settle(&cache);
        let mut after = segments(directory.path()).into_iter();
        after.find(|path| !before.contains(path)).expect("a version has segments of its own")
    });
    let mut old = fs::read(&files[0]).expect("readable");
    old[..4096].copy_from_slice(&fs::read(&files[1]).expect("readable")[..4096]);
    fs::write(&files[1], old).expect("writable");
    let requests = log.requests();
    assert!(read(&cache, "x", 0, MIB as usize) == bytes(MIB, 2));
    assert_eq!((log.requests(), stats(&cache).damaged), (requests + 1, 1));
}

#[test]
fn any_bytes_as_a_segment_end_without_a_panic_and_give_verified_pages_only() {
    assert_eq!(fuzz_disk_segment(&[]), 0);
    let mut draws = Draws { seed: 7, count: 0 };
    let mut delivered = 0;
    for _ in 0..2000 {
        let len = *draws.of(&[0, 5, 6, 30, 4102, 8198, 8198 + 4096, 20_000, 100_000]);
        let mut input = vec![0; len];
        for byte in input.iter_mut().take(30) {
            *byte = draws.below(256) as u8;
        }
        // Mostly small objects, read from their start.
        if let Some(choice) = input.first_chunk_mut::<6>() {
            let [_, pages, _, start, count, _] = choice;
            *pages = 0;
            *start &= 1;
            *count &= 15;
        }
        delivered += u64::from(fuzz_disk_segment(&input) > 0);
    }
    assert!(delivered > 10, "the right header and checksums come up: {delivered}");
}
