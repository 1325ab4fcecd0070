//! Writes to a mounted bucket of a real S3 gateway.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::common::close::close;
use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{gateway, mounting, with_keys};
use bowwave_testkit::{InstalledServer, VERSITYGW_KEY, VERSITYGW_SECRET};

fn mount(server: &InstalledServer, at: &Path) -> Served {
    let mut command = with_keys((VERSITYGW_KEY, VERSITYGW_SECRET));
    command.args(["mount", "s3://bucket"]).arg(at).args(["--endpoint", &server.url(), "--allow-http"]);
    command.args(["--region", "us-east-1"]);
    Served::of(&mut command, at)
}

/// The gateway refuses to publish an upload created with checksums unless each part is named with
/// its own.
#[test]
fn files_of_several_parts_are_uploaded_renamed_and_appended_to() {
    let place = Place::new("real-writes");
    let Some(_alone) = mounting() else { return };
    let Some(server) = gateway(&place) else { return };
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
