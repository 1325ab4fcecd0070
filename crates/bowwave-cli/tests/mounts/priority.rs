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

/// Three programs read a store with one slot: a first one, an idle one, and an urgent one. Returns
/// which of the last two was served first, or nothing if the first one had ended before both waited.
fn first_served(latency: Duration) -> Option<&'static str> {
    let place = Place::new(&format!("priority-{}", latency.as_millis()));
    for name in ["first", "idle", "urgent"] {
        fs::write(place.store().join(name), vec![1; 4096]).expect("room");
    }
    let url = format!("emulate:nvme,latency={}ms,slots=1:{}", latency.as_millis(), place.store().display());
    let command = || {
        let mut command = bowwave();
        command.env("XDG_RUNTIME_DIR", place.root()).env("XDG_CONFIG_HOME", place.root().join("config"));
        command
    };
    let mut mount = command();
    mount.args(["mount", &url]).arg(place.at()).args(["--policy", "none", "--set", "kernel_cache=off"]);
    let _served = Served::of(&mut mount, &place.at());
    let path = |name| place.at().join(name);
    for name in ["first", "idle", "urgent"] {
        fs::metadata(path(name)).expect("a file of the mount");
    }
    let misses = |count| {
        until("the reads miss", || {
            let status = run(command().args(["status", "--json"]).arg(place.at()));
            let status: Value = serde_json::from_str(&status).expect("JSON");
            status["counters"]["misses"].as_u64().is_some_and(|misses| misses >= count)
        });
    };
    let mut first = reader(&["-c2", "-n4"], &path("first"));
    misses(1);
    let idle = reader(&["-c3"], &path("idle"));
    misses(2);
    let urgent = reader(&["-c2", "-n0"], &path("urgent"));
    misses(3);
    let in_time = first.try_wait().expect("it was started").is_none();
    let idle = thread::spawn(|| ended(idle));
    let urgent = ended(urgent);
    let idle = idle.join().expect("no panic");
    ended(first);
    in_time.then_some(if urgent < idle { "urgent" } else { "idle" })
}

#[test]
fn a_busy_store_serves_an_idle_reader_after_one_that_came_later() {
    let Some(_alone) = mounting() else { return };
    // A busy machine may need long to start the programs.
    let latencies = [1000, 2000, 4000].map(Duration::from_millis);
    let served = latencies.into_iter().find_map(first_served);
    assert_eq!(served, Some("urgent"));
}
