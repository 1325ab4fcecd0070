//! kill -9 during object uploads: each object has one complete version, and uploads in flight are
//! aborted by the next mount.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use bowwave_testkit::S3Server;

use super::actors::{Actor, work};
use crate::common::cells::cells;
use crate::common::close::close;
use crate::common::place::Place;
use crate::common::rng::Rng;
use crate::common::served::Served;
use crate::common::{bowwave, can_mount, run, setting};

const OBJECTS: u64 = 3;

/// Rewrites objects, appends to them, renames and removes them.
struct Writer {
    at: PathBuf,
    id: u64,
    has_large: bool,
    rng: Rng,
    version: u64,
    objects: [Object; OBJECTS as usize],
}

/// Permitted states of an object.
#[derive(Default)]
struct Object {
    /// State after the last reply; `None` if absent.
    now: Option<Vec<u8>>,
    /// State after a call without a reply.
    next: Option<Option<Vec<u8>>>,
}

impl Object {
    fn answered(&mut self) {
        if let Some(next) = self.next.take() {
            self.now = next;
        }
    }
}

impl Writer {
    fn new(at: &Path, id: u64, has_large: bool, seed: u64) -> Self {
        Self { at: at.to_owned(), id, has_large, rng: Rng(seed), version: 0, objects: Default::default() }
    }

    fn name(&self, index: usize) -> String {
        format!("writer-{}-{index}", self.id)
    }

    fn path(&self, index: usize) -> PathBuf {
        self.at.join(self.name(index))
    }

    /// Unique bytes: up to several parts of the emulated store.
    fn more(&mut self, index: usize) -> Vec<u8> {
        self.version += 1;
        let count = match self.rng.below(20) {
            // More than a part of a cloud store.
            0 if self.has_large => 16_000 + self.rng.below(4000),
            0..6 => self.rng.below(1500),
            _ => self.rng.below(40),
        };
        let mut bytes = cells(self.id ^ index as u64, 0, count, self.version);
        bytes.truncate(bytes.len() - self.rng.below(300).min(bytes.len() as u64) as usize);
        bytes
    }

    /// Appends to `file` and closes it; `before` is its content.
    fn write(&mut self, index: usize, mut file: File, before: Vec<u8>) -> io::Result<()> {
        let mut whole = before;
        for _ in 0..=self.rng.below(2) {
            let more = self.more(index);
            for piece in more.chunks(1 + self.rng.below(100_000) as usize) {
                file.write_all(piece)?;
            }
            whole.extend(more);
            self.objects[index].next = Some(Some(whole.clone()));
            if self.rng.chance(30) {
                file.sync_all()?;
                self.objects[index].answered();
            }
        }
        // Closing publishes even a file without writes.
        close(file)?;
        self.objects[index].answered();
        Ok(())
    }

    fn rename(&mut self, from: usize, to: usize) -> io::Result<()> {
        self.objects[to].next = Some(self.objects[from].now.clone());
        self.objects[from].next = Some(None);
        fs::rename(self.path(from), self.path(to))?;
        self.objects[from].answered();
        self.objects[to].answered();
        Ok(())
    }
}

