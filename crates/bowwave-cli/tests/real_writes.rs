//! Writes to a mounted bucket of a real S3 gateway.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use bowwave_testkit::{InstalledServer, VERSITYGW_KEY, VERSITYGW_SECRET};
use common::close::close;
use common::place::Place;
use common::served::Served;
use common::{can_mount, gateway, with_keys};

fn mount(server: &InstalledServer, at: &Path) -> Served {
    let mut command = with_keys((VERSITYGW_KEY, VERSITYGW_SECRET));
    command.args(["mount", "s3://bucket"]).arg(at).args(["--endpoint", &server.url(), "--allow-http"]);
    command.args(["--region", "us-east-1"]);
    Served::of(&mut command, at)
}

/// The gateway refuses to publish an upload created with checksums unless each part is named with its own.
#[test]
fn files_of_several_parts_are_uploaded_renamed_and_appended_to() {
    let place = Place::new("real-writes");
    let Some(server) = can_mount().then(|| gateway(&place)).flatten() else { return };
    let served = mount(&server, &place.at());
    let mut expected: Vec<u8> = (0..20 << 20).map(|n: u32| (n >> 10) as u8 ^ n as u8).collect();
    for (name, len) in [("small", 3), ("large", expected.len())] {
        let mut file = fs::File::create(place.at().join(name)).expect("created");
        file.write_all(&expected[..len]).and_then(|()| close(file)).expect("uploaded");
        fs::rename(place.at().join(name), place.at().join(format!("{name}-renamed"))).expect("renamed");
    }
    let file = fs::OpenOptions::new().write(true).open(place.at().join("large-renamed")).expect("opened");
    file.write_all_at(b"more", expected.len() as u64).and_then(|()| close(file)).expect("appended");
    expected.extend(b"more");
    let (status, said) = served.unmount();
    assert!(status.success(), "{said}");
    let bucket = place.store().join("bucket");
    // The gateway's checksums are compared with the read bytes.
    let served = mount(&server, &place.at());
    assert!(fs::read(place.at().join("large-renamed")).expect("readable") == expected);
    assert_eq!(fs::read(place.at().join("small-renamed")).expect("readable"), expected[..3]);
    drop(served);
    assert!(fs::read(bucket.join("large-renamed")).expect("in the bucket") == expected);
    assert_eq!(fs::read(bucket.join("small-renamed")).expect("in the bucket"), expected[..3]);
    assert!(!bucket.join("small").exists() && !bucket.join("large").exists());
}

/// `tar czf` writes its archive in a child whose `close` happens at its exit: the kernel drops the error.
#[test]
fn an_upload_that_failed_unseen_fails_the_end_of_the_mount() {
    let place = Place::new("lost-writes");
    if !can_mount() {
        return;
    }
    let url = format!("fault:finish_errors=1:emulate:s3:{}", place.store().display());
    fs::write(place.root().join("data"), vec![7; 9 << 20]).expect("writable");
    let served = Served::start(&url, &place.at(), &["--retries", "0"]);
    let mut tar = Command::new("tar");
    tar.arg("czf").arg(place.at().join("data.tgz")).arg("-C").arg(place.root()).arg("data");
    assert!(tar.status().expect("tar is installed").success(), "it does not notice");
    let (status, said) = served.unmount();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("data.tgz was not uploaded, and is lost: "), "{said}");
}
