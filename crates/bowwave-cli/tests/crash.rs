//! kill -9 of the mount's process at seeded points, while programs write, sync, rename and remove.
//!
//! Synced data must be in the underlying directory, each rename done or not done, and nothing there
//! that was never written. `BOWWAVE_CRASH_POINTS` sets the number of points (15),
//! `BOWWAVE_CRASH_SEED` the first seed.

#[path = "crash/actors.rs"]
mod actors;
mod common;
#[path = "crash/objects.rs"]
mod objects;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use actors::{Actor, Cutter, Log, Names, Replacer, Sync, Table, work};
use common::cells::{CELL, cell};
use common::place::Place;
use common::rng::Rng;
use common::served::Served;
use common::{can_mount, setting};

/// Alternating kinds of mounts: (URL prefix of the directory, options).
const KINDS: [(&str, &[&str]); 4] = [
    ("", &[]),
    ("", &["--cache", "2MiB"]),
    ("", &["--set", "kernel_cache=off"]),
    ("emulate:nvme:", &["--cache", "4MiB"]),
];

/// The concurrent actors on a mount.
fn actors(at: &Path, seed: u64) -> io::Result<Vec<Box<dyn Actor>>> {
    let mut seeds = Rng(seed);
    let mut seed = || seeds.next();
    Ok(vec![
        Box::new(Log::new(at, "log", Sync::Called, seed())?),
        Box::new(Log::new(at, "log-dsync", Sync::Always, seed())?),
        Box::new(Table::new(at, "table", seed())?),
        Box::new(Replacer::new(at, "target", true, seed())),
        Box::new(Replacer::new(at, "hasty", false, seed())),
        Box::new(Names::new(at, "names", seed())?),
        Box::new(Cutter::new(at, "cut", seed())?),
    ])
}

fn faults(actors: &[Box<dyn Actor>], root: &Path) -> Vec<String> {
    actors.iter().flat_map(|actor| actor.faults(root)).collect()
}

/// Runs one crash point; returns the faults.
fn crash_at(directory: &Place, seed: u64) -> Vec<String> {
    let store = directory.store().join(seed.to_string());
    fs::create_dir(&store).expect("writable");
    let (before, options) = KINDS[(seed % KINDS.len() as u64) as usize];
    let mut served = Served::start(&format!("{before}{}", store.display()), &directory.at(), options);
    let mut actors = actors(&directory.at(), seed).expect("the mount can be written");
    let mut rng = Rng(!seed);
    let (steps, wait) = (1 + rng.below(300), Duration::from_micros(rng.below(3000)));
    let worked = work(&mut actors, steps, || {
        thread::sleep(wait);
        served.kill();
    });
    let mut faults = faults(&actors, &store);
    faults.extend(worked.err());
    if !faults.is_empty() {
        faults.insert(
            0,
            format!("seed {seed}, {before}{} {options:?}, killed after {steps} steps:", store.display()),
        );
        faults.push(served.said());
    } else {
        fs::remove_dir_all(&store).expect("writable");
    }
    faults
}

#[test]
#[expect(clippy::print_stdout, reason = "the seeds of a failure")]
fn what_was_synced_survives_a_kill_and_no_rename_is_torn() {
    if !can_mount() {
        return;
    }
    let directory = Place::new("crash-points");
    let (points, first) = (setting("BOWWAVE_CRASH_POINTS", 15), setting("BOWWAVE_CRASH_SEED", 1));
    let mut bad = 0;
    for seed in first..first + points {
        let faults = crash_at(&directory, seed);
        if !faults.is_empty() {
            bad += 1;
            println!("{}", faults.join("\n"));
        }
    }
    println!("{points} points, seeds {first} and on: {bad} with faults");
    assert_eq!(bad, 0, "points with faults, of {points}; see above");
}

/// Damages one of the files in the directory as a broken file system could.
type Break = fn(&Path) -> io::Result<()>;

/// Damage that the checks must detect, done after everything was synced.
const BREAKS: [(&str, Break); 10] = [
    ("the last synced byte of a log is gone", |root| cut(&root.join("log-dsync"), 1)),
    ("a synced byte of a log is another", |root| patch(&root.join("log"), 5, &[0xEE])),
    ("a log goes on with what nobody wrote", |root| {
        let file = File::options().append(true).open(root.join("log-dsync"))?;
        file.write_all_at(b"foreign", file.metadata()?.len())
    }),
    ("a cell of a table is in its place's neighbour", |root| {
        let table = fs::read(root.join("table"))?;
        patch(&root.join("table"), 0, &table[CELL..2 * CELL])
    }),
    ("a table is shorter", |root| cut(&root.join("table"), CELL as u64)),
    ("a target is gone", |root| fs::remove_file(root.join("target-0"))),
    ("a target is mixed from two", |root| {
        let old = fs::read(root.join("old"))?;
        patch(&root.join("target-0"), 0, &old)
    }),
    ("a hasty target has bytes of another file", |root| patch(&root.join("hasty-0"), 0, b"x")),
    ("a removed name is back", |root| File::create(root.join("names/back")).map(drop)),
    ("what was cut off is back", |root| {
        let file = File::options().write(true).open(root.join("cut"))?;
        file.set_len(file.metadata()?.len() + (1 << 20))
    }),
];

fn cut(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(file.metadata()?.len() - bytes)
}

fn patch(path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all_at(bytes, at)
}

#[test]
fn the_checks_detect_the_damage_of_a_broken_mount() {
    let directory = Place::new("crash-checks");
    for (number, (what, broken)) in BREAKS.into_iter().enumerate() {
        let root = directory.store().join(number.to_string());
        fs::create_dir(&root).expect("writable");
        let mut actors = actors(&root, 7).expect("a plain directory");
        // On a busy disk the syncing actors get few of the steps.
        while ["target-0", "hasty-0", "cut"].iter().any(|name| !root.join(name).exists()) {
            work(&mut actors, 400, || {}).expect("a plain directory fails nothing");
        }
        assert_eq!(faults(&actors, &root), [""; 0], "before: {what}");
        // Another generation of the same target, to be mixed in.
        fs::write(root.join("old"), cell(1, 0, 1)).expect("writable");
        broken(&root).expect("writable");
        assert_eq!(faults(&actors, &root).len(), 1, "{what}");
    }
}
