//! The mount beside the kernel's own file system: the same operations on both, drawn from a seed;
//! every answer, every error number and what is left must be the same.
//!
//! `BOWWAVE_TWIN_STEPS` sets the operations of each kind of mount (1500), `BOWWAVE_TWIN_SEED` the
//! seed.

mod common;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};

use common::place::Place;
use common::rng::Rng;
use common::served::Served;
use common::{can_mount, setting};

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

/// A reply in one line.
fn brief(reply: &Result<Reply, i32>) -> String {
    let text = format!("{reply:?}");
    text.char_indices().nth(160).map_or_else(|| text.clone(), |(end, _)| format!("{}…", &text[..end]))
}

#[test]
fn the_mount_returns_what_its_directory_returns() {
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

/// Maximum files open at once; slots are reused.
const SLOTS: usize = 6;
/// Largest offset: files have several readahead windows.
const OFFSETS: u64 = 600_000;
const DIRECTORIES: [&str; 4] = ["", "a", "b", "a/c"];
const FILES: [&str; 4] = ["w", "x", "y", "z"];
const NAMES: [&str; 3] = ["a", "b", "c"];
const XATTRS: [&str; 3] = ["user.one", "user.two", "trusted.three"];

/// One operation.
#[derive(Debug, Clone)]
enum Op {
    Open { slot: usize, path: PathBuf, flags: OFlags, mode: u32 },
    Close { slot: usize },
    Write { slot: usize, offset: u64, len: usize, byte: u8 },
    Read { slot: usize, offset: u64, len: usize },
    SetLen { slot: usize, len: u64 },
    Allocate { slot: usize, flags: FallocateFlags, offset: u64, len: u64 },
    Copy { from: usize, to: usize, at: u64, into: u64, len: usize },
    Sync { slot: usize, data: bool },
    Fstat { slot: usize },
    SetMode { slot: usize, mode: u32 },
    Chmod { path: PathBuf, mode: u32 },
    Chown { path: PathBuf, owner: u32, group: u32 },
    Times { path: PathBuf, accessed: i64, modified: i64 },
    Truncate { path: PathBuf, len: u64 },
    Mkdir { path: PathBuf, mode: u32 },
    Rmdir { path: PathBuf },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, flags: RenameFlags },
    Link { from: PathBuf, to: PathBuf },
    Symlink { to: PathBuf, path: PathBuf },
    Fifo { path: PathBuf, mode: u32 },
    SetXattr { path: PathBuf, name: &'static str, len: usize, flags: XattrFlags },
    Xattr { path: PathBuf, name: &'static str },
    RemoveXattr { path: PathBuf, name: &'static str },
    Lstat { path: PathBuf },
    List { path: PathBuf },
    ReadLink { path: PathBuf },
    ReadAll { path: PathBuf },
}

/// Result of an operation.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Nothing,
    Count(usize),
    Bytes(Vec<u8>),
    Names(Vec<OsString>),
    Is(Stat),
}

/// File attributes that must be equal.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    /// 0 for directories: their size depends on the file system.
    size: u64,
    /// Only explicitly set times: current times differ.
    modified: Option<i64>,
}

impl Stat {
    fn of(found: &fs::Metadata) -> Self {
        let size = if found.is_dir() { 0 } else { found.size() };
        let modified = Some(found.mtime()).filter(|&time| time < 1_500_000_000);
        let owner = (found.uid(), found.gid());
        Self { mode: found.mode(), owner, links: found.nlink(), size, modified }
    }
}

/// Draws an operation: changes of files are more frequent than failures.
fn draw(rng: &mut Rng) -> Op {
    let slot = rng.below(SLOTS as u64) as usize;
    let offset = rng.below(OFFSETS);
    let most = 1 << (4 + rng.below(14));
    let len = (1 + rng.below(most)) as usize;
    match rng.below(100) {
        0..10 => draw_open(rng, slot),
        10..12 => Op::Close { slot },
        12..34 => Op::Write { slot, offset, len, byte: rng.next() as u8 },
        34..48 => Op::Read { slot, offset, len },
        48..52 => Op::SetLen { slot, len: offset },
        52..56 => Op::Allocate { slot, flags: draw_allocate(rng), offset, len: len as u64 },
        56..58 => {
            let (to, into) = (rng.below(SLOTS as u64) as usize, rng.below(OFFSETS));
            Op::Copy { from: slot, to, at: offset, into, len }
        }
        58..61 => Op::Sync { slot, data: rng.chance(50) },
        61..65 => Op::Fstat { slot },
        65..66 => Op::SetMode { slot, mode: rng.below(0o10000) as u32 },
        _ => draw_name(rng),
    }
}

/// Mostly the path of a file; with a probability of `directories` percent mostly that of a
/// directory.
fn draw_path(rng: &mut Rng, directories: u64) -> PathBuf {
    if rng.chance(directories) {
        let directory = ["", "", "a"][rng.below(3) as usize];
        return Path::new(directory).join(NAMES[rng.below(NAMES.len() as u64) as usize]);
    }
    let directory = DIRECTORIES[rng.below(DIRECTORIES.len() as u64) as usize];
    Path::new(directory).join(FILES[rng.below(FILES.len() as u64) as usize])
}

fn draw_open(rng: &mut Rng, slot: usize) -> Op {
    let access = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR][rng.below(4) as usize];
    let rest = [OFlags::CREATE, OFlags::EXCL, OFlags::TRUNC, OFlags::APPEND, OFlags::NOFOLLOW, OFlags::DSYNC];
    let odds = [60, 10, 15, 15, 10, 5];
    let chosen = rest.into_iter().zip(odds).filter(|(_, percent)| rng.chance(*percent)).map(|(flag, _)| flag);
    // Opening a FIFO would wait for its other end.
    let flags = chosen.fold(access | OFlags::NONBLOCK | OFlags::CLOEXEC, |all, flag| all | flag);
    Op::Open { slot, path: draw_path(rng, 3), flags, mode: rng.below(0o1000) as u32 | 0o600 }
}

