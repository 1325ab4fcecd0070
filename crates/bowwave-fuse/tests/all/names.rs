//! Creating, removing, linking and renaming through a mount, compared with the underlying file
//! system.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::iter;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use crate::common::Dir;
use crate::common::gated::{Gate, Gated};
use crate::common::writable::{Directory, Writable, errno, is_root, next_tick, shape, times};
use bowwave_engine::backend::open_url;
use bowwave_engine::{Engine, Options};
use bowwave_fuse::{Mount, MountOptions};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> i32 {
    let result = rustix::fs::renameat_with(CWD, from, CWD, to, flags);
    result.err().map_or(0, Errno::raw_os_error)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("ASCII"))
        .collect();
    names.sort();
    names
}

#[test]
fn created_entries_are_visible_at_once_and_in_the_store() {
    Writable::each("made", |store| {
        for (what, mode) in [("a", 0o644), ("b", 0o600), ("c", 0o444), ("d", 0o4755), ("e", 0o000)] {
            store.same(what, |at| {
                let mut options = OpenOptions::new();
                let path = at.join(what);
                let made = options.write(true).read(true).create_new(true).mode(mode).open(&path);
                made.expect("made").write_all(b"made").expect("open");
                shape(&path).expect("there")
            });
            assert_eq!(fs::read(store.beneath(what)).expect("there"), b"made", "{what}");
        }
        store.same("directories", |at| {
            fs::DirBuilder::new().mode(0o750).create(at.join("directory")).expect("made");
            fs::create_dir(at.join("directory/inner")).expect("made");
            shape(&at.join("directory")).expect("there")
        });
        store.same("links", |at| {
            symlink("directory/inner", at.join("link")).expect("made");
            symlink("nowhere", at.join("dangling")).expect("made");
            let shown = fs::read_link(at.join("link")).expect("a link");
            (shown, shape(&at.join("link")).expect("there"), errno(File::open(at.join("dangling"))))
        });
        for (name, kind) in
            [("fifo", FileType::Fifo), ("socket", FileType::Socket), ("plain", FileType::RegularFile)]
        {
            store.same(name, |at| {
                rustix::fs::mknodat(CWD, at.join(name), kind, Mode::from_raw_mode(0o640), 0).expect("made");
                shape(&at.join(name)).expect("there")
            });
        }
        if is_root() {
            store.same("device", |at| {
                let number = rustix::fs::makedev(1, 3);
                rustix::fs::mknodat(CWD, at.join("null"), FileType::CharacterDevice, Mode::RUSR, number)
                    .expect("made");
                shape(&at.join("null")).expect("there")
            });
        }
        assert_eq!(names(&store.at("")), names(&store.beneath("")));
    });
}

