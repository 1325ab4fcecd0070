//! `bowwave read` and `bowwave mount` with servers that users have: versitygw, nginx and Python's
//! `http.server`.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_testkit::{InstalledServer, VERSITYGW_KEY, VERSITYGW_SECRET};
use common::place::Place;
use common::served::Served;
use common::{bowwave, can_mount, failure, is_installed, one_at_a_time, run};

/// A directory to serve and a mount point, for one test at a time.
struct Bench {
    place: Place,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// `None`, with the reason printed, if mounts do not work or `server` is not installed.
    fn new(name: &str, server: &str) -> Option<Self> {
        (is_installed(server) && can_mount())
            .then(|| Self { _alone: one_at_a_time(), place: Place::new(&format!("real-{name}")) })
    }

    /// Writes a file in the served directory, with its parents.
    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.place.store().join(path);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("writable");
        fs::write(path, bytes).expect("writable");
    }

    /// Runs a program of the system, which must succeed.
    fn shell(&self, program: &str, arguments: &[&OsStr]) -> String {
        let output = Command::new(program).args(arguments).output().expect("the system has it");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Copies `from` with `cp -r`, and compares both with `diff -r`.
    fn copy(&self, from: &Path) {
        let to = self.place.root().join("copy");
        self.shell("cp", &["-r".as_ref(), from.as_ref(), to.as_ref()]);
        self.shell("diff", &["-r".as_ref(), from.as_ref(), to.as_ref()]);
        fs::remove_dir_all(to).expect("just made");
    }

    /// Whether nothing is mounted and a mount is possible.
    fn is_free(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("every Linux has it");
        !mounts.contains(&self.place.at().display().to_string())
    }

    /// Mounts `url`, which must fail with code 1 within five seconds, in the foreground and as a
    /// daemon; returns the message.
    fn refused(&self, signed: impl Fn() -> Command, url: &str, options: &[&str]) -> String {
        let mut said = String::new();
        // The daemon's message comes from the process in the background.
        for how in ["--foreground", "--daemon"] {
            let mut command = signed();
            command.args(["mount", how, url]).arg(self.place.at()).args(options);
            let mut child = command.stderr(Stdio::piped()).spawn().expect("the program is there");
            let begun = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().expect("our child") {
                    break status;
                }
                if begun.elapsed() > Duration::from_secs(5) {
                    child.kill().expect("our child");
                    child.wait().expect("our child");
                    panic!("{how} {url} has not failed within 5 s; mounted: {}", !self.is_free());
                }
                thread::sleep(Duration::from_millis(10));
            };
            said.clear();
            child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("UTF-8");
            assert_eq!(status.code(), Some(1), "{how} {url}: {said}");
            assert!(said.starts_with("bowwave: error: ") && said.lines().count() == 1, "{said}");
            assert!(self.is_free(), "{said}");
        }
        said
    }
}

/// The program without credentials and proxies of the environment.
fn plain() -> Command {
    let mut command = bowwave();
    for (name, _) in std::env::vars() {
        if name.starts_with("AWS_") || name.to_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command
}

/// The program with these keys.
fn with_keys(key: &str, secret: &str) -> Command {
    let mut command = plain();
    command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret).env("AWS_REGION", "us-east-1");
    command
}

/// The program with the keys of versitygw.
fn signed() -> Command {
    with_keys(VERSITYGW_KEY, VERSITYGW_SECRET)
}

fn endpoint(server: &InstalledServer) -> String {
    server.url().trim_end_matches('/').to_owned()
}

/// Bytes that differ at each offset.
fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).take(count).collect()
}

#[test]
fn objects_without_an_etag_are_read_and_copied() {
    let Some(bench) = Bench::new("untagged", "versitygw") else { return };
    for (name, size) in [("a", 6), ("big", 3_000_001), ("empty", 0)] {
        bench.write(&format!("bucket/dir/{name}"), &bytes(size));
    }
    let server = InstalledServer::versitygw(&bench.place.store()).expect("it starts");
    let endpoint = endpoint(&server);
    let options = ["--endpoint", &endpoint, "--allow-http"];
    run(signed().args(["read", "s3://bucket/dir/big", "--verify"]).args(options));

    let mut mount = signed();
    mount.args(["mount", "s3://bucket"]).arg(bench.place.at()).args(options);
    let mounted = Served::of(&mut mount, &bench.place.at());
    bench.shell(
        "diff",
        &[
            "-r".as_ref(),
            bench.place.at().join("dir").as_ref(),
            bench.place.store().join("bucket/dir").as_ref(),
        ],
    );
    bench.copy(&bench.place.at().join("dir"));
    let (status, said) = mounted.unmount();
    assert!(status.success() && !said.contains("error"), "{said}");
}

