//! A writable mount with hostile users and stores: names that escape, vanishing files, full and
//! read-only stores, other users, nonsense listings, and secrets.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::server;
use crate::common::close::close;
use crate::common::mounting;
use crate::common::place::Place;
use crate::common::served::Served;
use bowwave_testkit::is_root;

/// Another user: `nobody`, on any Linux.
const OTHER: u32 = 65534;

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn mount(place: &Place, options: &[&str]) -> Served {
    Served::start(&place.store().display().to_string(), &place.at(), options)
}

/// The mount still responds and ends in order.
fn is_well(served: Served, place: &Place) -> String {
    let path = place.at().join("still-here");
    fs::write(&path, "yes").expect("the mount still takes files");
    assert_eq!(fs::read(&path).expect("and gives them"), b"yes");
    let (status, said) = served.unmount();
    assert!(status.success() && !said.contains("panic"), "{status}: {said}");
    assert_eq!(fs::read(place.store().join("still-here")).expect("written"), b"yes");
    said
}

/// Odd names, and names special to file systems.
fn odd_names() -> Vec<OsString> {
    let long = "x".repeat(255);
    let mut names: Vec<OsString> =
        ["...", "-rf", " ", "a\nb", "\u{7f}\u{1}", "*", "\\", "%2e%2e", "..\\up", "é", "nul:", long.as_str()]
            .map(OsString::from)
            .to_vec();
    names.push(OsString::from_vec(vec![0xff, 0xfe, b'/' ^ 0x80, 0x80]));
    names
}

#[test]
fn names_of_any_bytes_go_both_ways() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("hostile-names");
    let (store, at) = (place.store(), place.at());
    for name in odd_names() {
        fs::write(store.join(&name), name.as_bytes()).expect("a plain directory");
    }
    let served = mount(&place, &["--ttl", "0"]);
    let mut listed: Vec<_> =
        fs::read_dir(&at).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    let mut expected = odd_names();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    let into = at.join("into");
    fs::create_dir(&into).expect("the mount is writable");
    for name in odd_names() {
        assert_eq!(fs::read(at.join(&name)).expect("readable"), name.as_bytes());
        fs::rename(at.join(&name), into.join(&name)).expect("renamed");
        fs::write(at.join(&name), b"new").expect("made");
        fs::hard_link(at.join(&name), into.join("link")).expect("linked");
        fs::remove_file(into.join("link")).expect("removed");
        assert_eq!(fs::read(store.join("into").join(&name)).expect("below"), name.as_bytes());
        assert_eq!(fs::read(store.join(&name)).expect("below"), b"new");
    }
    let too_long = "y".repeat(256);
    assert_eq!(errno(File::create(at.join(&too_long))), Some(libc::ENAMETOOLONG));
    assert_eq!(errno(fs::create_dir(at.join(&too_long))), Some(libc::ENAMETOOLONG));
    assert_eq!(errno(fs::rename(at.join("-rf"), at.join(&too_long))), Some(libc::ENAMETOOLONG));
    is_well(served, &place);
}

#[test]
fn no_name_leads_out_of_the_store() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("hostile-out");
    let (store, at, outside) = (place.store(), place.at(), place.root().join("outside"));
    fs::create_dir(&outside).expect("writable");
    fs::write(outside.join("file"), "theirs").expect("writable");
    fs::create_dir(store.join("directory")).expect("writable");
    fs::write(store.join("directory/file"), "ours").expect("writable");
    // The kernel may cache names for an hour: it looks up names below the directory without
    // revalidating it.
    let served = mount(&place, &["--ttl", "1h"]);
    assert_eq!(fs::read(at.join("directory/file")).expect("readable"), b"ours");
    let descriptor = File::open(at.join("directory")).expect("a directory");
    // Another user replaces the directory by a link.
    fs::rename(store.join("directory"), store.join("was")).expect("writable");
    symlink(&outside, store.join("directory")).expect("writable");
    let inside = at.join("directory");
    for what in [
        fs::write(inside.join("new"), "x"),
        fs::create_dir(inside.join("new")),
        symlink("x", inside.join("new")),
        fs::rename(inside.join("file"), inside.join("new")),
        fs::remove_file(inside.join("file")),
        fs::write(inside.join("file"), "x"),
        fs::set_permissions(inside.join("file"), fs::Permissions::from_mode(0o777)),
    ] {
        // The operation may use the old directory or fail, but must not reach the link's target.
        drop(what);
    }
    drop(descriptor);
    let left: Vec<_> =
        fs::read_dir(&outside).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["file"]);
    assert_eq!(fs::read(outside.join("file")).expect("readable"), b"theirs");
    assert_eq!(fs::metadata(outside.join("file")).expect("there").mode() & 0o777, 0o644);
    is_well(served, &place);
}