#[test]
fn errors_have_the_errno_of_the_file_system() {
    Writable::each("refused", |store| {
        store.same("preparation", |at| {
            fs::write(at.join("file"), b"x").expect("made");
            fs::create_dir_all(at.join("full/inner")).expect("made");
            fs::create_dir(at.join("empty")).expect("made");
            symlink("loop", at.join("loop")).expect("made");
        });
        type Act = fn(&Path) -> i32;
        let long = |at: &Path, bytes| at.join("n".repeat(bytes));
        let acts: &[(&str, Act)] = &[
            ("make what is there", |at| errno(File::create_new(at.join("file")))),
            ("make a directory that is there", |at| errno(fs::create_dir(at.join("full")))),
            ("make a directory over a file", |at| errno(fs::create_dir(at.join("file")))),
            ("make in a file", |at| errno(File::create(at.join("file/x")))),
            ("make in nothing", |at| errno(File::create(at.join("none/x")))),
            ("link over a file", |at| errno(fs::hard_link(at.join("file"), at.join("empty")))),
            ("link a directory", |at| errno(fs::hard_link(at.join("empty"), at.join("second")))),
            ("symlink over a file", |at| errno(symlink("x", at.join("file")))),
            ("remove nothing", |at| errno(fs::remove_file(at.join("none")))),
            ("remove a directory as a file", |at| errno(fs::remove_file(at.join("empty")))),
            ("remove a file as a directory", |at| errno(fs::remove_dir(at.join("file")))),
            ("remove a full directory", |at| errno(fs::remove_dir(at.join("full")))),
            ("remove a dot", |at| errno(fs::remove_dir(at.join("empty/.")))),
            ("rename nothing", |at| errno(fs::rename(at.join("none"), at.join("x")))),
            ("rename into itself", |at| errno(fs::rename(at.join("full"), at.join("full/inner/x")))),
            ("rename a file over a directory", |at| errno(fs::rename(at.join("file"), at.join("empty")))),
            ("rename a directory over a file", |at| errno(fs::rename(at.join("empty"), at.join("file")))),
            ("rename over a full directory", |at| errno(fs::rename(at.join("empty"), at.join("full")))),
            ("rename over something, if nothing", |at| {
                rename(&at.join("empty"), &at.join("full"), RenameFlags::NOREPLACE)
            }),
            ("exchange with nothing", |at| {
                rename(&at.join("empty"), &at.join("none"), RenameFlags::EXCHANGE)
            }),
            ("follow a loop", |at| errno(File::open(at.join("loop")))),
            ("open a directory for writing", |at| {
                errno(OpenOptions::new().write(true).open(at.join("empty")))
            }),
            ("list a file", |at| errno(fs::read_dir(at.join("file")).map(drop))),
            ("read a link that is none", |at| errno(fs::read_link(at.join("file")))),
        ];
        for (what, act) in acts {
            assert_ne!(store.same(what, act), 0, "{what}");
        }
        for (bytes, want) in
            [(255, 0), (256, Errno::NAMETOOLONG.raw_os_error()), (1025, Errno::NAMETOOLONG.raw_os_error())]
        {
            let acts: [&dyn Fn(&Path) -> i32; 4] = [
                &|at| errno(File::create(long(at, bytes))),
                &|at| errno(fs::rename(long(at, bytes), at.join("short"))),
                &|at| errno(fs::create_dir(long(at, bytes))),
                &|at| errno(fs::remove_dir(long(at, bytes))),
            ];
            for act in acts {
                assert_eq!(store.same("a long name", act), want, "{bytes}");
            }
        }
        let renamed =
            store.same("rename to a long name", |at| errno(fs::rename(at.join("file"), long(at, 256))));
        assert_eq!(renamed, Errno::NAMETOOLONG.raw_os_error());
    });
}

#[test]
fn removed_files_stay_usable_through_open_handles() {
    Writable::each("unlinked", |store| {
        let path = store.at("f");
        fs::write(&path, b"before").expect("made");
        let mut file = OpenOptions::new().read(true).write(true).open(&path).expect("there");
        fs::remove_file(&path).expect("there");
        assert_eq!(errno(fs::metadata(&path)), Errno::NOENT.raw_os_error());
        assert_eq!(errno(fs::metadata(store.beneath("f"))), Errno::NOENT.raw_os_error());
        file.seek(SeekFrom::End(0)).expect("seekable");
        file.write_all(b" and after").expect("open");
        file.set_permissions(fs::Permissions::from_mode(0o600)).expect("open");
        file.set_len(12).expect("open");
        let metadata = file.metadata().expect("open");
        assert_eq!((metadata.nlink(), metadata.len(), metadata.mode() & 0o777), (0, 12, 0o600));
        // Another file gets the name; the two are independent.
        fs::write(&path, b"another").expect("made");
        let mut bytes = String::new();
        file.rewind().expect("seekable");
        file.read_to_string(&mut bytes).expect("open");
        assert_eq!(bytes, "before and a");
        assert_eq!(fs::read(&path).expect("there"), b"another");
        drop(file);
        assert_eq!(fs::read(store.beneath("f")).expect("there"), b"another");
    });
}

