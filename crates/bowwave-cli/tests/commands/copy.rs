//! `bowwave cp` with servers that users run, and with misbehaving stores.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use super::wire::Wire;
use crate::common::place::Place;
use crate::common::{bowwave, failure, gateway, is_installed, output_with_input, run, until, with_keys};
use bowwave_testkit::hostile::{Dialect, HostileServer, Mode, content};
use bowwave_testkit::{
    InstalledServer, S3Fault, S3Server, S3Trouble, VERSITYGW_KEY, VERSITYGW_SECRET, is_root,
};
use serde_json::Value;

/// Bytes of a range of a copy.
const CHUNK: usize = 8 << 20;

/// `bowwave cp`, or another command, at an S3 endpoint.
fn s3(command: &str, endpoint: &str, keys: (&str, &str)) -> Command {
    let mut signed = with_keys(keys);
    signed.args([command, "--endpoint", endpoint, "--allow-http", "--region", "us-east-1"]);
    signed
}

fn cp(endpoint: &str) -> Command {
    s3("cp", endpoint, (VERSITYGW_KEY, VERSITYGW_SECRET))
}

/// `bowwave cp` at a hostile store.
fn cp_hostile(server: &HostileServer) -> Command {
    let mut command = s3("cp", &server.endpoint(), ("key", "secret"));
    command.args(["--retries", "1", "--timeout", "2s"]);
    command
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    content(&format!("copy-{seed}"), 1, len)
}

/// The JSON summary of a command.
fn summary(command: &mut Command) -> Value {
    serde_json::from_str(&run(command.arg("--json"))).expect("a JSON object")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A tree with small and large files, an empty directory, and unusual names.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub/deeper")).expect("created");
    fs::create_dir_all(at.join("empty")).expect("created");
    fs::create_dir_all(at.join("sub/empty")).expect("created");
    for (name, len) in [
        ("large", 2 * CHUNK + 12_345),
        ("chunk", CHUNK),
        ("sub/none", 0),
        ("sub/deeper/one", 1),
        ("with space & ünïcode", 100),
        ("percent%41+plus", 100),
    ] {
        fs::write(at.join(name), bytes(len, 7)).expect("written");
    }
}

fn assert_same_trees(one: &Path, other: &Path) {
    let compared = Command::new("diff").arg("-r").args([one, other]).output().expect("diff is installed");
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
}

/// The name of an incomplete copy.
fn part(path: &Path) -> PathBuf {
    let name = path.file_name().expect("has one").to_string_lossy();
    path.with_file_name(format!(".{name}.bowwave-part"))
}

/// Log lines of an incomplete copy: one per present range.
fn ranges_logged(path: &Path, size: usize) -> usize {
    let Ok(file) = File::open(part(path)) else { return 0 };
    let len = file.metadata().map_or(0, |meta| meta.len());
    let mut log = vec![0; usize::try_from(len.saturating_sub(size as u64)).expect("short")];
    let read = file.read_at(&mut log, size as u64).unwrap_or(0);
    log[..read].iter().filter(|&&byte| byte == b'\n').count().saturating_sub(1)
}

/// Starts a copy of `url` to `to` over a slow `wire`, and waits until three ranges are present.
fn begun(command: &mut Command, url: &str, to: &Path, size: usize, wire: &Wire) -> Child {
    wire.limit(40_000_000);
    // Ranges arrive almost one by one, and the rest not before the test checks.
    command.args(["--connections", "2", url]).arg(to).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("bowwave starts");
    until("three ranges are there", || ranges_logged(to, size) >= 3);
    wire.limit(500_000);
    child
}

/// As [`begun`], and kills it with SIGKILL.
fn killed(command: &mut Command, url: &str, to: &Path, size: usize, wire: &Wire) {
    let mut child = begun(command, url, to, size, wire);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    wire.limit(0);
    assert!(!to.exists(), "no incomplete file has the final name");
}

/// A large object on a gateway, a slow wire to it, and a destination file.
struct Download {
    wire: Wire,
    server: InstalledServer,
    size: usize,
    to: PathBuf,
    place: Place,
}

impl Download {
    /// `None`, with the reason printed, without a gateway.
    fn new(name: &str, size: usize) -> Option<Self> {
        let place = Place::new(name);
        let server = gateway(&place)?;
        let (wire, to) = (Wire::to(&server.url()), place.at().join("file"));
        let download = Self { wire, server, size, to, place };
        download.publish(1);
        Some(download)
    }

