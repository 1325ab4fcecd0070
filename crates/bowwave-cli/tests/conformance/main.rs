//! Compares the policy `linux` with the running kernel, decision by decision.
//!
//! Plays access patterns cold to an ext4 file on a loop device of its own, reads the kernel's
//! decisions from the tracepoints `events/readahead`, and compares them with what the policy
//! decides on the same script. Needs root, loop devices, mke2fs, losetup and Linux 6.18 or later;
//! without them the test says so and passes. `BOWWAVE_CONFORMANCE=all` plays every pattern with
//! every window; `BOWWAVE_CONFORMANCE=record` prints the decisions that `linux-6.18-single-32.json`
//! holds.
//!
//! Fixed for the comparison: `max_sectors_kb` 512 (`io_pages` 128), 4096-byte blocks, noatime.
//! Single folios come from `data=journal`, large ones from default options. Mapped pages are
//! touched by stores to a private mapping: the kernel serves those one by one, without
//! fault-around.

mod event;
mod kernel;
mod patterns;
mod policy;
mod script;

use std::env;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use bowwave_baselines::LinuxConfig;
use bowwave_testkit::skipped;
use serde_json::{Value, json};

use event::Verdict;
use kernel::{Folios, Lab};
use patterns::{PATTERNS, Pattern};

/// Patterns that reach every case of the policy.
const EVERY_CASE: &[&str] = &[
    "sequential-1",
    "middle-100",
    "random-4",
    "interleaved-3",
    "unaligned-10000",
    "reread-with-holes",
    "history",
    "advice-sequential-normal",
    "advice-random-later",
    "advice-willneed",
    "odd-file",
    "mapped-sequential",
    "mapped-random",
    "mix-1",
    "mix-5",
];
/// Patterns that large folios serve as single pages do, except `interleaved-2`.
const LARGE_FOLIOS: &[&str] =
    &["sequential-1", "middle-4", "interleaved-2", "random-1", "end-16", "mapped-from-start"];
/// Decisions of Linux 6.18.44, for machines that cannot run the comparison.
const RECORDED: &str = include_str!("linux-6.18-single-32.json");
/// Base-2 logarithm of the pages of ext4's largest folio: 2 MiB.
const FOLIO_ORDER_MAX: u8 = 9;
/// Maximum attempts of a run while something else drops pages from the cache.
const ATTEMPTS: u32 = 5;

#[test]
fn the_policy_decides_as_the_running_kernel_does() {
    let Some(verdicts) = compare("decides", Folios::Single, &[32], EVERY_CASE) else { return };
    for verdict in verdicts {
        assert_eq!((verdict.differences, &verdict.first), (0, &None), "{verdict:?}");
        assert_eq!(verdict.cached, verdict.cached_ours, "{verdict:?}");
        assert!(verdict.decisions >= 6, "{verdict:?}");
    }
}

