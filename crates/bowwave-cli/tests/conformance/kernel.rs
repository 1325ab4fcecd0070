//! The kernel's side: an ext4 image on a loop device, a trace instance, and a player of scripts.
//!
//! Only this thread sees the mounts. The image is unlinked once the device holds it, and the device
//! disappears with its last user.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bowwave_core::{Advice, PageRange, Pattern};
use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{Advice as FileAdvice, fadvise};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::{CpuSet, UnshareFlags, sched_getcpu, sched_setaffinity, unshare_unsafe};

use super::event::{self, Event, Line};
use super::policy::Outcome;
use super::script::{Op, PAGE, Script, Target};

/// Bytes of the image: the files, the journal, and ext4's metadata.
const IMAGE_BYTES: u64 = 400 << 20;
/// `max_sectors_kb` of the device: sets `io_pages` to 128, between the tested window sizes.
const MAX_SECTORS_KIB: u64 = 512;
/// Buffer for events: a pattern causes at most a few hundred thousand, of about 80 bytes.
const BUFFER_KIB: u64 = 16 << 10;
/// Longest wait for pages in flight; the device is a local file.
const PATIENCE: Duration = Duration::from_secs(3);
/// The traced events.
const EVENTS: [&str; 2] = ["events/readahead", "events/filemap/mm_filemap_delete_from_page_cache"];

/// Whether the file system uses large folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folios {
    /// ext4 with `data=journal`: single pages.
    Single,
    /// Plain ext4: folios of up to 2 MiB.
    Large,
}

/// What the kernel did during a script.
#[derive(Debug)]
pub(super) struct Seen {
    /// The readahead events of each step.
    pub(super) steps: Vec<Vec<Event>>,
    /// Resident pages at the end.
    pub(super) cached: u64,
    /// Whether the kernel dropped pages without being told to: memory pressure, or another process
    /// dropped caches.
    pub(super) disturbed: bool,
}

/// The file system and the trace. Dropping it removes both.
#[derive(Debug)]
pub(super) struct Lab {
    dir: PathBuf,
    device: PathBuf,
    /// Keeps the loop device, which is detached with its last user.
    held: Option<File>,
    instance: PathBuf,
    /// Closed before the instance is removed: an instance in use cannot be.
    marker: Option<File>,
    cpu: usize,
}

impl Lab {
    /// Builds it under `parent`, and pins the calling thread to its processor; an error says what
    /// this machine lacks.
    pub(super) fn build(parent: &Path, folios: Folios) -> Result<Self, String> {
        let require = |holds: bool, otherwise: &str| holds.then_some(()).ok_or_else(|| otherwise.to_owned());
        let runs = |program: &str| Command::new(program).arg("-V").output().is_ok();
        require(rustix::process::geteuid().is_root(), "only root may mount and trace")?;
        require(rustix::param::page_size() as u64 == PAGE, "the kernel's pages are not 4096 bytes")?;
        require(Path::new("/dev/loop-control").exists(), "there are no loop devices")?;
        require(runs("mke2fs"), "mke2fs is not installed (e2fsprogs)")?;
        require(runs("losetup"), "losetup is not installed (util-linux)")?;
        private_mounts().map_err(|error| format!("cannot have mounts of its own: {error}"))?;
        let mut lab = Self {
            dir: parent.to_owned(),
            device: PathBuf::new(),
            held: None,
            instance: PathBuf::new(),
            marker: None,
            cpu: keep_to_one_cpu().expect("a processor of its own"),
        };
        lab.start_tracing()?;
        lab.attach()?;
        lab.mount(Folios::Large);
        for target in Target::ALL {
            fill(&lab.path(target), target.bytes()).expect("the files fit the image");
        }
        unmount(lab.mount_point(), UnmountFlags::DETACH).expect("mounted");
        lab.mount(folios);
        Ok(lab)
    }