    /// Publishes a version of the object.
    fn publish(&self, seed: u8) {
        let source = self.place.at().join("source");
        fs::write(&source, bytes(self.size, seed)).expect("written");
        run(cp(&self.server.url()).arg(&source).arg(LARGE));
    }

    /// Starts a copy; see [`begun`].
    fn begin(&self) -> Child {
        begun(&mut cp(&self.wire.url()), LARGE, &self.to, self.size, &self.wire)
    }

    /// Starts a copy and kills it; see [`killed`].
    fn kill(&self) {
        killed(&mut cp(&self.wire.url()), LARGE, &self.to, self.size, &self.wire);
    }

    /// A copy from an endpoint, the server's or the wire's.
    fn copy(&self, endpoint: &str) -> Command {
        let mut command = cp(endpoint);
        command.arg(LARGE).arg(&self.to);
        command
    }

    /// Asserts that the file is this version of the object.
    fn assert_is(&self, seed: u8) {
        assert!(fs::read(&self.to).expect("copied") == bytes(self.size, seed));
    }
}

/// The object of a [`Download`].
const LARGE: &str = "s3://bucket/large";

#[test]
fn a_tree_copied_to_versitygw_and_back_is_the_same_tree() {
    let place = Place::new("copy-tree");
    let Some(server) = gateway(&place) else { return };
    let (from, back) = (place.at().join("from"), place.at().join("back"));
    tree(&from);
    let copied = summary(cp(&server.url()).args(["-r"]).arg(&from).arg("s3://bucket/tree"));
    assert_eq!((&copied["files"], &copied["failed"]), (&Value::from(6), &Value::from(0)), "{copied}");
    run(cp(&server.url()).args(["-r", "s3://bucket/tree/"]).arg(&back));
    assert_same_trees(&from, &back);
    let mode = fs::metadata(back.join("large")).expect("copied").permissions().mode() & 0o777;
    assert_eq!(mode & 0o600, 0o600, "{mode:o}");
    // Copies have the objects' times, so nothing is copied a second time.
    let again = summary(cp(&server.url()).args(["-r", "--update", "s3://bucket/tree/"]).arg(&back));
    assert_eq!((&again["files"], &again["skipped"]), (&Value::from(0), &Value::from(6)), "{again}");
    let again = summary(cp(&server.url()).args(["-r", "--update"]).arg(&from).arg("s3://bucket/tree"));
    assert_eq!((&again["files"], &again["skipped"]), (&Value::from(0), &Value::from(6)), "{again}");
    // A newer file is copied.
    fs::write(from.join("sub/deeper/one"), b"2").expect("written");
    let hour = SystemTime::now() + Duration::from_secs(3600);
    File::options()
        .write(true)
        .open(from.join("sub/deeper/one"))
        .and_then(|file| file.set_modified(hour))
        .expect("set");
    let again = summary(cp(&server.url()).args(["-r", "--update"]).arg(&from).arg("s3://bucket/tree"));
    assert_eq!((&again["files"], &again["skipped"]), (&Value::from(1), &Value::from(5)), "{again}");
    assert_eq!(run(cp(&server.url()).args(["s3://bucket/tree/sub/deeper/one", "-"])), "2");
}

#[test]
fn a_killed_download_continues_and_requests_only_missing_ranges() {
    let size = 6 * CHUNK + 1000;
    let Some(download) = Download::new("copy-killed", size) else { return };
    download.kill();
    download.wire.settle();
    let before = download.wire.received();
    let copied = summary(&mut download.copy(&download.wire.url()));
    let received = download.wire.received() - before;
    let kept = copied["bytes_resumed"].as_u64().expect("a number");
    assert!(kept >= 2 * CHUNK as u64, "{copied}");
    assert!(received < size as u64 - kept + (1 << 20), "{received} bytes of {size} came, {kept} were there");
    download.assert_is(1);
    assert_eq!(names(&download.place.at()), ["file", "source"]);
}

#[test]
fn an_object_that_changed_since_the_interruption_is_copied_anew() {
    let Some(download) = Download::new("copy-changed", 6 * CHUNK) else { return };
    download.kill();
    download.publish(2);
    let output = output_with_input(&mut download.copy(&download.wire.url()), b"");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("has changed since its copy was interrupted"), "{}", said(&output));
    download.assert_is(2);
}