/// versitygw lists an empty directory of its file system in the parent, but has no entry for it
/// inside.
#[test]
fn an_empty_directory_without_a_marker_is_found_and_copied() {
    let Some(bench) = Bench::new("unmarked", "versitygw") else { return };
    bench.write("bucket/dir/a", b"hello\n");
    fs::create_dir_all(bench.place.store().join("bucket/dir/empty")).expect("created");
    let server = InstalledServer::versitygw(&bench.place.store()).expect("it starts");
    let endpoint = endpoint(&server);
    let mut mount = signed();
    mount.args(["mount", "s3://bucket"]).arg(bench.place.at());
    mount.args(["--endpoint", &endpoint, "--allow-http"]);
    let mounted = Served::of(&mut mount, &bench.place.at());
    let script =
        "find . | sort && cp -r dir copy && diff -r dir copy && rmdir dir/empty && test ! -e dir/empty";
    let output = Command::new("sh").args(["-ec", script]).current_dir(bench.place.at()).output();
    let output = output.expect("sh is there");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), ".\n./dir\n./dir/a\n./dir/empty\n");
    let (status, said) = mounted.unmount();
    assert!(status.success() && !said.contains("error"), "{said}");
    assert!(!bench.place.store().join("bucket/dir/empty").exists());

    // As a URL of its own it has no listing above it.
    fs::create_dir(bench.place.store().join("bucket/alone")).expect("created");
    let listed = run(signed().args(["ls", "s3://bucket/alone", "--endpoint", &endpoint, "--allow-http"]));
    assert_eq!(listed, "");
}

#[test]
fn an_object_without_an_etag_is_refused_where_a_version_is_required() {
    let Some(bench) = Bench::new("required", "versitygw") else { return };
    bench.write("bucket/dir/a", b"hello\n");
    let server = InstalledServer::versitygw(&bench.place.store()).expect("it starts");
    let endpoint = endpoint(&server);
    let options = ["--endpoint", &endpoint, "--allow-http", "--require-version"];
    let (code, line) = failure(signed().args(["read", "s3://bucket/dir/a"]).args(options));
    assert_eq!(code, 1);
    assert!(line.contains("s3://bucket/dir/a: the store gives no strong entity tag"), "{line}");

    let mut mount = signed();
    mount.args(["mount", "s3://bucket"]).arg(bench.place.at()).args(options);
    let mounted = Served::of(&mut mount, &bench.place.at());
    assert!(fs::read(bench.place.at().join("dir/a")).is_err());
    let (_, said) = mounted.unmount();
    assert!(said.contains("s3://bucket/dir/a: the store gives no strong entity tag"), "{said}");
}

#[test]
fn an_object_without_an_etag_that_is_replaced_while_open_is_an_error() {
    let Some(bench) = Bench::new("replaced", "versitygw") else { return };
    let name = "bucket/dir/big";
    bench.write(name, &bytes(3_000_000));
    let server = InstalledServer::versitygw(&bench.place.store()).expect("it starts");
    let mut mount = signed();
    mount.args(["mount", "s3://bucket"]).arg(bench.place.at());
    mount.args(["--endpoint", &endpoint(&server), "--allow-http", "--policy", "none"]);
    let mounted = Served::of(&mut mount, &bench.place.at());
    let mut file = fs::File::open(bench.place.at().join("dir/big")).expect("readable");
    let mut page = vec![0; 4096];
    file.read_exact(&mut page).expect("readable");
    assert_eq!(page, bytes(4096));

    bench.write(name, &vec![7; 3_000_000]);
    let later = SystemTime::now() + Duration::from_secs(5);
    let replaced = fs::File::options().write(true).open(bench.place.store().join(name)).expect("writable");
    replaced.set_modified(later).expect("writable");
    file.seek(SeekFrom::Start(2_000_000)).expect("a file");
    let error = file.read_exact(&mut page).expect_err("another version");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error()), "{error}");
    drop(file);
    let (_, said) = mounted.unmount();
    assert!(said.contains("dir/big: the object has changed since it was opened"), "{said}");
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error_at_mount() {
    let Some(bench) = Bench::new("unreachable", "sh") else { return };
    for (url, cause) in [
        ("http://127.0.0.1:1/x/", "cannot connect to 127.0.0.1:1"),
        ("http://127.0.0.1:1/x/file", "cannot connect to 127.0.0.1:1"),
        ("http://no-such-host.invalid/x/", "no-such-host.invalid:80 has no address"),
    ] {
        let said = bench.refused(plain, url, &[]);
        assert!(said.contains(url) && said.contains(cause), "{said}");
        // With all seven attempts, unlucky pauses took longer than a user waits.
        assert!(said.contains("(after 4 attempts)"), "{said}");
    }
    for (endpoint, cause) in [
        ("http://127.0.0.1:1", "cannot connect to 127.0.0.1:1"),
        ("http://no-such-host.invalid", "no-such-host.invalid:80 has no address"),
    ] {
        for url in ["s3://bucket", "s3://bucket/prefix"] {
            let said = bench.refused(signed, url, &["--endpoint", endpoint, "--allow-http"]);
            assert!(said.contains(url) && said.contains(cause), "{said}");
            assert!(said.contains("(after 4 attempts)"), "{said}");
        }
    }
}

