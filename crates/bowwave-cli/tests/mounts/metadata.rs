//! Modes, owners and times of files in buckets, with `chmod`, `touch`, `cp -p`, `tar`, `rsync` and
//! `sqlite3` in a mount.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::MutexGuard;

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{bowwave, failure, gateway, is_installed, mounting, with_keys};
use bowwave_testkit::{HttpServer, InstalledServer, S3Server, VERSITYGW_KEY, VERSITYGW_SECRET};

/// Mounts in the foreground.
fn mount(url: &str, at: &Path, arguments: &[&str]) -> Served {
    let mut command = with_keys((VERSITYGW_KEY, VERSITYGW_SECRET));
    command.env("AWS_REGION", "us-east-1").args(["mount", url]).arg(at).args(arguments);
    Served::of(&mut command, at)
}

/// Ends a mount, which must succeed, and returns its output.
fn end(mount: Served) -> String {
    let (status, said) = mount.unmount();
    assert!(status.success(), "{said}");
    said
}

/// A bucket of versitygw; `None` if not installed or mounts do not work.
struct Bucket {
    place: Place,
    server: InstalledServer,
    _alone: MutexGuard<'static, ()>,
}

impl Bucket {
    fn new(name: &str) -> Option<Self> {
        let (_alone, place) = (mounting()?, Place::new(name));
        let server = gateway(&place)?;
        Some(Self { place, server, _alone })
    }

    fn endpoint(&self) -> String {
        self.server.url().trim_end_matches('/').to_owned()
    }

    fn mount(&self, arguments: &[&str]) -> Served {
        let endpoint = self.endpoint();
        let mut all = vec!["--endpoint", &endpoint, "--allow-http"];
        all.extend(arguments);
        mount("s3://bucket", &self.place.at(), &all)
    }
}

fn sh(script: &str, at: &Path) -> Output {
    Command::new("sh").args(["-ec", script]).current_dir(at).output().expect("sh is there")
}