#[test]
fn a_damaged_range_of_an_incomplete_copy_is_copied_again() {
    let Some(download) = Download::new("copy-damaged", 6 * CHUNK) else { return };
    download.kill();
    let part = part(&download.to);
    let log = fs::read(&part).expect("there").split_off(download.size);
    let first = String::from_utf8(log).expect("text").lines().nth(1).expect("a range").to_owned();
    let index: u64 = first.split(' ').next().expect("an index").parse().expect("a number");
    let file = File::options().write(true).open(part).expect("there");
    file.write_all_at(b"!", index * CHUNK as u64 + 5).expect("written");
    run(&mut download.copy(&download.server.url()));
    download.assert_is(1);
}

#[test]
fn ctrl_c_ends_a_copy_with_130_and_keeps_a_resumable_part() {
    let Some(download) = Download::new("copy-interrupt", 6 * CHUNK) else { return };
    let child = download.begin();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("1 incomplete and can be continued"), "{}", said(&output));
    assert_eq!(names(&download.place.at()), [".file.bowwave-part", "source"]);
    download.wire.limit(0);
    let copied = summary(&mut download.copy(&download.wire.url()));
    assert!(copied["bytes_resumed"].as_u64() >= Some(2 * CHUNK as u64), "{copied}");
    download.assert_is(1);
}

#[test]
fn a_second_command_for_the_same_file_is_refused_while_the_first_copies() {
    let Some(download) = Download::new("copy-twice", 6 * CHUNK) else { return };
    let child = download.begin();
    let (code, line) = failure(&mut download.copy(&download.server.url()));
    assert!(code == 1 && line.contains("another command copies to it"), "{line}");
    download.wire.limit(0);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", said(&output));
    download.assert_is(1);
}

#[test]
fn a_killed_download_from_nginx_continues() {
    let place = Place::new("copy-nginx");
    if !is_installed("nginx") {
        return;
    }
    let size = 6 * CHUNK + 7;
    fs::write(place.store().join("file.bin"), bytes(size, 3)).expect("written");
    let server = InstalledServer::nginx(&place.store(), "").expect("it starts");
    let wire = Wire::to(&server.url());
    let (url, to) = (format!("{}/file.bin", wire.url()), place.at().join("file.bin"));
    killed(bowwave().arg("cp"), &url, &to, size, &wire);
    wire.settle();
    let before = wire.received();
    // A directory takes the file under its own name.
    let copied = summary(bowwave().args(["cp", &url]).arg(place.at()));
    let received = wire.received() - before;
    let kept = copied["bytes_resumed"].as_u64().expect("a number");
    assert!(kept >= 2 * CHUNK as u64, "{copied}");
    assert!(received < size as u64 - kept + (1 << 20), "{received} bytes of {size} came, {kept} were there");
    assert!(fs::read(&to).expect("copied") == bytes(size, 3));
    let modified = |path: PathBuf| fs::metadata(path).expect("there").mtime();
    assert_eq!(modified(to), modified(place.store().join("file.bin")));
    let (code, line) = failure(bowwave().args(["cp"]).arg(place.at().join("file.bin")).arg(&url));
    assert!(code == 1 && line.contains("read-only"), "{line}");
}

#[test]
fn a_file_of_a_server_without_ranges_is_copied_or_the_message_names_the_cause() {
    let place = Place::new("copy-python");
    if !is_installed("python3") {
        return;
    }
    for (name, len) in [("small", 1000), ("large", 3 * CHUNK)] {
        fs::write(place.store().join(name), bytes(len, 4)).expect("written");
    }
    let server = InstalledServer::python(&place.store()).expect("it starts");
    run(bowwave().args(["cp", &format!("{}small", server.url())]).arg(place.at()));
    assert!(fs::read(place.at().join("small")).expect("copied") == bytes(1000, 4));
    let to = place.at().join("large");
    let output = output_with_input(bowwave().args(["cp", &format!("{}large", server.url())]).arg(&to), b"");
    if output.status.success() {
        assert!(fs::read(&to).expect("copied") == bytes(3 * CHUNK, 4));
    } else {
        assert!(said(&output).contains("does not support range requests"), "{}", said(&output));
        assert_eq!(names(&place.at()), ["small"]);
    }
}

