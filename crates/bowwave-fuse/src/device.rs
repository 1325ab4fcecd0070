//! Mounting and unmounting: by system call if permitted, otherwise with `fusermount3`.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::checks::{FS_TYPE, fusermount, helper, no_allow_other, open_device};
use crate::error::{Error, Result};
use crate::mount_table::CONNECTIONS;

/// Mounts at `point` and returns the connection to the kernel. Without `checks` the kernel does not
/// check permissions of an open, for which it would request attributes.
pub(crate) fn mount(
    point: &Path,
    source: &str,
    (allow_other, checks): (bool, bool),
    read_only: bool,
) -> Result<OwnedFd> {
    let device: OwnedFd = open_device().map_err(|lack| Error::new(lack.to_string()))?.into();
    // 40000 is `S_IFDIR` in octal.
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if allow_other {
        data.push_str(",allow_other");
    }
    if checks {
        data.push_str(",default_permissions");
    }
    let data = CString::new(data).expect("made of numbers and words");
    // Files in a store must neither grant privileges nor open devices of this machine.
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, read_only);
    // A mount source cannot contain NUL; it is for display only.
    let source = source.replace('\0', "?");
    match rustix::mount::mount(source.as_str(), point, FS_TYPE, flags, data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(Errno::PERM | Errno::ACCESS) => mount_as_user(point, &source, allow_other, read_only),
        Err(Errno::NODEV) => Err(Error::new("the kernel has no FUSE: load it with `modprobe fuse`")),
        Err(error) => Err(Error::new(format!("{}: cannot mount: {error}", point.display()))),
    }
}

/// `fusermount3` mounts and sends the connection over a socket, which is its standard input.
fn mount_as_user(point: &Path, source: &str, allow_other: bool, read_only: bool) -> Result<OwnedFd> {
    let Some(program) = fusermount() else {
        let lack =
            helper().err().map_or_else(|| "fusermount3 is missing".to_owned(), |lack| lack.to_string());
        return Err(Error::new(format!("{}: {lack}", point.display())));
    };
    let failed = |error: &dyn std::fmt::Display| Error::new(format!("{program}: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed(&error))?;
    let source = source.replace('\\', r"\\").replace(',', r"\,");
    let access = if read_only { "ro" } else { "rw" };
    let mut options = format!("{access},nosuid,nodev,default_permissions,subtype=bowwave,fsname={source}");
    if allow_other {
        options.push_str(",allow_other");
    }
    let mut child = Command::new(program)
        .args(["-o", &options, "--"])
        .arg(point)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let received = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // Best effort: it only improves the error message.
        let _ = stderr.read_to_string(&mut said);
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    match received {
        Some(device) if status.success() => Ok(device),
        _ if said.contains("user_allow_other") => {
            Err(Error::new(format!("{}: {}", point.display(), no_allow_other())))
        }
        _ => Err(Error::new(format!("{}: {}", point.display(), said.trim().replace('\n', "; ")))),
    }
}

fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    loop {
        match rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// How hard to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Fail if the mount is in use.
    IfIdle,
    /// Immediately: programs that use the mount get errors.
    Always,
}

/// Result of an unmount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unmounted {
    /// Unmounted.
    Done,
    /// The mount is in use.
    Busy,
}

/// Unmounts `point` with device number `device`.
pub(crate) fn unmount(point: &Path, device: (u32, u32), force: Force) -> Result<Unmounted> {
    let flags = match force {
        Force::IfIdle => UnmountFlags::NOFOLLOW,
        Force::Always => {
            abort(device);
            UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH
        }
    };
    match rustix::mount::unmount(point, flags) {
        Ok(()) => Ok(Unmounted::Done),
        Err(Errno::BUSY) => Ok(Unmounted::Busy),
        Err(Errno::PERM) => unmount_as_user(point, force),
        Err(error) => Err(Error::new(format!("{}: cannot unmount: {error}", point.display()))),
    }
}

fn unmount_as_user(point: &Path, force: Force) -> Result<Unmounted> {
    let shown = point.display();
    let Some(program) = fusermount() else {
        return Err(Error::new(format!(
            "{shown}: unmounting needs root or fusermount3: install it with `apt install fuse3`"
        )));
    };
    let flag = if force == Force::Always { "-uz" } else { "-u" };
    let output = Command::new(program)
        .args([flag, "--"])
        .arg(point)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::new(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(Unmounted::Done);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("busy") {
        return Ok(Unmounted::Busy);
    }
    Err(Error::new(format!("{shown}: {}", said.trim().replace('\n', "; "))))
}

/// Fails requests in flight. Without the control file system, the forced unmount or the end of the
/// process does.
fn abort((_, minor): (u32, u32)) {
    let _ = fs::write(format!("{CONNECTIONS}/{minor}/abort"), "1");
}

/// Sets the kernel's readahead window of a mount, which needs root. Returns the effective window in
/// bytes; `None` if it cannot be read.
pub(crate) fn set_readahead((major, minor): (u32, u32), bytes: u32) -> Option<u32> {
    let mut path = OsString::from("/sys/class/bdi/");
    path.push(format!("{major}:{minor}/read_ahead_kb"));
    let _ = fs::write(&path, (bytes / 1024).to_string());
    let kib: u32 = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