    fn start_tracing(&mut self) -> Result<(), String> {
        let tracefs = self.dir.join("trace");
        fs::create_dir(&tracefs).expect("an empty directory");
        mount("bowwave", &tracefs, "tracefs", MountFlags::empty(), None)
            .map_err(|error| format!("cannot mount tracefs: {error}"))?;
        if !tracefs.join("events/readahead/page_cache_ra_order").is_dir() {
            return Err(
                "this kernel has no events/readahead tracepoints (Linux 6.18 and later have them)".into()
            );
        }
        let instance = tracefs.join(format!("instances/bowwave-conformance-{}", std::process::id()));
        fs::create_dir(&instance).expect("a trace instance");
        self.instance = instance;
        fs::write(self.per_cpu("buffer_size_kb"), BUFFER_KIB.to_string()).expect("a buffer");
        let marker = File::options().write(true).open(self.instance.join("trace_marker"));
        self.marker = Some(marker.expect("every instance has a marker"));
        Ok(())
    }

    fn per_cpu(&self, name: &str) -> PathBuf {
        self.instance.join(format!("per_cpu/cpu{}/{name}", self.cpu))
    }

    fn attach(&mut self) -> Result<(), String> {
        let image = self.dir.join("image");
        fs::create_dir(self.mount_point()).expect("an empty directory");
        let file = File::create_new(&image).expect("an empty directory");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, IMAGE_BYTES).expect("400 MiB");
        let ext4 = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"];
        let made = Command::new("mke2fs").args(ext4).arg(&image).output().expect("installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        let attached = attached.expect("installed");
        fs::remove_file(&image).expect("ours");
        if !attached.status.success() {
            let why = String::from_utf8_lossy(&attached.stderr).into_owned();
            return Err(format!("cannot attach a loop device: {why}"));
        }
        self.device = PathBuf::from(String::from_utf8_lossy(&attached.stdout).trim());
        self.held = Some(File::open(&self.device).expect("attached"));
        // Of a device in use: detach it with its last user.
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(detached.expect("installed").success());
        Ok(())
    }