#[test]
fn hostile_names_are_not_copied_and_nothing_is_written_outside_the_destination() {
    let place = Place::new("copy-names");
    let server = HostileServer::start(Dialect::S3).expect("loopback is there");
    server.put("names/one", b"1".to_vec());
    server.put("names/sub/two", b"2".to_vec());
    server.set_mode("list-hostile-keys".parse().expect("a mode"));
    let to = place.at().join("inner/to");
    let output = output_with_input(cp_hostile(&server).args(["-r", "s3://data/names"]).arg(&to), b"");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("names are no paths of files and are not copied"), "{}", said(&output));
    assert_eq!(fs::read(to.join("one")).expect("copied"), b"1");
    assert_eq!(fs::read(to.join("sub/two")).expect("copied"), b"2");
    assert_eq!(names(&to), ["one", "sub"]);
    assert_eq!(names(&place.at()), ["inner"]);
    assert_eq!(names(&place.at().join("inner")), ["to"]);
    assert_eq!(names(place.root()), ["at", "store"]);
}

#[test]
fn a_link_in_the_destination_leads_no_file_out_of_it() {
    let place = Place::new("copy-link");
    let server = HostileServer::start(Dialect::S3).expect("loopback is there");
    server.put("links/out/file", b"1".to_vec());
    let (to, outside) = (place.at().join("to"), place.at().join("outside"));
    fs::create_dir_all(&to).and_then(|()| fs::create_dir_all(&outside)).expect("created");
    symlink("../outside", to.join("out")).expect("created");
    let output = output_with_input(cp_hostile(&server).args(["-r", "s3://data/links"]).arg(&to), b"");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(names(&outside), [""; 0]);
}

#[test]
fn an_incomplete_file_that_is_not_ours_alone_is_neither_used_nor_changed() {
    let place = Place::new("copy-foreign");
    let (from, to, victim) = (place.at().join("from"), place.at().join("to"), place.at().join("victim"));
    fs::write(&from, b"new").expect("written");
    fs::write(&victim, b"precious").expect("written");
    fs::hard_link(&victim, part(&to)).expect("linked");
    run(bowwave().arg("cp").args([&from, &to]));
    assert_eq!(fs::read(&to).expect("copied"), b"new");
    assert_eq!(fs::read(&victim).expect("there"), b"precious");
    symlink("victim", part(&to)).expect("created");
    assert_eq!(failure(bowwave().arg("cp").args([&from, &to])).0, 1);
    assert_eq!(fs::read(&victim).expect("there"), b"precious");
    fs::remove_file(part(&to)).expect("removed");
    if is_root() {
        fs::write(part(&to), b"").expect("written");
        std::os::unix::fs::chown(part(&to), Some(65534), None).expect("root may");
        run(bowwave().arg("cp").args([&from, &to]));
        assert_eq!(fs::metadata(&to).expect("copied").uid(), 0, "its owner could change the copy");
    }
}

#[test]
fn damaged_bytes_never_get_the_name_of_the_file() {
    let place = Place::new("copy-flip");
    let server = HostileServer::start(Dialect::S3).expect("loopback is there");
    server.put("one", bytes(100_000, 5));
    server.put("several", bytes(3 * CHUNK, 5));
    for key in ["one", "several"] {
        server.set_mode("flip".parse().expect("a mode"));
        let to = place.at().join(key);
        let (code, line) = failure(cp_hostile(&server).arg(format!("s3://data/{key}")).arg(&to));
        assert!(code == 1 && line.contains("checksum"), "{line}");
        assert_eq!(names(&place.at()), [""; 0], "{key}");
        server.set_mode(Mode::HONEST);
        run(cp_hostile(&server).arg(format!("s3://data/{key}")).arg(&to));
        fs::remove_file(&to).expect("copied");
    }
}

