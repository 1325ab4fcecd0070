//! Writing through a mount: every byte arrives in the mount and in the store, however it is
//! written.

#![expect(unsafe_code, reason = "memory maps")]

use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::pattern;
use crate::common::writable::{Writable, errno};
use bowwave_fuse::{KernelCache, MountOptions};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom as Whence};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

fn writer(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("there")
}

/// Checks that a file has the expected content through the mount and in the store.
fn check(store: &Writable, name: &str, want: &[u8]) {
    assert!(fs::read(store.at(name)).expect("readable") == want, "{name} through the mount");
    assert!(fs::read(store.beneath(name)).expect("readable") == want, "{name} beneath");
}

/// A shared, writable mapping of a file.
struct Map {
    start: *mut c_void,
    len: usize,
}

impl Map {
    fn new(file: &File, len: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of its own; the file has that length and is not truncated while it
        // lives.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) };
        Self { start: start.expect("mappable"), len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped for that length, and borrowed from the only owner.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }

    fn sync(&mut self) {
        // SAFETY: the whole mapping.
        unsafe { rustix::mm::msync(self.start, self.len, MsyncFlags::SYNC) }.expect("written out");
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // `munmap` would write the pages out while it holds the lock of the process's memory, for
        // which the threads that serve the mount would wait.
        self.sync();
        // SAFETY: mapped in `new`, with no borrow left.
        unsafe { rustix::mm::munmap(self.start, self.len) }.expect("mapped");
    }
}

#[test]
fn bytes_written_in_any_order_and_size_are_stored() {
    Writable::each("bytes", |store| {
        let len = 3_000_000;
        let want = pattern(len, 7);
        for step in [1000, 4096, 100_001, 1 << 20, len] {
            let file = File::create(store.at("f")).expect("made");
            // Backwards, so that every write but the first leaves or fills a hole.
            let offsets: Vec<_> = (0..len).step_by(step).collect();
            for &offset in offsets.iter().rev() {
                let part = &want[offset..len.min(offset + step)];
                file.write_all_at(part, offset as u64).expect("room");
            }
            assert_eq!(file.metadata().expect("open").len(), len as u64);
            drop(file);
            check(store, "f", &want);
        }
    });
}

#[test]
fn writes_are_visible_at_once_through_every_handle() {
    for kernel_cache in [KernelCache::On, KernelCache::Off] {
        let Some(store) = Writable::new("coherent", MountOptions { kernel_cache, ..MountOptions::default() })
        else {
            return;
        };
        fs::write(store.at("f"), pattern(50_000, 1)).expect("made");
        let reader = File::open(store.at("f")).expect("there");
        let file = writer(&store.at("f"));
        let mut want = pattern(50_000, 1);
        let mut got = vec![0; 60_000];
        for (offset, len) in [(0, 10), (4090, 20), (49_990, 3000), (60_000, 1), (8192, 4096)] {
            // Cached by the kernel before, so that a stale page would be visible.
            let _count = reader.read_at(&mut got, 0).expect("readable");
            let bytes = pattern(len, offset as u8);
            file.write_all_at(&bytes, offset as u64).expect("room");
            want.resize(want.len().max(offset + len), 0);
            want[offset..offset + len].copy_from_slice(&bytes);
            for handle in [&reader, &file] {
                let mut got = vec![1; want.len() + 10];
                let mut filled = 0;
                while let count @ 1.. = handle.read_at(&mut got[filled..], filled as u64).expect("readable") {
                    filled += count;
                }
                assert!(got[..filled] == want, "after {len} bytes at {offset}");
            }
        }
    }
}

#[test]
fn write_only_writes_are_visible_at_once_to_a_concurrent_reader() {
    const WORDS: usize = 4096;
    Writable::each("beside", |store| {
        let name = store.at("f");
        fs::write(&name, [0; WORDS * 8]).expect("made");
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let file = OpenOptions::new().write(true).open(&name).expect("there");
                for round in 1..=300u64 {
                    // Write one page, several pages partially, a few bytes, or all of it.
                    let (start, len) = [(0, 4096), (4000, 9000), (8, 16), (0, WORDS * 8)][round as usize % 4];
                    let bytes = round.to_ne_bytes().repeat(len / 8);
                    file.write_all_at(&bytes, start).expect("room");
                    written.store(round, Ordering::SeqCst);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let file = File::open(&name).expect("there");
                    let mut bytes = vec![0; WORDS * 8];
                    let mut last = 0;
                    while last < 300 {
                        // Every fourth write covers all words: no word may be older than the last
                        // such write that ended.
                        last = written.load(Ordering::SeqCst);
                        file.read_exact_at(&mut bytes, 0).expect("readable");
                        let oldest = bytes.chunks_exact(8).map(|word| word.try_into().expect("eight"));
                        let oldest = oldest.map(u64::from_ne_bytes).min().expect("words");
                        assert!(oldest + 4 > last, "{oldest} is read after {last} was written");
                    }
                });
            }
        });
    });
}

