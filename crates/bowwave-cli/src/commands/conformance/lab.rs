//! A private file system to test the kernel: an image on disk, a loop device, ext4, and the files.
//!
//! Only this thread sees the mounts. The image is unlinked once the device holds it, and the device
//! disappears with its last user. So a killed process leaves only an empty directory and a trace
//! instance, which the next run removes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::Stop;
use super::script::Target;
use super::sys::{self, LoopDevice, PAGE};
use super::tracing::Tracing;

/// Bytes of the image: the files, the journal, and ext4's metadata.
const IMAGE_BYTES: u64 = 400 << 20;
/// `max_sectors_kb` of the device: sets `io_pages` to 128, between the tested window sizes.
const MAX_SECTORS_KIB: u64 = 512;
const NAME: &str = "bowwave-conformance-";

/// Whether the file system uses large folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Folios {
    /// ext4 with `data=journal`: single pages
    Single,
    /// Plain ext4: folios of up to 2 MiB
    Large,
}

impl Folios {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Large => "large",
        }
    }
}

/// The laboratory. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Lab {
    dir: PathBuf,
    device: Option<LoopDevice>,
    mounted: bool,
    tracing: Option<Tracing>,
}

impl Lab {
    /// Builds it under `parent`, on a disk file system; pins the calling thread to its processor.
    pub(super) fn build(parent: &Path) -> Result<Self, Stop> {
        require(rustix::process::geteuid().is_root(), "only root may mount and trace")?;
        require(rustix::param::page_size() as u64 == PAGE, "the kernel's pages are not 4096 bytes")?;
        require(Path::new("/dev/loop-control").exists(), "there are no loop devices")?;
        let listed = Command::new("mke2fs").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        require(listed.is_ok(), "mke2fs is not installed (e2fsprogs)")?;
        sys::private_mounts()
            .map_err(|error| Stop::skip(format_args!("cannot have mounts of its own: {error}")))?;
        sweep(parent);
        let cpu = keep_to_one_cpu().map_err(failed("cannot keep to one processor"))?;
        let name = format!("{NAME}{}", std::process::id());
        let dir = parent.join(&name);
        fs::create_dir(&dir).map_err(failed(&format!("cannot make {}", dir.display())))?;
        let mut lab = Self { dir, device: None, mounted: false, tracing: None };
        lab.start_tracing(&name, cpu)?;
        lab.attach()?;
        lab.mount(Folios::Large)?;
        for target in Target::ALL {
            fill(&lab.path(target), target.bytes()).map_err(failed("cannot fill the files"))?;
        }
        Ok(lab)
    }

    /// Mounts the file system with this kind of folios.
    pub(super) fn mount(&mut self, folios: Folios) -> Result<(), Stop> {
        self.unmount();
        let device = self.device.as_ref().expect("attached when built");
        // Lazy table initialization would read and write during the test.
        let options = match folios {
            Folios::Single => c"data=journal,noinit_itable",
            Folios::Large => c"noinit_itable",
        };
        let flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
        mount(device.path(), self.mount_point(), "ext4", flags, options)
            .map_err(|error| failed("cannot mount ext4")(error.into()))?;
        self.mounted = true;
        Ok(())
    }

    /// Sets the window size of files opened from now on; returns the device's `io_pages`.
    pub(super) fn set_ra_pages(&self, pages: u64) -> Result<u64, Stop> {
        let queue = PathBuf::from(self.device.as_ref().expect("attached when built").queue());
        let knobs = || {
            // The order matters: setting limits resets the window size.
            let (sectors, window) = (queue.join("max_sectors_kb"), queue.join("read_ahead_kb"));
            fs::write(&sectors, MAX_SECTORS_KIB.to_string())?;
            fs::write(&window, (pages * PAGE / 1024).to_string())?;
            let read = |path| -> io::Result<u64> {
                fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
            };
            let (got, io_kib) = (read(window)?, read(sectors)?);
            if got != pages * PAGE / 1024 {
                return Err(io::Error::other(format!("read_ahead_kb is {got}")));
            }
            Ok(io_kib * 1024 / PAGE)
        };
        knobs().map_err(failed("cannot set the device's read_ahead_kb and max_sectors_kb"))
    }