#[test]
fn bytes_damaged_before_an_interruption_are_found_out_when_the_copy_continues() {
    let place = Place::new("copy-flip-resumed");
    let server = HostileServer::start(Dialect::S3).expect("loopback is there");
    let size = 6 * CHUNK;
    server.put("object", bytes(size, 6));
    let (to, wire) = (place.at().join("file"), Wire::to(&server.endpoint()));
    // Every range is damaged, and the checksum covers all of them.
    server.set_mode("flip".parse().expect("a mode"));
    killed(&mut s3("cp", &wire.url(), ("key", "secret")), "s3://data/object", &to, size, &wire);
    server.set_mode(Mode::HONEST);
    let output =
        output_with_input(s3("cp", &wire.url(), ("key", "secret")).arg("s3://data/object").arg(&to), b"");
    if !output.status.success() {
        assert!(said(&output).contains("checksum"), "{}", said(&output));
        assert_eq!(names(&place.at()), [""; 0], "what is damaged is not continued");
        run(s3("cp", &wire.url(), ("key", "secret")).arg("s3://data/object").arg(&to));
    }
    assert!(fs::read(&to).expect("copied") == bytes(size, 6));
}

#[test]
fn an_upload_outlasts_errors_of_the_store_and_ends_in_an_error_if_they_last() {
    let place = Place::new("copy-trouble");
    let server = S3Server::start(&place.store(), &["bucket"]).expect("loopback is there");
    let keys = (S3Server::ACCESS_KEY_ID, S3Server::SECRET_ACCESS_KEY);
    let source = place.at().join("source");
    fs::write(&source, bytes(2 * CHUNK + 5, 8)).expect("written");
    for (method, part, what) in [
        ("PUT", "partNumber=2", S3Trouble::Refused(503)),
        ("PUT", "partNumber=1", S3Trouble::Reset),
        ("POST", "uploadId", S3Trouble::ErrorInBody),
        ("POST", "uploadId", S3Trouble::AnswerLost),
    ] {
        server.inject(S3Fault { method, part: part.to_owned(), after: 0, times: 1, what });
        run(s3("cp", &server.endpoint(), keys).arg(&source).arg("s3://bucket/object"));
        let back = place.at().join("back");
        run(s3("cp", &server.endpoint(), keys).arg("s3://bucket/object").arg(&back));
        assert!(fs::read(&back).expect("copied") == bytes(2 * CHUNK + 5, 8), "{what:?}");
    }
    let refused = S3Trouble::Refused(403);
    server.inject(S3Fault {
        method: "PUT",
        part: "partNumber=2".to_owned(),
        after: 0,
        times: 1000,
        what: refused,
    });
    let mut command = s3("cp", &server.endpoint(), keys);
    let (code, line) = failure(command.arg(&source).arg("s3://bucket/other"));
    assert!(code == 1 && line.contains("403"), "{line}");
    assert_eq!(server.uploads(), [], "an upload that the store refuses for good is aborted");
}

#[test]
fn a_killed_upload_continues_and_sends_only_missing_parts() {
    let place = Place::new("copy-upload");
    let Some(server) = gateway(&place) else { return };
    let size = 6 * CHUNK + 1000;
    let source = place.at().join("source");
    fs::write(&source, bytes(size, 1)).expect("written");
    let wire = Wire::to(&server.url());
    let uploads = |endpoint: &str| {
        let listed =
            run(s3("uploads", endpoint, (VERSITYGW_KEY, VERSITYGW_SECRET)).args(["s3://bucket", "--json"]));
        serde_json::from_str::<Vec<Value>>(&listed).expect("an array").len()
    };
    let interrupted = |signal| {
        wire.limit(40_000_000);
        let (before, mut command) = (wire.sent(), cp(&wire.url()));
        command.args(["--connections", "2"]).arg(&source).arg("s3://bucket/large");
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("bowwave starts");
        until("more than half is sent", || wire.sent() - before > (3 * CHUNK + CHUNK / 2) as u64);
        wire.limit(500_000);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("it runs");
        wire.limit(0);
        child.wait_with_output().expect("it ends")
    };
    interrupted(rustix::process::Signal::KILL);
    assert_eq!(uploads(&server.url()), 1);
    wire.settle();
    let before = wire.sent();
    let copied = summary(cp(&wire.url()).arg(&source).arg("s3://bucket/large"));
    let (sent, kept) = (wire.sent() - before, copied["bytes_resumed"].as_u64().expect("a number"));
    assert!(kept >= CHUNK as u64, "{copied}");
    assert!(sent < size as u64 - kept + (1 << 20), "{sent} of {size} bytes were sent, {kept} were there");
    let back = place.at().join("back");
    run(cp(&server.url()).arg("s3://bucket/large").arg(&back));
    assert!(fs::read(&back).expect("copied") == bytes(size, 1));
    assert_eq!(uploads(&server.url()), 0);
    // Different bytes than those of the upload start a new one.
    let output = interrupted(rustix::process::Signal::INT);
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    fs::write(&source, bytes(size, 2)).expect("written");
    let copied = summary(cp(&wire.url()).arg(&source).arg("s3://bucket/large"));
    assert_eq!(copied["bytes_resumed"], Value::from(0), "{copied}");
    run(cp(&server.url()).arg("s3://bucket/large").arg(&back));
    assert!(fs::read(&back).expect("copied") == bytes(size, 2));
}

