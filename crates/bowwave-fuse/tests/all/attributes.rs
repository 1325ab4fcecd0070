//! Compares `stat` and attribute changes through a mount with the underlying file system.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::skipped;
use crate::common::writable::{Writable, errno, is_root, next_tick, shape, times};
use bowwave_fuse::MountOptions;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;

fn mode(path: &Path, mode: u32) -> i32 {
    errno(fs::set_permissions(path, fs::Permissions::from_mode(mode)))
}

fn set_times(path: &Path, accessed: (i64, i64), modified: (i64, i64), flags: AtFlags) -> i32 {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    rustix::fs::utimensat(CWD, path, &times, flags).err().map_or(0, Errno::raw_os_error)
}

/// Runs a shell script in a directory as another user; returns its output.
fn as_nobody(at: &Path, script: &str) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65533", "--clear-groups", "sh", "-c", script])
        .current_dir(at)
        .output()
        .expect("setpriv is part of every Debian");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A mount for all users, whose root and plain directory are writable by everyone.
fn shared(name: &str) -> Option<Writable> {
    let store = Writable::new(name, MountOptions { allow_other: true, ..MountOptions::default() })?;
    for root in [store.beneath(""), store.plain("")] {
        fs::set_permissions(root, fs::Permissions::from_mode(0o777)).expect("ours");
    }
    // The kernel's cached root attributes are older.
    fs::set_permissions(store.at(""), fs::Permissions::from_mode(0o777)).expect("ours");
    Some(store)
}

#[test]
fn modes_owners_and_special_bits_change_as_in_the_store() {
    Writable::each("modes", |store| {
        store.same("preparation", |at| {
            fs::write(at.join("f"), b"x").expect("made");
            fs::create_dir(at.join("d")).expect("made");
            symlink("f", at.join("l")).expect("made");
        });
        for bits in [0o600, 0o4711, 0o2755, 0o1777, 0o7777, 0o000, 0o644] {
            for name in ["f", "d", "l"] {
                store.same(name, |at| (mode(&at.join(name), bits), shape(&at.join(name)).expect("there")));
            }
        }
        if !is_root() {
            return;
        }
        for (uid, gid) in [(Some(1), Some(2)), (None, Some(3)), (Some(4), None), (None, None)] {
            for name in ["f", "d"] {
                // A chown clears set-user-id even if the owner stays the same.
                store.same(name, |at| {
                    assert_eq!(mode(&at.join(name), 0o6755), 0);
                    chown(at.join(name), uid, gid).expect("root");
                    shape(&at.join(name)).expect("there")
                });
            }
            store.same("a link itself", |at| {
                lchown(at.join("l"), uid, gid).expect("root");
                (shape(&at.join("l")).expect("there"), shape(&at.join("f")).expect("there"))
            });
        }
    });
}

#[test]
fn each_change_is_stamped_immediately() {
    Writable::each("stamped", |store| {
        let path = store.at("f");
        fs::write(&path, vec![1; 10_000]).expect("made");
        type Act = fn(&Path);
        let acts: &[(&str, bool, Act)] = &[
            ("chmod", false, |path| assert_eq!(mode(path, 0o640), 0)),
            ("chown", false, |path| chown(path, None, None).expect("ours")),
            ("link", false, |path| fs::hard_link(path, path.with_extension("l")).expect("made")),
            ("unlink", false, |path| fs::remove_file(path.with_extension("l")).expect("made")),
            ("write", true, |path| {
                let file = OpenOptions::new().write(true).open(path).expect("ours");
                file.write_all_at(b"x", 5).expect("ours");
            }),
            ("append", true, |path| {
                OpenOptions::new().append(true).open(path).expect("ours").write_all(b"x").expect("ours");
            }),
            ("truncate", true, |path| {
                let done = Command::new("truncate").args(["-s", "500"]).arg(path).status();
                assert!(done.expect("coreutils").success());
            }),
            ("extend", true, |path| {
                OpenOptions::new().write(true).open(path).expect("ours").set_len(5000).expect("ours")
            }),
            ("open with O_TRUNC", true, |path| drop(File::create(path).expect("ours"))),
            ("fallocate", true, |path| {
                let file = OpenOptions::new().write(true).open(path).expect("ours");
                rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, 9000).expect("room");
            }),
            ("xattr", false, |path| {
                rustix::fs::setxattr(path, "user.x", b"1", XattrFlags::empty())
                    .expect("the file system has them");
            }),
            ("rename", false, |path| {
                fs::rename(path, path.with_extension("r")).expect("ours");
                fs::rename(path.with_extension("r"), path).expect("ours");
            }),
        ];
        for (what, modifies, act) in acts {
            next_tick(&store.beneath(""));
            let before = times(&path);
            act(&path);
            let after = times(&path);
            assert!(after.1 > before.1, "{what}: change time");
            assert_eq!(after.0 > before.0, *modifies, "{what}: modification time");
            let size = fs::metadata(store.beneath("f")).expect("there").len();
            assert_eq!(fs::metadata(&path).expect("there").len(), size, "{what}");
        }
    });
}

