//! Hostile stores, stores that change or fill up, and stores without write permission.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::writable::{Directory, Writable, errno, is_root};
use crate::common::{Dir, Memory, pattern, skipped, store};
use bowwave_fuse::{Mount, MountOptions};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// A small file system in memory, unmounted at the end.
struct Ram(Dir);

impl Ram {
    fn new(options: &str) -> Option<Self> {
        let dir = Dir::new("ram")?;
        let options = std::ffi::CString::new(options).expect("no NUL");
        rustix::mount::mount("none", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str())
            .expect("root may");
        Some(Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        rustix::mount::unmount(self.path(), UnmountFlags::DETACH).expect("mounted in `new`");
    }
}

fn mounted(source: &Path, dir: &Dir, options: MountOptions) -> Mount {
    Mount::new(store(source.to_str().expect("ASCII"), 64 << 20), dir.path(), options).expect("mountable")
}

#[test]
fn invalid_names_are_not_listed_and_odd_ones_are_unchanged() {
    let (Some(dir), memory) = (Dir::new("hostile"), Memory::new()) else { return };
    let long = "n".repeat(256);
    // A listing may contain any name; some of these are not valid paths.
    for name in ["..", ".", "", "a/b", "nul\0nul", long.as_str()] {
        memory.listed(name);
    }
    let odd: [&[u8]; 4] = [b"\xff\xfe not UTF-8", b"new\nline", b"-rf", b" "];
    for name in odd {
        memory.file(OsStr::from_bytes(name), b"odd");
    }
    let _mount = memory.mount(&dir);
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().as_bytes().to_vec())
        .collect();
    names.sort();
    let mut want = odd.map(<[u8]>::to_vec).to_vec();
    want.sort();
    assert_eq!(names, want);
    for name in odd {
        assert_eq!(fs::read(dir.path().join(OsStr::from_bytes(name))).expect("readable"), b"odd");
    }
    assert_eq!(errno(fs::metadata(dir.path().join(&long))), Errno::NAMETOOLONG.raw_os_error());
}

#[test]
fn odd_names_can_be_created() {
    Writable::each("odd", |store| {
        for name in [&b"\xff\xfe"[..], b"new\nline", b"-rf", b" ", b"...", &[b'x'; 255]] {
            let name = OsStr::from_bytes(name);
            fs::write(store.at(name), name.as_bytes()).expect("made");
            assert_eq!(fs::read(store.beneath(name)).expect("there"), name.as_bytes());
            fs::rename(store.at(name), store.at("other")).expect("there");
            fs::rename(store.at("other"), store.at(name)).expect("there");
            fs::remove_file(store.at(name)).expect("there");
        }
        assert_eq!(fs::read_dir(store.beneath("")).expect("there").count(), 0);
    });
}

#[test]
fn the_program_follows_links_out_of_a_store_and_the_store_does_not() {
    Writable::each("escape", |store| {
        let outside = Directory::new("outside");
        fs::write(outside.path().join("secret"), b"outside").expect("made");
        symlink(outside.path(), store.beneath("out")).expect("made");
        symlink("../../../../../../../../etc", store.beneath("up")).expect("made");
        assert_eq!(fs::read_link(store.at("out")).expect("a link"), outside.path());
        // The kernel resolves links itself, from the mount point; the store gets no request beyond
        // its root.
        assert_eq!(fs::read(store.at("out/secret")).expect("there"), b"outside");
        assert!(
            fs::metadata(store.at("up")).is_ok_and(|found| found.is_dir()) || !Path::new("/etc").exists()
        );
        // A directory becomes a link to elsewhere while the kernel still has it cached as a
        // directory.
        fs::create_dir(store.at("d")).expect("made");
        fs::write(store.at("d/f"), b"inside").expect("made");
        let dir = File::open(store.at("d")).expect("there");
        fs::remove_file(store.beneath("d/f")).expect("there");
        fs::remove_dir(store.beneath("d")).expect("empty");
        symlink(outside.path(), store.beneath("d")).expect("made");
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let made = rustix::fs::openat(&dir, "new", flags, Mode::RWXU);
        let removed = rustix::fs::unlinkat(&dir, "secret", AtFlags::empty());
        let shown = rustix::fs::openat(&dir, "secret", OFlags::RDONLY, Mode::empty());
        assert!(made.is_err() && removed.is_err() && shown.is_err());
        assert_eq!(fs::read_dir(outside.path()).expect("there").count(), 1, "nothing made, nothing removed");
    });
}

