//! Hostile stores, stores that change or fill up, and stores without write permission.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::writable::{Directory, Writable, errno, is_root};
use crate::common::{Dir, Memory, pattern, skipped, store};
use bowwave_fuse::{Mount, MountOptions, Told};
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

/// Odd names, and names special to file systems.
const ODD: [&[u8]; 15] = [
    b"\xff\xfe not UTF-8",
    b"\xff\xfe",
    b"\xff\xfe\xaf\x80",
    b"new\nline",
    b"-rf",
    b" ",
    b"...",
    b"\x7f\x01",
    b"*",
    b"\\",
    b"%2e%2e",
    b"..\\up",
    "é".as_bytes(),
    b"nul:",
    &[b'x'; 255],
];

#[test]
fn invalid_names_are_not_listed_and_odd_ones_are_unchanged() {
    let (Some(dir), memory) = (Dir::new("hostile"), Memory::new()) else { return };
    let long = "n".repeat(256);
    // A listing may contain any name; some of these are not valid paths.
    for name in ["..", ".", "", "a/b", "nul\0nul", long.as_str()] {
        memory.listed(name);
    }
    for name in ODD {
        memory.file(OsStr::from_bytes(name), b"odd");
    }
    let _mount = memory.mount(&dir);
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().as_bytes().to_vec())
        .collect();
    names.sort();
    let mut want = ODD.map(<[u8]>::to_vec).to_vec();
    want.sort();
    assert_eq!(names, want);
    for name in ODD {
        assert_eq!(fs::read(dir.path().join(OsStr::from_bytes(name))).expect("readable"), b"odd");
    }
    assert_eq!(errno(fs::metadata(dir.path().join(&long))), Errno::NAMETOOLONG.raw_os_error());
}

