//! The calls, and the verdict on their results.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_testkit::hostile::{Dialect, Fault, HostileServer, ListFault, added_names, content};

use crate::common::close::close;
use crate::modes::Call;

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Correct result.
    Works,
    /// Reported failure: an errno, or a message of the mount.
    Fails(String),
    /// Wrong result without an error.
    Wrong(String),
    /// Killed with the daemon for time or memory.
    Hung,
}

/// A call, ready to run on its own thread, with everything prepared in the store. A call of several
/// reads reports each to [`Reads`].
pub(crate) type Job = Box<dyn FnOnce(&Reads) -> Done + Send>;

/// Completed reads of a job. The mount limits the time of each system call, not the total.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) count: AtomicU64,
}

/// Result of a call.
pub(crate) enum Done {
    Size(io::Result<u64>),
    Names(io::Result<Vec<OsString>>),
    Open(io::Result<()>),
    /// The bytes before the error, if any.
    Bytes(Vec<u8>, Option<io::Error>),
    /// The key and its bytes.
    Written(String, Vec<u8>, io::Result<()>),
}

/// The object that a call reads.
pub(crate) fn key(call: Call, fault: Fault) -> &'static str {
    match call {
        Call::Stat => "stat/object",
        Call::Open => "open/object",
        // Read with one request.
        Call::Read if fault == Fault::Flip => "read/small",
        Call::End if fault == Fault::Flip => "end/small",
        Call::End => "end/object",
        _ => "read/object",
    }
}

/// Prepares `call` while the store is correct: looks up its directory and opens the file it reads.
pub(crate) fn prepared(call: Call, fault: Fault, at: &Path, written: u64) -> io::Result<Job> {
    let path = at.join(key(call, fault));
    Ok(match call {
        Call::Stat => {
            fs::metadata(at.join("stat"))?;
            Box::new(move |_| Done::Size(fs::metadata(path).map(|meta| meta.len())))
        }
        Call::List => {
            let path = at.join("list");
            fs::metadata(&path)?;
            Box::new(move |_| Done::Names(names(&path)))
        }
        Call::Open => {
            fs::metadata(at.join("open"))?;
            Box::new(move |_| Done::Open(File::open(path).map(drop)))
        }
        // Versions are those of the HEAD that precedes the read.
        Call::Read if matches!(fault, Fault::Version(_)) => {
            fs::metadata(at.join("read"))?;
            Box::new(move |reads| match File::open(path) {
                Ok(file) => read(&file, reads),
                Err(error) => Done::Bytes(Vec::new(), Some(error)),
            })
        }
        Call::Write | Call::Upload => {
            fs::metadata(at.join("write"))?;
            let key = format!("write/new-{written}");
            let size = if call == Call::Write { 100_000 } else { UPLOAD_BYTES };
            let (bytes, path) = (content(&key, 1, size), at.join(&key));
            Box::new(move |_| {
                let result = write(&path, &bytes);
                Done::Written(key, bytes, result)
            })
        }
        Call::Read | Call::End | Call::Mount => {
            let file = File::open(path)?;
            Box::new(move |reads| read(&file, reads))
        }
    })
}

fn names(path: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

/// Reads from the start to the end, in requests of 128 KiB.
fn read(mut file: &File, reads: &Reads) -> Done {
    let (mut bytes, mut block) = (Vec::new(), vec![0; 128 << 10]);
    loop {
        let result = file.read(&mut block);
        reads.count.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(0) => return Done::Bytes(bytes, None),
            Ok(count) => bytes.extend_from_slice(&block[..count]),
            Err(error) => return Done::Bytes(bytes, Some(error)),
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    let written = file.write_all(bytes);
    // Both may fail; the first error is the cause.
    let closed = close(file);
    written.and(closed)
}

/// The file of the honest read `index`. The order has no pattern: the mount would read the next
/// file ahead while the store is hostile.
pub(crate) fn honest_file(index: u64) -> u64 {
    [0, 4, 1, 6, 3, 7, 2, 5][index as usize % 8]
}

/// Reads a file that no other call uses, while the store is correct.
pub(crate) fn honest_read(at: &Path, number: u64) -> io::Result<Vec<u8>> {
    let file = File::open(at.join(format!("honest/{number}")))?;
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).expect("small")];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Judges the result of a call by the server's content.
pub(crate) fn judged(done: Done, call: Call, fault: Fault, server: &HostileServer) -> Outcome {
    match done {
        Done::Size(Err(error)) | Done::Names(Err(error)) | Done::Open(Err(error)) => failed(&error),
        Done::Open(Ok(())) => Outcome::Works,
        Done::Size(Ok(size)) => {
            let versions = server.versions(key(call, fault));
            match versions.iter().any(|version| version.len() as u64 == size) {
                true => Outcome::Works,
                false => Outcome::Wrong(format!("a size of {size}")),
            }
        }
        Done::Names(Ok(names)) => listed(&names, fault, server),
        Done::Bytes(bytes, error) => bytes_of(&bytes, error, &server.versions(key(call, fault))),
        Done::Written(key, bytes, result) => {
            let versions = server.versions(&key);
            // Another writer may have replaced it since.
            let whole = versions.iter().any(|version| version[..] == bytes[..]);
            let is_there = server.object(&key).is_some();
            match result {
                Ok(()) if whole && is_there => Outcome::Works,
                Ok(()) => Outcome::Wrong("success, and the object is not there".to_owned()),
                Err(_) if !versions.is_empty() && !whole => Outcome::Wrong("half an object".to_owned()),
                Err(error) => Outcome::Fails(message(&error)),
            }
        }
    }
}

/// The failure of a call on an existing object.
fn failed(error: &io::Error) -> Outcome {
    match error.raw_os_error() {
        // Trouble in a store does not remove objects.
        Some(libc::ENOENT) => Outcome::Wrong("ENOENT for an object that is there".to_owned()),
        _ => Outcome::Fails(message(error)),
    }
}

fn message(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno)
}