#[test]
fn with_large_folios_it_decides_alike_or_the_reason_is_named() {
    let Some(verdicts) = compare("large", Folios::Large, &[128], LARGE_FOLIOS) else { return };
    for verdict in verdicts {
        let named = verdict.pattern == "interleaved-2";
        assert_eq!(verdict.differences == 0, !named, "{verdict:?}");
        assert_eq!(verdict.reason.is_some(), named, "{verdict:?}");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the result of a run by hand")]
fn every_pattern_decides_alike_or_the_reason_is_named() {
    let asked = env::var("BOWWAVE_CONFORMANCE").unwrap_or_default();
    let all: Vec<&str> = PATTERNS.iter().map(|pattern| pattern.name).collect();
    let verdicts: Vec<Verdict> = match asked.as_str() {
        "all" => [Folios::Single, Folios::Large]
            .into_iter()
            .filter_map(|folios| compare("all", folios, &[32, 128, 512, 2048], &all))
            .flatten()
            .collect(),
        "record" => compare("record", Folios::Single, &[32], &all).unwrap_or_default(),
        _ => return,
    };
    if asked == "record" {
        let rows: Vec<Value> = verdicts
            .iter()
            .map(|verdict| {
                let Verdict { pattern, ra_pages, cached, kernel, .. } = verdict;
                json!({"pattern": pattern, "ra_pages": ra_pages, "cached": cached, "kernel": kernel})
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&rows).expect("JSON"));
    }
    let unknown: Vec<_> = verdicts.iter().filter(|verdict| verdict.is_unexplained()).collect();
    let decisions: usize = verdicts.iter().map(|verdict| verdict.decisions).sum();
    println!("{decisions} decisions of the kernel in {} runs", verdicts.len());
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn decisions_recorded_from_linux_are_met_without_it() {
    let rows: Vec<Value> = serde_json::from_str(RECORDED).expect("JSON");
    assert!(rows.len() >= 30);
    for row in rows {
        let name = row["pattern"].as_str().expect("a name");
        let script = pattern(name).script(row["ra_pages"].as_u64().expect("a number"));
        let ours = policy::play(like_the_kernel(Folios::Single, 128), &script);
        let steps = ours.steps.iter().map(|step| step.events.as_slice());
        assert_eq!(json!(event::by_step(Folios::Single, steps)), row["kernel"], "{name}");
        assert_eq!(ours.cached, row["cached"], "{name}");
    }
}

fn pattern(name: &str) -> &'static Pattern {
    PATTERNS.iter().find(|pattern| pattern.name == name).expect("a pattern of this name")
}

/// Plays these patterns with these windows; `None` if this machine cannot. Leaves nothing behind.
fn compare(test: &str, folios: Folios, windows: &[u64], names: &[&str]) -> Option<Vec<Verdict>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let parent = env::temp_dir().join(format!("bowwave-test-{test}-{}", std::process::id()));
    fs::create_dir(&parent).expect("the temporary directory is writable");
    // The mounts and the processor are those of one thread.
    let compared = thread::scope(|scope| {
        let play = || -> Result<Vec<Verdict>, String> {
            let mut lab = Lab::build(&parent, folios)?;
            let mut verdicts = Vec::new();
            for &ra_pages in windows {
                let linux = like_the_kernel(folios, lab.set_ra_pages(ra_pages));
                let chosen = names.iter().map(|name| pattern(name));
                for pattern in chosen.filter(|pattern| folios == Folios::Single || !pattern.single) {
                    verdicts.push(play_one(&mut lab, pattern, folios, ra_pages, linux));
                }
            }
            Ok(verdicts)
        };
        scope.spawn(play).join().expect("the comparison ends")
    });
    is_clean(&parent);
    fs::remove_dir(&parent).expect("empty");
    compared.inspect_err(skipped).ok()
}

/// The policy configured like the kernel.
fn like_the_kernel(folios: Folios, io_pages: u64) -> LinuxConfig {
    LinuxConfig {
        io_pages: u32::try_from(io_pages).unwrap_or(u32::MAX),
        align_end: true,
        folio_order_max: if folios == Folios::Large { FOLIO_ORDER_MAX } else { 0 },
        mark_at_eof: true,
    }
}

fn play_one(
    lab: &mut Lab,
    pattern: &'static Pattern,
    folios: Folios,
    ra_pages: u64,
    linux: LinuxConfig,
) -> Verdict {
    let script = pattern.script(ra_pages);
    let ours = policy::play(linux, &script);
    for _ in 0..ATTEMPTS {
        let emptied = times_emptied();
        let seen = lab.play(&script, &ours, folios).unwrap_or_else(|error| {
            panic!("{} with {ra_pages} pages: {error}", pattern.name);
        });
        if !seen.disturbed && times_emptied() == emptied {
            return Verdict::of(pattern, folios, &script, &seen, &ours);
        }
    }
    panic!("{}: the kernel dropped pages in each of {ATTEMPTS} runs; is memory short?", pattern.name);
}

/// How often the page cache of this machine has been dropped.
fn times_emptied() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").expect("procfs is mounted");
    let count = counters.lines().find_map(|line| line.strip_prefix("drop_pagecache ")?.parse().ok());
    count.unwrap_or_default()
}

fn is_clean(parent: &Path) {
    let left: Vec<_> =
        fs::read_dir(parent).expect("it is there").map(|entry| entry.expect("readable")).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    // The image is unlinked while in use; its device must be detached as well.
    let mine = parent.to_string_lossy().into_owned();
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        assert!(!file.contains(&mine), "{} is left behind", device.path().display());
    }
}