#[test]
fn times_are_set_and_kept() {
    Writable::each("times", |store| {
        let path = store.at("f");
        let mut file = File::create(&path).expect("made");
        file.write_all(&vec![1; 3_000_000]).expect("room");
        for (modified, accessed) in
            [((1_000_000_000, 123_456_789), (5, 6)), ((-5, 250_000_000), (-1, 0)), ((0, 0), (0, 1))]
        {
            assert_eq!(set_times(&path, accessed, modified, AtFlags::empty()), 0);
            let shown = |path: &Path| {
                let metadata = fs::metadata(path).expect("there");
                ((metadata.mtime(), metadata.mtime_nsec()), (metadata.atime(), metadata.atime_nsec()))
            };
            assert_eq!(shown(&path), (modified, accessed));
            assert_eq!(shown(&store.beneath("f")), (modified, accessed));
        }
        let omit = (0, UTIME_OMIT);
        assert_eq!(set_times(&path, omit, (7, 0), AtFlags::empty()), 0);
        let metadata = fs::metadata(&path).expect("there");
        assert_eq!((metadata.atime(), metadata.atime_nsec(), metadata.mtime()), (0, 1, 7));
        // Written before, so a later write-out does not change it.
        drop(file);
        assert_eq!(fs::metadata(&path).expect("there").mtime(), 7);
        assert_eq!(fs::metadata(store.beneath("f")).expect("there").mtime(), 7);
        assert_eq!(set_times(&path, omit, (0, UTIME_NOW), AtFlags::empty()), 0);
        let now = std::time::SystemTime::now();
        let age = now.duration_since(fs::metadata(&path).expect("there").modified().expect("known"));
        assert!(age.is_ok_and(|age| age.as_secs() < 100));
        symlink("f", store.at("l")).expect("made");
        assert_eq!(set_times(&store.at("l"), (1, 0), (2, 0), AtFlags::SYMLINK_NOFOLLOW), 0);
        assert_eq!(fs::symlink_metadata(store.at("l")).expect("there").mtime(), 2);
        assert_ne!(fs::metadata(&path).expect("there").mtime(), 2);
    });
}

#[test]
fn a_write_by_another_user_clears_set_user_id() {
    if !is_root() {
        return;
    }
    let Some(store) = shared("privileges") else { return };
    for (what, script) in [
        ("write", "echo x >>f"),
        ("truncate", "truncate -s 1 f"),
        ("overwrite", "echo x >f"),
        ("nothing", "true"),
    ] {
        for bits in [0o6777, 0o4777, 0o2777, 0o2767] {
            let (shown, said) = store.same(what, |at| {
                fs::write(at.join("f"), b"four").expect("made");
                assert_eq!(mode(&at.join("f"), bits), 0);
                let said = as_nobody(at, script);
                (shape(&at.join("f")).expect("there"), said)
            });
            assert_eq!(said, "", "{what}");
            assert_eq!(shown.0, fs::metadata(store.beneath("f")).expect("there").mode(), "{what}");
        }
    }
    store.same("root may", |at| {
        assert_eq!(mode(&at.join("f"), 0o6777), 0);
        OpenOptions::new().append(true).open(at.join("f")).expect("ours").write_all(b"x").expect("ours");
        shape(&at.join("f")).expect("there")
    });
}

#[test]
fn permissions_are_checked_for_every_user() {
    if !is_root() {
        return;
    }
    let Some(store) = shared("permissions") else { return };
    store.same("preparation", |at| {
        for (name, bits) in [("secret", 0o600), ("shown", 0o644), ("given", 0o666)] {
            fs::write(at.join(name), name).expect("made");
            assert_eq!(mode(&at.join(name), bits), 0);
        }
        fs::create_dir(at.join("private")).expect("made");
        assert_eq!(mode(&at.join("private"), 0o700), 0);
        fs::create_dir(at.join("sticky")).expect("made");
        assert_eq!(mode(&at.join("sticky"), 0o1777), 0);
        fs::write(at.join("sticky/roots"), b"").expect("made");
        fs::create_dir(at.join("shown_only")).expect("made");
        assert_eq!(mode(&at.join("shown_only"), 0o755), 0);
        fs::write(at.join("shown_only/roots"), b"").expect("made");
    });
    for script in [
        "cat secret",
        "cat shown",
        "echo x >>shown",
        "echo x >secret",
        "echo x >given; cat given",
        "ls private",
        "touch private/x",
        "touch shown_only/new",
        "rm -f shown_only/roots",
        "mv shown_only/roots shown_only/mine",
        "mkdir shown_only/new",
        "ln secret shown_only/also",
        "rm -f sticky/roots",
        "touch sticky/mine && mv sticky/mine sticky/own && rm sticky/own",
        "chmod 777 secret",
        "chown 65534 shown",
        "touch -d @5 given",
        "ln -s x new && mkdir dir && rmdir dir && rm new && echo done",
        "mkfifo p && test -p p && rm p && echo done",
        "mknod n c 1 3",
        "truncate -s 0 shown",
        "truncate -s 0 given && wc -c <given",
    ] {
        store.same(script, |at| as_nobody(at, script));
    }
}