#[test]
fn files_removed_from_the_store_are_errors_and_the_mount_continues() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("hostile-vanish");
    let (store, at) = (place.store(), place.at());
    fs::create_dir(store.join("directory")).expect("writable");
    for name in ["open", "shrinks", "replaced", "directory/below"] {
        fs::write(store.join(name), vec![7; 200_000]).expect("writable");
    }
    let served = mount(&place, &["--ttl", "0", "--cache", "2MiB"]);
    let open = |name: &str| File::options().read(true).write(true).open(at.join(name)).expect("there");
    let (gone, shrinks, replaced, below) =
        (open("open"), open("shrinks"), open("replaced"), open("directory/below"));
    gone.write_all_at(b"dirty", 0).expect("taken");
    replaced.write_all_at(b"dirty", 0).expect("taken");
    fs::remove_file(store.join("open")).expect("writable");
    File::options()
        .write(true)
        .open(store.join("shrinks"))
        .and_then(|file| file.set_len(10))
        .expect("writable");
    fs::remove_file(store.join("replaced")).expect("writable");
    fs::write(store.join("replaced"), "another file").expect("writable");
    fs::remove_dir_all(store.join("directory")).expect("writable");

    // Any result except a hang or panic is correct for open files; names show the current state.
    let mut bytes = [0; 100];
    for file in [&gone, &shrinks, &replaced, &below] {
        drop(file.read_at(&mut bytes, 150_000));
        drop(file.write_all_at(b"more", 150_000));
        drop(file.sync_all());
    }
    for file in [gone, shrinks, replaced, below] {
        drop(close(file));
    }
    assert_eq!(errno(File::open(at.join("open"))), Some(libc::ENOENT));
    assert_eq!(fs::read(at.join("replaced")).expect("the one that is there now"), b"another file");
    assert_eq!(errno(fs::write(at.join("directory/new"), "x")), Some(libc::ENOENT));
    assert_eq!(errno(fs::remove_file(at.join("open"))), Some(libc::ENOENT));
    assert_eq!(errno(fs::rename(at.join("open"), at.join("x"))), Some(libc::ENOENT));
    is_well(served, &place);
}

/// A small tmpfs, mounted at a directory until dropped.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn new(at: &'a Path, size: &str) -> Self {
        let size = format!("size={size}");
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "bowwave-test"]).arg(at).status();
        assert!(status.expect("mount is there").success());
        Self(at)
    }

    fn make_read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(self.0).status();
        assert!(status.expect("mount is there").success());
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_store_is_reported_and_synced_data_stays() {
    let Some(_alone) = mounting() else { return };
    if !is_root() {
        return;
    }
    let place = Place::new("hostile-full");
    let (store, at) = (place.store(), place.at());
    let small = Small::new(&store, "4m");
    let served = mount(&place, &["--cache", "16MiB"]);
    let kept = vec![5; 1 << 20];
    let mut file = File::create(at.join("kept")).expect("room enough");
    file.write_all(&kept).expect("taken");
    file.sync_all().expect("room enough");
    drop(file);
    // More than the available space, less than the cache: reported at sync at the latest.
    let mut file = File::create(at.join("large")).expect("room for a name");
    let written = file.write_all(&vec![6; 8 << 20]).and_then(|()| file.sync_all());
    assert_eq!(errno(written), Some(libc::ENOSPC));
    drop(close(file));
    let mut file = File::create(at.join("closed")).expect("room for a name");
    let written = file.write_all(&vec![6; 8 << 20]);
    assert!([errno(written), errno(close(file))].contains(&Some(libc::ENOSPC)), "write or close must tell");
    for name in ["large", "closed"] {
        fs::remove_file(at.join(name)).expect("removing makes room");
    }
    assert_eq!(fs::read(at.join("kept")).expect("readable"), kept);
    assert_eq!(fs::read(store.join("kept")).expect("readable"), kept);
    // Space is available again.
    let mut file = File::create(at.join("again")).expect("room for a name");
    file.write_all(&kept).and_then(|()| file.sync_all()).expect("room enough");
    drop(file);
    assert_eq!(fs::read(store.join("again")).expect("readable"), kept);
    is_well(served, &place);
    drop(small);
}