impl Actor for Writer {
    fn step(&mut self) -> io::Result<()> {
        let index = self.rng.below(OBJECTS) as usize;
        let other = (index + 1) % OBJECTS as usize;
        let is_there = self.objects[index].now.is_some();
        match self.rng.below(10) {
            0..6 => {
                // Nothing is visible before a sync or close.
                let file = File::create(self.path(index))?;
                self.write(index, file, Vec::new())
            }
            6..8 => {
                let file = OpenOptions::new().append(true).create(true).open(self.path(index))?;
                let before = self.objects[index].now.clone().unwrap_or_default();
                self.write(index, file, before)
            }
            8 if is_there => self.rename(index, other),
            9 if is_there => {
                self.objects[index].next = Some(None);
                fs::remove_file(self.path(index))?;
                self.objects[index].answered();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn doing(&self) -> String {
        format!("writer {}", self.id)
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let mut faults = Vec::new();
        for (index, object) in self.objects.iter().enumerate() {
            let found = fs::read(root.join(self.name(index))).ok();
            if found != object.now && Some(&found) != object.next.as_ref() {
                let bytes = |content: &Option<Vec<u8>>| content.as_ref().map(Vec::len);
                faults.push(format!(
                    "{}: {:?} bytes, neither the {:?} of before nor the {:?} of after",
                    self.name(index),
                    bytes(&found),
                    bytes(&object.now),
                    object.next.as_ref().map(bytes)
                ));
            }
        }
        faults
    }
}

/// A store to mount: an emulated directory, or a server.
struct Objects {
    url: String,
    root: PathBuf,
    server: Option<S3Server>,
}

impl Objects {
    fn new(directory: &Path, on_server: bool) -> Self {
        if on_server {
            let server = S3Server::start(directory, &["bucket"]).expect("loopback has free ports");
            return Self {
                url: "s3://bucket".to_owned(),
                root: directory.join("bucket"),
                server: Some(server),
            };
        }
        let device = "s3,part=64KiB,latency=1ms,metadata=0us,write_latency=3ms";
        Self {
            url: format!("emulate:{device}:{}", directory.display()),
            root: directory.to_owned(),
            server: None,
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = bowwave();
        command.args([name, &self.url]);
        if let Some(server) = &self.server {
            command.args(["--endpoint", &server.endpoint(), "--allow-http"]);
            command.env("AWS_ACCESS_KEY_ID", S3Server::ACCESS_KEY_ID);
            command.env("AWS_SECRET_ACCESS_KEY", S3Server::SECRET_ACCESS_KEY);
        }
        command
    }

    fn mount(&self, at: &Path) -> Served {
        Served::of(
            self.command("mount").arg(at).args([
                "--cache",
                "32MiB",
                "--ra-pages",
                "64",
                "--abort-uploads",
                "0s",
            ]),
            at,
        )
    }

    /// Unfinished uploads.
    fn uploads(&self) -> usize {
        match &self.server {
            Some(server) => server.uploads().len(),
            None => fs::read_dir(self.root.join(".bowwave-uploads")).map_or(0, Iterator::count),
        }
    }
}

/// Runs one crash point; returns the faults and the remaining uploads.
fn crash_at(directory: &Place, seed: u64) -> (Vec<String>, usize) {
    let store = directory.store().join(seed.to_string());
    fs::create_dir(&store).expect("writable");
    let objects = Objects::new(&store, seed.is_multiple_of(5));
    let mut served = objects.mount(&directory.at());
    let mut rng = Rng(!seed);
    let mut actors: Vec<Box<dyn Actor>> = Vec::new();
    for id in 0..4 {
        actors.push(Box::new(Writer::new(&directory.at(), id, objects.server.is_some(), rng.next())));
    }
    let (steps, wait) = (1 + rng.below(60), Duration::from_micros(rng.below(20_000)));
    let worked = work(&mut actors, steps, || {
        thread::sleep(wait);
        served.kill();
    });
    // A server completes its requests; meanwhile its directory is its own.
    if let Some(server) = &objects.server {
        let mut idle = 0;
        while idle < 2 {
            // Twice: requests may still be in a socket buffer.
            idle = if server.in_flight() == 0 { idle + 1 } else { 0 };
            thread::sleep(Duration::from_millis(20));
        }
    }
    let mut faults: Vec<String> = actors.iter().flat_map(|actor| actor.faults(&objects.root)).collect();
    faults.extend(worked.err());
    let left = objects.uploads();
    let said = served.said();
    drop(served);
    if faults.is_empty() {
        // The next mount aborts remaining uploads and shows the objects.
        let again = objects.mount(&directory.at());
        faults.extend(actors.iter().flat_map(|actor| actor.faults(&directory.at())));
        if objects.uploads() > 0 || !run(&mut objects.command("uploads")).is_empty() {
            faults.push(format!("{left} uploads were left, {} still are", objects.uploads()));
        }
        let (status, said) = again.unmount();
        if !status.success() {
            faults.push(format!("the next mount ended with {status}: {said}"));
        }
    }
    if faults.is_empty() {
        drop(objects);
        fs::remove_dir_all(&store).expect("writable");
    } else {
        faults.insert(0, format!("seed {seed}, {}, killed after {steps} steps:", objects.url));
        faults.push(said);
    }
    (faults, left)
}

#[test]
#[expect(clippy::print_stdout, reason = "the seeds of a failure")]
fn objects_are_complete_after_a_kill_and_unfinished_uploads_can_be_aborted() {
    if !can_mount() {
        return;
    }
    let directory = Place::new("crash-objects");
    let (points, first) = (setting("BOWWAVE_CRASH_POINTS", 15), setting("BOWWAVE_CRASH_SEED", 1));
    let (mut bad, mut left) = (0, 0);
    for seed in first..first + points {
        let (faults, uploads) = crash_at(&directory, seed);
        left += uploads;
        if !faults.is_empty() {
            bad += 1;
            println!("{}", faults.join("\n"));
        }
    }
    println!("{points} points, seeds {first} and on: {bad} with faults, {left} uploads left and given up");
    assert_eq!(bad, 0, "points with faults, of {points}; see above");
}

#[test]
fn the_checks_notice_an_object_that_is_not_whole() {
    let directory = Place::new("crash-objects-checks");
    let root = directory.store();
    let mut writer = Writer::new(&root, 7, false, 3);
    while writer.objects.iter().any(|object| object.now.as_ref().is_none_or(|bytes| bytes.len() < 2)) {
        writer.step().expect("a plain directory fails nothing");
    }
    assert_eq!(writer.faults(&root), [""; 0]);
    for broken in [&b""[..], b"x"] {
        let whole = fs::read(root.join("writer-7-0")).expect("there");
        fs::write(root.join("writer-7-0"), broken).expect("writable");
        assert_eq!(writer.faults(&root).len(), 1);
        fs::write(root.join("writer-7-0"), &whole[1..]).expect("writable");
        assert_eq!(writer.faults(&root).len(), 1);
        fs::write(root.join("writer-7-0"), &whole).expect("writable");
    }
    fs::remove_file(root.join("writer-7-1")).expect("there");
    assert_eq!(writer.faults(&root).len(), 1);
}