/// Runs a script in a directory; it must succeed without output on standard error.
fn does(script: &str, at: &Path) -> String {
    let output = sh(script, at);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{script}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Mode, modification time in nanoseconds, user and group.
fn attributes(path: &Path) -> (u32, i128, u32, u32) {
    let found = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let time = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
    (found.mode() & 0o7777, time, found.uid(), found.gid())
}

/// Two files and a directory, with odd modes and times.
const SOURCES: &str = "
    mkdir -p src/sub
    echo first > src/first; echo second > src/sub/second
    chmod 750 src/first; chmod 600 src/sub/second; chmod 711 src/sub; chmod 770 src
    touch -d '2001-02-03 04:05:06.789 UTC' src/first
    touch -d '2011-01-01 UTC' src/sub/second src/sub; touch -d '2012-12-12 12:12:12 UTC' src
";
const ALL: [&str; 4] = ["", "first", "sub", "sub/second"];

fn same(copy: &Path, source: &Path) {
    for name in ALL {
        assert_eq!(attributes(&copy.join(name)), attributes(&source.join(name)), "{} {name}", copy.display());
    }
}

#[test]
fn chmod_and_touch_outlive_the_mount() {
    let Some(bucket) = Bucket::new("meta-chmod") else { return };
    let at = bucket.place.at();
    let mount = bucket.mount(&[]);
    does("echo x > file; mkdir dir; echo y > run.sh", &at);
    let before = attributes(&at.join("run.sh")).1;
    does(
        "chmod 755 run.sh; touch -d '2005-05-05 05:05:05.5 UTC' file; chmod 700 dir; touch -d '2006-06-06 UTC' dir",
        &at,
    );
    let check = || {
        let (mode, time, ..) = attributes(&at.join("run.sh"));
        assert_eq!((mode, time), (0o755, before), "chmod leaves the time");
        assert_eq!(attributes(&at.join("file")).1, 1_115_269_505_500_000_000);
        let (mode, time, ..) = attributes(&at.join("dir"));
        assert_eq!((mode, time), (0o700, 1_149_552_000_000_000_000));
        let read: Vec<_> = ["run.sh", "file"].map(|name| fs::read(at.join(name)).expect("there")).into();
        assert_eq!(read, [b"y\n", b"x\n"]);
    };
    check();
    // The store gets the update half a second later.
    std::thread::sleep(std::time::Duration::from_secs(1));
    check();
    assert!(!end(mount).contains("error"));
    let mount = bucket.mount(&[]);
    check();
    // A rewritten file keeps its mode and gets a new time.
    does("echo z > run.sh", &at);
    let (mode, time, ..) = attributes(&at.join("run.sh"));
    assert!(mode == 0o755 && time > before - 1_000_000_000, "{mode:o} {time}");
    assert!(!end(mount).contains("error"));
}

#[test]
fn a_bucket_that_seems_plain_still_runs_its_scripts_and_shows_attributes_once_one_is_seen() {
    let Some(bucket) = Bucket::new("meta-plain") else { return };
    let at = bucket.place.at();
    let mount = bucket.mount(&["--metadata", "ignore"]);
    does("mkdir plain; for n in $(seq 20); do echo $n > plain/$n; done", &at);
    assert!(!end(mount).contains("error"));
    let mount = bucket.mount(&[]);
    does("mkdir scripts; printf '#!/bin/sh\necho ran\n' > scripts/run; chmod 755 scripts/run", &at);
    does("touch -d '2005-05-05 05:05:05 UTC' scripts/old", &at);
    assert!(!end(mount).contains("error"));

    let mount = bucket.mount(&["--ttl", "1h"]);
    does("stat plain/* > /dev/null", &at);
    assert_eq!(does("scripts/run", &at), "ran\n", "the kernel asks before it refuses");
    assert_eq!(attributes(&at.join("scripts/old")).1, 1_115_269_505_000_000_000, "now it is known");
    assert!(!end(mount).contains("error"));
    let mount = bucket.mount(&["--ttl", "1h", "--metadata", "store"]);
    does("stat plain/* > /dev/null", &at);
    assert_eq!(attributes(&at.join("scripts/old")).1, 1_115_269_505_000_000_000);
    assert!(!end(mount).contains("error"));
}

/// versitygw serves files that another program created in its directory without an ETag.
#[test]
fn chmod_and_touch_of_an_object_without_an_etag_outlive_the_mount() {
    let Some(bucket) = Bucket::new("meta-direct") else { return };
    let at = bucket.place.at();
    for name in ["run.sh", "dated"] {
        fs::write(bucket.place.store().join("bucket").join(name), name).expect("written");
    }
    let mount = bucket.mount(&[]);
    does("chmod 755 run.sh; touch -d '2005-05-05 05:05:05.5 UTC' dated", &at);
    let said = end(mount);
    assert!(!said.contains("error"), "{said}");
    let mount = bucket.mount(&[]);
    assert_eq!(attributes(&at.join("run.sh")).0, 0o755);
    assert_eq!(attributes(&at.join("dated")).1, 1_115_269_505_500_000_000);
    let read: Vec<_> = ["run.sh", "dated"].map(|name| fs::read(at.join(name)).expect("there")).into();
    assert_eq!(read, [b"run.sh".as_slice(), b"dated"]);
    end(mount);
}

#[test]
fn copies_of_cp_tar_and_rsync_have_the_attributes_of_their_sources() {
    let Some(bucket) = Bucket::new("meta-copies") else { return };
    let (root, at) = (bucket.place.root().to_owned(), bucket.place.at());
    let has_rsync = is_installed("rsync");
    let mount = bucket.mount(&[]);
    does(SOURCES, &root);
    does("cp -rp src at/cp; mkdir at/tar; tar -C src --format=posix -cf - . | tar -C at/tar -xpf -", &root);
    let mut copies = vec!["cp", "tar"];
    if has_rsync {
        does("rsync -a src/ at/rsync/", &root);
        copies.push("rsync");
    }
    copies.iter().for_each(|copy| same(&at.join(copy), &root.join("src")));
    let said = end(mount);
    assert!(!said.contains("error"), "{said}");

    let mount = bucket.mount(&[]);
    copies.iter().for_each(|copy| same(&at.join(copy), &root.join("src")));
    if has_rsync {
        for options in ["-ai", "-ai --delete"] {
            assert_eq!(
                does(&format!("rsync {options} src/ at/rsync/"), &root),
                "",
                "{options}: nothing differs"
            );
        }
        // And back.
        does("rsync -a at/rsync/ back/", &root);
        same(&root.join("back"), &root.join("src"));
    }
    drop(mount);
}

#[test]
fn a_listing_does_not_hide_stored_attributes() {
    let Some(bucket) = Bucket::new("meta-listing") else { return };
    let at = bucket.place.at();
    let mount = bucket.mount(&[]);
    does("echo x > old; touch -d '2001-01-01 UTC' old; chmod 640 old", &at);
    end(mount);
    let mount = bucket.mount(&[]);
    for _ in 0..2 {
        let listed = does("ls -l --time-style=+%Y-%m-%d", &at);
        assert!(listed.contains("-rw-r-----") && listed.contains("2001-01-01 old"), "{listed}");
        assert_eq!(does("find . -type f ! -newermt 2002-01-01", &at), "./old\n");
        std::thread::sleep(std::time::Duration::from_millis(1200));
    }
    end(mount);
}

/// A signed request.
const CURL: [&str; 5] =
    ["-sSf", "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"];

#[test]
fn attributes_stored_by_s3fs_and_rclone_are_read() {
    let Some(bucket) = Bucket::new("meta-foreign") else { return };
    if !is_installed("curl") {
        return;
    }
    let put = |key: &str, headers: &[&str]| {
        let mut command = Command::new("curl");
        command.args(CURL).args(["-X", "PUT", "--data-binary", "12345"]);
        command.args(["--user", &format!("{VERSITYGW_KEY}:{VERSITYGW_SECRET}")]);
        command.args(headers.iter().flat_map(|header| ["-H", header]));
        let output = command.arg(format!("{}/bucket/{key}", bucket.endpoint())).output().expect("curl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // In the format of s3fs 1.90 for `cp -p` of a file with mode 750.
    put(
        "s3fs",
        &[
            "Content-Type: text/html",
            "x-amz-meta-mode: 33256",
            "x-amz-meta-mtime: 981173106.789000000",
            "x-amz-meta-uid: 1234",
            "x-amz-meta-gid: 4321",
            "x-amz-meta-colour: blue",
        ],
    );
    put(
        "rclone",
        &[
            "Content-Type: application/octet-stream",
            "x-amz-meta-mode: 100640",
            "x-amz-meta-mtime: 981173106.789",
            "x-amz-meta-uid: 7",
        ],
    );
    put("plain", &["Content-Type: text/plain"]);
    put("odd", &["x-amz-meta-mode: banana", "x-amz-meta-mtime: 1e300", "x-amz-meta-uid: -1"]);
    let at = bucket.place.at();
    let mount = bucket.mount(&["--uid", "55", "--gid", "66", "--umask", "027"]);
    assert_eq!(attributes(&at.join("s3fs")), (0o750, 981_173_106_789_000_000, 1234, 4321));
    assert_eq!(attributes(&at.join("rclone")), (0o640, 981_173_106_789_000_000, 7, 66));
    for plain in ["plain", "odd"] {
        let (mode, _, uid, gid) = attributes(&at.join(plain));
        assert_eq!((mode, uid, gid), (0o640, 55, 66), "{plain}");
    }
    // A change preserves metadata of other programs.
    does("chmod 600 s3fs", &at);
    end(mount);
    let head = Command::new("curl")
        .args(CURL)
        .arg("-I")
        .args(["--user", &format!("{VERSITYGW_KEY}:{VERSITYGW_SECRET}")])
        .arg(format!("{}/bucket/s3fs", bucket.endpoint()))
        .output()
        .expect("curl runs");
    let head = String::from_utf8_lossy(&head.stdout).to_ascii_lowercase();
    for header in [
        "content-type: text/html",
        "x-amz-meta-colour: blue",
        "x-amz-meta-mode: 33152",
        "x-amz-meta-uid: 1234",
        "x-amz-meta-mtime: 981173106.789000000",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
}

#[test]
fn refuse_says_why_and_ignore_changes_nothing() {
    let Some(bucket) = Bucket::new("meta-refuse") else { return };
    let (root, at) = (bucket.place.root().to_owned(), bucket.place.at());
    let mount = bucket.mount(&["--metadata", "refuse"]);
    does("echo x > file", &at);
    for command in ["chmod 600 file", "touch -d 2001-01-01 file"] {
        let output = sh(command, &at);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && stderr.contains("Operation not supported"),
            "{command}: {stderr}"
        );
    }
    let said = end(mount);
    assert!(said.contains("s3://bucket/file: mode, owner and times cannot be changed"), "{said}");
    assert!(said.contains("--metadata store"), "{said}");

    let mount = bucket.mount(&["--metadata", "ignore"]);
    let before = attributes(&at.join("file"));
    does(SOURCES, &root);
    does("chmod 600 at/file; touch -d 2001-01-01 at/file; cp -rp src at/cp; mkdir at/tar", &root);
    does("tar -C src --format=posix -cf - . | tar -C at/tar -xpf -", &root);
    if is_installed("rsync") {
        does("rsync -a src/ at/rsync/", &root);
        assert_eq!(fs::read(at.join("rsync/sub/second")).expect("there"), b"second\n");
    }
    assert_eq!(attributes(&at.join("file")), before);
    assert_eq!(attributes(&at.join("cp/first")).0, 0o644);
    let said = end(mount);
    assert!(!said.contains("error"), "{said}");
}

#[test]
fn sqlite_is_refused_with_the_reason_and_leaves_nothing_behind() {
    let Some(bucket) = Bucket::new("meta-sqlite") else { return };
    if !is_installed("python3") || !sh("python3 -c 'import sqlite3'", Path::new("/")).status.success() {
        return;
    }
    let (root, at) = (bucket.place.root().to_owned(), bucket.place.at());
    let sqlite = |file: &str, statements: &str| {
        let script = format!(
            "import sqlite3\nfor r in sqlite3.connect('{file}').execute('''{statements}'''): print(*r)"
        );
        Command::new("python3").args(["-c", &script]).current_dir(&root).output().expect("Python runs")
    };
    let mount = bucket.mount(&[]);
    for (file, statements) in [("at/new.db", "create table t(a)"), ("at/wal.db", "pragma journal_mode=wal")] {
        let output = sqlite(file, statements);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("attempt to write a readonly database"), "{file}: {stderr}");
    }
    assert_eq!(does("ls -A", &at), "", "not even an empty file");
    // A database created elsewhere is readable and unchanged.
    assert!(sqlite("made.db", "create table t(a)").status.success());
    does("cp made.db at/made.db", &root);
    let made = fs::read(root.join("made.db")).expect("there");
    let listed = sqlite("at/made.db", "select name from sqlite_master");
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "t\n");
    assert!(!sqlite("at/made.db", "create table u(a)").status.success());
    assert_eq!(fs::read(at.join("made.db")).expect("there"), made);
    let said = end(mount);
    assert!(said.contains("new.db: a SQLite database cannot be changed in an object store"), "{said}");
    let left = does("ls", &bucket.place.store().join("bucket"));
    assert_eq!(left, "made.db\n");
}

/// A mount of the server that counts requests.
fn counted(place: &Place, server: &S3Server, arguments: &[&str]) -> Served {
    let endpoint = server.endpoint();
    let mut all = vec!["--endpoint", &endpoint, "--allow-http", "--anonymous"];
    all.extend(arguments);
    mount("s3://bucket", &place.at(), &all)
}

#[test]
fn cp_costs_one_lookup_more_where_attributes_are_stored() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("meta-count");
    let server = S3Server::start_open(&place.store(), &["bucket"]).expect("loopback is there");
    let (root, at) = (place.root().to_owned(), place.at());
    does(SOURCES, &root);
    let cost = |arguments: &[&str], script: &str| {
        // On a busy machine attributes would expire during a script.
        let mount = counted(&place, &server, &[arguments, &["--ttl", "1min"]].concat());
        let before = server.requests().len();
        does(script, &root);
        end(mount);
        server.requests().split_off(before)
    };
    let plain = cost(&["--metadata", "ignore"], "cp src/first at/plain");
    let stored = cost(&["--metadata", "store"], "cp src/first at/other");
    // A listing has no attributes: a HEAD comes first, and the listing if there is no object.
    assert_eq!((plain.len(), stored.len()), (3, 4), "{stored:?} {plain:?}");
    let preserved = cost(&["--metadata", "store"], "cp -p src/first at/preserved");
    assert_eq!(preserved.len(), stored.len(), "what cp -p sets goes with the object: {preserved:?}");
    // Three calls, one copy.
    let changed =
        cost(&[], "chmod 640 at/plain; touch -d '2001-01-01 UTC' at/plain; chmod 600 at/plain; sleep 1");
    let puts: Vec<_> = changed.iter().filter(|request| request.starts_with("PUT")).collect();
    assert_eq!(puts.len(), 1, "{changed:?}");
    let plain = cost(&["--metadata", "ignore"], "ls at");
    let stored = cost(&["--metadata", "store"], "ls at");
    assert_eq!(stored.len(), plain.len(), "names need no attributes: {stored:?} {plain:?}");
    if is_installed("rsync") {
        let requests = cost(&[], "rsync -a src/first at/rsync; sleep 1");
        let puts = requests.iter().filter(|request| request.starts_with("PUT")).count();
        assert_eq!(puts, 2, "the bytes, and the rename, which stores the attributes: {requests:?}");
        let mount = counted(&place, &server, &[]);
        assert_eq!(attributes(&at.join("rsync")), attributes(&root.join("src/first")));
        end(mount);
    }
}