fn errno(code: i32) -> String {
    let known = [
        (libc::EIO, "EIO"),
        (libc::ESTALE, "ESTALE"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EACCES, "EACCES"),
        (libc::EPERM, "EPERM"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::ECONNABORTED, "ECONNABORTED"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EINVAL, "EINVAL"),
        (libc::EISDIR, "EISDIR"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EPROTO, "EPROTO"),
    ];
    known
        .iter()
        .find(|(known, _)| *known == code)
        .map_or_else(|| format!("errno {code}"), |(_, name)| (*name).into())
}

fn listed(names: &[OsString], fault: Fault, server: &HostileServer) -> Outcome {
    let found: BTreeSet<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if found.len() != names.len() {
        return Outcome::Wrong("a name twice".to_owned());
    }
    let mut expected: BTreeSet<String> = server.names("list").into_iter().collect();
    if fault == Fault::List(ListFault::Page10000) {
        expected.extend(added_names());
    }
    let missing = expected.difference(&found).count();
    if missing > 0 {
        return Outcome::Wrong(format!("{missing} of {} entries are missing", expected.len()));
    }
    // Entries that the server invents, with valid names.
    let invented = ["negative", "large"];
    let extra = found.difference(&expected).find(|name| !invented.contains(&name.as_str()));
    match extra {
        Some(extra) => {
            let short: String = extra.chars().take(40).collect();
            Outcome::Wrong(format!("an entry {short:?}"))
        }
        None => Outcome::Works,
    }
}

fn bytes_of(bytes: &[u8], error: Option<io::Error>, versions: &[Arc<[u8]>]) -> Outcome {
    let is_prefix = versions.iter().any(|version| version.starts_with(bytes));
    let is_whole = versions.iter().any(|version| version[..] == *bytes);
    match error {
        _ if !is_prefix => {
            let fits = |at: usize| versions.iter().any(|version| version.get(at) == Some(&bytes[at]));
            match (0..bytes.len()).all(fits) {
                true => Outcome::Wrong("bytes of two versions".to_owned()),
                false => {
                    let at = (0..bytes.len()).find(|&at| !fits(at)).unwrap_or(0);
                    Outcome::Wrong(format!("a wrong byte at {at}"))
                }
            }
        }
        Some(error) => failed(&error),
        None if is_whole => Outcome::Works,
        None => Outcome::Wrong(format!("an end after {} bytes", bytes.len())),
    }
}

/// More than a part, so that the upload is a multipart upload.
const UPLOAD_BYTES: usize = 9 << 20;

#[test]
fn wrong_mixed_and_short_bytes_are_told_apart() {
    let versions: Vec<Arc<[u8]>> = [1, 2].map(|version| content("key", version, 1000).into()).to_vec();
    let judged = |bytes: &[u8], error: Option<i32>| {
        bytes_of(bytes, error.map(io::Error::from_raw_os_error), &versions)
    };
    let mixed = [&versions[0][..500], &versions[1][500..]].concat();
    let mut flipped = versions[1].to_vec();
    flipped[700] ^= 1;
    assert_eq!(judged(&versions[1], None), Outcome::Works);
    assert_eq!(judged(&mixed, None), Outcome::Wrong("bytes of two versions".to_owned()));
    assert_eq!(judged(&mixed, Some(libc::EIO)), Outcome::Wrong("bytes of two versions".to_owned()));
    assert_eq!(judged(&flipped, None), Outcome::Wrong("a wrong byte at 700".to_owned()));
    assert_eq!(judged(&versions[0][..10], None), Outcome::Wrong("an end after 10 bytes".to_owned()));
    assert_eq!(judged(&versions[0][..10], Some(libc::EIO)), Outcome::Fails("EIO".to_owned()));
    assert!(matches!(judged(&[], Some(libc::ENOENT)), Outcome::Wrong(_)));
}

#[test]
fn incomplete_and_invented_listings_are_wrong() {
    let server = HostileServer::start(Dialect::S3).expect("a port of loopback");
    let judged = |names: &[&str]| {
        let names: Vec<OsString> = names.iter().map(OsString::from).collect();
        listed(&names, Fault::Honest, &server)
    };
    assert_eq!(judged(&["a", "b", "c", "d", "e", "f", "sub"]), Outcome::Works);
    assert_eq!(judged(&[]), Outcome::Wrong("7 of 7 entries are missing".to_owned()));
    assert_eq!(judged(&["a", "a"]), Outcome::Wrong("a name twice".to_owned()));
    let more = judged(&["a", "b", "c", "d", "e", "f", "sub", "passwd"]);
    assert_eq!(more, Outcome::Wrong("an entry \"passwd\"".to_owned()));
}
