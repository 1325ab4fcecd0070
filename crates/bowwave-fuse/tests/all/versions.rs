//! Versions of an object never mix, and the kernel keeps valid pages.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use crate::common::{Dir, Memory, pattern};
use bowwave_fuse::{KernelCache, MountOptions};
use rustix::io::Errno;

const LEN: usize = 3_000_000;

fn is_stale(result: io::Result<usize>) -> bool {
    result.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::STALE))
}

#[test]
fn the_kernel_keeps_pages_from_one_open_to_the_next() {
    let (Some(dir), memory) = (Dir::new("keep"), Memory::new()) else { return };
    memory.file("f", &pattern(LEN, 1));
    let _mount = memory.mount(&dir);
    let read = || assert!(fs::read(dir.path().join("f")).expect("readable") == pattern(LEN, 1));
    read();
    let pages = memory.pages();
    assert!(pages > 0);
    read();
    read();
    assert_eq!(memory.pages(), pages, "the second and third time all comes from the kernel's cache");
}

#[test]
fn without_the_kernels_cache_every_read_is_a_request() {
    let (Some(dir), memory) = (Dir::new("direct"), Memory::new()) else { return };
    memory.file("f", &pattern(LEN, 1));
    let options = MountOptions { kernel_cache: KernelCache::Off, ..MountOptions::default() };
    let _mount = memory.mount_with(&dir, options);
    let file = File::open(dir.path().join("f")).expect("readable");
    for round in 1..=3u64 {
        let mut buffer = [0; 5000];
        file.read_exact_at(&mut buffer, 12_345).expect("readable");
        assert!(buffer[..] == pattern(LEN, 1)[12_345..17_345]);
        assert_eq!(memory.reads_and_pages(), (round, round * 2), "the bytes lie in two pages");
    }
}

#[test]
fn a_new_version_of_equal_size_and_time_is_fetched() {
    for ttl in [Duration::ZERO, Duration::from_secs(60)] {
        let (Some(dir), memory) = (Dir::new("anew"), Memory::new()) else { return };
        memory.version("f", &pattern(LEN, 1), "one");
        let _mount = memory.mount_with(&dir, MountOptions { ttl, ..MountOptions::default() });
        let path = dir.path().join("f");
        assert!(fs::read(&path).expect("readable") == pattern(LEN, 1));
        let old = fs::metadata(&path).expect("there").ino();
        memory.version("f", &pattern(LEN, 2), "two");
        assert!(fs::read(&path).expect("readable") == pattern(LEN, 2), "no page of the old version is left");
        assert_ne!(fs::metadata(&path).expect("there").ino(), old, "a version has an inode of its own");
    }
}

#[test]
fn a_new_version_of_another_size_is_complete() {
    for ttl in [Duration::ZERO, Duration::from_secs(60)] {
        let (Some(dir), memory) = (Dir::new("size"), Memory::new()) else { return };
        memory.version("f", &pattern(LEN, 1), "one");
        let _mount = memory.mount_with(&dir, MountOptions { ttl, ..MountOptions::default() });
        let path = dir.path().join("f");
        assert!(fs::read(&path).expect("readable") == pattern(LEN, 1));
        for (size, etag) in [(LEN + 12_345, "two"), (77, "three"), (0, "four"), (5000, "five")] {
            memory.version("f", &pattern(size, 2), etag);
            let got = fs::read(&path).expect("readable");
            assert!(got == pattern(size, 2), "{} bytes instead of {size}, ttl {ttl:?}", got.len());
        }
    }
}

#[test]
fn an_open_file_of_an_old_version_fails_as_stale_and_never_shows_the_new() {
    let (Some(dir), memory) = (Dir::new("stale"), Memory::new()) else { return };
    memory.version("f", &pattern(LEN, 1), "one");
    let _mount = memory.mount(&dir);
    let path = dir.path().join("f");
    let old = File::open(&path).expect("readable");
    let mut buffer = [0; 4096];
    old.read_exact_at(&mut buffer, 0).expect("readable");
    memory.version("f", &pattern(LEN, 2), "two");
    assert!(is_stale(old.read_at(&mut buffer, 2_000_000)), "a page that the kernel has not got");
    let changed = |complaint: &String| complaint.starts_with("f: ") && complaint.contains("has changed");
    assert!(memory.complaints().iter().any(changed), "{:?}", memory.complaints());
    // The new version fills the cache of its own inode.
    let new = File::open(&path).expect("readable");
    new.read_exact_at(&mut buffer, 2_000_000).expect("readable");
    assert!(buffer[..] == pattern(LEN, 2)[2_000_000..2_004_096]);
    assert!(is_stale(old.read_at(&mut buffer, 2_000_000)));
    old.read_exact_at(&mut buffer, 0).expect("kept by the kernel");
    assert!(
        buffer[..] == pattern(LEN, 1)[..4096],
        "what the kernel kept of the old version is the old version"
    );
}

#[test]
fn two_opens_of_a_file_share_the_kernels_pages() {
    let (Some(dir), memory) = (Dir::new("share"), Memory::new()) else { return };
    memory.file("f", &pattern(LEN, 1));
    let _mount = memory.mount(&dir);
    let [first, second] = [(); 2].map(|()| File::open(dir.path().join("f")).expect("readable"));
    let mut buffer = vec![0; LEN];
    first.read_exact_at(&mut buffer, 0).expect("readable");
    let pages = memory.pages();
    second.read_exact_at(&mut buffer, 0).expect("readable");
    assert_eq!(memory.pages(), pages);
}

#[test]
fn removed_files_are_missing_and_new_files_are_found() {
    let (Some(dir), memory) = (Dir::new("gone"), Memory::new()) else { return };
    memory.file("f", b"here");
    let _mount = memory.mount(&dir);
    let path = dir.path().join("f");
    assert_eq!(fs::read(&path).expect("readable"), b"here");
    memory.remove("f");
    assert_eq!(fs::read(&path).expect_err("gone").kind(), io::ErrorKind::NotFound);
    memory.directory("f").file("f/g", b"inside");
    assert_eq!(fs::read(path.join("g")).expect("readable"), b"inside");
}

#[test]
fn small_random_reads_fetch_only_the_requested_pages() {
    let (Some(dir), memory) = (Dir::new("random"), Memory::new()) else { return };
    memory.file("f", &pattern(LEN, 1));
    let _mount = memory.mount(&dir);
    let file = File::open(dir.path().join("f")).expect("readable");
    let mut buffer = [0; 4096];
    // Never page 0 and never neighbours, which the kernel takes for the start of a sequential
    // stream.
    for page in [500u64, 20, 333, 610, 100, 444, 250] {
        file.read_exact_at(&mut buffer, page * 4096).expect("readable");
    }
    assert_eq!(memory.reads_and_pages(), (7, 7));
}