#[test]
fn write_only_writes_may_copy_from_a_map_of_the_same_file() {
    Writable::each("from-map", |store| {
        const HALF: usize = 600_000;
        let mut want = pattern(2 * HALF, 4);
        fs::write(store.at("f"), &want).expect("made");
        let file = writer(&store.at("f"));
        let mut map = Map::new(&file, want.len());
        let only = OpenOptions::new().write(true).open(store.at("f")).expect("there");
        // Dirty bytes of the map count, in the source and next to the target range.
        for (at, byte) in [(5, b'a'), (HALF + 8000, b'b'), (HALF - 1, b'c')] {
            map.bytes()[at] = byte;
            want[at] = byte;
        }
        only.write_all_at(&map.bytes()[..100_000], HALF as u64).expect("room");
        want.copy_within(..100_000, HALF);
        assert!(map.bytes() == want, "another place");
        only.write_all_at(&map.bytes()[4096..300_000], 4096).expect("room");
        assert!(map.bytes() == want, "the same place");
        map.bytes()[4200] = b'd';
        only.write_all_at(b"beside", 4300).expect("room");
        want[4200] = b'd';
        want[4300..4306].copy_from_slice(b"beside");
        assert!(map.bytes() == want, "one page");
        map.sync();
        drop((map, file, only));
        check(store, "f", &want);
    });
}

#[test]
fn appends_go_to_the_end_despite_other_writers() {
    Writable::each("append", |store| {
        let line = |writer: u8, number: u32| format!("{writer} {number:06}\n");
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = store.at("log");
                scope.spawn(move || {
                    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("made");
                    for number in 0..200 {
                        file.write_all(line(writer, number).as_bytes()).expect("room");
                    }
                });
            }
        });
        let log = fs::read_to_string(store.at("log")).expect("readable");
        for writer in 0..4 {
            let lines: Vec<_> = log.lines().filter(|found| found.starts_with(&writer.to_string())).collect();
            let want: Vec<_> = (0..200).map(|number| line(writer, number)).collect();
            assert_eq!(lines, want.iter().map(|line| line.trim_end()).collect::<Vec<_>>());
        }
        check(store, "log", log.as_bytes());
    });
}

#[test]
fn files_are_truncated_and_extended_by_path_and_by_handle() {
    Writable::each("cut", |store| {
        let bytes = pattern(10_000, 3);
        fs::write(store.at("f"), &bytes).expect("made");
        let file = writer(&store.at("f"));
        let reader = File::open(store.at("f")).expect("there");
        let mut want = bytes;
        for (len, by_path) in
            [(5000, false), (4096, true), (9000, false), (12_288, true), (1, true), (8193, false), (0, true)]
        {
            if by_path {
                let status =
                    Command::new("truncate").args(["-s", &len.to_string()]).arg(store.at("f")).status();
                assert!(status.expect("coreutils").success());
            } else {
                file.set_len(len as u64).expect("room");
            }
            want.resize(len, 0);
            assert_eq!(file.metadata().expect("open").len(), len as u64);
            let mut got = vec![1; len + 100];
            let count = reader.read_at(&mut got, 0).expect("readable");
            assert!(got[..count] == want, "cut to {len}");
            check(store, "f", &want);
        }
        fs::write(store.at("f"), b"long enough").expect("there");
        // Truncated while open by another handle.
        File::create(store.at("f")).expect("there").write_all(b"new").expect("room");
        assert_eq!(reader.metadata().expect("open").len(), 3);
        check(store, "f", b"new");
        assert_eq!(
            errno(file.set_len(u64::MAX >> 1)),
            store.same("too long", |at| {
                let file = File::create(at.join("long")).expect("made");
                errno(file.set_len(u64::MAX >> 1))
            })
        );
    });
}