#[test]
fn read_only_stores_and_mounts_refuse_every_change() {
    let Some(_alone) = mounting() else { return };
    if !is_root() {
        return;
    }
    let place = Place::new("hostile-read-only");
    let (store, at) = (place.store(), place.at());
    let small = Small::new(&store, "4m");
    fs::write(store.join("file"), "bytes").expect("writable");
    fs::create_dir(store.join("directory")).expect("writable");
    let check = |options: &[&str]| {
        let served = mount(&place, options);
        let refused: [(&str, Option<i32>); 9] = [
            ("create", errno(File::create(at.join("new")))),
            ("open for writing", errno(File::options().write(true).open(at.join("file")))),
            ("mkdir", errno(fs::create_dir(at.join("new")))),
            ("unlink", errno(fs::remove_file(at.join("file")))),
            ("rmdir", errno(fs::remove_dir(at.join("directory")))),
            ("rename", errno(fs::rename(at.join("file"), at.join("new")))),
            ("symlink", errno(symlink("x", at.join("new")))),
            ("link", errno(fs::hard_link(at.join("file"), at.join("new")))),
            ("chmod", errno(fs::set_permissions(at.join("file"), fs::Permissions::from_mode(0o777)))),
        ];
        for (what, number) in refused {
            assert_eq!(number, Some(libc::EROFS), "{what} with {options:?}");
        }
        assert_eq!(fs::read(at.join("file")).expect("readable"), b"bytes");
        let (status, said) = served.unmount();
        assert!(status.success() && said.is_empty(), "{said}");
    };
    check(&["--read-only"]);
    small.make_read_only();
    check(&[]);
}

/// Runs `script` as another user; returns its output, and whether it succeeded.
fn as_other(script: &str, directory: &Path) -> (bool, String) {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir("/").env("AT", directory).uid(OTHER).gid(OTHER);
    let output = command.stdin(Stdio::null()).output().expect("sh is there");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn other_users_have_no_access_by_default_and_that_of_modes_if_allowed() {
    let Some(_alone) = mounting() else { return };
    if !is_root() {
        return;
    }
    let place = Place::new("hostile-users");
    let (store, at) = (place.store(), place.at());
    fs::write(store.join("secret"), "root's").expect("writable");
    fs::write(store.join("public"), "everybody's").expect("writable");
    let mode = |name: &str, mode| fs::set_permissions(store.join(name), fs::Permissions::from_mode(mode));
    mode("secret", 0o600).and_then(|()| mode("public", 0o644)).and_then(|()| mode("", 0o755)).expect("ours");
    let served = mount(&place, &[]);
    let (fine, said) = as_other("ls \"$AT\"", &at);
    assert!(!fine && said.contains("denied"), "only the owner by default: {said}");
    served.unmount();

    let served = mount(&place, &["--allow-other"]);
    let (fine, said) = as_other("cat \"$AT/public\"", &at);
    assert!(fine && said == "everybody's", "{said}");
    for script in [
        "cat \"$AT/secret\"",
        "echo x > \"$AT/secret\"",
        "echo x >> \"$AT/public\"",
        "touch \"$AT/new\"",
        "rm -f \"$AT/public\"",
        "mv \"$AT/public\" \"$AT/mine\"",
        "chmod 777 \"$AT/secret\"",
        "ln \"$AT/secret\" \"$AT/also\"",
        "mkdir \"$AT/directory\"",
    ] {
        let (fine, said) = as_other(script, &at);
        assert!(!fine && (said.contains("denied") || said.contains("not permitted")), "{script}: {said}");
    }
    fs::create_dir(at.join("shared")).expect("writable");
    fs::set_permissions(at.join("shared"), fs::Permissions::from_mode(0o1777)).expect("ours");
    fs::write(at.join("shared/roots"), "x").expect("writable");
    let (fine, said) = as_other("umask 027; echo mine > \"$AT/shared/mine\" && cat \"$AT/shared/mine\"", &at);
    assert!(fine && said == "mine\n", "{said}");
    let mine = fs::metadata(store.join("shared/mine")).expect("below");
    assert_eq!((mine.uid(), mine.gid(), mine.mode() & 0o7777), (OTHER, OTHER, 0o640));
    let (fine, said) = as_other("rm -f \"$AT/shared/roots\"", &at);
    assert!(!fine, "the directory is sticky: {said}");
    is_well(served, &place);
}

#[test]
fn absurd_sizes_and_offsets_are_refused_and_cost_nothing() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("hostile-sizes");
    let at = place.at();
    let served = mount(&place, &["--cache", "2MiB"]);
    let file =
        File::options().read(true).write(true).create_new(true).open(at.join("file")).expect("writable");
    let own = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(place.root().join("own"))
        .expect("writable");
    for offset in [(1 << 62) - 1, i64::MAX as u64 - 1, 1 << 50] {
        // As the underlying file system responds, or stricter, but never success instead of an
        // error.
        let (ours, theirs) = (
            file.write_at(b"x", offset).map(drop).and_then(|()| file.sync_all()),
            own.write_at(b"x", offset),
        );
        assert!(ours.is_err() || theirs.is_ok(), "{offset}");
    }
    assert_eq!(file.set_len(i64::MAX as u64).is_err(), own.set_len(i64::MAX as u64).is_err());
    // A sparse terabyte, with one byte at its end.
    drop(fs::remove_file(at.join("file")));
    let sparse =
        File::options().read(true).write(true).create_new(true).open(at.join("sparse")).expect("writable");
    sparse
        .write_all_at(b"x", 1 << 40)
        .and_then(|()| sparse.sync_all())
        .expect("files of a terabyte are ordinary");
    let mut bytes = [1; 4096];
    sparse.read_exact_at(&mut bytes, 1 << 39).expect("a hole");
    assert_eq!(bytes, [0; 4096]);
    assert_eq!(fs::metadata(place.store().join("sparse")).expect("below").len(), (1 << 40) + 1);
    drop((sparse, file));
    is_well(served, &place);
}

