//! Stores that occasionally fail writes: failures are reported, and everything else is stored.
//!
//! `BOWWAVE_INJECTED_STEPS` sets the steps of each of the sixteen writers (120),
//! `BOWWAVE_INJECTED_SEED` the seed.

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{io, thread};

use common::cells::{CELL, cells, version_of};
use common::close::close;
use common::place::Place;
use common::rng::Rng;
use common::served::Served;
use common::{can_mount, peak_memory, setting};

const WRITERS: u64 = 16;
/// A quarter of what the sixteen write.
const CACHE: u64 = 2 << 20;

/// Mounts the store with faults.
fn mount(place: &Place, faults: &str, options: &[&str]) -> Served {
    Served::start(&format!("fault:{faults}:{}", place.store().display()), &place.at(), options)
}

/// Runs sixteen concurrent writers in `above`, which shows `below`; returns their results.
fn work(above: &Path, below: &Path, steps: u64, seed: u64) -> Vec<Result<Errors, String>> {
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

#[test]
#[expect(clippy::print_stdout, reason = "the figures and the seed")]
fn sixteen_writers_get_every_error_and_lose_nothing_else() {
    if !can_mount() {
        return;
    }
    let directory = Place::new("injected-many");
    let (steps, seed) = (setting("BOWWAVE_INJECTED_STEPS", 120), setting("BOWWAVE_INJECTED_SEED", 1));
    let faults = format!("write_errors=0.01,no_space=0.01,sync_errors=0.01,seed={seed}");
    let served = mount(&directory, &faults, &["--cache", &CACHE.to_string()]);
    let idle = peak_memory(served.id()).expect("it runs");
    let told = work(&directory.at(), &directory.store(), steps, seed);
    let grown = peak_memory(served.id()).expect("it runs") - idle;
    let failed: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
    assert!(failed.is_empty(), "seed {seed}: {failed:#?}\n{}", served.said());
    let sum = |what: fn(&Errors) -> u32| told.iter().flatten().map(what).sum::<u32>();
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
fn a_store_that_accepts_nothing_fails_write_sync_and_close() {
    if !can_mount() {
        return;
    }
    let directory = Place::new("injected-never");
    let served = mount(&directory, "write_errors=1,seed=1", &[]);
    let path = |name: &str| directory.at().join(name);
    let is_eio = |result: io::Result<()>| result.is_err_and(|error| error.raw_os_error() == Some(libc::EIO));

    let mut file = File::create(path("synced")).expect("names have no faults");
    // The first call after the failure reports it.
    assert!(is_eio(file.write_all(b"x").and_then(|()| file.sync_all())), "fsync");
    drop(file);

    let mut file = File::create(path("closed")).expect("names have no faults");
    let written = file.write_all(b"x");
    assert!(is_eio(close(file)) || is_eio(written), "close");

    let mut options = File::options();
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

/// Cells of a file: 512 KiB. Sixteen such files are several times the cache.
const CELLS: u64 = 1024;

/// Errors that a store with faults may return.
const EXPECTED: [i32; 2] = [libc::EIO, libc::ENOSPC];

/// Results reported to a writer.
#[derive(Debug, Default, Clone, Copy)]
struct Errors {
    /// Errors of write(2), fsync(2) and friends, and close(2).
    write: u32,
    sync: u32,
    close: u32,
    /// Successful syncs or closes that were compared with the underlying directory.
    compared: u32,
}

/// A writer with its file above and below the mount.
struct Writer {
    above: PathBuf,
    below: PathBuf,
    file: Option<File>,
    id: u64,
    rng: Rng,
    version: u64,
    /// The version of each cell that a reader of the mount must find.
    model: Vec<u64>,
    told: Errors,
}

impl Writer {
    /// Creates the file, retrying on injected faults.
    fn new(above: PathBuf, below: PathBuf, seed: u64) -> Result<Self, String> {
        let (rng, told) = (Rng(seed), Errors::default());
        let model = vec![0; CELLS as usize];
        let mut writer = Self { above, below, file: None, id: seed, rng, version: 0, model, told };
        writer.open(true)?;
        let all = cells(seed, 0, CELLS, 0);
        for (index, piece) in all.chunks(64 * CELL).enumerate() {
            let at = (index * 64 * CELL) as u64;
            while let Err(error) = writer.file().write_all_at(piece, at) {
                writer.told.write += 1;
                writer.is_expected("the first write", error)?;
            }
        }
        Ok(writer)
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("open between steps")
    }

    fn open(&mut self, create: bool) -> Result<(), String> {
        let mut options = File::options();
        options.read(true).write(true).create(create);
        if self.rng.chance(10) {
            options.custom_flags(libc::O_DSYNC);
        }
        self.file = Some(options.open(&self.above).map_err(|error| self.fault("open", &error))?);
        Ok(())
    }

    fn fault(&self, what: &str, error: &dyn std::fmt::Display) -> String {
        format!("{}: {what}: {error}", self.below.display())
    }

    /// Accepts only errors of the store.
    fn is_expected(&self, what: &str, error: io::Error) -> Result<(), String> {
        let fine = error.raw_os_error().is_some_and(|number| EXPECTED.contains(&number));
        if fine { Ok(()) } else { Err(self.fault(what, &error)) }
    }

    /// Performs one operation and checks its result.
    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..55 => self.write(),
            55..85 => self.read(),
            85..95 => self.sync().map(drop),
            _ => self.reopen(),
        }
    }

    fn write(&mut self) -> Result<(), String> {
        let len = 1 + self.rng.below(48);
        let from = self.rng.below(CELLS - len);
        self.version += 1;
        let bytes = cells(self.id, from, from + len, self.version);
        let range = from as usize..(from + len) as usize;
        let written = self.file().write_at(&bytes, from * CELL as u64);
        match written {
            Ok(count) if count == bytes.len() => self.model[range].fill(self.version),
            other => {
                if let Err(error) = other {
                    self.told.write += 1;
                    self.is_expected("write", error)?;
                }
                // Each cell is the old one or the new one; reading it tells which.
                for index in range {
                    let found = self.version_above(index as u64)?;
                    if found != Some(self.version) && found != Some(self.model[index]) {
                        let has = self.model[index];
                        return Err(self.fault(
                            "after a failed write",
                            &format!("cell {index} is {found:?}, not {has} or {}", self.version),
                        ));
                    }
                    self.model[index] = found.unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    fn version_above(&self, index: u64) -> Result<Option<u64>, String> {
        let mut bytes = [0; CELL];
        let read = self.file().read_exact_at(&mut bytes, index * CELL as u64);
        read.map_err(|error| self.fault("read", &error))?;
        Ok(version_of(&bytes, self.id, index))
    }

    fn read(&mut self) -> Result<(), String> {
        let len = 1 + self.rng.below(64);
        let from = self.rng.below(CELLS - len);
        let mut bytes = vec![0; len as usize * CELL];
        let read = self.file().read_exact_at(&mut bytes, from * CELL as u64);
        read.map_err(|error| self.fault("read", &error))?;
        self.compare(from, &bytes).map_err(|what| self.fault("read from the mount", &what))
    }

    fn compare(&self, from: u64, bytes: &[u8]) -> Result<(), String> {
        for (index, cell) in (from..).zip(bytes.chunks(CELL)) {
            let (found, must) = (version_of(cell, self.id, index), self.model[index as usize]);
            if found != Some(must) {
                return Err(format!("cell {index} has version {found:?}, not {must}"));
            }
        }
        Ok(())
    }

    /// Checks that everything is stored, after the mount reported success.
    fn compare_below(&mut self) -> Result<(), String> {
        self.told.compared += 1;
        let bytes = fs::read(&self.below).map_err(|error| self.fault("below", &error))?;
        if bytes.len() != CELLS as usize * CELL {
            return Err(self.fault("below", &format!("{} bytes", bytes.len())));
        }
        self.compare(0, &bytes).map_err(|what| self.fault("below, after all was well", &what))
    }

    /// Returns whether the sync succeeded.
    fn sync(&mut self) -> Result<bool, String> {
        let synced = if self.rng.chance(50) { self.file().sync_all() } else { self.file().sync_data() };
        match synced {
            Ok(()) => self.compare_below().map(|()| true),
            Err(error) => {
                self.told.sync += 1;
                self.is_expected("sync", error).map(|()| false)
            }
        }
    }

    /// Closes and reopens. A failed close may lose data, so the model is read again.
    fn reopen(&mut self) -> Result<(), String> {
        let file = self.file.take().expect("open between steps");
        match close(file) {
            Ok(()) => self.compare_below()?,
            Err(error) => {
                self.told.close += 1;
                self.is_expected("close", error)?;
                self.open(false)?;
                for index in 0..CELLS {
                    let found = self.version_above(index)?;
                    self.model[index as usize] =
                        found.ok_or_else(|| self.fault("after a failed close", &format!("cell {index}")))?;
                }
                return Ok(());
            }
        }
        self.open(false)
    }

    /// Syncs until it succeeds, as the store fails only occasionally.
    fn finish(&mut self) -> Result<(), String> {
        for _ in 0..100 {
            if self.sync()? {
                return Ok(());
            }
        }
        Err(self.fault("sync", &"100 of 100 failed"))
    }
}
