//! The log of a mount, in a file and in the system log.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::place::Place;
use crate::common::{bowwave, failure, mounting, output_with_input, run};
use bowwave_testkit::is_root;

/// A mount in the background; returns its output when ready.
fn daemon(place: &Place, url: &str, options: &[&str]) -> String {
    let mut command = bowwave();
    command
        .env("XDG_RUNTIME_DIR", place.root())
        .args(["mount", "--daemon", url])
        .arg(place.at())
        .args(options);
    let output = output_with_input(&mut command, b"");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "{said}");
    said
}

/// The log once it contains `wanted`.
fn log_with(path: &Path, wanted: &str) -> String {
    let started = Instant::now();
    loop {
        let log = fs::read_to_string(path).unwrap_or_default();
        if log.contains(wanted) {
            return log;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "no {wanted:?} in {log}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_daemon_logs_mount_failed_calls_with_path_and_errno_retries_and_unmount_to_its_file() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("log");
    let log = place.root().join("log");
    let file = log.display().to_string();
    let url = "fault:errors=1:pattern:/";
    let said = daemon(&place, url, &["--retries", "2", "--log-file", &file]);
    assert!(said.contains(&format!("its log is {file}")), "{said}");
    for _ in 0..20 {
        fs::read(place.at().join("4096")).expect_err("every request fails");
    }
    run(bowwave().arg("umount").arg(place.at()));
    let log = log_with(&log, "is unmounted");
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].contains(" info mount: ") && lines[0].contains("is mounted at"), "{log}");
    let failed: Vec<_> = lines.iter().filter(|line| line.contains(" warn calls: 4096: EIO: ")).collect();
    assert_eq!(failed.len(), 2, "the first, and a line that counts the others: {log}");
    assert!(failed[1].contains(" more times"), "{log}");
    assert!(log.contains(" info store: ") && log.contains(" retries"), "{log}");
    // A second mount appends.
    daemon(&place, "pattern:/", &["--log-file", &file]);
    run(bowwave().arg("umount").arg(place.at()));
    let again = fs::read_to_string(place.root().join("log")).expect("there");
    assert!(again.starts_with(&log) && again.len() > log.len(), "{again}");
}

#[test]
fn a_log_file_that_cannot_be_written_is_refused_before_anything_is_mounted() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("nolog");
    for option in [&["--daemon"][..], &[]] {
        let mut command = bowwave();
        command.args(["mount", "pattern:/"]).arg(place.at()).args(["--log-file", "/no/such/dir/log"]);
        let (code, said) = failure(command.args(option));
        assert!(code == 1 && said.contains("--log-file /no/such/dir/log: No such file"), "{said}");
    }
    let (code, said) = failure(bowwave().args(["mount", "pattern:/", "/tmp", "--log", "info,hyper=trace"]));
    assert!(code == 2 && said.contains("there is no module 'hyper'; there are mount, calls"), "{said}");
}

#[test]
fn quiet_logs_errors_only_and_a_log_holds_no_secret() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("secretlog");
    let log = place.root().join("log");
    fs::write(place.store().join("4096"), [1; 4096]).expect("room");
    let server = bowwave_testkit::HttpServer::start(&place.store()).expect("loopback");
    let url = format!("{}4096?token=hidden", server.url().replace("http://", "http://user:hidden@"));
    daemon(&place, &url, &["--verbose", "--log-file", &log.display().to_string()]);
    assert_eq!(fs::read_dir(place.at()).expect("readable").count(), 1);
    run(bowwave().arg("umount").arg(place.at()));
    let text = log_with(&log, "is unmounted");
    assert!(text.contains("is mounted at") && !text.contains("hidden"), "{text}");
    let quiet = place.root().join("quiet");
    daemon(&place, "pattern:/", &["--quiet", "--log-file", &quiet.display().to_string()]);
    run(bowwave().arg("umount").arg(place.at()));
    assert_eq!(fs::read_to_string(&quiet).expect("created"), "");
}

/// A mount namespace of its own has the sockets of journald and syslog where a system has them.
#[test]
fn a_daemon_without_a_log_file_logs_to_journald_or_syslog() {
    let Some(_alone) = mounting().filter(|_| is_root()) else { return };
    for (directory, socket, wanted) in
        [("/run/systemd/journal", "socket", "SYSLOG_IDENTIFIER=bowwave\n"), ("/dev", "log", "]: mount: ")]
    {
        let place = Place::new("system-log");
        let ours = place.root().join("sockets");
        fs::create_dir(&ours).expect("room");
        let listener = UnixDatagram::bind(ours.join(socket)).expect("room");
        listener.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        // /dev has only the log socket and what a mount needs.
        let script = "set -e; if [ $1 = /dev ]; then touch $2/fuse $2/null; \
             mount --bind /dev/fuse $2/fuse; mount --bind /dev/null $2/null; \
             else mount -t tmpfs none /run; mkdir -p $1; fi; \
             mount --rbind $2 $1; shift 2; exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh", directory])
            .arg(&ours)
            .arg(env!("CARGO_BIN_EXE_bowwave"));
        command.env("XDG_RUNTIME_DIR", place.root());
        command.args(["mount", "--daemon", "pattern:/"]).arg(place.at());
        let output = output_with_input(&mut command, b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let mut buffer = [0; 8192];
        let length = listener.recv(&mut buffer).expect("a record");
        let record = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let id: i32 = said
            .split_once("by process ")
            .and_then(|(_, rest)| rest.split(';').next()?.parse().ok())
            .expect("it tells its process");
        let process = rustix::process::Pid::from_raw(id).expect("a process");
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
        assert!(record.contains(wanted) && record.contains("is mounted at"), "{record}");
        let length = listener.recv(&mut buffer).expect("a record");
        let record = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert!(record.contains("is unmounted"), "{record}");
    }
}
