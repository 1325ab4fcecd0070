//! Guarantees of writes: visibility of bytes, and the effect of name changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use bowwave_backend::{Allocate, Rename, SetAttributes, SetTime};
use bowwave_core::Random;
use bowwave_engine::{Engine, ErrorKind, File, Namespace as _, OpenOptions, Options, Store};

use crate::common::{Directory, directory_store, random_bytes, small};

fn writable(store: &Store, name: &str) -> File {
    store
        .open_with(Path::new(name), &OpenOptions { write: true, ..OpenOptions::default() })
        .expect("it is there")
}

fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xEE; usize::try_from(file.size()).expect("small")];
    assert_eq!(file.read_at(0, &mut bytes).expect("readable"), bytes.len());
    bytes
}

#[test]
fn written_bytes_are_read_at_once_and_are_in_the_directory_after_flush() {
    let (directory, _engine, store) = directory_store(small());
    let writer = store.create(Path::new("a"), 0o644).expect("a new file");
    let reader = store.open(Path::new("a")).expect("it is there");
    assert_eq!(writer.write_at(0, b"one two three").expect("room"), 13);
    assert_eq!(all(&reader), b"one two three");
    writer.flush().expect("room");
    assert!(!writer.is_dirty());
    assert_eq!(directory.bytes("a"), b"one two three");
    writer.write_at(4, b"TWO").expect("room");
    writer.sync(true).expect("room");
    assert_eq!(directory.bytes("a"), b"one TWO three");
    assert_eq!(all(&reader), b"one TWO three");
    assert_eq!(reader.write_at(0, b"no").expect_err("opened for reading").kind(), Some(ErrorKind::ReadOnly));
}

#[test]
fn the_last_writer_leaves_all_bytes_in_the_directory_and_valid_pages() {
    let (directory, engine, store) =
        directory_store(Options { cache_bytes: Some(64 << 20), ..Options::default() });
    let bytes = random_bytes(1, 3_000_001);
    let writer = store.create(Path::new("a"), 0o644).expect("a new file");
    let version = writer.version();
    writer.write_at(0, &bytes).expect("room");
    drop(writer);
    assert!(directory.bytes("a") == bytes, "dropping writes out");
    let reader = store.open(Path::new("a")).expect("it is there");
    assert!(all(&reader) == bytes);
    let requests = engine.stats().store.requests;
    assert_eq!(reader.version(), version, "it is the same file");
    assert!(all(&reader) == bytes);
    assert_eq!(engine.stats().store.requests, requests, "every page was there");
}

#[test]
fn readers_after_the_last_writer_notice_foreign_changes() {
    let (directory, _engine, store) = directory_store(small());
    fs::write(directory.path().join("a"), b"before").expect("room");
    let reader = store.open(Path::new("a")).expect("it is there");
    assert_eq!(all(&reader), b"before");
    let writer = writable(&store, "a");
    writer.write_at(0, b"BEFORE and after").expect("room");
    drop(writer);
    assert_eq!(all(&reader), b"BEFORE and after");
    // More than the cached bytes: the read reaches the store, which shows the change.
    let page = vec![b'x'; 1 << 20];
    fs::write(directory.path().join("a"), &page).expect("room");
    let again = store.open(Path::new("a")).expect("it is there");
    assert!(all(&again) == page, "a new version is a new file");
    assert_ne!(again.version(), reader.version());
}

#[test]
fn bytes_past_the_end_return_as_zeros() {
    let (directory, _engine, store) = directory_store(small());
    for (size, cut, then) in
        [(10_000, 5_000, 9_000), (8_192, 4_096, 12_288), (5_000, 1, 4_096), (4_095, 0, 1)]
    {
        for synced in [false, true] {
            let file = store.create(Path::new("a"), 0o644).expect("room");
            file.write_at(0, &vec![b'x'; size]).expect("room");
            if synced {
                file.sync(false).expect("room");
            }
            file.set_len(cut).expect("room");
            // Once by a truncation and extension, once by a write past the end.
            if synced {
                file.set_len(then).expect("room");
            } else {
                file.write_at(then - 1, &[0]).expect("room");
            }
            let mut expected = vec![b'x'; usize::try_from(cut).expect("small")];
            expected.resize(usize::try_from(then).expect("small"), 0);
            assert!(all(&file) == expected, "{size} cut to {cut}, extended to {then}");
            file.sync(false).expect("room");
            assert!(
                directory.bytes("a") == expected,
                "{size} cut to {cut}, extended to {then}, in the directory"
            );
        }
    }
}