/// README.md states these numbers.
#[test]
fn a_small_file_costs_one_request_to_read_and_one_to_create() {
    let Some(_alone) = mounting() else { return };
    const FILES: usize = 20;
    let place = Place::new("meta-small");
    let server = S3Server::start_open(&place.store(), &["bucket"]).expect("loopback is there");
    does(&format!("mkdir src; for i in $(seq {FILES}); do echo $i > src/$i; done"), place.root());
    // Requests of the directory and the mount itself.
    const BESIDE: usize = 12;
    for (script, per_file) in [("cp -r src at/", [0, 0, 1, 0]), ("cat at/src/*", [0, 0, 0, 1])] {
        let mount = counted(&place, &server, &["--ttl", "1min"]);
        let before = server.requests().len();
        does(script, place.root());
        end(mount);
        let requests = server.requests().split_off(before);
        let of = |method: &str, list: bool| {
            let matches =
                |request: &&String| request.starts_with(method) && request.contains("list-type") == list;
            requests.iter().filter(matches).count()
        };
        let found = [of("HEAD", false), of("GET", true), of("PUT", false), of("GET", false)];
        for (found, per_file) in found.iter().zip(per_file) {
            assert!(
                *found <= per_file * FILES + BESIDE,
                "{script}: {found} of {per_file} a file: {requests:?}"
            );
        }
    }
}

