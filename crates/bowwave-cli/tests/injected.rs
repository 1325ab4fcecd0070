//! Stores that occasionally fail writes: failures are reported, and everything else is stored.
//!
//! `BOWWAVE_INJECTED_STEPS` sets the steps of each of the sixteen writers (120),
//! `BOWWAVE_INJECTED_SEED` the seed.

mod common;
#[path = "injected/writer.rs"]
mod writer;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use common::place::Place;
use common::served::Served;
use common::{can_mount, setting};
use writer::{Told, Writer};

const WRITERS: u64 = 16;
/// A quarter of what the sixteen write.
const CACHE: u64 = 2 << 20;

/// Mounts the store with faults.
fn mount(place: &Place, faults: &str, options: &[&str]) -> Served {
    Served::start(&format!("fault:{faults}:{}", place.store().display()), &place.at(), options)
}

/// Runs sixteen concurrent writers in `above`, which shows `below`; returns their results.
fn work(above: &Path, below: &Path, steps: u64, seed: u64) -> Vec<Result<Told, String>> {
    let run = |number: u64| {
        let name = format!("file-{number}");
        let mut writer = Writer::new(above.join(&name), below.join(&name), seed * WRITERS + number)?;
        for _ in 0..steps {
            writer.step()?;
        }
        writer.finish()?;
        Ok(writer.told)
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || run(number))).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    })
}

/// Peak memory of a process, in bytes.
fn peak_memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("every Linux tells it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures and the seed")]
fn sixteen_writers_hear_of_every_error_and_lose_nothing_else() {
    if !can_mount() {
        return;
    }
    let directory = Place::new("injected-many");
    let (steps, seed) = (setting("BOWWAVE_INJECTED_STEPS", 120), setting("BOWWAVE_INJECTED_SEED", 1));
    let faults = format!("write_errors=0.01,no_space=0.01,sync_errors=0.01,seed={seed}");
    let served = mount(&directory, &faults, &["--cache", &CACHE.to_string()]);
    let idle = peak_memory(served.id());
    let told = work(&directory.at(), &directory.store(), steps, seed);
    let grown = peak_memory(served.id()) - idle;
    let failed: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
    assert!(failed.is_empty(), "seed {seed}: {failed:#?}\n{}", served.said());
    let sum = |what: fn(&Told) -> u32| told.iter().flatten().map(what).sum::<u32>();
    let (errors, compared) =
        ([sum(|told| told.write), sum(|told| told.sync), sum(|told| told.close)], sum(|told| told.compared));
    println!(
        "seed {seed}: errors of write, sync, close {errors:?}; compared {compared} times; {grown} bytes more"
    );
    assert!(errors.iter().sum::<u32>() > 0 && compared > WRITERS as u32, "{errors:?} {compared}");
    assert!(grown < CACHE + (48 << 20), "{grown} bytes more than before the first write");
    let (status, said) = served.unmount();
    assert!(status.success(), "all was synced: {said}");
}

#[test]
fn a_store_that_takes_nothing_is_told_by_write_sync_and_close() {
    if !can_mount() {
        return;
    }
    let directory = Place::new("injected-never");
    let served = mount(&directory, "write_errors=1,seed=1", &[]);
    let path = |name: &str| directory.at().join(name);
    let is_eio =
        |result: std::io::Result<()>| result.is_err_and(|error| error.raw_os_error() == Some(libc::EIO));

    let mut file = fs::File::create(path("synced")).expect("names have no faults");
    // The first call after the failure reports it.
    assert!(is_eio(file.write_all(b"x").and_then(|()| file.sync_all())), "fsync");
    drop(file);

    let mut file = fs::File::create(path("closed")).expect("names have no faults");
    let written = file.write_all(b"x");
    assert!(is_eio(common::close::close(file)) || is_eio(written), "close");

    let mut options = fs::File::options();
    options.write(true).create(true).custom_flags(libc::O_DSYNC);
    let mut file = options.open(path("dsync")).expect("names have no faults");
    assert!(is_eio(file.write_all(b"x")), "write with O_DSYNC");
    drop(file);

    fs::write(directory.store().join("source"), [7; 10_000]).expect("a plain directory");
    let copied = Command::new("cp")
        .arg(directory.store().join("source"))
        .arg(path("copy"))
        .output()
        .expect("cp is there");
    assert!(!copied.status.success(), "cp must hear of it");
    drop(served);
}

#[test]
fn the_checks_notice_a_byte_that_is_lost_or_another() {
    let directory = Place::new("injected-checks");
    let store = directory.store();
    // Above and below are the same directory: nothing fails, nothing is lost.
    for told in work(&store, &store, 30, 3) {
        let told = told.expect("a plain directory");
        assert!(told.compared > 0 && told.write + told.sync + told.close == 0);
    }
    let file = store.join("file");
    let mut writer = Writer::new(file.clone(), file.clone(), 9).expect("a plain directory");
    let mut bytes = fs::read(&file).expect("written");
    bytes[300_000] ^= 1;
    fs::write(&file, bytes).expect("a plain directory");
    let fault = writer.compare_below().expect_err("one bit is another");
    assert!(fault.contains("cell 585"), "{fault}");
}
