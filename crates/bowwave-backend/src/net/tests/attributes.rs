//! Attributes of published objects: stored once, on the right version, with others' metadata.

use std::path::Path;
use std::time::{Duration, SystemTime};

use bowwave_testkit::{S3Fault, S3Server, S3Trouble};

use super::{Served, s3};
use crate::conformance::Fixture as _;
use crate::net::meta::{Stored, replace, replace_by_parts};
use crate::net::object::ObjectBackend;
use crate::net::object_upload::Location;
use crate::net::plan::Sizes;
use crate::net::{open, runtime};
use crate::{EntryKind, ErrorKind, Namespace as _, Options, Rename, SetAttributes, SetTime};

/// A bucket that keeps attributes, with an object.
fn bucket() -> (S3Server, Served, ObjectBackend, Location) {
    let (server, served) = s3("s3://bucket/data", "bucket/data");
    served.put("object", b"bytes");
    let options = Options { attributes: true, ..served.options.clone() };
    let store = open::open("s3://bucket/data", "s3", "//bucket/data", &options).unwrap();
    let (key, name) = store.key("object".as_ref()).unwrap();
    let place = Location { cloud: store.cloud.clone(), key, name: name.into(), sizes: Sizes::default() };
    (server, served, store, place)
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

#[test]
fn attributes_are_not_stored_over_a_version_of_another_writer() {
    let (_server, _served, store, place) = bucket();
    let wanted = Stored { mode: Some(0o600), ..Stored::default() }.headers(EntryKind::File);
    for by_parts in [false, true] {
        let put = |bytes: &'static str| {
            let Location { cloud, key, name, .. } = place.clone();
            runtime::wait(async move { cloud.put(&key, &name, bytes.into(), false, &[]).await }).unwrap()
        };
        put("ours");
        let before = store.look("object".as_ref()).unwrap().expect("an object");
        assert!(before.version.strong().is_some());
        put("theirs");
        let (place, headers) = (place.clone(), wanted.clone());
        let replaced = runtime::wait(async move {
            match by_parts {
                false => replace(&place, before, headers).await,
                true => replace_by_parts(&place, before, headers).await,
            }
        });
        assert_eq!(replaced.unwrap_err().kind(), ErrorKind::Changed, "by parts: {by_parts}");
        let entry = store.stat("object".as_ref()).unwrap();
        assert_eq!((entry.size, entry.mode), (6, None), "by parts: {by_parts}");
    }
}

#[test]
fn attributes_are_kept_by_a_copy_by_parts_and_a_rename() {
    let (_server, _served, store, place) = bucket();
    let before = store.look("object".as_ref()).unwrap().expect("an object");
    let uploaded = before.modified;
    let wanted = Stored { mode: Some(0o640), uid: Some(7), ..Stored::default() }.headers(EntryKind::File);
    runtime::wait(async move { replace_by_parts(&place, before, wanted).await }).unwrap();
    let entry = store.stat("object".as_ref()).unwrap();
    assert_eq!((entry.mode, entry.uid, entry.gid, entry.size), (Some(0o640), Some(7), None, 5));

    let time = SystemTime::UNIX_EPOCH + Duration::new(981_173_106, 789_000_000);
    store.set_attributes("object".as_ref(), &mode(0o4600)).unwrap();
    let entry = store.stat("object".as_ref()).unwrap();
    assert_eq!((entry.mode, entry.uid), (Some(0o600), Some(7)));
    assert!(entry.modified >= uploaded && entry.uploaded.is_some(), "the time before the copy");
    let set = SetAttributes { modified: Some(SetTime::At(time)), gid: Some(8), ..SetAttributes::default() };
    store.rename_with("object".as_ref(), "moved".as_ref(), Rename::NoReplace, &set).unwrap();
    store.rename("moved".as_ref(), "again".as_ref(), Rename::Replace).unwrap();
    let entry = store.stat("again".as_ref()).unwrap();
    assert_eq!((entry.mode, entry.uid, entry.gid), (Some(0o600), Some(7), Some(8)));
    assert_eq!((entry.modified, entry.size), (Some(time), 5));
}

#[test]
fn a_copy_whose_response_was_lost_has_stored_attributes() {
    let (server, _served, store, _) = bucket();
    let lost =
        S3Fault { method: "PUT", part: "object".to_owned(), after: 0, times: 1, what: S3Trouble::AnswerLost };
    server.inject(lost);
    store.set_attributes("object".as_ref(), &mode(0o600)).unwrap();
    assert_eq!(store.stat("object".as_ref()).unwrap().mode, Some(0o600));
    // Equal attributes cost no request.
    let before = server.requests().iter().filter(|request| request.starts_with("PUT")).count();
    store.set_attributes("object".as_ref(), &mode(0o600)).unwrap();
    let after = server.requests().iter().filter(|request| request.starts_with("PUT")).count();
    assert_eq!(before, after);
}

#[test]
fn directories_keep_attributes_in_their_markers() {
    let (_server, served, store, _) = bucket();
    served.put("implied/file", b"x");
    let stat = |path: &str| store.stat(path.as_ref()).unwrap();
    store.create_directory(Path::new("made"), 0o710, None).unwrap();
    assert_eq!((stat("made").kind, stat("made").mode), (EntryKind::Directory, Some(0o710)));
    for path in ["made", "implied"] {
        store.set_attributes(path.as_ref(), &mode(0o700)).unwrap();
        assert_eq!((stat(path).kind, stat(path).mode), (EntryKind::Directory, Some(0o700)), "{path}");
    }
    store.rename("made".as_ref(), "moved".as_ref(), Rename::Replace).unwrap();
    assert_eq!(stat("moved").mode, Some(0o700));
    // The root of a bucket has no key.
    store.set_attributes(Path::new(""), &mode(0o700)).unwrap();
}