#[test]
fn a_web_directory_that_is_missing_or_locked_is_an_error_at_mount() {
    let Some(bench) = Bench::new("missing", "nginx") else { return };
    bench.write("locked/a", b"hello\n");
    let locked = "location /locked/ { auth_basic x; auth_basic_user_file /dev/null; }";
    let server = InstalledServer::nginx(&bench.place.store(), locked).expect("it starts");
    for (path, cause) in [("missing/", "404 Not Found"), ("missing", "404"), ("locked/", "401 Unauthorized")]
    {
        let url = format!("{}{path}", server.url());
        let said = bench.refused(plain, &url, &[]);
        assert!(said.contains(&url) && said.contains(cause), "{said}");
    }
    // The same cause for the commands without a mount.
    bench.write("dir/a", b"hello\n");
    let url = format!("{}dir", server.url());
    let (code, line) = failure(plain().args(["ls", &url]));
    assert!(code == 1 && line.contains("this is a directory; end the URL with `/`"), "{line}");
    let url = url.replacen("http:", "https:", 1);
    let (code, line) = failure(plain().args(["ls", &url]));
    assert!(code == 1 && line.contains("the server does not speak TLS"), "{line}");
    assert!(!line.contains("attempts"), "{line}");
}

#[test]
fn files_of_a_web_directory_without_an_index_are_opened_by_name() {
    let Some(bench) = Bench::new("unlisted", "nginx") else { return };
    bench.write("dir/a", b"hello\n");
    let server = InstalledServer::nginx(&bench.place.store(), "").expect("it starts");
    // nginx returns 403 for a directory without a listing.
    for (path, file, options) in
        [("", "dir/a", &[][..]), ("", "dir/a", &["--no-index"]), ("missing/", "../dir/a", &["--no-index"])]
    {
        let url = format!("{}{path}", server.url());
        let mounted = Served::start(&url, &bench.place.at(), options);
        if !file.starts_with("..") {
            assert_eq!(fs::read(bench.place.at().join(file)).expect("readable"), b"hello\n");
        }
        assert!(fs::read_dir(bench.place.at()).and_then(|mut dir| dir.next().transpose()).is_err());
        mounted.unmount();
    }
}

#[test]
fn a_directory_without_a_listing_is_not_called_a_matter_of_credentials() {
    let Some(bench) = Bench::new("forbidden", "nginx") else { return };
    bench.write("dir/a", b"hello\n");
    let server = InstalledServer::nginx(&bench.place.store(), "").expect("it starts");
    let (url, at) = (format!("{}dir/", server.url()), bench.place.at());
    let mount = bowwave().args(["mount", "--daemon", &url]).arg(&at).output().expect("it starts");
    let said = String::from_utf8_lossy(&mount.stderr).into_owned();
    assert!(mount.status.success(), "{said}");
    let listed = bowwave().args(["ls", &url]).output().expect("it starts");
    let refused = String::from_utf8_lossy(&listed.stderr).into_owned();
    let read = fs::read(at.join("a"));
    run(bowwave().arg("umount").arg(&at));
    assert_eq!(read.expect("opened by name"), b"hello\n");
    assert!(listed.status.code() == Some(1), "{refused}");
    for said in [said, refused] {
        assert!(
            said.contains(&format!("{url}: the server shows no listing of this directory (403")),
            "{said}"
        );
        assert!(
            said.contains("by name") && said.contains("--no-index") && said.contains("autoindex on"),
            "{said}"
        );
        assert!(!said.contains("credentials"), "{said}");
    }
}