#[test]
fn links_are_one_file_with_one_number() {
    Writable::each("links", |store| {
        fs::write(store.at("a"), b"one").expect("made");
        fs::create_dir(store.at("d")).expect("made");
        next_tick(&store.beneath(""));
        let before = times(&store.at("a"));
        fs::hard_link(store.at("a"), store.at("d/b")).expect("linked");
        let (first, second) =
            (fs::metadata(store.at("a")).expect("there"), fs::metadata(store.at("d/b")).expect("there"));
        assert_eq!((first.ino(), first.nlink()), (second.ino(), second.nlink()));
        assert_eq!(first.nlink(), 2);
        assert_eq!(first.ino(), fs::metadata(store.beneath("a")).expect("there").ino(), "the store's number");
        assert!(times(&store.at("a")).1 > before.1, "a link is a change");
        fs::write(store.at("d/b"), b"both").expect("there");
        assert_eq!(fs::read(store.at("a")).expect("there"), b"both");
        fs::remove_file(store.at("a")).expect("there");
        assert_eq!(fs::metadata(store.at("d/b")).expect("there").nlink(), 1);
        // Two names of one file: POSIX requires that renaming one to the other keeps both.
        fs::hard_link(store.at("d/b"), store.at("c")).expect("linked");
        fs::rename(store.at("c"), store.at("d/b")).expect("nothing to do");
        assert_eq!(fs::metadata(store.at("c")).expect("still there").nlink(), 2);
    });
}

#[test]
fn renames_replace_refuse_and_exchange() {
    Writable::each("renames", |store| {
        fs::write(store.at("a"), b"a").expect("made");
        fs::write(store.at("b"), b"b").expect("made");
        let replaced = File::open(store.at("b")).expect("there");
        let number = fs::metadata(store.at("a")).expect("there").ino();
        fs::rename(store.at("a"), store.at("b")).expect("renamed");
        assert_eq!(
            (fs::read(store.at("b")).expect("there"), names(&store.at(""))),
            (b"a".to_vec(), vec!["b".to_owned()])
        );
        assert_eq!(fs::metadata(store.at("b")).expect("there").ino(), number, "a file keeps its number");
        let mut byte = [0];
        replaced.read_exact_at(&mut byte, 0).expect("open");
        assert_eq!((byte, replaced.metadata().expect("open").nlink()), (*b"b", 0));

        fs::create_dir_all(store.at("d/e")).expect("made");
        fs::write(store.at("d/e/f"), b"deep").expect("made");
        let deep = File::open(store.at("d/e/f")).expect("there");
        assert_eq!(
            rename(&store.at("d"), &store.at("b"), RenameFlags::NOREPLACE),
            Errno::EXIST.raw_os_error()
        );
        assert_eq!(rename(&store.at("d"), &store.at("b"), RenameFlags::EXCHANGE), 0);
        assert_eq!(fs::read(store.at("b/e/f")).expect("there"), b"deep");
        assert_eq!(fs::read(store.at("d")).expect("there"), b"a");
        fs::rename(store.at("b"), store.at("moved")).expect("renamed");
        assert_eq!(fs::read(store.at("moved/e/f")).expect("there"), b"deep");
        deep.set_permissions(fs::Permissions::from_mode(0o611)).expect("wherever it is now");
        assert_eq!(fs::metadata(store.beneath("moved/e/f")).expect("there").mode() & 0o777, 0o611);
        fs::write(store.at("moved/e/g"), b"new").expect("made");
        assert_eq!(fs::read(store.beneath("moved/e/g")).expect("there"), b"new");
        assert_eq!(errno(fs::metadata(store.at("b"))), Errno::NOENT.raw_os_error());
        assert_eq!(
            rename(&store.at("d"), &store.at("w"), RenameFlags::WHITEOUT),
            Errno::INVAL.raw_os_error()
        );
    });
}

