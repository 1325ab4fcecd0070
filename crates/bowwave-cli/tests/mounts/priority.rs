//! The I/O priority of the processes that read a mount, as `ionice` sets it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{bowwave, mounting, run, until};
use serde_json::Value;

/// Starts a program that reads a page of a file.
fn reader(priority: &[&str], path: &Path) -> Child {
    let mut command = Command::new("ionice");
    command.args(priority).arg("dd").arg(format!("if={}", path.display()));
    command.args(["of=/dev/null", "bs=4k", "count=1"]).stderr(Stdio::null());
    command.spawn().expect("ionice is there")
}

/// Waits for a program; returns when it ended.
fn ended(mut child: Child) -> Instant {
    assert!(child.wait().expect("it was started").success());
    Instant::now()
}

/// While a store with one slot is busy for this long, two programs request a page of it, `earlier`
/// and then `later`. Returns which was served first, or nothing if the store was idle before both
/// waited.
fn served_first(busy: Duration, earlier: &[&str], later: &[&str]) -> Option<&'static str> {
    let place = Place::new("priority");
    for name in NAMES {
        fs::write(place.store().join(name), vec![1; 4096]).expect("room");
    }
    let url = format!("emulate:nvme,latency={}ms,slots=1:{}", busy.as_millis(), place.store().display());
    let command = || {
        let mut command = bowwave();
        command.env("XDG_RUNTIME_DIR", place.root()).env("XDG_CONFIG_HOME", place.root().join("config"));
        command
    };
    let mut mount = command();
    mount.args(["mount", &url]).arg(place.at()).args(["--policy", "none", "--set", "kernel_cache=off"]);
    let served = Served::of(&mut mount, &place.at());
    let path = |name| place.at().join(name);
    for name in NAMES {
        fs::metadata(path(name)).expect("a file of the mount");
    }
    let misses = |count| {
        until("the reads miss", || {
            let status = run(command().args(["status", "--json"]).arg(place.at()));
            let status: Value = serde_json::from_str(&status).expect("JSON");
            status["counters"]["misses"].as_u64().is_some_and(|misses| misses >= count)
        });
    };
    let mut first = reader(&["-c2"], &path("first"));
    misses(1);
    let earlier = reader(earlier, &path("earlier"));
    misses(2);
    let later = reader(later, &path("later"));
    misses(3);
    let in_time = first.try_wait().expect("it was started").is_none();
    let earlier = thread::spawn(|| ended(earlier));
    let later = ended(later);
    let earlier = earlier.join().expect("no panic");
    ended(first);
    let (status, said) = served.unmount();
    assert!(status.success(), "{said}");
    in_time.then_some(if earlier < later { "earlier" } else { "later" })
}

/// As `served_first`; a busy machine may need long to start the programs.
fn first(earlier: &[&str], later: &[&str]) -> Option<&'static str> {
    let times = [500, 1000, 2000, 4000].map(Duration::from_millis);
    times.into_iter().find_map(|busy| served_first(busy, earlier, later))
}

#[test]
fn a_busy_store_serves_an_idle_reader_after_one_that_came_later() {
    let Some(_alone) = mounting() else { return };
    assert_eq!(first(&["-c3"], &["-c2", "-n0"]), Some("later"));
    assert_eq!(first(&["-c2", "-n7"], &["-c2", "-n0"]), Some("earlier"), "a class is served in order");
}

const NAMES: [&str; 3] = ["first", "earlier", "later"];