#[test]
fn copies_of_a_web_directory_can_be_written_and_removed_while_the_mount_cannot() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(bench) = Bench::new("modes", "nginx") else { return };
    bench.write("dir/a", b"hello\n");
    let server = InstalledServer::nginx(&bench.place.store(), "autoindex on;").expect("it starts");
    let (at, copy) = (bench.place.at(), bench.place.root().join("copy"));
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    let mounted = Served::start(&server.url(), &at, &[]);
    bench.shell("cp", &["-rp".as_ref(), at.join("dir").as_ref(), copy.as_ref()]);
    assert_eq!((mode(&copy), mode(&copy.join("a"))), (0o755, 0o644));
    let refusals = [
        fs::write(at.join("dir/a"), b"x"),
        fs::write(at.join("dir/new"), b"x"),
        fs::remove_file(at.join("dir/a")),
        fs::create_dir(at.join("dir/new")),
        fs::set_permissions(at.join("dir/a"), fs::Permissions::from_mode(0o600)),
    ];
    mounted.unmount();
    for refused in refusals {
        assert_eq!(refused.expect_err("read-only").kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    let mounted = Served::start(&server.url(), &at, &["--file-mode", "440", "--dir-mode", "550"]);
    let shown = (mode(&at.join("dir")), mode(&at.join("dir/a")));
    mounted.unmount();
    assert_eq!(shown, (0o550, 0o440));
}

#[test]
fn a_web_directory_of_run_has_the_time_at_which_the_program_started() {
    let Some(bench) = Bench::new("times", "nginx") else { return };
    bench.write("dir/a", b"hello\n");
    let server = InstalledServer::nginx(&bench.place.store(), "autoindex on;").expect("it starts");
    let map = format!("{}=/web-times", server.url());
    let script = "stat -c '%Y %a' /web-times/dir; sleep 1.1; stat -c '%Y %a' /web-times/dir; stat -c %a /web-times/dir/a";
    let now = || SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let before = now();
    let shown = run(bowwave().args(["run", "--map", &map, "--", "sh", "-c", script]));
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[0], lines[1], "all processes show the same time");
    let (time, mode) = lines[0].split_once(' ').expect("two fields");
    let time: u64 = time.parse().expect("a number");
    assert!((before..=now()).contains(&time), "{shown}");
    assert_eq!((mode, lines[2]), ("755", "644"));
}

#[test]
fn a_prefix_that_does_not_exist_yet_is_mounted_and_filled() {
    let Some(bench) = Bench::new("prefix", "versitygw") else { return };
    fs::create_dir(bench.place.store().join("bucket")).expect("writable");
    let tree = bench.place.root().join("tree");
    fs::create_dir_all(tree.join("sub")).expect("writable");
    fs::write(tree.join("sub/file"), bytes(100_000)).expect("writable");
    fs::write(tree.join("empty"), b"").expect("writable");
    let server = InstalledServer::versitygw(&bench.place.store()).expect("it starts");
    let endpoint = endpoint(&server);
    let mount = |url: &str, options: &[&str]| {
        let mut mount = signed();
        mount.args(["mount", url]).arg(bench.place.at()).args(["--endpoint", &endpoint, "--allow-http"]);
        Served::of(mount.args(options), &bench.place.at())
    };
    let at = bench.place.at();
    let mounted = mount("s3://bucket/new/read", &["--read-only"]);
    assert_eq!(fs::read_dir(&at).expect("a directory").count(), 0);
    mounted.unmount();

    let mounted = mount("s3://bucket/new/prefix", &[]);
    assert_eq!(fs::read_dir(&at).expect("a directory").count(), 0);
    bench.shell("mkdir", &[at.join("made").as_ref()]);
    bench.shell("cp", &["-r".as_ref(), tree.as_ref(), at.join("made/copied").as_ref()]);
    let archive = bench.place.root().join("tree.tar");
    bench.shell(
        "tar",
        &["-C".as_ref(), bench.place.root().as_ref(), "-cf".as_ref(), archive.as_ref(), "tree".as_ref()],
    );
    let extract = ["--no-same-owner", "--no-same-permissions", "-m"].map(OsStr::new);
    bench.shell(
        "tar",
        &[&["-C".as_ref(), at.as_ref(), "-xf".as_ref(), archive.as_ref()], &extract[..]].concat(),
    );
    for copy in ["made/copied", "tree"] {
        bench.shell("diff", &["-r".as_ref(), tree.as_ref(), at.join(copy).as_ref()]);
    }
    assert!(mounted.unmount().0.success());
    let stored = bench.place.store().join("bucket/new/prefix");
    assert_eq!(fs::read(stored.join("tree/sub/file")).expect("stored"), bytes(100_000));

    // `read` requires an existing object.
    let command = &mut signed();
    let (code, line) =
        failure(command.args(["read", "s3://bucket/none", "--endpoint", &endpoint, "--allow-http"]));
    assert!(code == 1 && line.contains("s3://bucket/none: no such file"), "{line}");
    let said = bench.refused(signed, "s3://absent/new", &["--endpoint", &endpoint, "--allow-http"]);
    assert!(said.contains("s3://absent: no such bucket"), "{said}");
}

