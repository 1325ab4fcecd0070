//! Actors on a mount that will be killed; each knows what must survive.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

use crate::common::cells::{CELL, cell, cells, is_partly, version_of};
use crate::common::rng::Rng;

/// One program at work on its own kind of files in a directory.
///
/// It records an operation before it starts, and its completion after the reply. So its record
/// holds every possible state whenever it is stopped.
pub(crate) trait Actor: Send {
    /// One operation or a few.
    fn step(&mut self) -> io::Result<()>;

    /// The last or current operation, for a message.
    fn doing(&self) -> String;

    /// The faults in `root`, the underlying directory.
    fn faults(&self, root: &Path) -> Vec<String>;
}

/// Timeout for all actors' operations: far more than any device needs.
const STUCK: Duration = Duration::from_secs(60);

/// Runs all actors concurrently until they have done `steps` together, then calls `end` and stops
/// them.
///
/// `end` receives the flag that excuses errors from then on; it may kill the mount.
///
/// # Errors
///
/// A failure before `end`, or a hanging actor.
pub(crate) fn work(actors: &mut [Box<dyn Actor>], steps: u64, end: impl FnOnce()) -> Result<(), String> {
    let (done, excused, stopped) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let failed = Mutex::new(None);
    let main = thread::current();
    let act = |actor: &mut Box<dyn Actor>| {
        while !stopped.load(Ordering::Acquire) {
            if let Err(error) = actor.step() {
                if !excused.load(Ordering::Acquire) {
                    let what = format!("{}: {error}", actor.doing());
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
                    done.fetch_add(steps, Ordering::AcqRel);
                    main.unpark();
                }
                return;
            }
            if done.fetch_add(1, Ordering::AcqRel) + 1 == steps {
                main.unpark();
            }
        }
    };
    let late = thread::scope(|scope| {
        for actor in actors {
            scope.spawn(|| act(actor));
        }
        let deadline = Instant::now() + STUCK;
        while done.load(Ordering::Acquire) < steps && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(100));
        }
        let late = done.load(Ordering::Acquire) < steps;
        excused.store(true, Ordering::Release);
        end();
        stopped.store(true, Ordering::Release);
        late
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(format!("an operation failed before the kill: {error}")),
        None if late => Err(format!("{} of {steps} steps within {STUCK:?}", done.into_inner())),
        None => Ok(()),
    }
}

/// How appended data reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// fsync or fdatasync after some writes.
    Called,
    /// The file is open with `O_DSYNC`: every write.
    Always,
}

/// A log.
pub(crate) struct Log {
    name: String,
    file: File,
    id: u64,
    sync: Sync,
    rng: Rng,
    /// Durable cells.
    synced: u64,
    /// Cells written or in flight.
    written: u64,
}

impl Log {
    pub(crate) fn new(at: &Path, name: &str, sync: Sync, seed: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if sync == Sync::Always {
            options.custom_flags(libc::O_DSYNC);
        }
        let file = options.open(at.join(name))?;
        Ok(Self { name: name.to_owned(), file, id: seed, sync, rng: Rng(seed), synced: 0, written: 0 })
    }
}

impl Actor for Log {
    fn step(&mut self) -> io::Result<()> {
        let from = self.written;
        self.written += 1 + self.rng.below(24);
        self.file.write_all_at(&cells(self.id, from, self.written, 1), from * CELL as u64)?;
        match self.sync {
            Sync::Always => {}
            Sync::Called if self.rng.chance(15) => self.file.sync_data()?,
            Sync::Called if self.rng.chance(10) => self.file.sync_all()?,
            Sync::Called => return Ok(()),
        }
        self.synced = self.written;
        Ok(())
    }