#[test]
fn changes_from_outside_are_visible_and_harmless() {
    let Some(store) =
        Writable::new("beneath", MountOptions { ttl: Duration::ZERO, ..MountOptions::default() })
    else {
        return;
    };
    fs::create_dir_all(store.at("d/e")).expect("made");
    fs::write(store.at("d/e/f"), b"first").expect("made");
    let open = File::open(store.at("d/e/f")).expect("there");
    let dir = File::open(store.at("d/e")).expect("there");

    // Removed: absent by name, readable by handle.
    fs::remove_file(store.beneath("d/e/f")).expect("there");
    assert_eq!(errno(fs::metadata(store.at("d/e/f"))), Errno::NOENT.raw_os_error());
    assert_eq!(errno(fs::remove_file(store.at("d/e/f"))), Errno::NOENT.raw_os_error());
    let mut bytes = [0; 5];
    open.read_exact_at(&mut bytes, 0).expect("open");
    assert_eq!(&bytes, b"first");

    // Replaced by another file, then by a directory.
    fs::write(store.beneath("d/e/f"), b"second").expect("made");
    assert_eq!(fs::read(store.at("d/e/f")).expect("there"), b"second");
    fs::remove_file(store.beneath("d/e/f")).expect("there");
    fs::create_dir(store.beneath("d/e/f")).expect("made");
    assert!(fs::metadata(store.at("d/e/f")).expect("there").is_dir());
    assert_ne!(errno(fs::write(store.at("d/e/f"), b"x")), 0);

    // Renamed with its content.
    fs::rename(store.beneath("d"), store.beneath("moved")).expect("there");
    assert_eq!(errno(fs::metadata(store.at("d/e"))), Errno::NOENT.raw_os_error());
    assert!(fs::metadata(store.at("moved/e/f")).expect("there").is_dir());
    fs::write(store.at("moved/e/g"), b"third").expect("there");
    assert_eq!(fs::read(store.beneath("moved/e/g")).expect("there"), b"third");
    let _either = rustix::fs::fstat(&dir);

    // A whole tree removed while it is listed and written.
    fs::remove_dir_all(store.beneath("moved")).expect("there");
    assert_eq!(errno(fs::read_dir(store.at("moved")).map(drop)), Errno::NOENT.raw_os_error());
    assert_eq!(errno(File::create(store.at("moved/e/new"))), Errno::NOENT.raw_os_error());
    fs::write(store.at("after"), b"all is well").expect("made");
    assert_eq!(fs::read(store.beneath("after")).expect("there"), b"all is well");
}

#[test]
fn appends_go_to_the_end_of_a_file_extended_from_outside() {
    let Some(store) =
        Writable::new("extended", MountOptions { ttl: Duration::from_secs(600), ..MountOptions::default() })
    else {
        return;
    };
    fs::write(store.at("log"), b"ours\n").expect("made");
    OpenOptions::new()
        .append(true)
        .open(store.beneath("log"))
        .expect("there")
        .write_all(b"theirs\n")
        .expect("room");
    std::thread::sleep(Duration::from_millis(100));
    OpenOptions::new().append(true).open(store.at("log")).expect("there").write_all(b"ours\n").expect("room");
    assert_eq!(fs::read_to_string(store.beneath("log")).expect("there"), "ours\ntheirs\nours\n");
    assert_eq!(fs::read_to_string(store.at("log")).expect("there"), "ours\ntheirs\nours\n");
}

#[test]
fn a_full_disk_fails_its_writer_and_loses_nothing_else() {
    if !is_root() {
        return;
    }
    let (Some(ram), Some(dir)) = (Ram::new("size=1m,nr_inodes=40"), Dir::new("full")) else { return };
    let mount = mounted(ram.path(), &dir, MountOptions::default());
    let kept = pattern(200_000, 1);
    fs::write(dir.path().join("kept"), &kept).expect("room");
    let mut file = File::create(dir.path().join("large")).expect("made");
    let mut outcome = file.write_all(&pattern(4 << 20, 2));
    if outcome.is_ok() {
        outcome = file.sync_all();
    }
    assert_eq!(errno(outcome), Errno::NOSPC.raw_os_error());
    drop(file);
    fs::remove_file(dir.path().join("large")).expect("there");
    assert!(fs::read(dir.path().join("kept")).expect("readable") == kept);
    // `close` returns before the kernel tells the mount of it, which then closes the removed file.
    let mut again = File::create(dir.path().join("again")).expect("made");
    again.write_all(&kept).expect("cached");
    let synced = (0..100).any(|_| match errno(again.sync_all()) {
        0 => true,
        error => {
            assert_eq!(error, Errno::NOSPC.raw_os_error());
            std::thread::sleep(Duration::from_millis(100));
            false
        }
    });
    assert!(synced, "there is room again");
    drop(again);
    let made = (0..100)
        .map(|number| errno(File::create(dir.path().join(format!("n{number}")))))
        .find(|&error| error != 0);
    assert_eq!(made, Some(Errno::NOSPC.raw_os_error()), "no more files");
    mount.unmount().expect("idle");
    assert!(fs::read(ram.path().join("again")).expect("readable") == kept);
}

