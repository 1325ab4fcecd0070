//! Checks before mounting whether a mount is possible.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::mount_table;

/// Checks that `dir` can be a mount point, and returns its absolute form.
pub(crate) fn mount_point(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    let metadata = match fs::metadata(dir) {
        Ok(metadata) => metadata,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => {
            return Err(Error::new(format!(
                "{shown}: a mount whose process has died is in the way: \
                 clear it with `bowwave umount {shown}` or `fusermount3 -u {shown}`"
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Error::new(format!(
                "{shown}: the mount point does not exist: make it with `mkdir -p {shown}`"
            )));
        }
        Err(error) => return Err(Error::new(format!("{shown}: cannot look at the mount point: {error}"))),
    };
    if !metadata.is_dir() {
        return Err(Error::new(format!(
            "{shown}: the mount point is not a directory: choose an empty directory"
        )));
    }
    let point = mount_table::absolute(dir).map_err(|error| Error::new(format!("{shown}: {error}")))?;
    if let Some(mount) = mount_table::find(&point).map_err(|error| Error::new(format!("{shown}: {error}")))? {
        let remedy = if is_ours(&mount.fs_type) {
            format!("unmount it with `bowwave umount {shown}`")
        } else {
            "choose another directory".to_owned()
        };
        let fs_type = mount.fs_type.display();
        return Err(Error::new(format!("{shown}: something is mounted there already ({fs_type}): {remedy}")));
    }
    match fs::read_dir(&point).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(point),
        Ok(false) => Err(Error::new(format!(
            "{shown}: the mount point is not empty: choose an empty directory, for what is in it would be hidden"
        ))),
        Err(error) => Err(Error::new(format!("{shown}: cannot read the mount point: {error}"))),
    }
}

/// A requirement for mounts that this machine or this user does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The missing requirement.
    pub cause: String,
    /// Introduction to the command.
    advice: &'static str,
    /// The command that provides it.
    pub command: &'static str,
    /// The remedy inside a container.
    container: &'static str,
}

/// Cause and remedy in one line.
impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} `{}`", self.cause, self.advice, self.command)?;
        if self.container.is_empty() {
            Ok(())
        } else {
            write!(f, "; in a container add `{}`", self.container)
        }
    }
}

/// Checks whether this process can mount.
///
/// # Errors
/// The cause and the remedy in one line, for programs that continue without a mount.
pub fn is_available() -> std::result::Result<(), String> {
    device().map_err(|lack| lack.to_string())?;
    helper().map(drop).map_err(|lack| lack.to_string())
}

/// Checks whether this process can open the FUSE device.
///
/// # Errors
/// The missing requirement.
pub fn device() -> std::result::Result<(), Lack> {
    open_device().map(drop)
}

pub(crate) fn open_device() -> std::result::Result<File, Lack> {
    OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| {
        let (cause, advice, command) = match error.kind() {
            ErrorKind::PermissionDenied => {
                (format!("{DEVICE}: no access"), "run as root, or allow it with", "chmod 666 /dev/fuse")
            }
            ErrorKind::NotFound => (format!("{DEVICE} is missing"), "load it with", "modprobe fuse"),
            _ => (format!("{DEVICE}: {error}"), "load FUSE with", "modprobe fuse"),
        };
        Lack { cause, advice, command, container: "--device /dev/fuse --cap-add SYS_ADMIN" }
    })
}

/// Returns how this process can mount: by itself, or through the setuid helper.
///
/// # Errors
/// The missing requirement.
pub fn helper() -> std::result::Result<&'static str, Lack> {
    let ours = may_mount().then_some("by this process");
    ours.or_else(fusermount).ok_or_else(|| Lack {
        cause: "mounting needs root or fusermount3".to_owned(),
        advice: "install it with",
        command: "apt install fuse3",
        container: "--cap-add SYS_ADMIN",
    })
}

/// Checks whether users other than root may mount with `allow_other`.
///
/// # Errors
/// The missing requirement.
pub fn allow_other() -> std::result::Result<(), Lack> {
    let config = fs::read_to_string(CONFIG).unwrap_or_default();
    if config.lines().any(|line| line.trim() == "user_allow_other") { Ok(()) } else { Err(no_allow_other()) }
}

pub(crate) fn no_allow_other() -> Lack {
    Lack {
        cause: "other users are not allowed".to_owned(),
        advice: "add a line `user_allow_other` to /etc/fuse.conf with",
        command: "echo user_allow_other | sudo tee -a /etc/fuse.conf",
        container: "",
    }
}

/// Whether a file system type in the mount table is bowwave's.
pub(crate) fn is_ours(fs_type: &std::ffi::OsStr) -> bool {
    fs_type == FS_TYPE
}

/// The setuid helper that mounts for users, if installed.
pub(crate) fn fusermount() -> Option<&'static str> {
    ["fusermount3", "fusermount"].into_iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// Whether this process has `CAP_SYS_ADMIN`.
fn may_mount() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities >> CAP_SYS_ADMIN & 1 == 1)
}

/// Settings of `fusermount3`.
const CONFIG: &str = "/etc/fuse.conf";

/// The FUSE device.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// The file system type that `mount` shows.
pub(crate) const FS_TYPE: &str = "fuse.bowwave";