#[test]
fn an_upload_that_the_store_discards_is_an_error() {
    let place = Place::new("copy-discarded");
    let server = HostileServer::start(Dialect::S3).expect("loopback is there");
    let source = place.at().join("source");
    for len in [1000, 2 * CHUNK] {
        fs::write(&source, bytes(len, 9)).expect("written");
        server.set_mode("upload-discarded".parse().expect("a mode"));
        let (code, line) = failure(cp_hostile(&server).arg(&source).arg("s3://data/write/object"));
        assert!(code == 1 && line.contains("write/object"), "{line}");
        server.set_mode(Mode::HONEST);
        run(cp_hostile(&server).arg(&source).arg("s3://data/write/object"));
    }
}

#[test]
fn a_store_whose_tag_is_not_that_of_the_bytes_is_read_back() {
    let place = Place::new("copy-tags");
    let server = HostileServer::start(Dialect::S3).expect("loopback is there");
    let source = place.at().join("source");
    fs::write(&source, bytes(1000, 9)).expect("written");
    server.set_mode("upload-wrong-tag".parse().expect("a mode"));
    let output = output_with_input(cp_hostile(&server).arg(&source).arg("s3://data/write/tagged"), b"");
    // The object is read with the store's tag; whatever the response, success means that the bytes
    // are stored.
    if output.status.success() {
        assert!(server.object("write/tagged").is_some_and(|object| *object == *bytes(1000, 9)));
    }
    assert!(!said(&output).contains("panicked"), "{}", said(&output));
}

