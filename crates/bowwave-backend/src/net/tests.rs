//! The conformance suite against real servers; `liars` has servers that break the protocol.

mod first;
mod hostile;
mod kept_names;
mod liars;
mod meta;
mod writes;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bowwave_testkit::{Content, HttpServer, InstalledServer, S3Server, Shape, ShapedS3};

use crate::buf::untouched;
use crate::conformance::{self, Fixture};
use crate::wait::start_read;
use crate::{Backend, Credentials, EntryKind, ErrorKind, Namespace as _, Options, open_url, read_exact};

/// A directory that a server serves.
struct Served {
    directory: tempfile::TempDir,
    below: &'static str,
    puts: AtomicU64,
    url: String,
    options: Options,
    lists: bool,
}

impl Fixture for Served {
    fn put(&self, path: &str, bytes: &[u8]) {
        let place = self.directory.path().join(self.below).join(path);
        fs::create_dir_all(place.parent().expect("below the root")).unwrap();
        fs::write(&place, bytes).unwrap();
        // `Last-Modified` is in whole seconds, and changes in tests are closer together.
        let time = SystemTime::UNIX_EPOCH
            + Duration::from_secs(1_000_000_000 + self.puts.fetch_add(1, Ordering::Relaxed));
        fs::File::options().write(true).open(&place).unwrap().set_modified(time).unwrap();
    }

    fn store(&self) -> Arc<dyn Backend> {
        open_url(&self.url, &self.options).expect("the URL is right")
    }

    fn lists(&self) -> bool {
        self.lists
    }
}

fn web() -> (HttpServer, Served) {
    let directory = tempfile::tempdir().unwrap();
    let server = HttpServer::start(directory.path()).unwrap();
    // The server has no index pages: it responds 404 for directories.
    let (url, options) = (server.url(), Options { web_index: false, ..Options::default() });
    (server, Served { directory, below: "", puts: AtomicU64::new(0), url, options, lists: false })
}

fn keys() -> Credentials {
    keys_with(S3Server::SECRET_ACCESS_KEY, None)
}

fn keys_with(secret: &str, token: Option<&str>) -> Credentials {
    Credentials::Amazon {
        access_key_id: S3Server::ACCESS_KEY_ID.to_owned(),
        secret_access_key: secret.to_owned(),
        session_token: token.map(str::to_owned),
    }
}

fn s3(url: &str, below: &'static str) -> (S3Server, Served) {
    let directory = tempfile::tempdir().unwrap();
    let server = S3Server::start(directory.path(), &["bucket"]).unwrap();
    let options = Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        credentials: Some(keys()),
        ..Options::default()
    };
    (server, Served { directory, below, puts: AtomicU64::new(0), url: url.to_owned(), options, lists: true })
}

#[test]
fn a_web_server_conforms() {
    let (_server, served) = web();
    conformance::run(&served);
}

#[test]
fn a_directory_on_a_web_server_is_known_by_its_slash() {
    let (_server, served) = web();
    served.put("directory/file", b"bytes");
    let store = served.store();
    assert_eq!(store.stat("".as_ref()).unwrap().kind, EntryKind::Directory);
    assert_eq!(store.stat("directory".as_ref()).unwrap().kind, EntryKind::Directory);
    assert_eq!(store.open("directory".as_ref()).unwrap_err().kind(), ErrorKind::IsADirectory);
    let file = open_url(&format!("{}directory/file", served.url), &served.options).unwrap();
    assert_eq!(read_exact(&*file.open("".as_ref()).unwrap(), 0, 9, PATIENCE).unwrap(), b"bytes");
    assert_eq!(file.open("below".as_ref()).unwrap_err().kind(), ErrorKind::NotADirectory);
}

#[test]
fn files_of_a_server_without_ranges_are_read_whole_up_to_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), vec![7; 100_000]).unwrap();
    let python = InstalledServer::python(directory.path()).expect("this test needs python3");
    let url = python.url();
    let open = |no_range_bytes_max| {
        let options = Options { no_range_bytes_max, ..Options::default() };
        open_url(&url, &options).unwrap().open("file".as_ref()).unwrap()
    };
    let object = open(100_000);
    assert_eq!(object.size(), 100_000);
    // Such a server sends the whole file.
    assert_eq!(read_exact(&*object, 0, 100_000, PATIENCE).unwrap(), vec![7; 100_000]);
    assert_eq!(read_exact(&*object, 10, 10, PATIENCE).unwrap(), vec![7; 10]);
    let object = open(99_999);
    assert_eq!(read_exact(&*object, 0, 100_000, PATIENCE).unwrap(), vec![7; 100_000]);
    let error = read_exact(&*object, 10, 10, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("does not support range requests"), "{error}");
    assert!(error.to_string().contains("--no-range-max 99999"), "{error}");
}

#[test]
fn a_bucket_conforms() {
    let (_server, served) = s3("s3://bucket", "bucket");
    conformance::run(&served);
}

#[test]
fn a_prefix_of_a_bucket_conforms() {
    let (_server, served) = s3("s3://bucket/some/prefix/", "bucket/some/prefix");
    conformance::run(&served);
}