    fn mount(&self, folios: Folios) {
        // Lazy table initialization would read and write during the test.
        let options = match folios {
            Folios::Single => c"data=journal,noinit_itable",
            Folios::Large => c"noinit_itable",
        };
        let flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
        mount(&self.device, self.mount_point(), "ext4", flags, options).expect("an ext4 image");
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    fn path(&self, target: Target) -> PathBuf {
        self.mount_point().join(target.name())
    }

    /// Sets the window size of files opened from now on; returns the device's `io_pages`.
    pub(super) fn set_ra_pages(&self, pages: u64) -> u64 {
        let queue = Path::new("/sys/block").join(self.device.file_name().expect("a device")).join("queue");
        // The order matters: setting limits resets the window size.
        let (sectors, window) = (queue.join("max_sectors_kb"), queue.join("read_ahead_kb"));
        fs::write(&sectors, MAX_SECTORS_KIB.to_string()).expect("root may");
        fs::write(&window, (pages * PAGE / 1024).to_string()).expect("root may");
        let read =
            |path| -> u64 { fs::read_to_string(path).expect("readable").trim().parse().expect("a number") };
        assert_eq!(read(window), pages * PAGE / 1024);
        read(sectors) * 1024 / PAGE
    }

    /// Plays a script to a file of which nothing is cached.
    pub(super) fn play(&mut self, script: &Script, ours: &Outcome, folios: Folios) -> io::Result<Seen> {
        let path = self.path(script.target);
        let mut player = Player::cold(&path, script.target)?;
        self.watch(&File::open(&path)?)?;
        for (number, (&op, expected)) in script.ops.iter().zip(&ours.steps).enumerate() {
            if let Some((range, count)) = expected.settle {
                player.settle(range, count)?;
            }
            // One write is one entry of the trace.
            let marker = self.marker.as_mut().expect("open until dropped");
            marker.write_all(format!("step {number}\n").as_bytes())?;
            player.step(op)?;
        }
        let (steps, disturbed) = self.trace(&script.ops)?;
        if !event::alike(folios, &steps, ours) {
            player.patience = Duration::ZERO;
        }
        let all = PageRange::new(0, script.target.pages());
        player.settle(all, ours.cached)?;
        Ok(Seen { steps, cached: resident(&player.untouched, all)?, disturbed })
    }

    /// Traces only this file from now on, and drops earlier events.
    fn watch(&self, file: &File) -> io::Result<()> {
        let metadata = file.metadata()?;
        let (major, minor) = (rustix::fs::major(metadata.st_dev()), rustix::fs::minor(metadata.st_dev()));
        // The kernel's device numbers have 20 bits for the minor.
        let device = (major << 20) | minor;
        let filter = format!("s_dev == {device} && i_ino == {}", metadata.st_ino());
        for events in EVENTS {
            let events = self.instance.join(events);
            fs::write(events.join("filter"), &filter)?;
            fs::write(events.join("enable"), "1")?;
        }
        fs::write(self.instance.join("trace"), "")
    }

    /// The events since [`watch`](Self::watch) by step, and whether pages were dropped meanwhile.
    fn trace(&self, ops: &[Op]) -> io::Result<(Vec<Vec<Event>>, bool)> {
        for events in EVENTS {
            fs::write(self.instance.join(events).join("enable"), "0")?;
        }
        let stats = fs::read_to_string(self.per_cpu("stats"))?;
        let lost = stats.lines().any(|line| {
            let (name, count) = line.split_once(": ").unwrap_or_default();
            matches!(name, "overrun" | "dropped events") && count.trim() != "0"
        });
        assert!(!lost, "the trace buffer ran over");
        let (mut steps, mut disturbed) = (vec![Vec::new(); ops.len()], false);
        let mut step = None;
        for line in fs::read_to_string(self.instance.join("trace"))?.lines() {
            match Line::parse(line) {
                Some(Line::Step(next)) => step = Some(next),
                Some(Line::Event(event)) => steps[step.expect("an event follows its step")].push(event),
                Some(Line::Dropped) => {
                    let op = step.and_then(|step: usize| ops.get(step));
                    disturbed |= !matches!(op, Some(Op::Advise { advice: Advice::DontNeed, .. }));
                }
                None => {}
            }
        }
        Ok((steps, disturbed))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.marker = None;
        for events in EVENTS {
            let _not_started = fs::write(self.instance.join(events).join("enable"), "0");
        }
        let _not_started = fs::remove_dir(&self.instance);
        for (name, device) in [("mnt", self.held.take()), ("trace", None)] {
            let _not_mounted = unmount(self.dir.join(name), UnmountFlags::DETACH);
            let _not_created = fs::remove_dir(self.dir.join(name));
            drop(device);
        }
    }
}

/// A file under test: its handles, and a mapping for `mincore`.
#[derive(Debug)]
struct Player<'a> {
    path: &'a Path,
    target: Target,
    /// Each open file, and its mapping, created on first use.
    handles: Vec<(File, Option<MmapMut>)>,
    /// A mapping that is never touched.
    untouched: MmapMut,
    /// How long to wait for pages in flight.
    patience: Duration,
}