#[test]
fn a_mount_without_allow_other_is_private() {
    if !is_root() {
        return;
    }
    let Some(store) = Writable::new("private", MountOptions::default()) else { return };
    fs::write(store.at("f"), b"x").expect("made");
    fs::set_permissions(store.beneath(""), fs::Permissions::from_mode(0o777)).expect("ours");
    fs::set_permissions(store.beneath("f"), fs::Permissions::from_mode(0o666)).expect("ours");
    let said = as_nobody(Path::new("/"), &format!("cat {}", store.at("f").display()));
    assert!(said.contains("Permission denied"), "{said}");
}

#[test]
fn extended_attributes_are_those_of_the_file_system() {
    Writable::each("xattrs", |store| {
        store.same("extended attributes", |at| {
            let path = at.join("f");
            fs::write(&path, b"x").expect("made");
            let mut said: Vec<Result<Vec<u8>, i32>> = Vec::new();
            let mut note =
                |result: rustix::io::Result<Vec<u8>>| said.push(result.map_err(Errno::raw_os_error));
            let get = |name: &str, room: usize| {
                let mut value = vec![0; room];
                rustix::fs::getxattr(&path, name, &mut value).map(|len| value[..len.min(room)].to_vec())
            };
            let set = |name: &str, value: &[u8], flags| {
                rustix::fs::setxattr(&path, name, value, flags).map(|()| Vec::new())
            };
            note(get("user.none", 10));
            note(set("user.a", b"value", XattrFlags::empty()));
            note(set("user.a", b"other", XattrFlags::CREATE));
            note(set("user.b", b"other", XattrFlags::REPLACE));
            note(set("user.b", b"", XattrFlags::CREATE));
            note(set("user.a", b"longer than it was", XattrFlags::REPLACE));
            for room in [0, 3, 100] {
                note(get("user.a", room));
            }
            let mut names = vec![0; 1000];
            let len = rustix::fs::listxattr(&path, &mut names).expect("there are some");
            let mut names: Vec<_> =
                names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
            names.sort_unstable();
            let names = names.concat();
            note(rustix::fs::removexattr(&path, "user.a").map(|()| Vec::new()));
            note(rustix::fs::removexattr(&path, "user.a").map(|()| Vec::new()));
            note(set("nonsense", b"", XattrFlags::empty()));
            note(set("user.huge", &vec![1; 70_000], XattrFlags::empty()));
            if is_root() {
                note(set("trusted.t", b"1", XattrFlags::empty()));
                note(get("trusted.t", 10));
                note(set("security.capability", b"nonsense", XattrFlags::empty()));
            }
            (said, names)
        });
        assert_eq!(
            store.same("the rest", |at| rustix::fs::listxattr(at.join("f"), &mut [0; 1000])
                .map_err(Errno::raw_os_error)),
            store.same("beneath", |_| rustix::fs::listxattr(store.beneath("f"), &mut [0; 1000])
                .map_err(Errno::raw_os_error))
        );
    });
}

fn has_setfacl() -> bool {
    let has = Command::new("setfacl").arg("-v").output().is_ok();
    if !has {
        skipped("there is no setfacl here (try: tools/setup.sh servers)");
    }
    has
}

#[test]
fn access_control_lists_are_enforced_and_inherited() {
    if !is_root() || !has_setfacl() {
        return;
    }
    let Some(store) = shared("lists") else { return };
    store.same("access lists", |at| {
        fs::create_dir(at.join("d")).expect("made");
        fs::write(at.join("f"), b"for some").expect("made");
        assert_eq!(mode(&at.join("f"), 0o640), 0);
        let run = |command: &mut Command| {
            let output = command.current_dir(at).output().expect("it starts");
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        };
        let mut said = vec![as_nobody(at, "cat f")];
        said.push(run(Command::new("setfacl").args(["-m", "u:65534:r", "f"])));
        said.push(as_nobody(at, "cat f"));
        said.push(run(Command::new("setfacl").args(["-d", "-m", "u:65534:rwx,g::rx", "d"])));
        said.push(run(Command::new("sh")
            .args(["-c", "umask 077; mkdir d/sub; echo x >d/file; getfacl -n d f d/sub d/file"])));
        said
    });
}

#[test]
fn statfs_is_that_of_the_file_system() {
    Writable::each("room", |store| {
        let room = |path: &Path| {
            let found = rustix::fs::statfs(path).expect("there");
            (found.f_blocks * found.f_bsize as u64, found.f_files, found.f_namelen)
        };
        assert_eq!(room(&store.at("")), room(&store.beneath("")));
        assert!(store.same("access", |at| rustix::fs::access(at, rustix::fs::Access::WRITE_OK).is_ok()));
    });
}
