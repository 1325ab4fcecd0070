//! The mount beside the kernel's own file system: the same operations on both, drawn from a seed;
//! every answer, every error number and what is left must be the same.
//!
//! `BOWWAVE_TWIN_STEPS` sets the operations of each kind of mount (1500), `BOWWAVE_TWIN_SEED` the
//! seed.

mod common;
#[path = "twin/op.rs"]
mod op;

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use common::place::Place;
use common::rng::Rng;
use common::served::Served;
use common::{can_mount, setting};
use op::{World, draw, tree};

/// How many operations a difference is told with.
const TOLD: usize = 25;

/// Kinds of mount: what goes before the directory, options.
const KINDS: [(&str, &[&str]); 4] = [
    ("", &[]),
    ("", &["--cache", "2MiB", "--ttl", "0"]),
    ("", &["--set", "kernel_cache=off"]),
    ("emulate:nvme:", &["--cache", "2MiB"]),
];

/// Does the same in `ours` and `theirs`; the first difference.
fn compare(ours: &Path, theirs: &Path, steps: u64, seed: u64) -> Result<(), String> {
    let mut rng = Rng(seed);
    let (mut left, mut right) = (World::new(ours), World::new(theirs));
    let mut last = VecDeque::new();
    for step in 0..steps {
        let op = draw(&mut rng);
        let (said, must) = (left.apply(&op), right.apply(&op));
        last.push_back(format!("{step}: {op:?}: {}", brief(&must)));
        if last.len() > TOLD {
            last.pop_front();
        }
        let same = if said != must {
            Err(format!("{}, not {}", brief(&said), brief(&must)))
        } else if step % 500 == 499 {
            compare_trees(ours, theirs)
        } else {
            Ok(())
        };
        if let Err(what) = same {
            let last = last.make_contiguous().join("\n");
            return Err(format!("seed {seed}, step {step}: {what}\n{last}"));
        }
    }
    Ok(())
}

/// The first difference of what is in two directories.
fn compare_trees(ours: &Path, theirs: &Path) -> Result<(), String> {
    let read = |root| tree(root).map_err(|error| format!("{}: {error}", root.display()));
    let (ours, theirs) = (read(ours)?, read(theirs)?);
    if let Some(((path, stat, content), (other, must, right))) =
        ours.iter().zip(&theirs).find(|(a, b)| a != b)
    {
        let at = content.iter().zip(right).position(|(a, b)| a != b);
        return Err(format!(
            "{path:?} {stat:?}, not {other:?} {must:?}; the first byte that differs: {at:?}"
        ));
    }
    if ours.len() == theirs.len() {
        Ok(())
    } else {
        Err(format!("{} entries, not {}", ours.len(), theirs.len()))
    }
}

/// An answer in a line.
fn brief(said: &Result<op::Said, i32>) -> String {
    let text = format!("{said:?}");
    text.char_indices().nth(160).map_or_else(|| text.clone(), |(end, _)| format!("{}…", &text[..end]))
}

#[test]
fn the_mount_answers_as_the_directory_below_it_would() {
    if !can_mount() {
        return;
    }
    let (steps, seed) = (setting("BOWWAVE_TWIN_STEPS", 1500), setting("BOWWAVE_TWIN_SEED", 1));
    for (number, (before, options)) in KINDS.into_iter().enumerate() {
        let place = Place::new(&format!("twin-{number}"));
        let own = place.root().join("own");
        fs::create_dir(&own).expect("writable");
        let url = format!("{before}{}", place.store().display());
        let served = Served::start(&url, &place.at(), options);
        let compared = compare(&place.at(), &own, steps, seed + number as u64);
        assert_eq!(compared, Ok(()), "{url} {options:?}\n{}", served.said());
        let (status, said) = served.unmount();
        assert!(status.success(), "{said}");
        let compared = compare_trees(&place.store(), &own);
        assert_eq!(compared, Ok(()), "below, when all is over: {url} {options:?}");
    }
}

#[test]
fn two_directories_of_one_file_system_do_not_differ() {
    let place = Place::new("twin-own");
    let (steps, seed) = (setting("BOWWAVE_TWIN_STEPS", 1500), setting("BOWWAVE_TWIN_SEED", 1));
    assert_eq!(compare(&place.store(), &place.at(), steps, seed), Ok(()));
}
