//! Settings that outlive a mount: a file for each mount point, which the next mount there applies.
//!
//! Lines of `KEY VALUE`, in `$XDG_CONFIG_HOME/bowwave/settings` (`~/.config/bowwave/settings`).

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::Failure;

/// The settings of the mount point `dir`, in order of key.
pub(crate) fn load(dir: &Path) -> io::Result<Vec<(String, String)>> {
    let Some(path) = path_of(dir) else { return Ok(Vec::new()) };
    match fs::read_to_string(path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Stores a setting of the mount point `dir`; `None` removes it.
pub(crate) fn store(dir: &Path, key: &str, value: Option<&str>) -> Result<(), Failure> {
    let Some(path) = path_of(dir) else {
        return Err(failed!("neither XDG_CONFIG_HOME nor HOME is set: there is no place for settings"));
    };
    let failed = |error: io::Error| failed!("cannot store the setting in {}: {error}", path.display());
    let directory = path.parent().expect("it has a directory");
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    // Held to the end: another command would read the file before this one replaces it, and then
    // replace it without this setting.
    let lock = File::open(directory).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut settings = load(dir).map_err(failed)?;
    settings.retain(|(known, _)| known != key);
    settings.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    settings.sort();
    if settings.is_empty() {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        };
    }
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    for (key, value) in settings {
        writeln!(file, "{key} {value}").map_err(failed)?;
    }
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn parse(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(' '));
    pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

/// The file of a mount point; `None` without a home directory.
fn path_of(dir: &Path) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join("bowwave/settings").join(file_name(dir)))
}

/// A path as one file name: bytes that are not letters, digits, `-`, `_` or `.` become `%` and two
/// hexadecimal digits.
fn file_name(dir: &Path) -> String {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    percent_encode(dir.as_os_str().as_bytes(), ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_mount_points_differ() {
        let names =
            ["/mnt/data", "/mnt%2Fdata", "/mnt-data", "/mnt/data/"].map(|dir| file_name(Path::new(dir)));
        assert_eq!(names[0], "%2Fmnt%2Fdata");
        for (at, name) in names.iter().enumerate() {
            assert!(!name.contains('/') && !names[..at].contains(name), "{names:?}");
        }
    }

    #[test]
    fn lines_are_a_key_and_a_value() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let text = "ra_pages 4MiB\nlog info,store=debug\n\nodd\n";
        assert_eq!(parse(text), [pair("ra_pages", "4MiB"), pair("log", "info,store=debug")]);
    }
}