#[test]
fn handles_enforce_their_access_mode() {
    Writable::each("access", |store| {
        store.same("handles", |at| {
            fs::write(at.join("f"), b"bytes").expect("made");
            let reader = File::open(at.join("f")).expect("there");
            let writer = OpenOptions::new().write(true).open(at.join("f")).expect("there");
            let again = OpenOptions::new().write(true).create_new(true).open(at.join("f"));
            let cut =
                OpenOptions::new().custom_flags(OFlags::TRUNC.bits() as i32).read(true).open(at.join("f"));
            drop(cut);
            (
                errno(reader.write_at(b"x", 0)),
                errno(writer.read_at(&mut [0], 0)),
                errno(reader.set_len(0)),
                errno(again),
                fs::metadata(at.join("f")).expect("there").len(),
            )
        });
    });
}

#[test]
fn shared_maps_write_to_the_file_after_close() {
    Writable::each("maps", |store| {
        let len = 300_000;
        let mut want = pattern(len, 9);
        fs::write(store.at("f"), &want).expect("made");
        let file = writer(&store.at("f"));
        let mut map = Map::new(&file, len);
        assert!(map.bytes() == want);
        for (offset, byte) in [(0, 1), (4096, 2), (len - 1, 3)] {
            map.bytes()[offset] = byte;
            want[offset] = byte;
        }
        map.sync();
        check(store, "f", &want);
        // Writes and mappings are coherent.
        file.write_all_at(b"by write", 100_000).expect("room");
        assert_eq!(map.bytes()[100_000..100_008], *b"by write");
        want[100_000..100_008].copy_from_slice(b"by write");
        map.bytes()[200_000] = 77;
        want[200_000] = 77;
        let mut got = [0];
        file.read_exact_at(&mut got, 200_000).expect("readable");
        assert_eq!(got, [77]);
        drop((map, file));
        // By a process that does not serve the mount. Python's own maps keep a descriptor open.
        let writer = |path: &Path| {
            let map = "import ctypes, os, sys; libc = ctypes.CDLL(None); file = os.open(sys.argv[1], os.O_RDWR); \
                       size = ctypes.c_size_t(os.fstat(file).st_size); libc.mmap.restype = ctypes.c_size_t; \
                       at = libc.mmap(None, size, 3, 1, file, ctypes.c_long(0)); os.close(file); \
                       ctypes.memset(at + 250_000, 78, 1); sys.exit(libc.munmap(ctypes.c_void_p(at), size))";
            Command::new("python3").args(["-c", map]).arg(path).status()
        };
        assert!(writer(&store.at("f")).expect("python3 is there").success());
        want[250_000] = 78;
        // The write-back after the last munmap is asynchronous.
        let handed_over = || fs::read(store.beneath("f")).expect("readable") == want;
        (0..1000).take_while(|_| !handed_over()).for_each(|_| thread::sleep(Duration::from_millis(10)));
        check(store, "f", &want);
    });
}

#[test]
fn direct_writes_and_reads_agree_with_the_kernels_cache() {
    Writable::each("direct", |store| {
        let mut want = pattern(1 << 20, 4);
        fs::write(store.at("f"), &want).expect("made");
        let cached = File::open(store.at("f")).expect("there");
        let mut got = vec![0; want.len()];
        cached.read_exact_at(&mut got, 0).expect("readable");
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(store.at("f")).expect("there");
        for (offset, len) in [(0, 4096), (8192, 65_536), (1 << 20, 4096)] {
            let bytes = pattern(len, 200);
            direct.write_all_at(&bytes, offset as u64).expect("room");
            want.resize(want.len().max(offset + len), 0);
            want[offset..offset + len].copy_from_slice(&bytes);
            let mut got = vec![0; want.len()];
            cached.read_exact_at(&mut got, 0).expect("readable");
            assert!(got == want, "{len} at {offset}");
            direct.read_exact_at(&mut got, 0).expect("readable");
            assert!(got == want, "{len} at {offset}");
        }
        drop(direct);
        check(store, "f", &want);
    });
}

