//! The directory of sockets, accessible to its user only.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use bowwave_engine::backend::descriptors::own;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, linkat, unlinkat};

/// A socket directory of one user; verified to be inaccessible to others.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: OwnedFd,
    /// Its path when it was opened.
    pub(crate) path: PathBuf,
    /// Its owner.
    pub(crate) user: u32,
}

impl Directory {
    /// The directory for sockets of this user, created if needed.
    pub(crate) fn own() -> io::Result<Self> {
        let mut refusals = Vec::new();
        for path in candidates() {
            // Its parent must exist: a runtime directory is created by the system.
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    refusals.push(format!("{}: {error}", path.display()));
                    continue;
                }
                _ => {}
            }
            match Self::open(&path, own_user()) {
                Ok(directory) => return Ok(directory),
                Err(error) => refusals.push(format!("{}: {error}", path.display())),
            }
        }
        Err(io::Error::other(refusals.join("; ")))
    }

    /// All accessible socket directories: this user's, and for root those of all users.
    pub(crate) fn all() -> Vec<Self> {
        let user = own_user();
        let mut directories: Vec<_> = candidates().into_iter().map(|path| (path, user)).collect();
        if user == 0 {
            let named = |directory: &str, number: &dyn Fn(&str) -> Option<u32>, under: &str| {
                let entries = fs::read_dir(directory).into_iter().flatten().flatten();
                let of = |entry: fs::DirEntry| {
                    Some((entry.path().join(under), number(entry.file_name().to_str()?)?))
                };
                entries.filter_map(of).collect::<Vec<_>>()
            };
            directories.extend(named("/run/user", &|name| name.parse().ok(), "bowwave"));
            directories.extend(named("/tmp", &|name| name.strip_prefix("bowwave-")?.parse().ok(), ""));
        }
        directories.sort();
        directories.dedup();
        directories.into_iter().filter_map(|(path, user)| Self::open(&path, user).ok()).collect()
    }

    fn open(path: &Path, user: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // With a trailing slash, O_NOFOLLOW would follow the link.
        let path = path.components().collect::<PathBuf>();
        let handle = own(|| rustix::fs::open(&path, flags, Mode::empty()))?;
        let stat = fstat(&handle)?;
        if stat.st_uid != user {
            return Err(io::Error::other(format!("it belongs to user {}, not {user}", stat.st_uid)));
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(io::Error::other("other users have access to it (chmod 700 corrects that)"));
        }
        Ok(Self { handle, path, user })
    }

    /// A path to `name` that fits a socket address, and stays valid if the directory is replaced.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }

    /// The names of its sockets.
    pub(crate) fn sockets(&self) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.handle) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| Name::parse(name).is_some()).collect()
    }

    /// Renames a socket unless there is one of the new name. It links and unlinks, because some
    /// file systems lack `RENAME_NOREPLACE`.
    pub(crate) fn publish(&self, draft: &str, name: &str) -> io::Result<()> {
        linkat(&self.handle, draft, &self.handle, name, AtFlags::empty())?;
        self.remove(draft);
        Ok(())
    }

    /// Removes a socket.
    pub(crate) fn remove(&self, name: &str) {
        // A later client removes a socket without a listener.
        let _left = unlinkat(&self.handle, name, AtFlags::empty());
    }

    /// Removes a socket, and the directory if it was the last one.
    pub(crate) fn leave(&self, name: &str) {
        self.remove(name);
        let _holds_others = fs::remove_dir(&self.path);
    }
}

/// A parsed socket name: `mount-PID.sock`; `program-PID-2.sock` is a process's third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) is_mount: bool,
    pub(crate) process: u32,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (kind, rest) = name.strip_suffix(".sock")?.split_once('-')?;
        let is_mount = match kind {
            "mount" => true,
            "program" => false,
            _ => return None,
        };
        let process = rest.split('-').next()?.parse().ok()?;
        Some(Self { is_mount, process })
    }

    /// The name of the process's socket number `copy`.
    pub(crate) fn text(self, copy: u32) -> String {
        let kind = if self.is_mount { "mount" } else { "program" };
        match copy {
            0 => format!("{kind}-{}.sock", self.process),
            _ => format!("{kind}-{}-{copy}.sock", self.process),
        }
    }
}

/// The directory of this user's sockets, created if needed.
///
/// # Errors
/// Each place that was tried, with the reason against it.
pub fn own_directory() -> io::Result<String> {
    Directory::own().map(|directory| directory.path.display().to_string())
}

/// The effective user id.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Candidate directories for sockets of this user, best first.
fn candidates() -> Vec<PathBuf> {
    let user = own_user();
    let mut directories = Vec::new();
    let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    directories.extend(named.map(|path| path.join("bowwave")));
    directories.push(match user {
        0 => PathBuf::from("/run/bowwave"),
        // For sessions without the variable, such as cron's.
        _ => PathBuf::from(format!("/run/user/{user}/bowwave")),
    });
    directories.push(PathBuf::from(format!("/tmp/bowwave-{user}")));
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sockets_have_kind_process_and_number() {
        for (is_mount, process, copy) in [(true, 7, 0), (false, 4_194_304, 0), (false, 1, 15)] {
            let name = Name { is_mount, process };
            assert_eq!(Name::parse(&name.text(copy)), Some(name));
        }
        for other in ["mount-.sock", "program-x.sock", "heap-7.sock", "mount-7", ".7-1", ""] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
