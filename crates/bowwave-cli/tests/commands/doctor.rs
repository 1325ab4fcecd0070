//! `bowwave doctor`, on this machine and with parts missing.

use std::fs;
use std::process::{Command, Output};

use crate::common::{bowwave, can_mount, output_with_input};
use bowwave_testkit::is_root;
use serde_json::Value;

/// Runs the program in a private mount namespace after `script` removed something there.
fn without(script: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("set -e; {script}; exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_bowwave")).args(arguments);
    output_with_input(&mut command, b"")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines of a check.
fn check(text: &str, name: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.contains(name));
    let first = lines.next().unwrap_or_else(|| panic!("no {name} in {text}"));
    let more = lines.take_while(|line| line.starts_with(' '));
    std::iter::once(first).chain(more).collect::<Vec<_>>().join("\n")
}

#[test]
fn where_mounts_are_possible_all_that_they_need_is_there() {
    if !can_mount() {
        return;
    }
    let output = output_with_input(bowwave().args(["doctor", "--json"]), b"");
    assert!(output.status.success(), "{}", stderr(&output));
    let checks: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let checks = checks.as_array().expect("an array");
    for check in checks.iter().filter(|check| check["needed_for_mount"] == true) {
        assert_eq!(check["ok"], true, "{check}");
    }
    for check in checks.iter().filter(|check| check["ok"] == false) {
        assert!(check["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{check}");
        assert!(check["without"].as_str().is_some_and(|without| !without.is_empty()), "{check}");
    }
    let names: Vec<_> = checks.iter().filter_map(|check| check["name"].as_str()).collect();
    for name in ["kernel", "/dev/fuse", "io_uring", "userfaultfd", "open files", "locked memory", "memory"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let library =
        checks.iter().find(|check| check["name"] == "library of bowwave run").expect("it is checked");
    assert_eq!(library["ok"], true, "{library}");
}

#[test]
fn a_missing_device_is_named_with_its_command_by_doctor_and_by_the_mount() {
    if !can_mount() || !is_root() {
        return;
    }
    let empty_dev = "d=$(mktemp -d); mkdir $d/dev; touch $d/dev/null; mount --bind /dev/null $d/dev/null; \
         mount --rbind $d/dev /dev";
    let output = without(empty_dev, &["doctor"]);
    let found = check(&stdout(&output), "/dev/fuse");
    assert!(found.starts_with("missing") && found.contains("without it: no bowwave mount"), "{found}");
    assert!(found.contains("fix: modprobe fuse"), "{found}");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no mount is possible here: /dev/fuse is missing"),
        "{}",
        stderr(&output)
    );
    let place = crate::common::place::Place::new("nodevice");
    let output = without(empty_dev, &["mount", "pattern:/", &place.at().display().to_string()]);
    let said = stderr(&output);
    assert!(said.contains("/dev/fuse is missing: load it with `modprobe fuse`"), "{said}");
}

#[test]
fn missing_access_to_the_device_or_fusermount3_is_reported() {
    if !can_mount() || !is_root() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("bowwave");
    fs::copy(env!("CARGO_BIN_EXE_bowwave"), &program).expect("room");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open_to_all).expect("ours");
    let script = "d=$(mktemp); mount --bind $d /etc/fuse.conf; mknod $d.fuse c 10 229; chmod 600 $d.fuse; \
         mount --bind $d.fuse /dev/fuse; \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all env -i PATH=/none";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("set -e; {script} \"$@\""), "sh"]);
    let output = output_with_input(command.arg(&program).arg("doctor"), b"");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    let device = check(&text, "/dev/fuse");
    assert!(device.starts_with("missing") && device.contains("fix: chmod 666 /dev/fuse"), "{device}");
    let helper = check(&text, "permission to mount");
    assert!(helper.starts_with("missing") && helper.contains("fix: apt install fuse3"), "{helper}");
    let others = check(&text, "user_allow_other");
    assert!(others.starts_with("missing") && others.contains("tee -a /etc/fuse.conf"), "{others}");
    let library = check(&text, "library of bowwave run");
    assert!(library.starts_with("missing") && library.contains("XDG_CACHE_HOME"), "{library}");
}

#[test]
fn a_low_limit_of_open_files_is_missing_but_no_failure() {
    if !can_mount() {
        return;
    }
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" doctor", env!("CARGO_BIN_EXE_bowwave")]);
    let output = output_with_input(&mut command, b"");
    assert!(output.status.success(), "{}", stderr(&output));
    let found = check(&stdout(&output), "open files");
    assert!(found.starts_with("missing") && found.contains("at most 256"), "{found}");
    assert!(found.contains("fix: ulimit -n 4096"), "{found}");
}
