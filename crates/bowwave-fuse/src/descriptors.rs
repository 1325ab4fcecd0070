//! Open files of a process, from `/proc`.

use std::fs;
use std::io;
use std::str::FromStr;

use crate::checks::is_ours;
use crate::mount_table;

/// Whether a process has an inode of one of our mounts open for writing. Two mounts whose files
/// share an inode number may be confused. With `has_ended`, a mount missing from the mount table
/// counts as ours.
///
/// # Errors
/// If the kernel denies access, as for processes of other users; `NotFound` if the process has
/// exited.
pub(crate) fn can_write(process: u32, inode: u64, has_ended: bool) -> io::Result<bool> {
    for descriptor in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        let fdinfo = match fs::read_to_string(descriptor?.path()) {
            // Closed meanwhile by another thread.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            fdinfo => fdinfo?,
        };
        let Some(open) = Open::parse(&fdinfo) else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel does not tell inode numbers"));
        };
        if open.inode == inode && open.writes && is_of_ours(process, open.mount, has_ended)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_of_ours(process: u32, mount: u64, has_ended: bool) -> io::Result<bool> {
    Ok(mount_table::find_of(process, mount)?.map_or(has_ended, |entry| is_ours(&entry.fs_type)))
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
    use std::os::unix::fs::MetadataExt as _;

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
    fn files_of_other_file_systems_do_not_count() {
        let path = std::env::temp_dir().join(format!("bowwave-descriptors-{}", std::process::id()));
        let file = fs::File::create(&path).expect("writable");
        let inode = file.metadata().expect("open").ino();
        assert!(!can_write(std::process::id(), inode, true).expect("our own"));
        fs::remove_file(&path).expect("writable");
        let gone = can_write(1 << 30, inode, false).expect_err("no process has so high a number");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