fn draw_allocate(rng: &mut Rng) -> FallocateFlags {
    let (keep, punch, zero) =
        (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE);
    let empty = FallocateFlags::empty();
    // No others: FUSE does not pass collapse and insert range on.
    [empty, keep, punch | keep, punch | keep, zero, zero | keep, punch, empty][rng.below(8) as usize]
}

fn draw_name(rng: &mut Rng) -> Op {
    let directories = if rng.chance(25) { 90 } else { 5 };
    let (path, to) = (draw_path(rng, directories), draw_path(rng, directories));
    let (mode, name) = (rng.below(0o1000) as u32, XATTRS[rng.below(3) as usize]);
    match rng.below(36) {
        0..2 => Op::Chmod { path, mode: rng.below(0o10000) as u32 },
        2 => Op::Chown { path, owner: rng.below(3) as u32, group: rng.below(3) as u32 },
        3..6 => Op::Times {
            path,
            accessed: rng.below(1_000_000_000) as i64,
            modified: rng.below(1_000_000_000) as i64,
        },
        6..8 => Op::Truncate { path, len: rng.below(OFFSETS) },
        8..10 => Op::Mkdir { path: draw_path(rng, 90), mode },
        10 => Op::Rmdir { path },
        11..14 => Op::Unlink { path },
        14..18 => Op::Rename { from: path, to, flags: RenameFlags::empty() },
        18 => Op::Rename { from: path, to, flags: RenameFlags::NOREPLACE },
        19 => Op::Rename { from: path, to, flags: RenameFlags::EXCHANGE },
        20..22 => Op::Link { from: path, to },
        22 => Op::Symlink { to, path },
        23 => Op::Fifo { path, mode },
        24 => {
            let flags = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][rng.below(3) as usize];
            Op::SetXattr { path, name, len: rng.below(300) as usize, flags }
        }
        25 => Op::Xattr { path, name },
        26 => Op::RemoveXattr { path, name },
        27..31 => Op::Lstat { path },
        31..33 => Op::List { path: DIRECTORIES[rng.below(DIRECTORIES.len() as u64) as usize].into() },
        33 => Op::ReadLink { path },
        _ => Op::ReadAll { path },
    }
}

/// A directory and its open files.
struct World {
    root: PathBuf,
    open: [Option<File>; SLOTS],
}

