//! A writable mount with hostile users and stores: vanishing files, other users, absurd sizes,
//! nonsense listings, and secrets.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::server;
use crate::common::close::close;
use crate::common::mounting;
use crate::common::place::Place;
use crate::common::served::Served;
use bowwave_testkit::is_root;

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

#[test]
fn other_users_have_access_only_with_allow_other() {
    let Some(_alone) = mounting().filter(|_| is_root()) else { return };
    let place = Place::new("hostile-users");
    fs::write(place.store().join("public"), "everybody's").expect("writable");
    for (options, allowed) in [(&[][..], false), (&["--allow-other"], true)] {
        let served = mount(&place, options);
        let mut cat = Command::new("cat");
        // An unprivileged user of every Linux.
        let output = cat.arg(place.at().join("public")).uid(65534).gid(65534).output().expect("coreutils");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let expected = if allowed { "everybody's" } else { "Permission denied" };
        assert!(output.status.success() == allowed && said.contains(expected), "{options:?}: {said}");
        is_well(served, &place);
    }
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