#[test]
fn a_long_listing_looks_each_file_up_once() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("meta-long");
    let server = S3Server::start_open(&place.store(), &["bucket"]).expect("loopback is there");
    let mount = counted(&place, &server, &[]);
    does(
        "for i in $(seq 100 299); do echo $i > f$i; done; chmod 600 f2??; touch -d '2001-01-01 UTC' f?50",
        &place.at(),
    );
    end(mount);
    let mount = counted(&place, &server, &["--ttl", "10s"]);
    let before = server.requests().len();
    let listed = does("ls -l --time-style=+%Y", &place.at());
    let heads =
        server.requests().split_off(before).iter().filter(|request| request.starts_with("HEAD")).count();
    assert_eq!(heads, 200, "one for each");
    let count = |what: &str| listed.lines().filter(|line| line.contains(what)).count();
    assert_eq!((count("-rw-------"), count("-rw-r--r--"), count(" 2001 f")), (100, 100, 2), "{listed}");
    // Changed attributes replace those from the lookup.
    does("ls -l > /dev/null; chmod 640 f150 f151; test $(stat -c %a f150) = 640", &place.at());
    end(mount);
}

#[test]
fn an_upload_of_several_parts_has_the_attributes_that_were_set_at_its_end() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("meta-parts");
    let server = S3Server::start_open(&place.store(), &["bucket"]).expect("loopback is there");
    let (root, at) = (place.root().to_owned(), place.at());
    does("head -c 20000000 /dev/urandom > large; chmod 640 large; touch -d '2001-01-01 UTC' large", &root);
    let mount = counted(&place, &server, &[]);
    does("cp -p large at/large", &root);
    end(mount);
    let mount = counted(&place, &server, &[]);
    assert_eq!(attributes(&at.join("large")), attributes(&root.join("large")));
    does("cmp large at/large", &root);
    // An open file stays readable while its attributes change.
    let mut open = fs::File::open(at.join("large")).expect("there");
    let mut bytes = vec![0; 1 << 20];
    open.read_exact(&mut bytes).expect("can be read");
    does("chmod 600 at/large; sleep 1", &root);
    assert_eq!(open.metadata().expect("open").mode() & 0o777, 0o600);
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).expect("the same bytes");
    assert_eq!(bytes.len() + rest.len(), 20_000_000);
    drop(open);
    end(mount);
}