impl World {
    fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), open: Default::default() }
    }

    fn file(&self, slot: usize) -> io::Result<&File> {
        self.open[slot].as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Performs `op`; returns its result or errno.
    fn apply(&mut self, op: &Op) -> Result<Reply, i32> {
        let told = match op {
            Op::Open { slot, path, flags, mode } => {
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::open(self.root.join(path), *flags, mode).map_err(io::Error::from).map(|opened| {
                    self.open[*slot] = Some(File::from(opened));
                    Reply::Nothing
                })
            }
            Op::Close { slot } => {
                self.open[*slot] = None;
                Ok(Reply::Nothing)
            }
            op => self.on_files(op).unwrap_or_else(|| self.on_names(op)),
        };
        told.map_err(|error| error.raw_os_error().unwrap_or(-1))
    }

    /// Operations on open files; `None` for others.
    fn on_files(&self, op: &Op) -> Option<io::Result<Reply>> {
        let told = match *op {
            Op::Write { slot, offset, len, byte } => {
                let bytes: Vec<_> = (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect();
                self.file(slot).and_then(|file| file.write_at(&bytes, offset)).map(Reply::Count)
            }
            Op::Read { slot, offset, len } => self.file(slot).and_then(|file| {
                let mut bytes = vec![0; len];
                let count = file.read_at(&mut bytes, offset)?;
                bytes.truncate(count);
                Ok(Reply::Bytes(bytes))
            }),
            Op::SetLen { slot, len } => self.file(slot).and_then(|file| file.set_len(len)).map(nothing),
            Op::Allocate { slot, flags, offset, len } => {
                self.file(slot).and_then(|file| Ok(nothing(rustix::fs::fallocate(file, flags, offset, len)?)))
            }
            Op::Copy { from, to, mut at, mut into, len } => self.file(from).and_then(|source| {
                let target = self.file(to)?;
                Ok(Reply::Count(rustix::fs::copy_file_range(
                    source,
                    Some(&mut at),
                    target,
                    Some(&mut into),
                    len,
                )?))
            }),
            Op::Sync { slot, data: true } => self.file(slot).and_then(File::sync_data).map(nothing),
            Op::Sync { slot, data: false } => self.file(slot).and_then(File::sync_all).map(nothing),
            Op::Fstat { slot } => {
                self.file(slot).and_then(File::metadata).map(|found| Reply::Is(Stat::of(&found)))
            }
            Op::SetMode { slot, mode } => self
                .file(slot)
                .and_then(|file| Ok(nothing(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?))),
            _ => return None,
        };
        Some(told)
    }

    fn on_names(&self, op: &Op) -> io::Result<Reply> {
        let at = |path: &PathBuf| self.root.join(path);
        match op {
            Op::Chmod { path, mode } => rustix::fs::chmod(at(path), Mode::from_raw_mode(*mode))?,
            Op::Chown { path, owner, group } => {
                let (owner, group) = (Uid::from_raw(*owner), Gid::from_raw(*group));
                rustix::fs::chownat(CWD, at(path), Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::Times { path, accessed, modified } => {
                let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
                let times = Timestamps { last_access: time(*accessed), last_modification: time(*modified) };
                rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::Truncate { path, len } => {
                // A FIFO has no size, and opening it would wait.
                if fs::metadata(at(path))?.file_type().is_fifo() {
                    return Ok(Reply::Nothing);
                }
                File::options().write(true).open(at(path))?.set_len(*len)?;
            }
            Op::Mkdir { path, mode } => rustix::fs::mkdir(at(path), Mode::from_raw_mode(*mode))?,
            Op::Rmdir { path } => rustix::fs::rmdir(at(path))?,
            Op::Unlink { path } => rustix::fs::unlink(at(path))?,
            Op::Rename { from, to, flags } => rustix::fs::renameat_with(CWD, at(from), CWD, at(to), *flags)?,
            Op::Link { from, to } => fs::hard_link(at(from), at(to))?,
            // Relative: valid in the root, dangling below it.
            Op::Symlink { to, path } => symlink(to, at(path))?,
            Op::Fifo { path, mode } => {
                rustix::fs::mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(*mode), 0)?;
            }
            Op::SetXattr { path, name, len, flags } => {
                rustix::fs::lsetxattr(at(path), *name, &vec![b'v'; *len], *flags)?;
            }
            Op::RemoveXattr { path, name } => rustix::fs::lremovexattr(at(path), *name)?,
            op => return self.read_names(op),
        }
        Ok(Reply::Nothing)
    }

    fn read_names(&self, op: &Op) -> io::Result<Reply> {
        let at = |path: &PathBuf| self.root.join(path);
        Ok(match op {
            Op::Xattr { path, name } => {
                let mut value = vec![0; 4096];
                let count = rustix::fs::lgetxattr(at(path), *name, &mut value[..])?;
                value.truncate(count);
                Reply::Bytes(value)
            }
            Op::Lstat { path } => Reply::Is(Stat::of(&at(path).symlink_metadata()?)),
            Op::List { path } => Reply::Names(list(&at(path))?),
            Op::ReadLink { path } => Reply::Names(vec![fs::read_link(at(path))?.into_os_string()]),
            Op::ReadAll { path } => {
                if fs::metadata(at(path))?.file_type().is_fifo() {
                    return Ok(Reply::Nothing);
                }
                Reply::Bytes(fs::read(at(path))?)
            }
            other => unreachable!("{other:?} changes something"),
        })
    }
}

fn nothing((): ()) -> Reply {
    Reply::Nothing
}

fn list(directory: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = entries.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Everything in a directory: paths with attributes and contents.
fn tree(root: &Path) -> io::Result<Vec<(PathBuf, Stat, Vec<u8>)>> {
    let (mut found, mut directories) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(directory) = directories.pop() {
        for name in list(&root.join(&directory))? {
            let path = directory.join(name);
            let stat = root.join(&path).symlink_metadata()?;
            let content = match stat.file_type() {
                kind if kind.is_file() => fs::read(root.join(&path))?,
                kind if kind.is_symlink() => {
                    fs::read_link(root.join(&path))?.into_os_string().into_encoded_bytes()
                }
                kind => {
                    if kind.is_dir() {
                        directories.push(path.clone());
                    }
                    Vec::new()
                }
            };
            found.push((path, Stat::of(&stat), content));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}