#[test]
fn directories_change_times_and_links_with_their_content() {
    Writable::each("directories", |store| {
        fs::create_dir(store.at("d")).expect("made");
        fs::write(store.at("x"), b"").expect("made");
        type Act = fn(&Path);
        let acts: &[(&str, Act)] = &[
            ("make a file", |at| drop(File::create(at.join("d/f")).expect("made"))),
            ("make a directory", |at| fs::create_dir(at.join("d/e")).expect("made")),
            ("link", |at| fs::hard_link(at.join("x"), at.join("d/l")).expect("made")),
            ("rename within", |at| fs::rename(at.join("d/f"), at.join("d/g")).expect("there")),
            ("rename away", |at| fs::rename(at.join("d/l"), at.join("y")).expect("there")),
            ("rename here", |at| fs::rename(at.join("y"), at.join("d/y")).expect("there")),
            ("symlink", |at| symlink("x", at.join("d/s")).expect("made")),
            ("remove a file", |at| fs::remove_file(at.join("d/g")).expect("there")),
            ("remove a directory", |at| fs::remove_dir(at.join("d/e")).expect("there")),
        ];
        for (what, act) in acts {
            next_tick(&store.beneath(""));
            let before = times(&store.at("d"));
            act(&store.at(""));
            let after = times(&store.at("d"));
            assert!(after.0 > before.0 && after.1 > before.1, "{what}: {before:?} {after:?}");
            let links = |path| fs::metadata(path).expect("there").nlink();
            assert_eq!(links(store.at("d")), links(store.beneath("d")), "{what}");
        }
    });
}

#[test]
fn a_directory_can_be_listed_while_it_changes() {
    Writable::each("listing", |store| {
        let count = 3000;
        for number in 0..count {
            fs::write(store.beneath(format!("{number:04}")), b"x").expect("made");
        }
        let mut seen = Vec::new();
        for (at, entry) in fs::read_dir(store.at("")).expect("readable").enumerate() {
            let name = entry.expect("readable").file_name().into_string().expect("ASCII");
            // Removing listed entries and creating new ones does not move the remaining ones.
            fs::remove_file(store.at(&name)).expect("listed");
            if at % 3 == 0 {
                fs::write(store.at(format!("new{at}")), b"").expect("made");
            }
            assert_eq!(errno(fs::metadata(store.at(&name))), Errno::NOENT.raw_os_error(), "{name}");
            seen.push(name);
        }
        seen.retain(|name| !name.starts_with("new"));
        seen.sort();
        assert_eq!(seen, (0..count).map(|number| format!("{number:04}")).collect::<Vec<_>>());
        for name in names(&store.at("")) {
            fs::remove_file(store.at(name)).expect("listed");
        }
        assert_eq!(names(&store.at("")), names(&store.beneath("")));
    });
}

#[test]
fn a_directory_can_be_listed_while_its_files_are_written() {
    Writable::each("written", |store| {
        fs::create_dir(store.at("d")).expect("made");
        let mut file = File::create(store.at("d/open")).expect("made");
        for len in 1..4 {
            file.write_all(b"x").expect("room");
            assert_eq!(names(&store.at("d")), ["open"]);
            assert_eq!(fs::metadata(store.at("d/open")).expect("there").len(), len);
        }
    });
}

#[test]
fn directory_positions_stay_valid_until_rewind() {
    Writable::each("positions", |store| {
        for name in ["a", "b", "c", "d"] {
            fs::write(store.at(name), b"").expect("made");
        }
        let mut dir =
            rustix::fs::Dir::read_from(File::open(store.at("")).expect("readable")).expect("a directory");
        let listed = |dir: &mut rustix::fs::Dir| -> Vec<String> {
            let names =
                dir.map(|entry| entry.expect("readable").file_name().to_str().expect("ASCII").to_owned());
            names.filter(|name| !name.starts_with('.')).collect()
        };
        assert_eq!(listed(&mut dir), ["a", "b", "c", "d"]);
        fs::remove_file(store.at("b")).expect("there");
        fs::write(store.at("e"), b"").expect("made");
        dir.rewind();
        assert_eq!(listed(&mut dir), ["a", "c", "d", "e"]);
    });
}