#[test]
fn a_version_of_another_writer_is_not_overwritten_by_a_chmod() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("meta-conflict");
    let server = S3Server::start_open(&place.store(), &["bucket"]).expect("loopback is there");
    let mount = counted(&place, &server, &[]);
    does("echo old > file; chmod 600 file", &place.at());
    let mut stream = TcpStream::connect(server.endpoint().trim_start_matches("http://")).expect("listens");
    write!(
        stream,
        "PUT /bucket/file HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\nby others"
    )
    .expect("writable");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    end(mount);
    let mount = counted(&place, &server, &[]);
    assert_eq!(fs::read(place.at().join("file")).expect("there"), b"by others");
    end(mount);
}

#[test]
fn owners_and_modes_of_web_servers_are_those_of_the_command_line() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("meta-web");
    let server = HttpServer::start(&place.store()).expect("loopback is there");
    fs::write(place.store().join("a.bin"), "12345").expect("writable");
    let url = format!("{}/a.bin", server.url().trim_end_matches('/'));
    let options = ["--uid", "12", "--gid", "34", "--file-mode", "640", "--dir-mode", "750"];
    let mount = mount(&url, &place.at(), &options);
    let (mode, _, uid, gid) = attributes(&place.at().join("a.bin"));
    assert_eq!((mode, uid, gid), (0o640, 12, 34));
    assert_eq!(attributes(&place.at()).0, 0o750);
    end(mount);
    for (options, why) in [
        (&["--metadata", "store"][..], "only S3 can store modes"),
        (&["--file-mode", "rw"], "octal number"),
        (&["--umask", "7777"], "octal number"),
    ] {
        let mut command = bowwave();
        command.args(["mount", &url]).arg(place.at()).args(options);
        let output = crate::common::output_with_input(&mut command, b"");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(why), "{options:?}: {stderr}");
    }
    let mut command = bowwave();
    command.args(["mount", "--uid", "5"]).arg(place.store()).arg(place.at());
    let (code, message) = failure(&mut command);
    assert!(code == 2 && message.contains("--uid") && message.contains("owners"), "{code}: {message}");
}