    pub(super) fn path(&self, target: Target) -> PathBuf {
        self.mount_point().join(target.name())
    }

    pub(super) fn tracing(&mut self) -> &mut Tracing {
        self.tracing.as_mut().expect("started when built")
    }

    fn start_tracing(&mut self, name: &str, cpu: usize) -> Result<(), Stop> {
        let tracefs = self.dir.join("trace");
        fs::create_dir(&tracefs).map_err(failed("cannot make a directory"))?;
        mount("bowwave", &tracefs, "tracefs", MountFlags::empty(), None)
            .map_err(|error| Stop::skip(format_args!("cannot mount tracefs: {error}")))?;
        let offered = Tracing::is_offered(&tracefs);
        if offered {
            sweep_instances(&tracefs);
        }
        require(offered, "this kernel has no events/readahead tracepoints (Linux 6.18 and later have them)")?;
        self.tracing =
            Some(Tracing::start(&tracefs, name, cpu).map_err(failed("cannot make a trace instance"))?);
        Ok(())
    }

    fn attach(&mut self) -> Result<(), Stop> {
        let (path, mount_point) = (self.dir.join("image"), self.mount_point());
        fs::create_dir(&mount_point).map_err(failed("cannot make a directory"))?;
        let make = || {
            let image = File::options().read(true).write(true).create_new(true).open(&path)?;
            rustix::fs::fallocate(&image, rustix::fs::FallocateFlags::empty(), 0, IMAGE_BYTES)?;
            let made = Command::new("mke2fs")
                .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"])
                .arg(&path)
                .output()?;
            if !made.status.success() {
                return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
            }
            Ok(image)
        };
        let made = make();
        let device = made.map(|image| LoopDevice::attach(&image));
        // From here on only the device holds the image.
        let _not_made = fs::remove_file(&path);
        let device = device.map_err(failed(&format!("cannot make an image in {}", self.dir.display())))?;
        self.device =
            Some(device.map_err(|error| Stop::skip(format_args!("cannot attach a loop device: {error}")))?);
        Ok(())
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    fn unmount(&mut self) {
        if std::mem::take(&mut self.mounted)
            && let Err(error) = unmount(self.mount_point(), UnmountFlags::DETACH)
        {
            note!("cannot unmount {}: {error}", self.mount_point().display());
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tracing = None;
        self.unmount();
        self.device = None;
        let trace = self.dir.join("trace");
        let _not_mounted = unmount(&trace, UnmountFlags::DETACH);
        for dir in [trace, self.mount_point(), self.dir.clone()] {
            if let Err(error) = fs::remove_dir(&dir)
                && error.kind() != io::ErrorKind::NotFound
            {
                note!("{} is left behind: {error}", dir.display());
            }
        }
    }
}

fn require(holds: bool, otherwise: &str) -> Result<(), Stop> {
    if holds { Ok(()) } else { Err(Stop::skip(otherwise)) }
}

fn failed(what: &str) -> impl Fn(io::Error) -> Stop {
    move |error| Stop::failed(format_args!("{what}: {error}"))
}

/// With several processors the order of events would be uncertain.
fn keep_to_one_cpu() -> io::Result<usize> {
    let cpu = sched_getcpu();
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    Ok(cpu)
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

/// Removes the directories of killed runs.
fn sweep(parent: &Path) {
    for dir in left_behind(parent) {
        for inner in ["trace", "mnt", "image"] {
            let _not_there = fs::remove_dir(dir.join(inner)).or_else(|_| fs::remove_file(dir.join(inner)));
        }
        let _not_empty = fs::remove_dir(&dir);
    }
}

/// Removes the trace instances of killed runs.
fn sweep_instances(tracefs: &Path) {
    for instance in left_behind(&tracefs.join("instances")) {
        let _in_use = fs::remove_dir(instance);
    }
}

/// Leftovers of ended runs.
fn left_behind(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let dead = |path: &PathBuf| {
        let pid = path.file_name().and_then(|name| name.to_str()?.strip_prefix(NAME)?.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    };
    entries.map(|entry| entry.path()).filter(dead).collect()
}