#[test]
fn standard_input_and_output_are_copied_in_order() {
    let place = Place::new("copy-standard");
    let Some(server) = gateway(&place) else { return };
    let input = bytes(3 * CHUNK + 11, 10);
    let mut child = cp(&server.url())
        .args(["-", "s3://bucket/piped"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bowwave starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, &input).expect("it reads all");
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
    let output = output_with_input(cp(&server.url()).args(["s3://bucket/piped", "-"]), b"");
    assert!(output.status.success() && output.stdout == input, "{}", said(&output));
    let to = place.at().join("empty");
    run(bowwave().args(["cp", "-"]).arg(&to));
    assert_eq!(fs::read(&to).expect("copied"), b"");
    // A reader that closes the pipe ends the copy quietly.
    let mut child = cp(&server.url())
        .args(["s3://bucket/piped", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bowwave starts");
    let mut first = [0; 10];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("10 bytes");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    assert_eq!(first, input[..10]);
}

#[test]
fn files_that_cannot_be_copied_do_not_keep_others_from_it() {
    let place = Place::new("copy-others");
    let (from, to) = (place.at().join("from"), place.at().join("to"));
    fs::create_dir_all(&from).expect("created");
    for name in ["a", "b", "c"] {
        fs::write(from.join(name), name).expect("written");
    }
    fs::create_dir_all(to.join("b")).expect("created");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        from.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("created");
    let output = output_with_input(bowwave().args(["cp", "-r"]).arg(&from).arg(&to), b"");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("2 of 4 files were not copied"), "{said}");
    assert!(said.contains("fifo: is a special file") && said.contains("b: is a directory"), "{said}");
    assert_eq!(
        (fs::read(to.join("a")).expect("copied"), fs::read(to.join("c")).expect("copied")),
        (b"a".to_vec(), b"c".to_vec())
    );
    let failed = output_with_input(bowwave().args(["cp", "-r", "--json"]).arg(&from).arg(&to), b"");
    let failed: Value = serde_json::from_slice(&failed.stdout).expect("a JSON object");
    assert_eq!((&failed["files"], &failed["failed"]), (&Value::from(2), &Value::from(2)), "{failed}");
    assert_eq!(failed["failures"].as_array().map(Vec::len), Some(2), "{failed}");
}

#[test]
fn local_copies_keep_modes_times_and_links() {
    let place = Place::new("copy-local");
    let (from, to) = (place.at().join("from"), place.at().join("to"));
    tree(&from);
    fs::set_permissions(from.join("chunk"), fs::Permissions::from_mode(0o500)).expect("set");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options()
        .write(true)
        .open(from.join("large"))
        .and_then(|file| file.set_modified(then))
        .expect("set");
    symlink("large", from.join("link")).expect("created");
    symlink("nowhere", from.join("broken")).expect("created");
    run(bowwave().args(["cp", "-r"]).arg(&from).arg(&to));
    assert_eq!(fs::read_link(to.join("link")).expect("a link"), Path::new("large"));
    assert_eq!(fs::read_link(to.join("broken")).expect("a link"), Path::new("nowhere"));
    fs::remove_file(from.join("broken")).and_then(|()| fs::remove_file(to.join("broken"))).expect("removed");
    assert_same_trees(&from, &to);
    assert_eq!(fs::metadata(to.join("chunk")).expect("copied").permissions().mode() & 0o777, 0o500);
    assert_eq!(fs::metadata(to.join("large")).expect("copied").modified().expect("known"), then);
    run(bowwave().args(["cp", "--no-times"]).arg(from.join("large")).arg(to.join("now")));
    assert_ne!(fs::metadata(to.join("now")).expect("copied").modified().expect("known"), then);
}

#[test]
fn arguments_that_make_no_sense_are_refused_and_change_nothing() {
    let place = Place::new("copy-arguments");
    let (file, directory) = (place.at().join("file"), place.at().join("directory"));
    fs::write(&file, b"1").expect("written");
    fs::create_dir(&directory).expect("created");
    fs::write(directory.join("inside"), b"2").expect("written");
    let refused = |arguments: &[&Path], code: i32, part: &str| {
        let (found, line) = failure(bowwave().arg("cp").args(arguments));
        assert!(found == code && line.contains(part), "{arguments:?}: {found}: {line}");
    };
    refused(&[&file, &file], 1, "the same file");
    refused(&[&directory, Path::new("to")], 1, "(try -r)");
    refused(&[Path::new("-r"), &directory, &directory.join("into")], 2, "into itself");
    refused(&[Path::new("-r"), &directory, &file], 1, "is not a directory");
    refused(&[&place.at().join("missing"), &directory], 1, "missing");
    refused(&[&file, &place.at().join("missing/file")], 1, "missing");
    refused(&[Path::new("-"), &directory], 2, "no name");
    refused(&[&file, &file, &directory.join("inside")], 1, "is not a directory");
    assert_eq!(names(&place.at()), ["directory", "file"]);
    assert_eq!(names(&directory), ["inside"]);
    assert_eq!(fs::read(directory.join("inside")).expect("there"), b"2");
}

#[test]
fn existing_files_are_replaced_unless_the_options_say_otherwise() {
    let place = Place::new("copy-existing");
    let (from, to) = (place.at().join("from"), place.at().join("to"));
    fs::write(&from, b"new").expect("written");
    fs::write(&to, b"old").expect("written");
    fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("set");
    assert_eq!(
        run(bowwave().args(["cp", "--dry-run"]).arg(&from).arg(&to)).trim(),
        format!("file://{} -> {}", from.display(), to.display())
    );
    assert_eq!(fs::read(&to).expect("there"), b"old");
    let kept = summary(bowwave().args(["cp", "--no-clobber"]).arg(&from).arg(&to));
    assert_eq!(
        (&kept["skipped"], fs::read(&to).expect("there").as_slice()),
        (&Value::from(1), b"old".as_slice())
    );
    let output = output_with_input(bowwave().args(["cp", "--quiet"]).arg(&from).arg(&to), b"");
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    assert_eq!(fs::read(&to).expect("there"), b"new");
    let mode = fs::metadata(&to).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "a replaced file keeps its permissions");
    let directory = place.at().join("created/");
    assert_eq!(run(bowwave().args(["cp", "--dry-run"]).arg(&from).arg(&directory)).lines().count(), 1);
    assert!(!directory.exists(), "a dry run creates nothing");
    run(bowwave().arg("cp").args([&from, &to]).arg(&directory));
    assert_eq!(names(&directory), ["from", "to"]);
}
