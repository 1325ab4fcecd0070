//! Open files of a process, from `/proc`.

use std::fs;
use std::io;
use std::str::FromStr;

use crate::mount_table;

/// A file of a mount, as the kernel numbers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFile {
    /// Major and minor number of the mount's device; `None` if nothing is mounted.
    pub(crate) device: Option<(u32, u32)>,
    /// Inode number.
    pub(crate) inode: u64,
}

/// Whether a process has `file` open for writing. With `has_ended`, a mount missing from the mount
/// table of the process counts as the file's.
///
/// # Errors
/// If the kernel denies access, as for processes of other users; `NotFound` if the process has
/// exited.
pub(crate) fn can_write(process: u32, file: KernelFile, has_ended: bool) -> io::Result<bool> {
    for descriptor in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        let fdinfo = match fs::read_to_string(descriptor?.path()) {
            // Closed meanwhile by another thread.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            fdinfo => fdinfo?,
        };
        let Some(open) = Open::parse(&fdinfo) else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel does not tell inode numbers"));
        };
        if open.inode == file.inode && open.writes {
            let mount = mount_table::find_of(process, open.mount)?;
            if mount.map_or(has_ended, |mount| Some(mount.device) == file.device) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// An open file.
#[derive(Debug, PartialEq, Eq)]
struct Open {
    writes: bool,
    mount: u64,
    inode: u64,
}

impl Open {
    /// Parses a file of `fdinfo`; `None` before Linux 5.14.
    fn parse(fdinfo: &str) -> Option<Self> {
        const ACCESS: u32 = 0o3;
        let flags = u32::from_str_radix(field::<String>(fdinfo, "flags:")?.as_str(), 8).ok()?;
        Some(Self {
            writes: flags & ACCESS != 0,
            mount: field(fdinfo, "mnt_id:")?,
            inode: field(fdinfo, "ino:")?,
        })
    }
}

fn field<T: FromStr>(fdinfo: &str, name: &str) -> Option<T> {
    fdinfo.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn open_files_are_parsed() {
        let fdinfo = "pos:\t0\nflags:\t0100001\nmnt_id:\t29\nino:\t135\n";
        assert_eq!(Open::parse(fdinfo), Some(Open { writes: true, mount: 29, inode: 135 }));
        let fdinfo = fdinfo.replace("100001", "100000");
        assert_eq!(Open::parse(&fdinfo), Some(Open { writes: false, mount: 29, inode: 135 }));
        assert_eq!(Open::parse("pos:\t0\nflags:\t02\nmnt_id:\t29\n"), None, "an old kernel");
        assert_eq!(Open::parse("flags:\tx\nmnt_id:\t29\nino:\t1\n"), None);
    }

    #[test]
    fn files_of_other_mounts_do_not_count() {
        let path = std::env::temp_dir().join(format!("bowwave-descriptors-{}", std::process::id()));
        let opened = fs::File::create(&path).expect("writable");
        let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()));
        let open = Open::parse(&fdinfo.expect("readable")).expect("a kernel of these days");
        let process = std::process::id();
        let mount = mount_table::find_of(process, open.mount).expect("readable").expect("mounted");
        let own = KernelFile { device: Some(mount.device), inode: open.inode };
        assert!(can_write(process, own, false).expect("our own"));
        for device in [None, Some((mount.device.0, mount.device.1 + 1))] {
            assert!(!can_write(process, KernelFile { device, ..own }, true).expect("our own"));
        }
        fs::remove_file(&path).expect("writable");
        let exited = can_write(1 << 30, own, false).expect_err("no process has so high a number");
        assert_eq!(exited.kind(), io::ErrorKind::NotFound);
    }
}