#[test]
fn fallocate_allocates_punches_and_zeroes() {
    Writable::each("allocate", |store| {
        let modes = [
            (FallocateFlags::empty(), 100_000, 50_000),
            (FallocateFlags::KEEP_SIZE, 200_000, 50_000),
            (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 5000, 30_000),
            (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 140_000, 100_000),
            (FallocateFlags::ZERO_RANGE, 60_001, 5000),
            (FallocateFlags::ZERO_RANGE, 149_000, 5000),
            (FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 1000, 500),
            (FallocateFlags::PUNCH_HOLE, 0, 100),
            (FallocateFlags::empty(), 0, 0),
        ];
        store.same("fallocate", |at| {
            let path = at.join("f");
            fs::write(&path, pattern(120_000, 6)).expect("made");
            let (file, reader) = (writer(&path), File::open(&path).expect("there"));
            let mut seen = Vec::new();
            for (mode, offset, len) in modes {
                let answer = rustix::fs::fallocate(&file, mode, offset, len).map_err(Errno::raw_os_error);
                let mut bytes = Vec::new();
                (&reader).rewind().expect("seekable");
                (&reader).read_to_end(&mut bytes).expect("readable");
                seen.push((format!("{mode:?}"), answer, bytes.len(), checksum(&bytes)));
            }
            drop(file);
            seen.push(("at last".to_owned(), Ok(()), 0, checksum(&fs::read(&path).expect("readable"))));
            seen
        });
        assert_eq!(fs::read(store.at("f")).expect("there"), fs::read(store.beneath("f")).expect("there"));
    });
}

/// FNV-1a: distinguishes two contents in a message.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn holes_read_as_zeros_and_every_byte_of_data_is_found() {
    Writable::each("sparse", |store| {
        let file = File::create(store.at("f")).expect("made");
        for offset in [1 << 20, 3 << 20] {
            file.write_all_at(&[5; 4096], offset).expect("room");
        }
        file.set_len(5 << 20).expect("room");
        file.sync_all().expect("written");
        drop(file);
        let mut want = vec![0; 5 << 20];
        want[1 << 20..(1 << 20) + 4096].fill(5);
        want[3 << 20..(3 << 20) + 4096].fill(5);
        check(store, "f", &want);
        // Reported holes are real: a copy by holes and data has every byte.
        let status =
            Command::new("cp").args(["--sparse=auto"]).arg(store.at("f")).arg(store.at("copy")).status();
        assert!(status.expect("coreutils").success());
        check(store, "copy", &want);
        let file = File::open(store.at("f")).expect("there");
        let seek = |whence| rustix::fs::seek(&file, whence).expect("seekable");
        assert!(seek(rustix::fs::SeekFrom::Data(0)) <= 1 << 20);
        assert!(seek(rustix::fs::SeekFrom::Hole((3 << 20) + 1)) >= (3 << 20) + 4096);
        assert_eq!(
            fs::metadata(store.at("f")).expect("there").blocks(),
            fs::metadata(store.beneath("f")).expect("there").blocks()
        );
    });
}

#[test]
fn ranges_are_copied_between_files_and_within_one() {
    Writable::each("copy", |store| {
        let bytes = pattern(3_000_000, 8);
        fs::write(store.at("from"), &bytes).expect("made");
        let (from, to) =
            (File::open(store.at("from")).expect("there"), File::create(store.at("to")).expect("made"));
        let copy = |from: &File, start: u64, to: &File, at: u64, len: usize| {
            let (mut start, mut at, mut left) = (start, at, len);
            while left > 0 {
                match rustix::fs::copy_file_range(from, Some(&mut start), to, Some(&mut at), left)
                    .expect("copied")
                {
                    0 => break,
                    count => left -= count,
                }
            }
            len - left
        };
        assert_eq!(copy(&from, 1234, &to, 77, 2_000_000), 2_000_000);
        assert_eq!(copy(&from, 2_999_999, &to, 0, 50), 1, "no more than there is");
        let mut want = vec![0; 77];
        want.extend_from_slice(&bytes[1234..2_001_234]);
        want[0] = bytes[2_999_999];
        to.sync_data().expect("synced");
        check(store, "to", &want);
        let file = writer(&store.at("to"));
        assert_eq!(copy(&file, 0, &file, 1_000_000, 500_000), 500_000);
        want.copy_within(0..500_000, 1_000_000);
        file.sync_data().expect("synced");
        check(store, "to", &want);
        drop((to, file));
        check(store, "to", &want);
    });
}