#[test]
fn each_refusal_of_an_object_store_has_its_own_message() {
    let Some(bench) = Bench::new("refused", "versitygw") else { return };
    bench.write("bucket/dir/a", b"hello\n");
    let server = InstalledServer::versitygw(&bench.place.store()).expect("it starts");
    let endpoint = endpoint(&server);
    let right = (VERSITYGW_KEY, VERSITYGW_SECRET);
    for (keys, bucket, options, cause) in [
        (("unknown", VERSITYGW_SECRET), "bucket", &[][..], "does not know this access key"),
        ((VERSITYGW_KEY, "wrong"), "bucket", &[], "the secret does not fit the access key"),
        (right, "absent", &[], "s3://absent: no such bucket"),
        (right, "bucket", &["--region", "eu-west-9"], "--region us-east-1"),
        (right, "bucket", &["--anonymous"], "these credentials, or their absence, do not allow it"),
    ] {
        let options = [&["--endpoint", &endpoint, "--allow-http"], options].concat();
        let with_keys = || with_keys(keys.0, keys.1);
        for prefix in ["", "/dir", "/dir/a", "/none"] {
            let said = bench.refused(with_keys, &format!("s3://{bucket}{prefix}"), &options);
            assert!(said.contains(cause), "{prefix}: {said}");
            // The keys are in the environment: to set them is no remedy.
            assert!(!said.contains("in the environment"), "{said}");
        }
        let mut read = with_keys();
        let (code, line) = failure(read.args(["read", &format!("s3://{bucket}/dir/a")]).args(&options));
        assert!(code == 1 && line.contains(cause), "{line}");
    }
}

/// A tree whose names a web server has to escape.
fn write_tree(bench: &Bench) {
    for name in ["a b&c;d", "100%", "?C=N", "#hash", "co:lon", "quo\"te<>", "ünï", "plus+eq=", "deep/er/file"]
    {
        bench.write(name, format!("the bytes of {name}\n").as_bytes());
    }
    bench.write("empty", b"");
    bench.write("sub dir/big", &bytes(1_234_567));
    bench.write(&"long-".repeat(40), b"a long name\n");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_580_702_706);
    let file = fs::File::options().write(true).open(bench.place.store().join("100%")).expect("just made");
    file.set_modified(old).expect("writable");
}

