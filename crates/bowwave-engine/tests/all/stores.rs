//! Trees with odd sizes, read concurrently through real stores with occasional failures, and with a
//! cache much smaller than the data.

use std::fs::{self, File as StdFile};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use bowwave_backend::{Credentials, ErrorKind, Fault, Faults, Options as StoreOptions, open_url};
use bowwave_engine::{Engine, Options, Store};
use bowwave_testkit::{HttpServer, S3Server};
use tempfile::TempDir;

const SIZES: [u64; 6] = [0, 1, 4095, 4096, 4097, 1_000_000];
/// Mostly a hole, with bytes here and there.
const SPARSE: u64 = 3_000_000_000;
/// As [`SPARSE`], for the tests' S3 server, which computes the MD5 of the whole object at each
/// request.
const SPARSE_S3: u64 = 5_000_000;

/// A tree of files.
struct Tree {
    directory: TempDir,
    sparse: u64,
}

impl Tree {
    /// Writes each size at the top and in a subdirectory, and the sparse file.
    fn new(sparse_size: u64) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let tree = Self { directory, sparse: sparse_size };
        fs::create_dir_all(tree.bucket().join("below")).expect("writable");
        for size in SIZES {
            for name in [format!("{size}"), format!("below/{size}")] {
                let mut bytes = vec![0; usize::try_from(size).expect("small")];
                bowwave_backend::pattern::fill(size, 0, &mut bytes);
                fs::write(tree.bucket().join(name), bytes).expect("room for a megabyte");
            }
        }
        let mut sparse = StdFile::create(tree.bucket().join("sparse")).expect("writable");
        sparse.write_all(b"begin").expect("room");
        sparse.set_len(sparse_size).expect("a sparse file");
        sparse.write_all_at(b"middle", sparse_size / 2).expect("room");
        sparse.write_all_at(b"end", sparse_size - 3).expect("room");
        tree
    }

    fn bucket(&self) -> PathBuf {
        self.directory.path().join("bucket")
    }
}

/// Reads everything through a store of which one request in 40 fails, with sixteen concurrent
/// readers.
fn read_tree(url: &str, options: &StoreOptions, tree: &Tree) {
    let engine = Engine::new(Options { cache_bytes: Some(2 << 20), seed: 7, ..Options::default() })
        .expect("valid options");
    let faults = Faults {
        seed: 42,
        errors: vec![(ErrorKind::Unavailable, 0.005), (ErrorKind::Throttled, 0.005)],
        short: 0.01,
        truncated: 0.005,
        ..Faults::default()
    };
    let backend =
        Arc::new(Fault::new(open_url(url, options).expect("a store"), faults).expect("chances below one"));
    let store = engine.store_of(backend.clone());
    thread::scope(|scope| {
        for reader in 0..16 {
            let store = &store;
            scope.spawn(move || read_files(store, tree, reader));
        }
    });
    assert!(backend.faults() > 0, "{} requests and no fault", backend.requests());
    assert!(engine.stats().store.retries > 0);
}

fn read_files(store: &Store, tree: &Tree, reader: u64) {
    for size in SIZES {
        for name in [format!("{size}"), format!("below/{size}")] {
            let source = fs::read(tree.bucket().join(&name)).expect("written above");
            let file = store.open(Path::new(&name)).expect("the store has it");
            assert_eq!(file.size(), size, "{name}");
            let mut bytes = vec![0; 1 + usize::try_from(1000 * (reader + 1)).expect("small")];
            let mut offset = 0;
            loop {
                let count = file.read_at(offset as u64, &mut bytes).expect("retries get through");
                assert!(bytes[..count] == source[offset..offset + count], "{name} at {offset}");
                offset += count;
                if count < bytes.len() {
                    break;
                }
            }
            assert_eq!(offset, source.len(), "{name}");
        }
    }
    let source = StdFile::open(tree.bucket().join("sparse")).expect("written above");
    let file = store.open(Path::new("sparse")).expect("the store has it");
    let size = tree.sparse;
    assert_eq!(file.size(), size);
    let scattered = (0..20).map(|step| (step * 16 + reader) * 7_919_111 % size);
    for place in [0, size / 2 - 70_000, size - 100_000].into_iter().chain(scattered) {
        let (mut ours, mut theirs) = (vec![1; 150_000], vec![2; 150_000]);
        let count = file.read_at(place, &mut ours).expect("retries get through");
        assert_eq!(count as u64, (size - place).min(150_000));
        source.read_exact_at(&mut theirs[..count], place).expect("it is that long");
        assert!(ours[..count] == theirs[..count], "sparse at {place}");
    }
}

#[test]
fn a_directory() {
    let tree = Tree::new(SPARSE);
    read_tree(
        tree.bucket().to_str().expect("a temporary directory has a plain name"),
        &StoreOptions::default(),
        &tree,
    );
}

#[test]
fn a_web_server() {
    let tree = Tree::new(SPARSE);
    let server = HttpServer::start(&tree.bucket()).expect("a loopback port");
    read_tree(&server.url(), &StoreOptions::default(), &tree);
}

#[test]
fn an_s3_server() {
    let tree = Tree::new(SPARSE_S3);
    let server = S3Server::start(tree.directory.path(), &["bucket"]).expect("a loopback port");
    let credentials = Credentials::Amazon {
        access_key_id: S3Server::ACCESS_KEY_ID.into(),
        secret_access_key: S3Server::SECRET_ACCESS_KEY.into(),
        session_token: None,
    };
    let options = StoreOptions {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        credentials: Some(credentials),
        ..StoreOptions::default()
    };
    read_tree("s3://bucket/", &options, &tree);
}
