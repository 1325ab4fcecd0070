//! Preloaded libraries: next to this executable, or embedded copies in a user directory.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{
    Mode, OFlags, Stat, StatVfsMountFlags, fchmod, fstat, fstatvfs, openat, renameat, unlinkat,
};
use sha2::{Digest as _, Sha256};

use crate::{Failure, Libraries};

/// The libraries passed to [`embed`].
static EMBEDDED: OnceLock<Libraries> = OnceLock::new();

/// Registers the embedded libraries. Only the first call counts.
pub(crate) fn embed(libraries: Libraries) {
    let _first = EMBEDDED.set(libraries);
}

/// A library that is loaded into programs.
pub(super) struct Library {
    /// File name.
    pub(super) name: &'static str,
    /// Environment variable with the path of the library to use.
    pub(super) variable: &'static str,
    /// Bytes of the embedded copy.
    pub(super) embedded: fn(&Libraries) -> &'static [u8],
}

impl Library {
    /// Finds the library of this program's version: from the environment, where cargo builds it,
    /// next to the program, or where it is installed; else a copy of the embedded one.
    pub(super) fn find(&self) -> Result<PathBuf, Failure> {
        let path = self.locate()?;
        self.check(&path)?;
        if is_separator_in(&path) {
            let message =
                format!("{}: the dynamic linker takes no path with a space or colon", path.display());
            return Err(
                Failure::failed(message).try_this(format!("a copy elsewhere, named by {}", self.variable))
            );
        }
        Ok(path)
    }

    fn locate(&self) -> Result<PathBuf, Failure> {
        let Self { name, variable, .. } = self;
        if let Some(path) = env::var_os(variable) {
            return fs::canonicalize(&path)
                .map_err(|error| failed!("{variable}={}: {error}", Path::new(&path).display()));
        }
        let failed = |error: io::Error| failed!("cannot tell where this program is: {error}");
        let own = env::current_exe().map_err(failed)?;
        let directory = own.parent().unwrap_or_else(|| Path::new("/"));
        // Cargo updates `deps` with the program; a library next to it may be from an earlier build.
        let places = ["deps", "", "../lib/bowwave", "../lib"].map(|place| directory.join(place).join(name));
        if let Some(found) = places.into_iter().find_map(|place| fs::canonicalize(place).ok()) {
            return Ok(found);
        }
        let missing = || {
            failed!("{name} is missing: it belongs beside {}", own.display())
                .try_this(format!("{variable}=PATH"))
        };
        self.unpack((self.embedded)(EMBEDDED.get().ok_or_else(missing)?))
    }

    /// Rejects a library of another version, which would misread the environment.
    fn check(&self, path: &Path) -> Result<(), Failure> {
        let found = File::open(path).ok().and_then(|file| version(&file));
        let own = env!("CARGO_PKG_VERSION");
        if found.as_deref() == Some(own.as_bytes()) {
            return Ok(());
        }
        let shown = path.display();
        let message = match found {
            Some(other) => {
                format!("{shown} is of bowwave {}, and this is bowwave {own}", other.escape_ascii())
            }
            None => format!("{shown} is not the {} of bowwave {own}", self.name),
        };
        Err(Failure::failed(message).try_this("to remove it, or to install both again"))
    }

    /// Writes these bytes to a file that only this user can change, in the first usable directory.
    fn unpack(&self, bytes: &[u8]) -> Result<PathBuf, Failure> {
        let mut refusals = Vec::new();
        for directory in directories() {
            match self.unpack_into(&directory, bytes) {
                Ok(path) => return Ok(path),
                Err(error) => refusals.push(format!("{}: {error}", directory.display())),
            }
        }
        if refusals.is_empty() {
            refusals.push("neither XDG_CACHE_HOME, HOME nor XDG_RUNTIME_DIR names a directory".to_owned());
        }
        let name = self.name;
        let message = format!("there is no directory to put {name} in: {}", refusals.join("; "));
        Err(Failure::failed(message).try_this("XDG_CACHE_HOME=DIR, a directory of yours"))
    }

    fn unpack_into(&self, directory: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        if is_separator_in(directory) {
            return Err(io::Error::other("the dynamic linker takes no path with a space or colon"));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = rustix::fs::open(directory, flags | OFlags::DIRECTORY, Mode::empty())?;
        if !is_private(&fstat(&handle)?) {
            return Err(io::Error::other("another user owns it or may write to it"));
        }
        if fstatvfs(&handle)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(io::Error::other("it is mounted without permission to execute (noexec)"));
        }
        // The name contains a digest, so that versions do not collide and no file is rewritten.
        let digest = Sha256::digest(bytes);
        let hash: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{hash}-{}", self.name);
        let known = openat(&handle, &name, flags, Mode::empty()).ok().and_then(|file| fstat(&file).ok());
        if known.is_some_and(|stat| is_private(&stat) && stat.st_size.unsigned_abs() == bytes.len() as u64) {
            return Ok(directory.join(name));
        }
        let part = format!(".{name}.{}", std::process::id());
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // Leftover of a process with the same number that did not finish.
        let _stale = unlinkat(&handle, &part, rustix::fs::AtFlags::empty());
        let mut file = File::from(openat(&handle, &part, create, Mode::from_raw_mode(0o600))?);
        let written = file.write_all(bytes).and_then(|()| {
            fchmod(file.as_fd(), Mode::from_raw_mode(0o500))?;
            file.sync_data()?;
            Ok(renameat(&handle, &part, &handle, &name)?)
        });
        if let Err(error) = written {
            let _left = unlinkat(&handle, &part, rustix::fs::AtFlags::empty());
            return Err(error);
        }
        Ok(directory.join(name))
    }
}

/// Directories for a copy, best first.
fn directories() -> impl Iterator<Item = PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let named = move |name: &str| env::var_os(name).and_then(absolute);
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    // The last one is in memory and removed at logout.
    [cache, named("XDG_RUNTIME_DIR")].into_iter().flatten().map(|directory| directory.join("bowwave"))
}

/// Whether only this user and root can change it.
fn is_private(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0
}

/// Whether `LD_PRELOAD` would split the path.
fn is_separator_in(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte))
}

/// The version in a library's own section; from the ELF header and section table (elf(5)).
fn version(file: &File) -> Option<Vec<u8>> {
    let read = |at: u64, len: u64| {
        let mut bytes = vec![0; usize::try_from(len).ok().filter(|&len| len <= SECTION_MAX)?];
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    };
    let word = |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |bytes: &[u8], at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let head = read(0, 64)?;
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (table, size, count, names) =
        (word(&head, 40)?, u64::from(half(&head, 58)?), half(&head, 60)?, half(&head, 62)?);
    let section = |index: u16| read(table.checked_add(u64::from(index) * size)?, 64);
    let content = |section: &[u8]| read(word(section, 24)?, word(section, 32)?);
    let names = content(&section(names)?)?;
    (0..count).find_map(|index| {
        let section = section(index)?;
        let name = u32::from_ne_bytes(section[..4].try_into().ok()?) as usize;
        if names.get(name..)?.starts_with(b".bowwave_version\0") { content(&section) } else { None }
    })
}

/// Maximum bytes to read of a section: section names take less than 1 KiB.
const SECTION_MAX: usize = 1 << 20;