#[test]
fn record_locks_hold_between_programs() {
    Writable::each("locks", |store| {
        let seen = store.same("locks", |at| {
            let path = at.join("f");
            let file = File::create(&path).expect("made");
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("nobody else");
            rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("nobody else");
            let other = writer(&path);
            let taken = rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            // Record locks are per process, so another process must test.
            let script = "import fcntl,sys\ntry: fcntl.lockf(open(sys.argv[1],'r+'), fcntl.LOCK_EX|fcntl.LOCK_NB)\nexcept OSError as e: print(e.errno)";
            let asked = Command::new("python3").args(["-c", script]).arg(&path).output().expect("python");
            drop(file);
            let free = rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            (taken.map_err(Errno::raw_os_error), free.is_ok(), asked.stdout)
        });
        assert_eq!(seen, (Err(Errno::AGAIN.raw_os_error()), true, b"11\n".to_vec()));
    });
}

#[test]
fn concurrent_writers_of_many_files_lose_nothing() {
    Writable::each("many", |store| {
        thread::scope(|scope| {
            for writer in 0..8_u8 {
                let store = &*store;
                scope.spawn(move || {
                    let dir = store.at(format!("d{writer}"));
                    fs::create_dir(&dir).expect("made");
                    for number in 0..40_usize {
                        let bytes = pattern(number * 1777, writer);
                        let temporary = dir.join("temporary");
                        let mut file = File::create(&temporary).expect("made");
                        for part in bytes.chunks(5000) {
                            file.write_all(part).expect("room");
                        }
                        file.sync_all().expect("room");
                        drop(file);
                        fs::rename(&temporary, dir.join(number.to_string())).expect("made");
                    }
                });
            }
        });
        for writer in 0..8_u8 {
            for number in 0..40_usize {
                check(store, &format!("d{writer}/{number}"), &pattern(number * 1777, writer));
            }
        }
    });
}

#[test]
fn synchronous_writes_are_durable_when_they_return() {
    Writable::each("sync", |store| {
        for flags in [OFlags::SYNC, OFlags::DSYNC] {
            let mut options = OpenOptions::new();
            let file =
                options.write(true).create(true).custom_flags(flags.bits().cast_signed()).open(store.at("f"));
            let mut file = file.expect("made");
            file.seek(SeekFrom::End(0)).expect("seekable");
            file.write_all(b"written through").expect("room");
            let len = file.metadata().expect("open").len();
            assert_eq!(fs::metadata(store.beneath("f")).expect("there").len(), len, "{flags:?}");
        }
        File::open(store.at("")).expect("a directory").sync_all().expect("a directory can be synced");
    });
}

/// Programs such as `cp --sparse` and `tar -S` copy the data between holes.
#[test]
fn data_and_holes_are_those_of_the_file_system_beneath() {
    Writable::each("holes", |store| {
        let bytes = pattern(100_000, 7);
        let found = store.same("data and holes", |dir| {
            fs::write(dir.join("f"), b"").expect("made");
            let file = writer(&dir.join("f"));
            // One range is dirty when the program asks, one lies behind a hole, and one is the end.
            file.write_all_at(&bytes, 0).expect("room");
            file.write_all_at(&bytes, 5 << 20).expect("room");
            file.set_len(9 << 20).expect("room");
            let seek = |from| rustix::fs::seek(&file, from).map_err(|error| error.raw_os_error());
            let found = [0, 50_000, 1 << 20, 5 << 20, 6 << 20, 9 << 20, 10 << 20]
                .map(|at| (seek(Whence::Data(at)), seek(Whence::Hole(at))));
            let mut read = vec![1; bytes.len()];
            file.read_exact_at(&mut read, 5 << 20).expect("readable");
            assert!(read == bytes);
            found
        });
        assert_eq!(found[3].0, Ok(5 << 20), "data begins here");
        assert_eq!(
            found[6],
            (Err(Errno::NXIO.raw_os_error()), Err(Errno::NXIO.raw_os_error())),
            "behind the end"
        );
        // A reader that opens it later finds the same.
        let read = store.same("of a reader", |dir| {
            let file = File::open(dir.join("f")).expect("there");
            rustix::fs::seek(&file, Whence::Data(1 << 20)).map_err(|error| error.raw_os_error())
        });
        assert!(read.is_ok_and(|data| data <= 5 << 20));
    });
}