#[test]
fn odd_names_can_be_created() {
    Writable::each("odd", |store| {
        fs::create_dir(store.at("into")).expect("made");
        for name in ODD.map(OsStr::from_bytes) {
            let within = Path::new("into").join(name);
            fs::write(store.at(name), name.as_bytes()).expect("made");
            assert_eq!(fs::read(store.beneath(name)).expect("there"), name.as_bytes());
            fs::rename(store.at(name), store.at("other")).expect("there");
            fs::rename(store.at("other"), store.at(&within)).expect("there");
            fs::write(store.at(name), b"new").expect("made");
            fs::hard_link(store.at(name), store.at("link")).expect("made");
            fs::remove_file(store.at("link")).expect("there");
            assert_eq!(fs::read(store.beneath(&within)).expect("there"), name.as_bytes());
            assert_eq!(fs::read(store.beneath(name)).expect("there"), b"new");
        }
        for directory in ["", "into"] {
            let entries = fs::read_dir(store.at(directory)).expect("there");
            let mut listed: Vec<_> = entries.map(|entry| entry.expect("there").file_name()).collect();
            let mut made: Vec<_> = ODD.map(|name| OsStr::from_bytes(name).to_owned()).to_vec();
            made.extend(directory.is_empty().then(|| "into".into()));
            listed.sort();
            made.sort();
            assert_eq!(listed, made, "in {directory:?}");
        }
        for name in ODD.map(OsStr::from_bytes) {
            fs::remove_file(store.at(name)).expect("there");
            fs::remove_file(store.at(Path::new("into").join(name))).expect("there");
        }
        fs::remove_dir(store.at("into")).expect("empty");
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
    // The kernel looks up names below a cached directory without revalidating it.
    let options = MountOptions { ttl: Duration::from_secs(3600), ..MountOptions::default() };
    let (outside, Some(store)) = (Directory::new("outside"), Writable::new("escape", options)) else {
        return;
    };
    fs::write(outside.path().join("file"), b"theirs").expect("made");
    fs::set_permissions(outside.path().join("file"), fs::Permissions::from_mode(0o644)).expect("ours");
    fs::create_dir(store.beneath("d")).expect("made");
    fs::write(store.beneath("d/file"), b"ours").expect("made");
    assert_eq!(fs::read(store.at("d/file")).expect("there"), b"ours");
    let dir = File::open(store.at("d")).expect("there");
    fs::rename(store.beneath("d"), store.beneath("was")).expect("there");
    symlink(outside.path(), store.beneath("d")).expect("made");
    for act in [
        fs::write(store.at("d/new"), b"x"),
        fs::create_dir(store.at("d/new")),
        symlink("x", store.at("d/new")),
        fs::rename(store.at("d/file"), store.at("d/new")),
        fs::remove_file(store.at("d/file")),
        fs::write(store.at("d/file"), b"x"),
        fs::set_permissions(store.at("d/file"), fs::Permissions::from_mode(0o777)),
    ] {
        // It may use the old directory or fail, but must not reach the link's target.
        drop(act);
    }
    drop(dir);
    let left: Vec<_> =
        fs::read_dir(outside.path()).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["file"]);
    assert_eq!(fs::read(outside.path().join("file")).expect("there"), b"theirs");
    assert_eq!(fs::metadata(outside.path().join("file")).expect("there").mode() & 0o777, 0o644);
    fs::write(store.at("after"), b"works").expect("the mount still takes files");
    assert_eq!(fs::read(store.beneath("after")).expect("written"), b"works");
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
    fs::write(dir.path().join("closed"), &kept).expect("room");
    let mut file = File::create(dir.path().join("synced")).expect("made");
    file.write_all(&kept).and_then(|()| file.sync_all()).expect("room");
    drop(file);
    let mut file = File::create(dir.path().join("large")).expect("made");
    let mut outcome = file.write_all(&pattern(4 << 20, 2));
    if outcome.is_ok() {
        outcome = file.sync_all();
    }
    assert_eq!(errno(outcome), Errno::NOSPC.raw_os_error());
    drop(file);
    // cp checks the results of write and close, and syncs nothing.
    let source = Directory::new("source");
    fs::write(source.path().join("copied"), pattern(4 << 20, 3)).expect("room");
    let copied =
        Command::new("cp").arg(source.path().join("copied")).arg(dir.path()).env("LC_ALL", "C").output();
    let said = String::from_utf8_lossy(&copied.expect("coreutils").stderr).into_owned();
    assert!(said.contains("No space left on device"), "{said}");
    for name in ["large", "copied"] {
        fs::remove_file(dir.path().join(name)).expect("there");
    }
    for path in [dir.path().join("closed"), dir.path().join("synced"), ram.path().join("synced")] {
        assert!(fs::read(&path).expect("readable") == kept, "{}", path.display());
    }
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
    assert!(fs::read(ram.path().join("again")).expect("readable") == kept);
    let made = (0..100)
        .map(|number| errno(File::create(dir.path().join(format!("n{number}")))))
        .find(|&error| error != 0);
    assert_eq!(made, Some(Errno::NOSPC.raw_os_error()), "no more files");
    mount.unmount().expect("idle");
    for name in ["closed", "synced", "again"] {
        assert!(fs::read(ram.path().join(name)).expect("readable") == kept, "{name} at the end");
    }
}

/// Attempts each kind of change below `at`, which has the file `f` and the directory `d`.
fn refuses_changes(at: &Path) {
    let at = |name: &str| at.join(name);
    let acts: [(&str, std::io::Result<()>); 9] = [
        ("create", File::create(at("new")).map(drop)),
        ("open for writing", OpenOptions::new().append(true).open(at("f")).map(drop)),
        ("unlink", fs::remove_file(at("f"))),
        ("rmdir", fs::remove_dir(at("d"))),
        ("rename", fs::rename(at("f"), at("new"))),
        ("mkdir", fs::create_dir(at("new"))),
        ("symlink", symlink("x", at("new"))),
        ("link", fs::hard_link(at("f"), at("new"))),
        ("chmod", fs::set_permissions(at("f"), fs::Permissions::from_mode(0o777))),
    ];
    for (what, act) in acts {
        assert_eq!(errno(act), Errno::ROFS.raw_os_error(), "{what}");
    }
    assert_eq!(fs::read(at("f")).expect("readable"), b"as it was");
}

#[test]
fn a_store_on_a_read_only_file_system_fails_with_erofs() {
    if !is_root() {
        return;
    }
    let (Some(ram), Some(dir)) = (Ram::new("size=1m"), Dir::new("sealed")) else { return };
    fs::write(ram.path().join("f"), b"as it was").expect("room");
    fs::create_dir(ram.path().join("d")).expect("room");
    rustix::mount::mount_remount(ram.path(), MountFlags::RDONLY, c"").expect("root may");
    let complaints = Arc::new(AtomicUsize::new(0));
    let listener = Box::new({
        let complaints = Arc::clone(&complaints);
        move |_: &Path, told: Told<'_>| {
            let is_failure = matches!(told, Told::Failed(_));
            complaints.fetch_add(usize::from(is_failure), Ordering::Relaxed);
        }
    });
    let store = store(ram.path().to_str().expect("ASCII"), 64 << 20);
    let mount =
        Mount::with_listener(store, dir.path(), MountOptions::default(), listener).expect("mountable");
    refuses_changes(dir.path());
    mount.unmount().expect("idle");
    assert_eq!(complaints.load(Ordering::Relaxed), 0, "expected errors are not reported");
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let (source, Some(dir)) = (Directory::new("source"), Dir::new("read-only")) else { return };
    fs::write(source.path().join("f"), b"as it was").expect("made");
    fs::create_dir(source.path().join("d")).expect("made");
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let mount = mounted(source.path(), &dir, options);
    assert!(mount.is_read_only());
    refuses_changes(dir.path());
    assert_eq!(
        fs::metadata(dir.path().join("f")).expect("there").mode(),
        fs::metadata(source.path().join("f")).expect("there").mode()
    );
    assert_eq!(fs::read_dir(source.path()).expect("there").count(), 2);
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