    fn doing(&self) -> String {
        self.name.clone()
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let found = match fs::read(root.join(&self.name)) {
            Ok(found) => found,
            Err(error) => return vec![format!("{}: {error}", self.name)],
        };
        let expected = cells(self.id, 0, self.written, 1);
        let certain = self.synced as usize * CELL;
        let (is, name) = (found.len(), &self.name);
        if is < certain {
            return vec![format!("{name}: {certain} bytes were synced, {is} are there")];
        }
        let mut faults = Vec::new();
        if let Some(at) = (0..certain).find(|&at| found[at] != expected[at]) {
            faults.push(format!("{name}: byte {at} of {certain} that were synced is not what was written"));
        }
        if !is_partly(&found[certain..], &expected[certain..]) {
            faults.push(format!("{name}: after {certain} bytes that were synced there is what nobody wrote"));
        }
        faults
    }
}

/// Cells of a table: 512 KiB, more than the dirty limit of the smallest caches.
const TABLE_CELLS: u64 = 1024;

/// A table.
pub(crate) struct Table {
    name: String,
    file: File,
    id: u64,
    rng: Rng,
    version: u64,
    /// Per cell the durable version, and later ones.
    allowed: Vec<Vec<u64>>,
}

impl Table {
    pub(crate) fn new(at: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let file = File::create_new(at.join(name))?;
        file.write_all_at(&cells(seed, 0, TABLE_CELLS, 0), 0)?;
        file.sync_all()?;
        let allowed = vec![vec![0]; TABLE_CELLS as usize];
        Ok(Self { name: name.to_owned(), file, id: seed, rng: Rng(seed), version: 0, allowed })
    }
}

impl Actor for Table {
    fn step(&mut self) -> io::Result<()> {
        let len = 1 + self.rng.below(32);
        let from = self.rng.below(TABLE_CELLS - len);
        self.version += 1;
        for versions in &mut self.allowed[from as usize..(from + len) as usize] {
            versions.push(self.version);
        }
        self.file.write_all_at(&cells(self.id, from, from + len, self.version), from * CELL as u64)?;
        if self.rng.chance(15) {
            if self.rng.chance(50) {
                self.file.sync_all()?
            } else {
                self.file.sync_data()?
            };
            for versions in &mut self.allowed {
                versions.drain(..versions.len() - 1);
            }
        }
        Ok(())
    }

    fn doing(&self) -> String {
        self.name.clone()
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let found = match fs::read(root.join(&self.name)) {
            Ok(found) => found,
            Err(error) => return vec![format!("{}: {error}", self.name)],
        };
        let (name, is) = (&self.name, found.len());
        if is != TABLE_CELLS as usize * CELL {
            return vec![format!("{name}: {is} bytes are there")];
        }
        let mut faults = Vec::new();
        for (index, (bytes, allowed)) in found.chunks_exact(CELL).zip(&self.allowed).enumerate() {
            match version_of(bytes, self.id, index as u64) {
                Some(version) if allowed.contains(&version) => {}
                other => {
                    faults.push(format!("{name}: cell {index} has version {other:?}; may have {allowed:?}"));
                }
            }
        }
        faults
    }
}

const TARGETS: u64 = 3;

/// A replacer of files.
pub(crate) struct Replacer {
    at: PathBuf,
    name: String,
    id: u64,
    /// Whether the new file is synced before the rename.
    synced: bool,
    rng: Rng,
    generation: u64,
    targets: [Target; TARGETS as usize],
    doing: &'static str,
}

/// Permitted contents of a file.
#[derive(Clone, Copy, Default)]
struct Target {
    /// The generation whose rename got a reply.
    now: Option<u64>,
    /// A generation whose rename got no reply.
    next: Option<u64>,
}

impl Replacer {
    pub(crate) fn new(at: &Path, name: &str, synced: bool, seed: u64) -> Self {
        let targets = Default::default();
        Self {
            at: at.to_owned(),
            name: name.to_owned(),
            id: seed,
            synced,
            rng: Rng(seed),
            generation: 0,
            targets,
            doing: "not begun",
        }
    }

    fn target(&self, root: &Path, index: usize) -> PathBuf {
        root.join(format!("{}-{index}", self.name))
    }