#[test]
fn an_open_removed_directory_is_empty_and_rejects_entries() {
    Writable::each("removed", |store| {
        store.same("a removed directory", |at| {
            fs::create_dir(at.join("d")).expect("made");
            let dir = File::open(at.join("d")).expect("readable");
            fs::remove_dir(at.join("d")).expect("empty");
            let links = rustix::fs::fstat(&dir).expect("open").st_nlink;
            let made = rustix::fs::mkdirat(&dir, "x", Mode::RWXU).err().map(Errno::raw_os_error);
            let listed = rustix::fs::Dir::read_from(&dir).map(|dir| dir.flatten().count());
            // Whether the kernel lists `.` and `..` of a removed directory depends on its version.
            (links, made, listed.map(|count| count == 0 || count == 2).unwrap_or(true))
        });
    });
}

#[test]
fn an_open_file_outlives_its_name_and_inode_number() {
    Writable::each("held", |store| {
        rustix::fs::mknodat(CWD, store.at("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("made");
        fs::create_dir(store.at("dir")).expect("made");
        symlink("x", store.at("link")).expect("made");
        let open = |name: &str, flags| {
            rustix::fs::openat(CWD, store.at(name), flags, Mode::empty()).expect("just made")
        };
        let held = [
            open("fifo", OFlags::RDWR | OFlags::NONBLOCK),
            open("dir", OFlags::RDONLY | OFlags::DIRECTORY),
            open("link", OFlags::PATH | OFlags::NOFOLLOW),
        ];
        fs::remove_file(store.at("fifo")).expect("there");
        fs::remove_dir(store.at("dir")).expect("there");
        fs::remove_file(store.at("link")).expect("there");
        // The underlying file system reuses the freed numbers.
        for number in 0..20 {
            let path = store.at(format!("f{number}"));
            fs::write(&path, b"new").expect("made");
            let (shown, beneath) =
                (fs::metadata(&path).expect("there"), fs::metadata(store.beneath(format!("f{number}"))));
            assert_eq!(shown.ino(), beneath.expect("there").ino(), "the store's number");
            assert_eq!(fs::read(&path).expect("there"), b"new");
            for handle in &held {
                assert_eq!(rustix::fs::fstat(handle).expect("held").st_nlink, 0);
            }
        }
        rustix::fs::fchmod(&held[0], Mode::RUSR).expect("held");
        assert_eq!(rustix::fs::fstat(&held[0]).expect("held").st_mode & 0o777, 0o400);
        rustix::fs::fsync(&held[1]).expect("held");
    });
}

#[test]
fn the_creator_owns_a_new_entry() {
    if !is_root() {
        return;
    }
    let options = MountOptions { allow_other: true, ..Default::default() };
    let Some(store) = Writable::new("owners", options) else { return };
    for root in [store.beneath(""), store.plain("")] {
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).expect("root");
    }
    store.same("directories for others", |at| {
        for (name, mode) in [("open", 0o777), ("shared", 0o2777)] {
            fs::create_dir(at.join(name)).expect("made");
            chown(at.join(name), Some(0), Some(4242)).expect("root");
            fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).expect("root");
        }
        shape(&at.join("shared")).expect("there")
    });
    for (place, what) in [("open", "as itself"), ("shared", "with the directory's group")] {
        store.same(what, |at| {
            let dir = at.join(place);
            let script =
                "umask 027; echo x >f; mkdir d; ln -s f l; mkfifo p; ls -ln | awk '{print $1, $3, $4, $NF}'";
            let output = std::process::Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65533", "--clear-groups", "sh", "-c", script])
                .current_dir(&dir)
                .output()
                .expect("setpriv is part of every Debian");
            String::from_utf8(output.stdout).expect("ASCII") + &String::from_utf8_lossy(&output.stderr)
        });
        for name in ["f", "d", "l", "p"] {
            let below = |root: PathBuf| shape(&root.join(place).join(name)).expect("there");
            assert_eq!(below(store.beneath("")), below(store.plain("")), "{name} in the store, {what}");
        }
    }
}

