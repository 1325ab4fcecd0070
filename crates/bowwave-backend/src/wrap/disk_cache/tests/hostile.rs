//! Foreign entries in the directory, and directories that other users could change.

use std::os::unix::fs::{self as unix, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;

use bowwave_testkit::is_root;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// Another user.
const STRANGER: u32 = 12_345;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a file of our own");
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("the directory is writable");
}

/// Replaces a file by another entry; `false` if this process may not.
type Swap = fn(&Path, &Path) -> bool;

/// Replacements of a file: name, function (with a directory beside the cache), and whether the
/// cache can remove the entry.
const SWAPS: &[(&str, Swap, bool)] = &[
    (
        "a FIFO",
        |path, _| {
            fs::remove_file(path).expect("there");
            fifo(path);
            true
        },
        true,
    ),
    (
        "a FIFO that a process has open",
        |path, _| {
            fs::remove_file(path).expect("there");
            fifo(path);
            let ends =
                fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
            std::mem::forget(ends.expect("a FIFO"));
            true
        },
        true,
    ),
    (
        "a socket",
        |path, beside| {
            fs::remove_file(path).expect("there");
            // Paths of sockets are limited to 108 bytes.
            let short = beside.join("s");
            drop(UnixListener::bind(&short).expect("a free name"));
            fs::rename(short, path).is_ok()
        },
        true,
    ),
    (
        "a device",
        |path, _| {
            let content = fs::read(path).expect("there");
            fs::remove_file(path).expect("there");
            let zero = rustix::fs::makedev(1, 5);
            let made = mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, zero).is_ok();
            if !made {
                fs::write(path, content).expect("writable");
            }
            made
        },
        true,
    ),
    (
        "a link to a copy",
        |path, beside| {
            fs::rename(path, beside.join("copy")).expect("the same file system");
            unix::symlink(beside.join("copy"), path).is_ok()
        },
        true,
    ),
    (
        "a link to nothing",
        |path, beside| {
            fs::remove_file(path).expect("there");
            unix::symlink(beside.join("nothing"), path).is_ok()
        },
        true,
    ),
    ("a second name", |path, beside| fs::hard_link(path, beside.join("second")).is_ok(), true),
    (
        "a file that others may write",
        |path, _| {
            set_mode(path, 0o602);
            true
        },
        true,
    ),
    ("a file of another user", |path, _| is_root() && unix::chown(path, Some(STRANGER), None).is_ok(), true),
    (
        "a file that is too long",
        |path, _| {
            let file = fs::OpenOptions::new().write(true).open(path).expect("there");
            file.set_len(1 << 40).is_ok()
        },
        true,
    ),
    (
        "an empty directory",
        |path, _| {
            fs::remove_file(path).expect("there");
            fs::create_dir(path).is_ok()
        },
        true,
    ),
    (
        "a directory with files",
        |path, _| {
            fs::remove_file(path).expect("there");
            fs::create_dir_all(path.join("a/b")).is_ok()
        },
        false,
    ),
];

/// Regression: a FIFO in place of a segment blocked its reader forever.
#[test]
fn an_entry_in_place_of_a_segment_is_replaced_and_the_read_goes_to_the_store() {
    let (memory, directory, want) = object(6 * MIB, 3);
    for (what, swap, is_removable) in SWAPS {
        let beside = temporary();
        let (cache, log) = cached(&memory, directory.path(), 64 * MIB);
        assert!(read(&cache, "x", 0, want.len()) == want, "before {what}");
        settle(&cache);
        let path = &segments(directory.path())[0];
        if !swap(path, beside.path()) {
            continue;
        }
        let (before, damaged) = (log.requests(), stats(&cache).damaged);
        assert!(read(&cache, "x", 0, want.len()) == want, "{what}");
        settle(&cache);
        assert_eq!(log.requests(), before + 1, "{what}: the store is read");
        assert!(stats(&cache).damaged > damaged, "{what}: it is counted");
        assert!(read(&cache, "x", 0, want.len()) == want, "after {what}");
        settle(&cache);
        assert_eq!(log.requests() == before + 1, *is_removable, "{what}: it is replaced");
        assert_eq!((stats(&cache).errors, stats(&cache).timed_out), (0, 0), "{what}");
        if !is_removable {
            fs::remove_dir_all(path).expect("there");
        }
    }
}

