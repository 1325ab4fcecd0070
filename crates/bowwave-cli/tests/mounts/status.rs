//! `bowwave status` and `bowwave ctl`, asked of real mounts.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{bowwave, failure, mounting, output_with_input, run};
use bowwave_testkit::is_root;
use serde_json::Value;

/// A mount whose control channel is in a directory of the test's.
struct Mounted {
    served: Served,
    place: Place,
}

impl Mounted {
    fn new(name: &str, url: Option<&str>, options: &[&str]) -> Self {
        let place = Place::new(name);
        let url = url.map_or_else(|| place.store().display().to_string(), str::to_owned);
        let mut command = command(&place);
        command.args(["mount", &url]).arg(place.at()).args(options);
        Self { served: Served::of(&mut command, &place.at()), place }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.place);
        command.args(arguments);
        command
    }

    fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.place);
        command.arg("ctl").arg(self.place.at()).args(arguments);
        command
    }

    fn status(&self) -> Value {
        json(&run(self.command(&["status", "--json"]).arg(self.place.at())))
    }

    fn socket(&self) -> PathBuf {
        self.place.root().join(format!("bowwave/mount-{}.sock", self.served.id()))
    }
}

fn command(place: &Place) -> Command {
    let mut command = bowwave();
    command.env("XDG_RUNTIME_DIR", place.root()).env("XDG_CONFIG_HOME", place.root().join("config"));
    command
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn status_lists_mounts_and_tells_how_one_does() {
    let Some(_alone) = mounting() else { return };
    // Where the kernel keeps pages, the mount would not keep those that were read.
    let options = ["--cache", "32MiB", "--policy", "linux", "--set", "kernel_cache=off"];
    let mounted = Mounted::new("status", None, &options);
    fs::write(mounted.place.store().join("a"), vec![1; 1 << 20]).expect("room");
    assert_eq!(fs::read(mounted.place.at().join("a")).expect("readable").len(), 1 << 20);
    let status = mounted.status();
    assert_eq!(status["state"], "mounted");
    assert_eq!(status["pid"], mounted.served.id());
    assert_eq!(status["policy"], "linux");
    assert_eq!(status["memory_limit"], 32 << 20);
    assert_eq!(status["read_only"], false);
    assert!(
        status["memory_used"].as_u64().is_some_and(|used| (1 << 20..=32 << 20).contains(&used)),
        "{status}"
    );
    assert!(status["counters"]["bytes_fetched"].as_u64().is_some_and(|bytes| bytes >= 1 << 20), "{status}");
    assert!(status["errors"].as_array().is_some_and(Vec::is_empty), "{status}");
    let at = mounted.place.at().display().to_string();
    let list = run(&mut mounted.command(&["status"]));
    let line = list.lines().find(|line| line.contains(&at)).expect("it is listed");
    assert!(line.contains(" mounted ") && line.contains(&mounted.served.id().to_string()), "{list}");
    let rows = json(&run(&mut mounted.command(&["status", "--json"])));
    assert!(rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["dir"] == at)), "{rows}");
    let text = run(mounted.command(&["status"]).arg(&at));
    assert!(text.contains("policy") && text.contains("linux") && text.contains(" of 32 MiB"), "{text}");
    let socket = mounted.socket();
    let metadata = fs::metadata(&socket).expect("it is there");
    assert!(metadata.file_type().is_socket() && metadata.permissions().mode() & 0o777 == 0o600);
    let directory = fs::metadata(socket.parent().expect("it has one")).expect("there");
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    let (place, (status, said)) = (&mounted.place, mounted.served.unmount());
    assert!(status.success(), "{said}");
    assert!(!socket.exists(), "an ended mount leaves no socket");
    let (code, said) = failure(command(place).arg("status").arg(place.at()));
    assert!(code == 1 && said.contains("no mount of bowwave"), "{said}");
}