impl<'a> Player<'a> {
    /// Opens the file with none of it cached.
    fn cold(path: &'a Path, target: Target) -> io::Result<Self> {
        let file = File::open(path)?;
        let untouched = map(&file)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            file.sync_all()?;
            fadvise(&file, 0, None, FileAdvice::DontNeed)?;
            let left = resident(&untouched, PageRange::new(0, target.pages()))?;
            if left == 0 {
                return Ok(Self { path, target, handles: Vec::new(), untouched, patience: PATIENCE });
            }
            assert!(Instant::now() < deadline, "{left} pages of the file stay in memory");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until `count` pages of a range are up to date. After one timeout the two sides differ
    /// already, so later steps hardly wait.
    fn settle(&mut self, range: PageRange, count: u64) -> io::Result<()> {
        let deadline = Instant::now() + self.patience;
        while resident(&self.untouched, range)? < count {
            if Instant::now() > deadline {
                self.patience = Duration::from_millis(1);
                break;
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn step(&mut self, op: Op) -> io::Result<()> {
        match op {
            Op::Read { handle, offset, length } => {
                let mut buffer = vec![0; usize::try_from(length).expect("a read fits memory")];
                let got = self.handle(handle)?.0.read_at(&mut buffer, offset)?;
                let left = self.target.bytes().saturating_sub(offset);
                assert_eq!(got as u64, left.min(length), "a short read at {offset}");
            }
            Op::Advise { handle, pages, advice } => {
                let advice = match advice {
                    Advice::Normal => FileAdvice::Normal,
                    Advice::Sequential => FileAdvice::Sequential,
                    Advice::Random => FileAdvice::Random,
                    Advice::WillNeed => FileAdvice::WillNeed,
                    Advice::DontNeed | Advice::Copied => FileAdvice::DontNeed,
                    Advice::NoReuse => FileAdvice::NoReuse,
                };
                let (offset, length) = (pages.start.0 * PAGE, pages.count().0 * PAGE);
                fadvise(&self.handle(handle)?.0, offset, NonZeroU64::new(length), advice)?;
            }
            // Faults this page only: copy-on-write does not map around.
            Op::Touch { handle, page } => {
                black_box(self.mapping(handle)?)[usize::try_from(page * PAGE).expect("mapped")] = 1;
            }
            Op::MapAdvise { handle, pattern } => self.mapping(handle)?.advise(match pattern {
                Pattern::Normal => memmap2::Advice::Normal,
                Pattern::Sequential => memmap2::Advice::Sequential,
                Pattern::Random => memmap2::Advice::Random,
            })?,
        }
        Ok(())
    }

    fn mapping(&mut self, handle: usize) -> io::Result<&mut MmapMut> {
        let (file, mapping) = self.handle(handle)?;
        if mapping.is_none() {
            *mapping = Some(map(file)?);
        }
        Ok(mapping.as_mut().expect("mapped above"))
    }

    fn handle(&mut self, number: usize) -> io::Result<&mut (File, Option<MmapMut>)> {
        while self.handles.len() <= number {
            self.handles.push((File::open(self.path)?, None));
        }
        Ok(&mut self.handles[number])
    }
}

/// Writes a file without holes.
fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let block: Vec<u8> =
        (0..1u32 << 18).flat_map(|word| word.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len() as u64) as usize;
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    file.sync_all()
}

/// With several processors the order of events would be uncertain.
fn keep_to_one_cpu() -> io::Result<usize> {
    let cpu = sched_getcpu();
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    Ok(cpu)
}

/// Gives this thread a private mount namespace, which ends with it.
fn private_mounts() -> io::Result<()> {
    #[expect(unsafe_code, reason = "unshare")]
    // SAFETY: a new mount namespace does not affect memory safety; no files are unshared.
    unsafe {
        unshare_unsafe(UnshareFlags::NEWNS)?;
    }
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// A private, writable mapping of a whole file.
fn map(file: &File) -> io::Result<MmapMut> {
    #[expect(unsafe_code, reason = "mmap")]
    // SAFETY: the file is ours, and is neither written nor cut short while it is mapped.
    unsafe {
        MmapOptions::new().no_reserve_swap().map_copy(file)
    }
}

/// Pages of `range` that are resident and up to date.
fn resident(mapping: &MmapMut, range: PageRange) -> io::Result<u64> {
    let range = range.intersect(PageRange::new(0, (mapping.len() as u64).div_ceil(PAGE)));
    let pages = usize::try_from(range.count().0).map_err(io::Error::other)?;
    if pages == 0 {
        return Ok(0);
    }
    let mut present = vec![0u8; pages];
    let at = usize::try_from(range.start.0 * PAGE).map_err(io::Error::other)?;
    #[expect(unsafe_code, reason = "mincore")]
    // SAFETY: the range lies within the mapping, and `present` has a byte for each of its pages.
    let outcome = unsafe {
        libc::mincore(
            mapping.as_ptr().byte_add(at).cast_mut().cast(),
            pages * PAGE as usize,
            present.as_mut_ptr(),
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(present.iter().filter(|&&byte| byte & 1 != 0).count() as u64)
}
