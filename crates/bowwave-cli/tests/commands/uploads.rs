//! `bowwave uploads` with an S3 server: lists and aborts uploads of killed writers.

use std::time::Duration;

use crate::common::{bowwave, failure, run};
use bowwave_backend::{Credentials, OpenWrite, Options, Write as _, WriteObject, open_url, write_once};
use bowwave_testkit::S3Server;
use serde_json::Value;

/// Starts an upload and abandons it, as a killed writer does.
fn begin(server: &S3Server, path: &str) {
    let options = Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        credentials: Some(Credentials::Amazon {
            access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
            secret_access_key: S3Server::SECRET_ACCESS_KEY.to_owned(),
            session_token: None,
        }),
        ..Options::default()
    };
    let store = open_url("s3://bucket", &options).expect("the server is there");
    let how = OpenWrite { create: true, ..OpenWrite::default() };
    let object = store.open_write(path.as_ref(), &how).expect("can be written");
    let part = store.profile().write_part_bytes;
    write_once(&*object, part, &[1; 100], Duration::from_secs(20)).expect("the server takes parts");
    std::mem::forget::<std::sync::Arc<dyn WriteObject>>(object);
}

#[test]
fn uploads_of_dead_writers_are_listed_and_aborted_by_age() {
    let directory = std::env::temp_dir().join(format!("bowwave-uploads-{}", std::process::id()));
    let server = S3Server::start(&directory, &["bucket"]).expect("loopback is there");
    let uploads = |arguments: &[&str]| {
        let mut command = bowwave();
        command.arg("uploads").args(arguments).args(["--endpoint", &server.endpoint(), "--allow-http"]);
        command.env("AWS_ACCESS_KEY_ID", S3Server::ACCESS_KEY_ID);
        command.env("AWS_SECRET_ACCESS_KEY", S3Server::SECRET_ACCESS_KEY);
        command
    };
    assert_eq!(run(&mut uploads(&["s3://bucket"])), "");
    assert_eq!(run(&mut uploads(&["s3://bucket", "--json"])), "[]\n");
    begin(&server, "data/old");
    server.age_uploads(Duration::from_secs(3 * 86_400));
    begin(&server, "data/young");
    begin(&server, "other");
    let listed: Vec<Value> =
        serde_json::from_str(&run(&mut uploads(&["s3://bucket/data", "--json"]))).expect("an array");
    let paths: Vec<_> = listed.iter().map(|row| row["path"].as_str().expect("text")).collect();
    assert_eq!(paths, ["old", "young"], "below the URL only");
    assert!(listed[0]["age_seconds"].as_u64().is_some_and(|age| age >= 3 * 86_400), "{listed:?}");

    let aborted = run(&mut uploads(&["s3://bucket", "--abort"]));
    assert!(aborted.lines().count() == 1 && aborted.contains("  data/old  "), "{aborted}");
    assert_eq!(server.uploads().len(), 2, "what is younger than a day may be at work");
    assert_eq!(run(&mut uploads(&["s3://bucket", "--older-than", "1h"])), "");
    assert_eq!(run(&mut uploads(&["s3://bucket", "--abort", "--older-than", "0s"])).lines().count(), 2);
    assert_eq!((server.uploads(), server.part_files().expect("is there")), (vec![], 0));

    let (code, message) = failure(&mut uploads(&["s3://nowhere"]));
    assert!(code != 0 && message.contains("s3://nowhere"), "{code}: {message}");
    drop(server);
    std::fs::remove_dir_all(&directory).expect("was made above");
}