/// A secret that only its owner may know.
const SECRET: &str = "wJalrXUtnFEMI-K7MDENG-SeCrEt";

#[test]
fn invalid_names_of_a_server_are_not_served_and_secrets_stay_secret() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("hostile-server");
    let server = server::start();
    let mut command = crate::common::bowwave();
    command.args([
        "mount",
        "s3://bucket/",
        "--endpoint",
        &server,
        "--allow-http",
        "--retries",
        "0",
        "--ttl",
        "0",
    ]);
    command.arg(place.at()).env("AWS_ACCESS_KEY_ID", "KEYID").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_SESSION_TOKEN", SECRET.repeat(2));
    let served = Served::of(&mut command, &place.at());
    let mut listed: Vec<_> = fs::read_dir(place.at())
        .expect("the listing has a good part")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    listed.sort();
    assert_eq!(listed, ["fine", "sub"].map(OsStr::new), "and no other");
    // Failed reads and writes are reported with their cause, on standard error.
    assert!(fs::read(place.at().join("fine")).is_err(), "the server has only a listing");
    assert!(fs::write(place.at().join("new"), "x").is_err());
    let id = served.id();
    let shown =
        ["cmdline", "comm"].map(|name| fs::read(format!("/proc/{id}/{name}")).expect("it runs")).concat();
    let table = fs::read("/proc/self/mountinfo").expect("every Linux has it");
    let (_, said) = served.unmount();
    for (what, text) in
        [("process", shown), ("mount table", table), ("standard error", said.clone().into_bytes())]
    {
        assert!(!String::from_utf8_lossy(&text).contains(SECRET), "in the {what}");
    }
    assert!(said.contains("bucket/fine"), "the cause is told: {said}");
    assert!(!said.contains("panic"), "{said}");
}

#[test]
fn a_listing_that_is_no_text_is_an_error_and_a_key_with_a_zero_is_not_shown() {
    let Some(_alone) = mounting() else { return };
    let server = server::start();
    let mount = |bucket: &str, at: &Path| {
        let mut command = crate::common::bowwave();
        let url = format!("s3://{bucket}/");
        command.args(["mount", &url, "--endpoint", &server, "--allow-http", "--retries", "0"]).arg(at);
        command.env("AWS_ACCESS_KEY_ID", "KEYID").env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    };
    let place = Place::new("hostile-listing");
    for bucket in [server::BYTES, server::CUT] {
        let output = mount(bucket, &place.at()).output().expect("bowwave starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{bucket}: {said}");
        assert!(said.contains(&format!("s3://{bucket}")) && said.lines().count() == 1, "{bucket}: {said}");
        assert!(!said.contains("panic") && !said.contains(SECRET), "{bucket}: {said}");
    }
    let served = Served::of(&mut mount(server::ZERO, &place.at()), &place.at());
    let listed: Vec<_> =
        fs::read_dir(place.at()).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(listed, ["sub"].map(OsStr::new));
    let (status, said) = served.unmount();
    assert!(status.success(), "{said}");
}
