//! Writing to a mounted bucket of an S3 gateway that people run, and not of a test.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bowwave_testkit::{InstalledServer, VERSITYGW_KEY, VERSITYGW_SECRET, program};
use common::close::close;
use common::place::Place;
use common::served::Served;
use common::{bowwave, can_mount};

/// A gateway with one bucket, `bucket`, over the directory of `place`; `None`, with the reason printed, without a gateway.
#[expect(clippy::print_stdout, reason = "a test that was skipped should say so")]
fn gateway(place: &Place) -> Option<InstalledServer> {
    if let Err(missing) = program("versitygw") {
        println!("skipped: {missing}");
        return None;
    }
    fs::create_dir_all(place.store().join("bucket")).expect("the directory is ours");
    Some(InstalledServer::versitygw(&place.store()).expect("it starts"))
}

fn mount(server: &InstalledServer, at: &Path) -> Served {
    let mut command = bowwave();
    command.args(["mount", "s3://bucket"]).arg(at).args(["--endpoint", &server.url(), "--allow-http"]);
    command.args(["--region", "us-east-1"]);
    command.env("AWS_ACCESS_KEY_ID", VERSITYGW_KEY).env("AWS_SECRET_ACCESS_KEY", VERSITYGW_SECRET);
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
    // What the gateway says of checksums is compared with what is read.
    let served = mount(&server, &place.at());
    assert!(fs::read(place.at().join("large-renamed")).expect("readable") == expected);
    assert_eq!(fs::read(place.at().join("small-renamed")).expect("readable"), expected[..3]);
    drop(served);
    assert!(fs::read(bucket.join("large-renamed")).expect("in the bucket") == expected);
    assert_eq!(fs::read(bucket.join("small-renamed")).expect("in the bucket"), expected[..3]);
    assert!(!bucket.join("small").exists() && !bucket.join("large").exists());
}