#[test]
fn a_store_on_a_read_only_file_system_fails_with_erofs() {
    if !is_root() {
        return;
    }
    let (Some(ram), Some(dir)) = (Ram::new("size=1m"), Dir::new("sealed")) else { return };
    fs::write(ram.path().join("f"), b"sealed").expect("room");
    rustix::mount::mount_remount(ram.path(), MountFlags::RDONLY, c"").expect("root may");
    let _mount = mounted(ram.path(), &dir, MountOptions::default());
    assert_eq!(fs::read(dir.path().join("f")).expect("readable"), b"sealed");
    for refused in [
        errno(File::create(dir.path().join("new"))),
        errno(OpenOptions::new().write(true).open(dir.path().join("f"))),
        errno(fs::remove_file(dir.path().join("f"))),
        errno(fs::rename(dir.path().join("f"), dir.path().join("g"))),
        errno(fs::create_dir(dir.path().join("d"))),
        errno(fs::set_permissions(dir.path().join("f"), fs::Permissions::from_mode(0o600))),
    ] {
        assert_eq!(refused, Errno::ROFS.raw_os_error());
    }
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let (source, Some(dir)) = (Directory::new("source"), Dir::new("read-only")) else { return };
    fs::write(source.path().join("f"), b"as it was").expect("made");
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let mount = mounted(source.path(), &dir, options);
    assert!(mount.is_read_only());
    let at = |name: &str| dir.path().join(name);
    let acts: [Result<(), std::io::Error>; 8] = [
        File::create(at("new")).map(drop),
        OpenOptions::new().append(true).open(at("f")).map(drop),
        fs::remove_file(at("f")),
        fs::rename(at("f"), at("g")),
        fs::create_dir(at("d")),
        symlink("x", at("l")),
        fs::hard_link(at("f"), at("h")),
        fs::set_permissions(at("f"), fs::Permissions::from_mode(0o777)),
    ];
    for act in acts {
        assert_eq!(errno(act), Errno::ROFS.raw_os_error());
    }
    assert_eq!(fs::read(at("f")).expect("readable"), b"as it was");
    assert_eq!(
        fs::metadata(at("f")).expect("there").mode(),
        fs::metadata(source.path().join("f")).expect("there").mode()
    );
    assert_eq!(fs::read_dir(source.path()).expect("there").count(), 1);
}

#[test]
fn the_mounting_users_permissions_apply() {
    if !is_root() || !user_mounts() {
        return;
    }
    // The mounting user owns only one directory of the store.
    let (source, Some(dir)) = (Directory::new("denied"), Dir::new("user")) else { return };
    fs::set_permissions(source.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::create_dir(source.path().join("own")).expect("made");
    std::os::unix::fs::chown(source.path().join("own"), Some(65534), Some(65534)).expect("root");
    fs::write(source.path().join("secret"), b"x").expect("made");
    fs::set_permissions(source.path().join("secret"), fs::Permissions::from_mode(0o600)).expect("ours");
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).expect("root");
    // A copy, because the user may have no access to this program's directory.
    let nodes = Directory::new("nodes");
    fs::set_permissions(nodes.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let program = nodes.path().join("test");
    fs::copy(std::env::current_exe().expect("this test"), &program).expect("room");
    // In a mount namespace in which every user may open the device.
    let script = "mknod \"$BOWWAVE_TEST_NODE\" c 10 229 && chmod 666 \"$BOWWAVE_TEST_NODE\" \
        && mount --bind \"$BOWWAVE_TEST_NODE\" /dev/fuse \
        && exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" --exact trouble::acts_of_a_user --nocapture";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(program)
        .env("BOWWAVE_TEST_SOURCE", source.path())
        .env("BOWWAVE_TEST_DIR", dir.path())
        .env("BOWWAVE_TEST_NODE", nodes.path().join("fuse"))
        .output()
        .expect("unshare is part of every Debian");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all was refused"), "{said}");
    assert_eq!(fs::read(source.path().join("own/made")).expect("there"), b"by the user");
}

/// Whether the setuid mount helper is installed.
fn user_mounts() -> bool {
    let has = ["/usr/bin/fusermount3", "/bin/fusermount3"].iter().any(|path| Path::new(path).exists());
    if !has {
        skipped("there is no fusermount3 here");
    }
    has
}

/// Part of the test above, run as the user. Does nothing by itself.
#[test]
#[expect(clippy::print_stdout, reason = "read by its parent")]
fn acts_of_a_user() {
    let (Some(source), Some(dir)) =
        (std::env::var_os("BOWWAVE_TEST_SOURCE"), std::env::var_os("BOWWAVE_TEST_DIR"))
    else {
        return;
    };
    let (source, dir) = (PathBuf::from(source), PathBuf::from(dir));
    let mount = Mount::new(store(source.to_str().expect("ASCII"), 64 << 20), &dir, MountOptions::default());
    let mount = mount.expect("users may");
    let mut secret = Vec::new();
    let denied = [
        errno(File::open(dir.join("secret")).and_then(|mut file| file.read_to_end(&mut secret))),
        errno(File::create(dir.join("new"))),
        errno(fs::remove_file(dir.join("secret"))),
        errno(fs::rename(dir.join("secret"), dir.join("own/secret"))),
    ];
    assert_eq!(denied, [Errno::ACCESS.raw_os_error(); 4]);
    assert_eq!(
        errno(fs::set_permissions(dir.join("secret"), fs::Permissions::from_mode(0o666))),
        Errno::PERM.raw_os_error()
    );
    fs::write(dir.join("own/made"), b"by the user").expect("its own");
    mount.unmount().expect("idle");
    println!("all was refused");
}