    /// Content of a generation: 0 to 40 cells.
    fn content(&self, index: usize, generation: u64) -> Vec<u8> {
        cells(self.id ^ index as u64, 0, Rng(self.id ^ generation).below(41), generation)
    }

    fn is(&self, found: &[u8], index: usize, generation: u64) -> bool {
        let expected = self.content(index, generation);
        if self.synced { found == expected } else { is_partly(found, &expected) }
    }
}

impl Actor for Replacer {
    fn step(&mut self) -> io::Result<()> {
        let index = self.rng.below(TARGETS) as usize;
        self.generation += 1;
        let generation = self.generation;
        let target = self.target(&self.at, index);
        let new = target.with_extension("new");
        self.doing = "make";
        let mut file = File::create(&new)?;
        self.doing = "write";
        // In several writes, so that some may be in flight before the rest is written.
        for piece in self.content(index, generation).chunks(7 * CELL) {
            file.write_all(piece)?;
        }
        self.doing = "sync";
        if self.synced {
            file.sync_all()?;
        }
        drop(file);
        self.targets[index].next = Some(generation);
        self.doing = "rename";
        fs::rename(&new, &target)?;
        self.targets[index] = Target { now: Some(generation), next: None };
        self.doing = "sync the directory";
        if self.rng.chance(10) {
            File::open(&self.at)?.sync_all()?;
        }
        Ok(())
    }

    fn doing(&self) -> String {
        format!("{}, generation {}, {}", self.name, self.generation, self.doing)
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let mut faults = Vec::new();
        for (index, target) in self.targets.iter().enumerate() {
            let path = self.target(root, index);
            let may_be = [target.now, target.next];
            let fine = match fs::read(&path) {
                Ok(found) => {
                    may_be.into_iter().flatten().any(|generation| self.is(&found, index, generation))
                }
                Err(error) => error.kind() == io::ErrorKind::NotFound && target.now.is_none(),
            };
            if !fine {
                let is = describe(&path);
                faults.push(format!("{}-{index}: neither generation of {may_be:?}, but {is}", self.name));
            }
        }
        faults
    }
}

/// The versions in the cells of a file, for a message.
fn describe(path: &Path) -> String {
    let found = match fs::read(path) {
        Ok(found) => found,
        Err(error) => return error.to_string(),
    };
    let versions = found.chunks(CELL).map(|bytes| {
        bytes.get(16..24).map(|eight| eight.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte)))
    });
    format!("{} bytes with versions {:?}", found.len(), versions.collect::<Vec<_>>())
}

const CUTTER_CELLS: u64 = 160;

/// Content of a cell: a version, or zeros.
type Content = Option<u64>;

/// A file of changing size.
pub(crate) struct Cutter {
    name: String,
    file: File,
    id: u64,
    rng: Rng,
    version: u64,
    /// Current size in cells.
    size: u64,
    /// Minimum and maximum size since the last sync.
    sizes: (u64, u64),
    /// Possible contents per cell: the one at the last sync, and later ones, newest last.
    allowed: Vec<Vec<Content>>,
}

impl Cutter {
    pub(crate) fn new(at: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let file = File::create_new(at.join(name))?;
        let allowed = vec![vec![None]; CUTTER_CELLS as usize];
        let (name, rng) = (name.to_owned(), Rng(seed));
        Ok(Self { name, file, id: seed, rng, version: 0, size: 0, sizes: (0, 0), allowed })
    }

    /// Records that cells are about to change.
    fn note(&mut self, from: u64, to: u64, content: Content) {
        for contents in &mut self.allowed[from as usize..to as usize] {
            contents.push(content);
        }
    }

    /// Records that the size is about to change.
    fn resize(&mut self, size: u64) {
        self.sizes = (self.sizes.0.min(size), self.sizes.1.max(size));
        self.size = size;
    }

    fn write(&mut self) -> io::Result<()> {
        let len = 1 + self.rng.below(24);
        let from = self.rng.below(CUTTER_CELLS - len);
        self.version += 1;
        self.note(from, from + len, Some(self.version));
        self.resize(self.size.max(from + len));
        self.file.write_all_at(&cells(self.id, from, from + len, self.version), from * CELL as u64)
    }