/// Subdirectories, and the files with the shared size of the directory.
#[test]
fn an_entry_in_place_of_any_other_file_of_the_cache_is_replaced() {
    let memory = MemoryBackend::new();
    let want = bytes(MIB, 3);
    memory.insert("x", want.as_slice());
    type Put = fn(&Path, &Path);
    let puts: [(&str, Put); 4] = [
        ("a FIFO", |path, _| fifo(path)),
        ("a link", |path, beside| unix::symlink(beside, path).expect("a free name")),
        ("a file", |path, _| fs::write(path, [7; 10_000]).expect("a free name")),
        ("a file with a second name", |path, beside| {
            fs::write(beside.join("second"), "mine").expect("writable");
            fs::hard_link(beside.join("second"), path).expect("a free name");
        }),
    ];
    for name in ["used", "live", "bowwave-disk-cache", "live/1-1", "the subdirectory of a segment"] {
        for (what, put) in puts {
            let (directory, beside) = (temporary(), temporary());
            let (cache, _) = cached(&memory, directory.path(), 64 * MIB);
            read(&cache, "x", 0, want.len());
            settle(&cache);
            drop(cache);
            let subdirectory = segments(directory.path())[0].parent().expect("of the cache").to_owned();
            let is_segment = name.contains(' ');
            let path = if is_segment { subdirectory } else { directory.path().join(name) };
            if path.is_dir() {
                fs::remove_dir_all(&path).expect("there");
            } else if path.exists() {
                fs::remove_file(&path).expect("there");
            }
            // In a full directory, all files are counted.
            if name != "used" {
                fs::write(directory.path().join("used"), format!("{:020}\n", u64::MAX)).expect("writable");
            }
            put(&path, beside.path());
            let (cache, log) = cached(&memory, directory.path(), 64 * MIB);
            for requests in [u64::from(is_segment); 2] {
                assert!(read(&cache, "x", 0, want.len()) == want, "{what} for {name}");
                settle(&cache);
                assert_eq!(log.requests(), requests, "{what} for {name}");
            }
            assert_eq!(stats(&cache).errors, 0, "{what} for {name}");
            if let Ok(second) = fs::read(beside.path().join("second")) {
                assert_eq!(second, b"mine", "{name} was written to");
            }
        }
    }
}

#[test]
fn a_file_that_was_linked_in_place_of_a_segment_is_not_written() {
    let (memory, directory) = (MemoryBackend::new(), temporary());
    let beside = temporary();
    memory.insert("x", bytes(MIB, 3));
    let (cache, _) = cached(&memory, directory.path(), 64 * MIB);
    read(&cache, "x", 0, MIB as usize);
    settle(&cache);
    let (path, thesis) = (&segments(directory.path())[0], beside.path().join("thesis.tex"));
    fs::write(&thesis, "years of work").expect("writable");
    fs::remove_file(path).expect("there");
    fs::hard_link(&thesis, path).expect("the same file system");
    read(&cache, "x", 0, MIB as usize);
    settle(&cache);
    assert_eq!(fs::read(&thesis).expect("there"), b"years of work");
}

fn open(path: &Path) -> Result<DiskCache> {
    DiskCache::new(Arc::new(MemoryBackend::new()), path, 64 * MIB)
}

#[test]
fn a_directory_that_another_user_owns_or_may_write_to_is_refused() {
    let top = temporary();
    let path = top.path().join("cache");
    drop(open(&path).expect("it is created"));
    let created = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(created & 0o7777, 0o700);
    for mode in [0o777, 0o770, 0o702, 0o1777] {
        set_mode(&path, mode);
        let error = open(&path).expect_err("others may write").to_string();
        assert!(error.contains("other users may write") && error.contains("chmod go-w"), "{error}");
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
    }
    for mode in [0o755, 0o700] {
        set_mode(&path, mode);
        open(&path).expect("others may read at most");
    }
    if is_root() {
        unix::chown(&path, Some(STRANGER), None).expect("root may");
        let error = open(&path).expect_err("of another user").to_string();
        assert!(error.contains("user 12345 owns") && error.contains("a directory of your own"), "{error}");
    }
}

#[test]
fn a_directory_that_another_user_could_replace_is_refused() {
    let top = temporary();
    let parent = top.path().join("parent");
    let path = parent.join("cache");
    drop(open(&path).expect("it is created"));
    for (mode, is_safe) in [(0o777, false), (0o770, false), (0o1777, true), (0o755, true)] {
        set_mode(&parent, mode);
        for path in [&path, &parent.join("new")] {
            match open(path) {
                Ok(_) => assert!(is_safe, "{mode:o}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        !is_safe && error.contains("could replace what is below it"),
                        "{mode:o}: {error}"
                    );
                    assert!(error.contains(&format!("chmod go-w {}", parent.display())), "{error}");
                }
            }
        }
    }
    assert!(parent.join("new").exists());
    // Of a link, the directories of its target count.
    unix::symlink(&parent, top.path().join("link")).expect("a free name");
    open(&top.path().join("link/cache")).expect("safe by any name");
    set_mode(&parent, 0o777);
    open(&top.path().join("link/cache")).expect_err("unsafe by any name");
    set_mode(&parent, 0o755);
    if is_root() {
        unix::chown(&parent, Some(STRANGER), None).expect("root may");
        let error = open(&path).expect_err("another user owns the parent").to_string();
        assert!(error.contains("user 12345 owns") && error.contains("could replace"), "{error}");
    }
}

#[test]
fn a_directory_that_is_renamed_stays_the_one_that_is_used() {
    let (memory, top) = (MemoryBackend::new(), temporary());
    memory.insert("x", bytes(6 * MIB, 1));
    let (path, moved) = (top.path().join("cache"), top.path().join("moved"));
    let (cache, log) = cached(&memory, &path, 64 * MIB);
    read(&cache, "x", 0, 5 << 20);
    settle(&cache);
    fs::rename(&path, &moved).expect("ours");
    fs::create_dir(&path).expect("a free name");
    read(&cache, "x", 0, 5 << 20);
    assert_eq!(log.requests(), 1);
    read(&cache, "x", 0, 6 << 20);
    settle(&cache);
    drop(cache);
    assert_eq!((segments(&moved).len(), fs::read_dir(&path).expect("there").count()), (2, 0));
}
