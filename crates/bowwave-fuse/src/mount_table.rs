//! The kernel's mount table, as this process sees it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::checks::is_ours;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Mount ID in the table.
    pub(crate) id: u64,
    /// Major and minor number of the device.
    pub(crate) device: (u32, u32),
    /// Mount point.
    pub(crate) point: PathBuf,
    /// File system type, such as `fuse.bowwave`.
    pub(crate) fs_type: OsString,
    /// Mount source, such as a URL.
    pub(crate) source: OsString,
    /// The user who owns a FUSE mount.
    pub(crate) user: Option<u32>,
}

/// A bowwave mount in the mount table, alive or dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Mount point.
    pub point: PathBuf,
    /// The URL of the mounted store, without secrets.
    pub source: String,
    /// The user who mounted it.
    pub user: u32,
    /// Major and minor number of its device, unique while it is mounted.
    pub device: (u32, u32),
    /// Mount ID in the table.
    id: u64,
}

impl Mounted {
    /// Marks that the file system keeps after this mount of it ends: the IDs of its mounts at other
    /// directories, and the inode of its control directory. The control directory exists while any
    /// mount namespace has a mount of it. The kernel reuses device numbers at once, but these
    /// numbers not while the file system is mounted.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let entries = table.split(|&byte| byte == b'\n').filter_map(parse);
        let others = entries.filter(|entry| entry.device == self.device && entry.id != self.id);
        let control = fs::metadata(format!("{CONNECTIONS}/{}", self.device.1));
        let control = control.ok().map(|found| Mark::Control(found.ino()));
        others.map(|entry| Mark::Mount(entry.id)).chain(control).collect()
    }
}

/// See [`Mounted::marks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Mount(u64),
    Control(u64),
}

impl From<MountEntry> for Mounted {
    fn from(entry: MountEntry) -> Self {
        Self {
            point: entry.point,
            source: entry.source.to_string_lossy().into_owned(),
            user: entry.user.unwrap_or(0),
            device: entry.device,
            id: entry.id,
        }
    }
}

/// The kernel's control file system: a directory for each connection, by the minor device number.
pub(crate) const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The visible bowwave mounts of all users.
///
/// # Errors
/// If the table cannot be read.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let entries = table.split(|&byte| byte == b'\n').filter_map(parse);
    Ok(entries.filter(|entry| is_ours(&entry.fs_type)).map(Mounted::from).collect())
}

/// The topmost mount at `point`, which must be absolute and without symbolic links.
pub(crate) fn find(point: &Path) -> io::Result<Option<MountEntry>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).rfind(|entry| entry.point == point))
}

/// The mount with this ID in the mount namespace of `process`.
pub(crate) fn find_of(process: u32, id: u64) -> io::Result<Option<MountEntry>> {
    let table = fs::read(format!("/proc/{process}/mountinfo"))?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).find(|entry| entry.id == id))
}

/// Parses a line such as `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let point = unescape(fields.nth(1)?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (fs_type, source) = (fields.next()?, fields.next()?);
    let options = std::str::from_utf8(fields.next().unwrap_or_default()).unwrap_or_default();
    let user = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    Some(MountEntry {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        point: PathBuf::from(OsString::from_vec(point)),
        fs_type: OsString::from_vec(unescape(fs_type)),
        source: OsString::from_vec(unescape(source)),
        user,
    })
}

/// Decodes the kernel's `\ooo` escapes for blanks, newlines and backslashes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = |digits: &[u8]| {
            digits.iter().try_fold(0u32, |value, digit| {
                (b'0'..=b'7').contains(digit).then(|| value * 8 + u32::from(digit - b'0'))
            })
        };
        match tail.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(value) => {
                out.push((value & 0xff) as u8);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// The absolute form of a mount point, without symbolic links, as the table has it. Works for dead
/// mounts.
pub fn absolute(point: &Path) -> io::Result<PathBuf> {
    match point.canonicalize() {
        Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::NOTCONN) => {
            // The mount no longer responds: resolve its parent only.
            let point: PathBuf = std::path::absolute(point)?.components().collect();
            match (point.parent(), point.file_name()) {
                (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
                _ => Err(error),
            }
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lines_are_parsed() {
        let line = br"71 28 0:45 / /tmp/a\040b\134 ro,nosuid shared:5 master:1 - fuse.bowwave file:///x ro,user_id=0";
        let want = MountEntry {
            id: 71,
            device: (0, 45),
            point: PathBuf::from(r"/tmp/a b\"),
            fs_type: "fuse.bowwave".into(),
            source: "file:///x".into(),
            user: Some(0),
        };
        assert_eq!(parse(line), Some(want));
    }

    #[test]
    fn broken_lines_are_skipped() {
        for line in
            [&b""[..], b"71 28", b"71 28 x:y / /tmp rw - t s o", b"71 28 0:1 / /tmp rw", b"71 28 0:1 / /a -"]
        {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescape(br"\9\04"), br"\9\04");
    }

    #[test]
    fn the_root_is_always_mounted() {
        assert!(find(Path::new("/")).expect("the table can be read").is_some());
    }
}