    fn cut(&mut self) -> io::Result<()> {
        let size = self.rng.below(CUTTER_CELLS);
        // Truncated or extended ranges read as zeros if they reappear.
        self.note(size.min(self.size), CUTTER_CELLS, None);
        self.resize(size);
        self.file.set_len(size * CELL as u64)
    }

    fn punch(&mut self) -> io::Result<()> {
        let len = 1 + self.rng.below(24);
        let from = self.rng.below(CUTTER_CELLS - len);
        self.note(from, from + len, None);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, from * CELL as u64, len * CELL as u64)?)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.sizes = (self.size, self.size);
        for (index, contents) in self.allowed.iter_mut().enumerate() {
            let now = if (index as u64) < self.size { contents.pop().flatten() } else { None };
            *contents = vec![now];
        }
        Ok(())
    }

    /// Whether the bytes of a cell, possibly truncated at the end of the file, are allowed.
    fn is_allowed(&self, index: usize, bytes: &[u8]) -> bool {
        let contents = &self.allowed[index];
        let zeros = bytes.iter().all(|&byte| byte == 0);
        // A cell past the synced size is a hole until its write arrives.
        let hole = contents.contains(&None);
        let whole = version_of(bytes, self.id, index as u64);
        (zeros && hole)
            || whole.is_some_and(|version| contents.contains(&Some(version)))
            || (bytes.len() < CELL
                && contents
                    .iter()
                    .flatten()
                    .any(|&version| cell(self.id, index as u64, version).starts_with(bytes)))
    }
}

impl Actor for Cutter {
    fn step(&mut self) -> io::Result<()> {
        match self.rng.below(10) {
            0..5 => self.write(),
            5..7 => self.cut(),
            7 => self.punch(),
            _ => self.sync(),
        }
    }

    fn doing(&self) -> String {
        self.name.clone()
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let found = match fs::read(root.join(&self.name)) {
            Ok(found) => found,
            Err(error) => return vec![format!("{}: {error}", self.name)],
        };
        let (name, is, (least, most)) = (&self.name, found.len() as u64, self.sizes);
        if is < least * CELL as u64 || is > most * CELL as u64 {
            return vec![format!("{name}: {is} bytes are there, not {least} to {most} cells")];
        }
        let bad = found.chunks(CELL).enumerate().filter(|(index, bytes)| !self.is_allowed(*index, bytes));
        let told = bad.map(|(index, bytes)| {
            let version = bytes.get(16..24);
            format!("{name}: cell {index} holds {version:?}; may hold {:?}", self.allowed[index])
        });
        told.collect()
    }
}

/// Few, so that most operations collide.
const NAMES: u64 = 8;

/// The inode behind a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    /// A file with a cell of this version, synced or not.
    File {
        version: u64,
        synced: bool,
    },
    Directory,
    Link(String),
}

type Tree = BTreeMap<String, Node>;

/// A directory of names.
pub(crate) struct Names {
    at: PathBuf,
    name: String,
    id: u64,
    rng: Rng,
    version: u64,
    now: Tree,
    /// State after an operation without a reply yet.
    next: Option<Tree>,
    doing: String,
}

impl Names {
    pub(crate) fn new(at: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let at = at.join(name);
        fs::create_dir(&at)?;
        let name = name.to_owned();
        Ok(Self {
            at,
            name,
            id: seed,
            rng: Rng(seed),
            version: 0,
            now: Tree::new(),
            next: None,
            doing: String::new(),
        })
    }

    /// Records the next state, performs the operation, and records its completion.
    fn change(&mut self, next: Tree, act: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        self.doing = format!("from {:?} to {next:?}", self.now);
        self.next = Some(next);
        act(&self.at)?;
        self.now = self.next.take().expect("just set");
        Ok(())
    }