#[test]
fn a_reader_sees_writes_by_another_name_after_an_exchange_and_utimes() {
    Writable::each("exchanged-time", |store| {
        store.same("read", |at| {
            for (name, bytes) in [("a", "one"), ("b", "two")] {
                fs::write(at.join(name), bytes).expect("made");
            }
            let reader = File::open(at.join("a")).expect("there");
            assert_eq!(rename(&at.join("b"), &at.join("a"), RenameFlags::EXCHANGE), 0);
            let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(700_000_000);
            File::open(at.join("b")).and_then(|file| file.set_modified(time)).expect("ours");
            let writer = OpenOptions::new().write(true).open(at.join("b")).expect("there");
            writer.write_all_at(b" and more", 3).expect("open");
            let mut read = [0; 12];
            reader.read_exact_at(&mut read, 0).expect("it is the same file");
            writer.set_len(5).expect("open");
            (read, reader.read_at(&mut [0; 12], 0).expect("it is the same file"))
        });
        assert_eq!(fs::read(store.beneath("b")).expect("there"), b"one a");
    });
}

/// Regression: after a removal at the store, but before its response, the store reuses the number
/// for a new file elsewhere. The kernel took the new file for the old one, whose link count it had
/// decremented to zero, and rejected links to it with ENOENT.
#[test]
fn a_file_that_reuses_the_number_of_a_file_being_removed_can_be_linked() {
    type Remove = fn(&Path);
    let ways: [(&str, Remove); 2] = [
        ("replaced", |at| fs::rename(at.join("here/new"), at.join("here/old")).expect("both are there")),
        ("removed", |at| fs::remove_file(at.join("here/old")).expect("it is there")),
    ];
    for (what, remove) in ways {
        let (directory, Some(dir), gate) = (Directory::new(what), Dir::new(what), Arc::<Gate>::default())
        else {
            return;
        };
        let engine = Engine::new(Options { cache_bytes: Some(4 << 20), ..Options::default() });
        let engine = engine.expect("there is memory");
        let url = directory.path().to_str().expect("ASCII");
        let inner = open_url(url, &engine.options().store).expect("a directory");
        let gated = Gated { inner, looks: Arc::default(), removals: Arc::clone(&gate) };
        let store = engine.store_of(Arc::new(gated));
        let _mount = Mount::new(store, dir.path(), MountOptions::default()).expect("mounts can be made here");
        let at = dir.path();
        fs::create_dir(at.join("elsewhere")).expect("writable");
        fs::create_dir(at.join("here")).expect("writable");
        fs::write(at.join("here/old"), b"old").expect("writable");
        fs::write(at.join("here/new"), b"new").expect("writable");
        let old = fs::metadata(at.join("here/old")).expect("there").ino();
        gate.shut();
        let made: Vec<_> = thread::scope(|scope| {
            scope.spawn(|| remove(at));
            gate.wait();
            // Enough that one file gets the number, if the file system reuses numbers. A create
            // that the kernel takes for the old file waits for the removal, which waits for us. So
            // do not wait for all of them.
            let (tell, told) = sync_channel(64);
            scope.spawn(move || {
                for index in 0..64 {
                    let path = at.join(format!("elsewhere/{index}"));
                    let _unless_given_up = tell.send(fs::write(&path, b"made").map(|()| path));
                }
            });
            // On a busy disk, one create can take seconds.
            let made = iter::from_fn(|| told.recv_timeout(Duration::from_secs(60)).ok()).collect();
            gate.open();
            made
        });
        assert_eq!(made.len(), 64, "{what}: the next one waits");
        for path in made {
            let path = &path.expect("writable");
            let found = fs::metadata(path).expect("there");
            let again = found.ino() == old;
            assert_eq!(found.nlink(), 1, "{what}, {path:?}, with the old number: {again}");
            fs::hard_link(path, path.with_extension("link"))
                .unwrap_or_else(|error| panic!("{what}, {path:?}, with the old number: {again}: {error}"));
            assert_eq!(fs::read(path).expect("readable"), b"made");
        }
    }
}