#[test]
fn an_object_as_root_is_a_store_of_one_object() {
    let (_server, served) = s3("s3://bucket/directory/file", "bucket");
    served.put("directory/file", b"bytes");
    let store = served.store();
    assert_eq!(store.stat("".as_ref()).unwrap().kind, EntryKind::File);
    assert_eq!(read_exact(&*store.open("".as_ref()).unwrap(), 1, 9, PATIENCE).unwrap(), b"ytes");
    assert_eq!(store.list("".as_ref()).unwrap_err().kind(), ErrorKind::NotADirectory);
}

#[test]
fn large_objects_are_read_at_any_place_and_a_new_tag_is_a_change() {
    let (server, served) = s3("s3://bucket", "bucket");
    let file = fs::File::create(served.directory.path().join("bucket/large")).unwrap();
    file.set_len(3_000_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 2_999_999_997).unwrap();
    server.tag("bucket", "large", "1").unwrap();
    let object = served.store().open("large".as_ref()).unwrap();
    assert_eq!((object.size(), object.identity().etag.as_deref()), (3_000_000_000, Some("\"1\"")));
    assert_eq!(read_exact(&*object, 2_999_999_990, 100, PATIENCE).unwrap(), b"\0\0\0\0\0\0\0end");
    server.tag("bucket", "large", "2").unwrap();
    let error = read_exact(&*object, 0, 10, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

#[test]
fn keys_of_another_cloud_and_keys_that_are_none_are_refused() {
    let azure = |key: &str| Credentials::Azure {
        account_name: "account".to_owned(),
        account_key: Some(key.to_owned()),
        sas_token: None,
    };
    let opened = |url, keys| open_url(url, &Options { credentials: Some(keys), ..Options::default() });
    for (url, keys, wanted) in [
        ("s3://bucket", azure("a2V5"), "s3://bucket: the keys given are for az://"),
        ("az://container", keys(), "the keys given are for s3://"),
        ("az://container", azure("no Base64"), "az://container: "),
        ("gs://bucket", Credentials::Google { service_account_key: "{".to_owned() }, "gs://bucket: "),
    ] {
        let error = opened(url, keys).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(!error.to_string().contains("no Base64"), "a key is not shown: {error}");
    }
    assert!(opened("az://container", azure("a2V5")).is_ok());
}

#[test]
fn wrong_keys_and_missing_buckets_are_told_apart() {
    let (_server, served) = s3("s3://bucket", "bucket");
    served.put("file", b"bytes");
    let credentials = Some(keys_with("wrong", None));
    let store = open_url("s3://bucket", &Options { credentials, ..served.options.clone() }).unwrap();
    let error = store.open("file".as_ref()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unauthenticated), "{error}");
    let store = open_url("s3://nowhere", &served.options).unwrap();
    let error = store.stat("".as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Regression: signatures have the host in lower case, and requests had it as it was given.
#[test]
fn an_endpoint_may_be_spelled_as_one_likes() {
    let (_server, served) = s3("s3://bucket", "bucket");
    served.put("file", b"bytes");
    let endpoint = served.options.endpoint.clone().unwrap();
    for host in ["LOCALHOST", "127.1"] {
        let endpoint = Some(format!("{}/", endpoint.replace("127.0.0.1", host)));
        let store = open_url("s3://bucket", &Options { endpoint, ..served.options.clone() }).unwrap();
        let object = store.open("file".as_ref()).unwrap();
        assert_eq!(read_exact(&*object, 0, 5, PATIENCE).unwrap(), b"bytes", "{host}");
    }
}

#[test]
fn plain_http_endpoints_are_refused_unless_allowed() {
    let options = Options {
        endpoint: Some("http://127.0.0.1:1".to_owned()),
        credentials: Some(keys()),
        ..Options::default()
    };
    let error = open_url("s3://bucket", &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl);
    assert!(error.to_string().contains("AWS_ALLOW_HTTP"), "{error}");
    let store = open_url("s3://bucket", &Options { allow_http: true, ..options }).unwrap();
    let error = store.open("file".as_ref()).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true), "{error}");
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn memory_for_the_bytes_is_taken_while_the_server_works() {
    let first_byte = Duration::from_millis(400);
    let shape = Shape { first_byte, connection_rate: 0, total_rate: 0 };
    let objects = [("a".to_owned(), Content::Pattern(1 << 20))];
    let server = ShapedS3::serve(shape, objects.into()).expect("loopback is there");
    let options = Options {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        credentials: Some(keys()),
        ..Options::default()
    };
    let store = open_url("s3://data/", &options).expect("the URL is right");
    let object = store.open("a".as_ref()).expect("it is there");
    let Some((buf, resident)) = untouched(1 << 20) else {
        return bowwave_testkit::skipped("this kernel has no MADV_POPULATE_WRITE (Linux 5.14)");
    };
    let heard = start_read(&*object, 0, buf);
    let all = (1 << 20) / rustix::param::page_size();
    while resident() < all {
        assert!(heard.try_recv().is_err(), "bytes came before their memory");
        std::thread::sleep(Duration::from_millis(1));
    }
}