    /// Creates `name`, which does not exist.
    fn make(&mut self, name: &str) -> io::Result<()> {
        let mut next = self.now.clone();
        let file = self.now.iter().find(|(_, node)| matches!(node, Node::File { .. }));
        match (self.rng.below(6), file) {
            (0, _) => {
                next.insert(name.to_owned(), Node::Directory);
                self.change(next, |at| fs::create_dir(at.join(name)))
            }
            (1, _) => {
                let to = format!("to {name}");
                next.insert(name.to_owned(), Node::Link(to.clone()));
                self.change(next, |at| symlink(&to, at.join(name)))
            }
            (2, Some((of, node))) => {
                let of = of.clone();
                next.insert(name.to_owned(), node.clone());
                self.change(next, |at| fs::hard_link(at.join(of), at.join(name)))
            }
            _ => {
                self.version += 1;
                let (version, bytes) = (self.version, cell(self.id, 0, self.version));
                next.insert(name.to_owned(), Node::File { version, synced: false });
                self.change(next, |at| File::create_new(at.join(name)).map(drop))?;
                self.doing = format!("write {name}");
                let mut file = File::options().write(true).open(self.at.join(name))?;
                file.write_all(&bytes)?;
                file.sync_all()?;
                self.now.insert(name.to_owned(), Node::File { version, synced: true });
                Ok(())
            }
        }
    }

    /// Removes or renames `name`, which exists.
    fn unmake(&mut self, name: &str, node: &Node, to: &str) -> io::Result<()> {
        let mut next = self.now.clone();
        next.remove(name);
        let fits =
            self.now.get(to).is_none_or(|there| (there == &Node::Directory) == (node == &Node::Directory));
        if name != to && fits && self.rng.chance(60) && self.now.get(to) != Some(node) {
            next.insert(to.to_owned(), node.clone());
            self.change(next, |at| fs::rename(at.join(name), at.join(to)))
        } else if node == &Node::Directory {
            self.change(next, |at| fs::remove_dir(at.join(name)))
        } else {
            self.change(next, |at| fs::remove_file(at.join(name)))
        }
    }

    /// Compares the directory with `tree`; returns the difference.
    fn compare(&self, root: &Path, tree: &Tree) -> Result<(), String> {
        let listed = fs::read_dir(root).map_err(|error| error.to_string())?;
        let mut listed: Vec<_> = listed.flatten().map(|entry| entry.file_name()).collect();
        listed.sort();
        if !listed.iter().map(|name| name.to_str()).eq(tree.keys().map(|name| Some(name.as_str()))) {
            return Err(format!("{listed:?} are there, not {:?}", tree.keys()));
        }
        for (name, node) in tree {
            let path = root.join(name);
            let fine = match node {
                Node::Directory => path.symlink_metadata().is_ok_and(|found| found.is_dir()),
                Node::Link(to) => fs::read_link(&path).is_ok_and(|found| found == Path::new(to)),
                Node::File { version, synced } => fs::read(&path).is_ok_and(|found| {
                    let expected = cell(self.id, 0, *version);
                    if *synced { found == expected } else { is_partly(&found, &expected) }
                }),
            };
            if !fine {
                return Err(format!("{name} is not {node:?}"));
            }
        }
        Ok(())
    }
}

impl Actor for Names {
    fn step(&mut self) -> io::Result<()> {
        let (name, to) = (self.rng.below(NAMES).to_string(), self.rng.below(NAMES).to_string());
        match self.now.get(&name).cloned() {
            None => self.make(&name),
            Some(node) => self.unmake(&name, &node, &to),
        }
    }

    fn doing(&self) -> String {
        format!("{}, {}", self.name, self.doing)
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let root = root.join(&self.name);
        let Err(now) = self.compare(&root, &self.now) else { return Vec::new() };
        match self.next.as_ref().map(|next| self.compare(&root, next)) {
            None => vec![format!("{}: {now}", self.name)],
            Some(Ok(())) => Vec::new(),
            Some(Err(next)) => vec![format!("{}: neither before ({now}) nor after ({next})", self.name)],
        }
    }
}