#[test]
fn concurrent_appends_never_overlap() {
    let (directory, _engine, store) = directory_store(small());
    drop(store.create(Path::new("log"), 0o644).expect("a new file"));
    thread::scope(|scope| {
        for writer in 0..8u8 {
            let store = store.clone();
            scope.spawn(move || {
                let options = OpenOptions { append: true, ..OpenOptions::default() };
                let file = store.open_with(Path::new("log"), &options).expect("it is there");
                for _ in 0..200 {
                    assert_eq!(file.write_at(0, &[writer; 100]).expect("room"), 100);
                }
            });
        }
    });
    let bytes = directory.bytes("log");
    assert_eq!(bytes.len(), 8 * 200 * 100);
    let mut count = [0; 8];
    for record in bytes.chunks(100) {
        assert!(record.iter().all(|&byte| byte == record[0]), "a record is whole");
        count[usize::from(record[0])] += 1;
    }
    assert_eq!(count, [200; 8]);
}

#[test]
fn names_of_one_file_share_its_bytes_and_a_renamed_file_keeps_them() {
    let (directory, engine, store) = directory_store(small());
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    file.write_at(0, b"bytes").expect("room");
    store.link(Path::new("a"), Path::new("b")).expect("a second name");
    let other = store.open(Path::new("b")).expect("it is there");
    assert_eq!(other.version(), file.version());
    assert_eq!(all(&other), b"bytes", "not in the store yet");
    assert_eq!(store.stat(Path::new("b")).expect("there").size, 5);
    store.rename(Path::new("a"), Path::new("c"), Rename::Replace).expect("a free name");
    file.write_at(5, b" and more").expect("room");
    drop((file, other));
    assert_eq!(directory.bytes("b"), b"bytes and more");
    assert_eq!(all(&store.open(Path::new("b")).expect("a link")), b"bytes and more");
    let requests = engine.stats().store.requests;
    assert_eq!(all(&store.open(Path::new("c")).expect("renamed")), b"bytes and more");
    assert_eq!(engine.stats().store.requests, requests, "its pages are still there");
}

#[test]
fn a_removed_file_stays_readable_through_its_handles_and_its_name_is_free() {
    let (directory, _engine, store) = directory_store(small());
    let old = store.create(Path::new("a"), 0o644).expect("a new file");
    old.write_at(0, b"old bytes").expect("room");
    store.remove_file(Path::new("a")).expect("it is there");
    let new = store.create(Path::new("a"), 0o644).expect("the name is free");
    new.write_at(0, b"new").expect("room");
    old.write_at(0, b"OLD").expect("it is still open");
    old.sync(false).expect("it is still open");
    assert_eq!((all(&old), all(&new)), (b"OLD bytes".to_vec(), b"new".to_vec()));
    assert_eq!(old.attributes().expect("open").unix.expect("a file system").links, 0);
    let replaced = store.open(Path::new("a")).expect("there");
    let other = store.create(Path::new("b"), 0o644).expect("a new file");
    other.write_at(0, b"other").expect("room");
    store.rename(Path::new("b"), Path::new("a"), Rename::Replace).expect("replaces");
    assert_eq!(
        (all(&replaced), all(&store.open(Path::new("a")).expect("there"))),
        (b"new".to_vec(), b"other".to_vec())
    );
    drop((old, new, replaced, other));
    assert_eq!(directory.bytes("a"), b"other");
}

#[test]
fn opening_does_as_the_options_say() {
    let (directory, _engine, store) = directory_store(small());
    let path = Path::new("a");
    let open = |options| store.open_with(path, &options);
    let write = OpenOptions { write: true, ..OpenOptions::default() };
    let kind = |result: bowwave_engine::Result<File>| result.expect_err("refused").kind();
    assert_eq!(kind(open(write)), Some(ErrorKind::NotFound));
    assert_eq!(kind(open(OpenOptions { create: true, ..OpenOptions::default() })), Some(ErrorKind::Invalid));
    let create = OpenOptions { create: true, exclusive: true, mode: 0o640, ..write };
    let file = open(create).expect("a new file");
    assert_eq!(fs::metadata(directory.path().join("a")).expect("there").mode() & 0o7777, 0o640);
    file.write_at(0, b"bytes").expect("room");
    assert_eq!(kind(open(create)), Some(ErrorKind::Exists));
    assert_eq!(all(&open(OpenOptions { exclusive: false, ..create }).expect("there")), b"bytes");
    let cut = open(OpenOptions { truncate: true, ..write }).expect("there");
    assert_eq!((cut.size(), file.size()), (0, 0), "one file, one size");
    assert_eq!(file.read_at(0, &mut [0; 5]).expect("readable"), 0);
}