/// Names, sizes and times below `path`; times of files only.
fn found(bench: &Bench, path: &Path) -> Vec<String> {
    let output = bench.shell(
        "find",
        &[
            path.as_ref(),
            "-type".as_ref(),
            "f".as_ref(),
            "-printf".as_ref(),
            "%P %s %Ts\\n".as_ref(),
            "-o".as_ref(),
            "-printf".as_ref(),
            "%P/\\n".as_ref(),
        ],
    );
    let mut lines: Vec<_> = output.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_web_directory_is_listed_and_copied() {
    let Some(bench) = Bench::new("listed", "nginx") else { return };
    write_tree(&bench);
    let (store, at) = (bench.place.store(), bench.place.at());
    for directives in
        ["autoindex on;", "autoindex on; autoindex_format json;", "autoindex on; autoindex_exact_size off;"]
    {
        let server = InstalledServer::nginx(&store, directives).expect("it starts");
        let mounted = Served::start(&server.url(), &at, &[]);
        assert_eq!(found(&bench, &at), found(&bench, &store), "{directives}");
        bench.copy(&at);
        bench.shell("diff", &["-r".as_ref(), at.as_ref(), store.as_ref()]);
        let (status, said) = mounted.unmount();
        assert!(status.success() && !said.contains("error"), "{said}");
        run(plain().args(["read", &server.url(), "--verify"]));

        let mounted = Served::start(&server.url(), &at, &["--list-max", "3"]);
        assert!(fs::read_dir(&at).and_then(|mut dir| dir.next().transpose()).is_err());
        let (_, said) = mounted.unmount();
        assert!(said.contains("more than 3 entries in one directory (--list-max)"), "{said}");

        let mounted = Served::start(&server.url(), &at, &["--no-index"]);
        assert!(fs::read_dir(&at).and_then(|mut dir| dir.next().transpose()).is_err());
        assert_eq!(fs::read(at.join("sub dir/big")).expect("readable"), bytes(1_234_567));
        mounted.unmount();
    }
}

#[test]
fn a_server_without_ranges_is_read_whole() {
    let Some(bench) = Bench::new("whole", "python3") else { return };
    write_tree(&bench);
    bench.write("big", &bytes(20_000_001));
    let (store, at) = (bench.place.store(), bench.place.at());
    let server = InstalledServer::python(&store).expect("it starts");
    let note =
        "the server does not support range requests: files of up to 64MiB (--no-range-max) are read whole";
    let daemon =
        plain().args(["mount", "--daemon", &server.url()]).arg(&at).output().expect("bowwave starts");
    let said = String::from_utf8_lossy(&daemon.stderr).into_owned();
    assert!(daemon.status.success() && said.contains(note), "{said}");
    assert_eq!(found(&bench, &at), found(&bench, &store));
    bench.copy(&at);
    bench.shell("diff", &["-r".as_ref(), at.as_ref(), store.as_ref()]);
    let mut file = fs::File::open(at.join("big")).expect("readable");
    let mut page = vec![0; 4096];
    file.seek(SeekFrom::Start(13_000_000)).expect("a file");
    file.read_exact(&mut page).expect("readable");
    assert_eq!(page, bytes(13_004_096)[13_000_000..]);
    drop(file);
    run(bowwave().arg("umount").arg(&at));
    run(plain().args(["read", &format!("{}big", server.url()), "--verify"]));

    let mounted = Served::start(&server.url(), &at, &["--no-range-max", "1MiB"]);
    fs::read(at.join("big")).expect_err("too large");
    assert_eq!(fs::read(at.join("100%")).expect("small"), b"the bytes of 100%\n");
    let (_, said) = mounted.unmount();
    assert!(
        said.contains("/big: the server does not support range requests") && said.contains("--no-range-max"),
        "{said}"
    );
}

#[test]
fn a_file_that_is_replaced_between_two_whole_reads_is_an_error() {
    let Some(bench) = Bench::new("rewritten", "python3") else { return };
    let names = ["a", "b", "c"];
    for name in names {
        bench.write(name, &bytes(4_000_000));
    }
    let at = bench.place.at();
    let server = InstalledServer::python(&bench.place.store()).expect("it starts");
    // Memory for two of the three files: the first one is requested again after the others.
    let options = ["--no-range-max", "4MB", "--policy", "none"];
    let mounted = Served::start(&server.url(), &at, &options);
    let mut files = names.map(|name| fs::File::open(at.join(name)).expect("readable"));
    let mut page = vec![0; 4096];
    for file in &mut files {
        file.read_exact(&mut page).expect("readable");
        assert_eq!(page, bytes(4096));
    }
    bench.write("a", &vec![7; 4_000_000]);
    let replaced = fs::File::options().write(true).open(bench.place.store().join("a")).expect("writable");
    replaced.set_modified(SystemTime::now() + Duration::from_secs(5)).expect("writable");
    for (file, name) in files.iter_mut().zip(names) {
        file.seek(SeekFrom::Start(2_000_000)).expect("a file");
        let read = file.read_exact(&mut page);
        match name {
            "a" => {
                let error = read.expect_err("another version").raw_os_error();
                assert_eq!(error, Some(rustix::io::Errno::STALE.raw_os_error()));
            }
            _ => assert!(read.is_ok() && page == bytes(2_004_096)[2_000_000..], "{name}"),
        }
    }
    drop(files);
    mounted.unmount();
}