#[test]
fn a_mount_that_was_killed_is_dead_and_its_line_removes_it() {
    let Some(_alone) = mounting() else { return };
    let mut mounted = Mounted::new("dead", None, &[]);
    mounted.served.kill();
    let at = mounted.place.at().display().to_string();
    let list = run(&mut mounted.command(&["status"]));
    assert!(list.contains(&format!("dead: bowwave umount {at}")), "{list}");
    assert!(!mounted.socket().exists(), "the socket of a dead mount is removed");
    let output = output_with_input(mounted.command(&["status", "--json"]).arg(&at), b"");
    let row = json(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!((output.status.code(), &row["state"]), (Some(1), &Value::from("dead")));
    let remedy = row["remedy"].as_str().expect("there is one").to_owned();
    let (code, said) = failure(&mut mounted.ctl(&["list"]));
    assert!(code == 1 && said.contains("has died"), "{said}");
    run(mounted.command(&["umount"]).arg(remedy.strip_prefix("bowwave umount ").expect("that command")));
    fs::read_dir(mounted.place.at()).expect("an ordinary directory again");
    assert!(!run(&mut mounted.command(&["status"])).contains(&at));
}

#[test]
fn failed_calls_are_in_status_with_path_errno_and_reason() {
    let Some(_alone) = mounting() else { return };
    let mounted = Mounted::new("errors", Some("fault:errors=1:pattern:/"), &["--retries", "0"]);
    for _ in 0..3 {
        fs::read(mounted.place.at().join("4096")).expect_err("every request fails");
    }
    let status = mounted.status();
    assert!(status["calls_failed"].as_u64().is_some_and(|count| count >= 3), "{status}");
    let last = status["errors"].as_array().and_then(|errors| errors.last()).expect("one").clone();
    assert_eq!((&last["path"], &last["error"]), (&Value::from("4096"), &Value::from("EIO")), "{last}");
    assert!(last["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{last}");
    assert!(last["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{last}");
    let text = run(mounted.command(&["status"]).arg(mounted.place.at()));
    assert!(text.contains("last errors\n") && text.contains("  4096: EIO: "), "{text}");
}

#[test]
fn ctl_changes_live_settings_and_refuses_the_others() {
    let Some(_alone) = mounting() else { return };
    let url = "emulate:nvme:pattern:/";
    let options = ["--cache", "64MiB", "--set", "range_bytes=2MiB", "--set", "kernel_cache=off"];
    let mounted = Mounted::new("ctl", Some(url), &options);
    let get = |key: &str| run(&mut mounted.ctl(&["get", key]));
    let requests = || mounted.status()["counters"]["requests"].as_u64().expect("a count");
    assert_eq!((get("range_bytes"), get("page_size")), ("2MiB\n".to_owned(), "4KiB\n".to_owned()));
    run(&mut mounted.ctl(&["set", "ra_pages", "64KiB"]));
    assert_eq!(get("ra_pages"), "16\n");
    fs::read(mounted.place.at().join("8388608")).expect("readable");
    let small = requests();
    run(&mut mounted.ctl(&["set", "ra-pages", "2MiB"]));
    fs::read(mounted.place.at().join("8388609")).expect("readable");
    let large = requests() - small;
    assert!(large < small, "{small} requests with windows of 64 KiB, {large} with 2 MiB");
    run(&mut mounted.ctl(&["set", "dirty_limit", "4MiB"]));
    assert_eq!(run(&mut mounted.ctl(&["get", "dirty_limit"])), "4MiB\n");
    assert_eq!(mounted.status()["dirty_limit"], 4 << 20);
    run(&mut mounted.ctl(&["set", "dirty_expire", "5s"]));
    run(&mut mounted.ctl(&["set", "log", "warn,store=debug"]));
    assert_eq!((get("dirty_expire"), get("log")), ("5s\n".to_owned(), "warn,store=debug\n".to_owned()));
    for (arguments, code, reason) in [
        (["set", "page_size", "64KiB"], 2, "page_size cannot be changed while mounted"),
        (["set", "device_depth", "4"], 2, "device_depth cannot be changed while mounted"),
        (["set", "policy", "best"], 2, "policy=best: "),
        (["set", "read_ahead_kb", "130"], 2, "a multiple of a page"),
        (["set", "readahead_kb", "128"], 2, "read_ahead_kb"),
        (["set", "ra_pages", "4GiB"], 2, "smaller than one readahead window"),
        (["set", "dirty_limit", "soon"], 2, "dirty_limit=soon: not a size"),
        (["set", "log", "loud"], 2, "there are off, error"),
        (["set", "fifo", "1"], 2, "there is no setting 'fifo'; there are ra_pages, "),
    ] {
        let (found, line) = failure(&mut mounted.ctl(&arguments));
        assert!(found == code && line.contains(reason), "{arguments:?}: {line}");
    }
    let list = json(&run(&mut mounted.ctl(&["list", "--json"])));
    for setting in list.as_array().expect("an array") {
        assert!(setting["meaning"].as_str().is_some_and(|meaning| !meaning.is_empty()), "{setting}");
    }
    let list = run(&mut mounted.ctl(&["list"]));
    let line = list.lines().find(|line| line.starts_with("range_bytes ")).expect("it is listed");
    assert!(line.contains("2MiB") && line.contains("1MiB") && line.contains("changeable"), "{line}");
    let line = list.lines().find(|line| line.starts_with("device_depth ")).expect("it is listed");
    assert!(line.contains("fixed"), "{line}");
}

#[test]
fn ctl_switches_the_policy_in_the_middle_of_a_copy() {
    let Some(_alone) = mounting() else { return };
    let options = ["--cache", "64MiB", "--policy", "none", "--set", "kernel_cache=off"];
    let mounted = Mounted::new("ctl-policy", Some("emulate:nvme:pattern:/"), &options);
    let requests = || mounted.status()["counters"]["requests"].as_u64().expect("a count");
    let mut file = fs::File::open(mounted.place.at().join("16777216")).expect("readable");
    let mut copy = |bytes: usize| {
        let before = requests();
        let mut buffer = vec![0; 16 << 10];
        for _ in 0..bytes / buffer.len() {
            std::io::Read::read_exact(&mut file, &mut buffer).expect("readable");
        }
        requests() - before
    };
    let alone = copy(4 << 20);
    run(&mut mounted.ctl(&["set", "policy", "ondemand"]));
    assert_eq!(run(&mut mounted.ctl(&["get", "policy"])), "ondemand\n");
    run(&mut mounted.ctl(&["set", "read_ahead_kb", "1024"]));
    assert_eq!(run(&mut mounted.ctl(&["get", "ra_pages"])), "256\n");
    let ahead = copy(4 << 20);
    assert!(ahead * 4 < alone, "{alone} requests without readahead, {ahead} with it");
}

#[test]
fn a_persisted_setting_holds_for_the_next_mount_until_it_is_forgotten() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("ctl-persist");
    let mount = || {
        let mut command = command(&place);
        command.args(["mount", "emulate:nvme:pattern:/"]).arg(place.at()).args(["--cache", "64MiB"]);
        Served::of(&mut command, &place.at())
    };
    let ctl = |arguments: &[&str]| {
        let mut command = command(&place);
        command.arg("ctl").arg(place.at()).args(arguments);
        command
    };
    let values = || ["fifo_batch", "sync_expire", "write_expire"].map(|key| run(&mut ctl(&["get", key])));
    let served = mount();
    run(&mut ctl(&["set", "fifo_batch", "8", "--persist"]));
    run(&mut ctl(&["set", "read_expire", "70"]));
    let (code, line) = failure(&mut ctl(&["set", "write_expire", "soon", "--persist"]));
    assert!(code == 2 && line.contains("milliseconds"), "{line}");
    drop(served);
    let served = mount();
    assert_eq!(values(), ["8\n", "auto\n", "auto\n"]);
    run(&mut ctl(&["forget", "fifo_batch"]));
    assert_eq!(values()[0], "8\n", "the running mount keeps it");
    drop(served);
    let _served = mount();
    assert_eq!(values(), ["auto\n", "auto\n", "auto\n"]);
}

/// Regression: two commands read the settings at once, and the second one's file was without the
/// setting of the first one.
#[test]
fn settings_that_are_persisted_at_once_are_all_kept() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("ctl-at-once");
    let mount = || {
        let mut command = command(&place);
        Served::of(command.args(["mount", "pattern:/"]).arg(place.at()), &place.at())
    };
    let ctl = |arguments: &[&str]| {
        let mut command = command(&place);
        command.arg("ctl").arg(place.at()).args(arguments);
        command
    };
    let keys = ["fifo_batch", "sync_expire", "write_expire"];
    for value in ["7", "8", "9"] {
        let served = mount();
        let running = keys.map(|key| ctl(&["set", key, value, "--persist"]).spawn().expect("it starts"));
        for mut child in running {
            assert!(child.wait().expect("a child").success());
        }
        drop(served);
        let _served = mount();
        for key in keys {
            assert_eq!(run(&mut ctl(&["get", key])), format!("{value}\n"), "{key}");
        }
    }
}

#[test]
fn a_silent_or_invalid_client_does_not_block_others_for_long() {
    let Some(_alone) = mounting() else { return };
    let mounted = Mounted::new("stalled", None, &[]);
    let _silent = UnixStream::connect(mounted.socket()).expect("it listens");
    let mut endless = UnixStream::connect(mounted.socket()).expect("it listens");
    thread::spawn(move || while endless.write_all(&[b'x'; 4096]).is_ok() {});
    let started = Instant::now();
    // The client itself waits no longer than for a mount that responds; it may ask again.
    while mounted
        .command(&["status"])
        .arg(mounted.place.at())
        .output()
        .is_ok_and(|output| !String::from_utf8_lossy(&output.stdout).contains("policy"))
    {
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    let mut nonsense = UnixStream::connect(mounted.socket()).expect("it listens");
    nonsense.write_all(b"{\"command\":\"format\"}\n").expect("it reads");
    let mut response = String::new();
    std::io::Read::read_to_string(&mut nonsense, &mut response).expect("it responds");
    assert!(response.contains("not a request"), "{response}");
}

#[test]
fn a_directory_that_others_may_use_holds_no_socket_and_the_mount_says_so() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("shared");
    let directory = place.root().join("bowwave");
    fs::create_dir(&directory).expect("room");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("ours");
    let mut mount = command(&place);
    let served = Served::of(mount.args(["mount", "pattern:/"]).arg(place.at()), &place.at());
    assert_eq!(fs::read_dir(&directory).expect("readable").count(), 0);
    // It fell back to the next place, where only this user and root find it.
    let row = json(&run(command(&place).args(["status", "--json"]).arg(place.at())));
    assert!(row["state"].as_str().is_some_and(|state| state.starts_with("mounted")), "{row}");
    drop(served);
}

/// Root may ask mounts of all users, and so reads what processes of other users say.
#[test]
fn a_socket_of_another_user_is_not_believed() {
    let Some(_alone) = mounting().filter(|_| is_root()) else { return };
    let place = Place::new("foreign");
    let directory = place.root().join("bowwave");
    fs::create_dir(&directory).expect("room");
    std::os::unix::fs::chown(&directory, Some(65_534), Some(65_534)).expect("root may");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("root may");
    let _listener = UnixListener::bind(directory.join("mount-1.sock")).expect("room");
    let list = run(command(&place).arg("status"));
    assert!(!list.contains(&Path::new("mount-1").display().to_string()), "{list}");
}