#[test]
fn a_time_that_is_set_stays_after_earlier_writes_are_flushed() {
    let (directory, engine, store) =
        directory_store(Options { cache_bytes: Some(64 << 20), ..Options::default() });
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let set = SetAttributes { modified: Some(SetTime::At(time)), ..SetAttributes::default() };
    for through_handle in [false, true] {
        let file = store.create(Path::new("a"), 0o644).expect("a new file");
        file.write_at(0, &[1; 10_000]).expect("room");
        if through_handle {
            file.set_attributes(&set).expect("allowed");
        } else {
            store.set_attributes(Path::new("a"), &set).expect("allowed");
        }
        drop(file);
        assert_eq!(fs::metadata(directory.path().join("a")).expect("there").modified().expect("known"), time);
        assert_eq!(all(&store.open(Path::new("a")).expect("there")), [1; 10_000]);
        let requests = engine.stats().store.requests;
        store
            .set_attributes(Path::new("a"), &SetAttributes { modified: Some(SetTime::Now), ..set })
            .expect("allowed");
        assert_eq!(all(&store.open(Path::new("a")).expect("there")), [1; 10_000]);
        assert_eq!(engine.stats().store.requests, requests, "the pages are good whatever the time says");
    }
}

#[test]
fn a_time_set_through_a_handle_of_an_unlinked_file_affects_only_that_file() {
    let (directory, _engine, store) = directory_store(small());
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(700_000_000);
    let set = SetAttributes { modified: Some(SetTime::At(time)), ..SetAttributes::default() };
    let rename = |from: &str, to: &str, how| store.rename(from.as_ref(), to.as_ref(), how).expect("there");
    let move_away: [(&str, &dyn Fn(), &str); 4] = [
        ("removed, with another name left", &|| store.remove_file("a".as_ref()).expect("there"), "link"),
        ("exchanged, as what is exchanged", &|| rename("other", "a", Rename::Exchange), "other"),
        ("exchanged, as what it is exchanged for", &|| rename("a", "other", Rename::Exchange), "other"),
        ("in a directory that is renamed", &|| rename("directory", "moved", Rename::Replace), "moved/b"),
    ];
    for (what, act, name) in move_away {
        fs::create_dir_all(directory.path().join("directory")).expect("writable");
        for (path, bytes) in
            [("a", "the file itself"), ("other", "another file"), ("directory/b", "in a directory")]
        {
            fs::write(directory.path().join(path), bytes).expect("writable");
        }
        fs::hard_link(directory.path().join("a"), directory.path().join("link")).expect("on one file system");
        let opened = if name == "moved/b" { "directory/b" } else { "a" };
        let reader = store.open(Path::new(opened)).expect("there");
        let before = all(&reader);
        act();
        reader.set_attributes(&set).expect("allowed");
        let writer = writable(&store, name);
        assert_eq!(writer.version(), reader.version(), "{what}: one file, one version");
        writer.write_at(0, b"THE").expect("room");
        assert_eq!(all(&reader), [b"THE", &before[3..]].concat(), "{what}");
        drop(writer);
        // The remaining handle notices foreign changes again, whatever its mode.
        reader.set_attributes(&set).expect("allowed");
        assert_eq!(all(&reader), [b"THE", &before[3..]].concat(), "{what}");
        fs::write(directory.path().join(name), vec![b'x'; 1 << 20]).expect("writable");
        let now = store.open(Path::new(name)).expect("there");
        assert_ne!(now.version(), reader.version(), "{what}");
        for path in ["directory", "moved"] {
            let _may_not_be_there = fs::remove_dir_all(directory.path().join(path));
        }
        for path in ["a", "other", "link"] {
            let _may_not_be_there = fs::remove_file(directory.path().join(path));
        }
    }
}

#[test]
fn concurrent_writers_and_readers_see_whole_pages_only() {
    let (directory, _engine, store) = directory_store(small());
    let pages = 1500u64;
    let stamp = |page: u64, version: u64| {
        let word = page.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
        let mut bytes = word.to_le_bytes().repeat(512);
        bytes[..8].copy_from_slice(&version.to_le_bytes());
        bytes
    };
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    for page in 0..pages {
        file.write_at(page * 4096, &stamp(page, 0)).expect("room");
    }
    let check = |bytes: &[u8], page: u64| {
        let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
        assert!(bytes == stamp(page, version), "page {page} mixes versions");
        version
    };
    thread::scope(|scope| {
        for worker in 0..16u64 {
            let (store, check) = (&store, &check);
            scope.spawn(move || {
                let file = writable(store, "a");
                let mut random = Random::new(worker);
                for step in 1..300u64 {
                    let page = random.below(pages);
                    if worker % 2 == 0 {
                        file.write_at(page * 4096, &stamp(page, worker * 1000 + step)).expect("room");
                    } else {
                        let mut bytes = vec![0; 4096];
                        assert_eq!(file.read_at(page * 4096, &mut bytes).expect("readable"), 4096);
                        check(&bytes, page);
                    }
                    if step % 100 == worker {
                        file.sync(true).expect("room");
                    }
                }
            });
        }
    });
    let ours = all(&file);
    drop(file);
    assert!(directory.bytes("a") == ours);
    for (page, bytes) in (0..).zip(ours.chunks(4096)) {
        check(bytes, page);
    }
}

#[test]
fn truncation_during_reads_and_writes_never_shows_foreign_bytes() {
    let (_directory, _engine, store) = directory_store(small());
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    let cutting = AtomicBool::new(true);
    thread::scope(|scope| {
        for worker in 0..4u64 {
            let (store, cutting) = (&store, &cutting);
            scope.spawn(move || {
                let file = writable(store, "a");
                let mut random = Random::new(worker);
                let mut bytes = vec![0; 100_000];
                while cutting.load(Ordering::Relaxed) {
                    let offset = random.below(2_000_000);
                    file.write_at(offset, &[0x55; 10_000]).expect("room");
                    let count = file.read_at(offset, &mut bytes).expect("readable");
                    assert!(bytes[..count].iter().all(|&byte| byte == 0 || byte == 0x55));
                    file.allocate(offset, 5_000, Allocate::Punch).expect("a file system with holes");
                }
            });
        }
        let mut random = Random::new(3);
        for _ in 0..300 {
            file.set_len(random.below(2_000_000)).expect("room");
        }
        cutting.store(false, Ordering::Relaxed);
    });
    drop(file);
}

#[test]
fn the_journal_of_an_engine_that_writes_replays_to_the_same_actions() {
    let options = Options { journal_events: 1 << 20, shards: Some(1), ..small() };
    let (directory, engine, store) = directory_store(options);
    let file = store.create(Path::new("a"), 0o644).expect("a new file");
    let mut random = Random::new(9);
    let mut expected = vec![0; 1 << 20];
    file.set_len(1 << 20).expect("room");
    for _ in 0..300 {
        let at = usize::try_from(random.below((1 << 20) - 20_000)).expect("small");
        let len = usize::try_from(1 + random.below(20_000)).expect("small");
        let bytes = random_bytes(random.bits(), len);
        file.write_at(at as u64, &bytes).expect("room");
        expected[at..at + len].copy_from_slice(&bytes);
    }
    file.sync(false).expect("room");
    drop(file);
    assert!(directory.bytes("a") == expected);
    for journal in engine.journals() {
        assert!(!journal.is_truncated());
        assert!(journal.replays());
    }
}

#[test]
fn two_engines_see_each_others_closed_files() {
    let directory = Directory::new();
    let stores: Vec<Store> = (0..2)
        .map(|_| Engine::new(small()).expect("valid options").store(&directory.url()).expect("a directory"))
        .collect();
    for round in 0..6u8 {
        let (writer, reader) = (&stores[usize::from(round % 2)], &stores[usize::from(1 - round % 2)]);
        let bytes = vec![round; 5000 + 100 * usize::from(round)];
        let file = writer.create(Path::new("a"), 0o644).expect("room");
        file.write_at(0, &bytes).expect("room");
        drop(file);
        assert!(all(&reader.open(Path::new("a")).expect("there")) == bytes, "round {round}");
    }
}
