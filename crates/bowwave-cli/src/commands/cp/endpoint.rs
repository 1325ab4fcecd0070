//! Sources and the destination, from the arguments.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bowwave_backend::{
    Backend, Entry, EntryKind, ErrorKind, Namespace as _, Options, Writes, local_path, open_url, redacted,
};

use super::super::ls::name_of;
use super::target::display;
use crate::Failure;

/// A source.
#[derive(Debug)]
pub(super) enum Source {
    Stdin,
    Store { url: String, store: Arc<dyn Backend>, root: Box<Entry> },
}

/// The destination.
#[derive(Debug)]
pub(super) enum Destination {
    Stdout,
    Store(Arc<Tree>),
}

/// The destination directory, or a single file in it.
#[derive(Debug)]
pub(super) struct Tree {
    /// For messages.
    pub(super) url: String,
    /// `None` for a directory that a dry run does not create.
    pub(super) store: Option<Arc<dyn Backend>>,
    /// Path of the directory if it is local.
    pub(super) local: Option<PathBuf>,
    /// Path of the single destination file in the store; empty if the store's URL is the file's.
    /// `None` if the destination is a directory.
    pub(super) file: Option<PathBuf>,
    pub(super) writes: Writes,
}

impl Source {
    pub(super) fn open(url: &str, options: &Options) -> Result<Self, Failure> {
        if url == "-" {
            return Ok(Self::Stdin);
        }
        let store = open_url(url, options)?;
        let root = store.stat("".as_ref())?;
        Ok(Self::Store { url: url.to_owned(), store, root: Box::new(root) })
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Store { root, .. } if root.kind == EntryKind::Directory)
    }

    /// The source's file name, for a copy into a directory.
    pub(super) fn name(&self) -> Result<PathBuf, Failure> {
        let url = match self {
            Self::Stdin => return Err(Failure::usage("standard input has no name").try_this("DST/NAME")),
            Self::Store { url, .. } => url,
        };
        let name = PathBuf::from(name_of(url));
        if is_inside(&name) && name.components().count() == 1 {
            return Ok(name);
        }
        Err(usage!("{} has no name for a file in a directory", redacted(url)).try_this("DST/NAME"))
    }
}

/// Whether a path stays below its directory, whatever names a server sends.
pub(super) fn is_inside(path: &Path) -> bool {
    !path.as_os_str().is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

impl Destination {
    /// Opens the destination of `sources`.
    pub(super) fn open(
        url: &str,
        sources: &[Source],
        options: &Options,
        dry_run: bool,
    ) -> Result<Self, Failure> {
        let is_tree = sources.len() > 1 || sources.iter().any(Source::is_directory);
        if url == "-" {
            if is_tree {
                return Err(Failure::usage("standard output takes one file").try_this("a directory"));
            }
            return Ok(Self::Stdout);
        }
        for source in sources {
            let Source::Store { url: from, .. } = source else { continue };
            if source.is_directory() && is_within(from, url) {
                let message = format!("cannot copy {} into itself, {}", redacted(from), redacted(url));
                return Err(Failure::usage(message).try_this("another destination"));
            }
        }
        let wants_directory = is_tree || url.ends_with('/');
        let tree = match local_path(url) {
            Some(path) => Tree::local(url, &path, wants_directory, options, dry_run)?,
            None => Tree::remote(url, wants_directory, options)?,
        };
        if tree.writes == Writes::No && tree.store.is_some() {
            let message = format!("cannot write {}: the store is read-only", tree.url);
            return Err(Failure::failed(message).try_this("another destination"));
        }
        Ok(Self::Store(Arc::new(tree)))
    }
}

impl Tree {
    fn local(
        url: &str,
        path: &Path,
        wants_directory: bool,
        options: &Options,
        dry_run: bool,
    ) -> Result<Self, Failure> {
        let is_directory = path.is_dir();
        if wants_directory && path.exists() && !is_directory {
            let message = format!("{} is not a directory", path.display());
            return Err(Failure::failed(message).try_this("a directory"));
        }
        let (directory, file) = if wants_directory || is_directory {
            (path.to_owned(), None)
        } else {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let name = path.file_name().map(PathBuf::from);
            let name = name.ok_or_else(|| usage!("{url} is not a file name"))?;
            (parent.map_or_else(|| PathBuf::from("."), Path::to_owned), Some(name))
        };
        if wants_directory && !is_directory && !dry_run {
            let failed = |error| failed!("cannot create {}: {error}", directory.display());
            fs::create_dir_all(&directory).map_err(failed)?;
        }
        // Absolute: a relative path may look like a URL.
        let named = std::path::absolute(&directory).unwrap_or_else(|_| directory.clone());
        let named = named.to_str().ok_or_else(|| usage!("{url}: the name is not UTF-8"))?;
        let store = match open_url(named, options) {
            Ok(store) => Some(store),
            Err(error) if dry_run && wants_directory && error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::from(error)),
        };
        let writes = store.as_ref().map_or(Writes::Anywhere, |store| store.profile().writes);
        Ok(Self { url: directory.display().to_string(), store, local: Some(directory), file, writes })
    }

    fn remote(url: &str, wants_directory: bool, options: &Options) -> Result<Self, Failure> {
        let store = open_url(url, options)?;
        let writes = store.profile().writes;
        let is_directory = wants_directory
            || match store.stat("".as_ref()) {
                Ok(root) => root.kind == EntryKind::Directory,
                Err(error) if error.kind() == ErrorKind::NotFound => false,
                Err(error) => return Err(Failure::from(error)),
            };
        if !is_directory && writes == Writes::Anywhere {
            let message = format!("{} is not a directory", store.url());
            return Err(Failure::usage(message).try_this("the URL of a directory"));
        }
        let file = (!is_directory).then(PathBuf::new);
        Ok(Self { url: store.url().to_owned(), store: Some(store), local: None, file, writes })
    }

    /// Where in the store to write `name`: to the single destination file, or into the directory.
    pub(super) fn path(&self, name: &Path) -> PathBuf {
        self.file.clone().unwrap_or_else(|| name.to_owned())
    }

    /// A path of the store, for messages.
    pub(super) fn place(&self, path: &Path) -> String {
        display(&self.url, path)
    }
}

/// Whether `inner` is `outer` or below it.
fn is_within(outer: &str, inner: &str) -> bool {
    match (local_path(outer), local_path(inner)) {
        (Some(outer), Some(inner)) => match fs::canonicalize(&outer) {
            Ok(outer) => real(&inner).starts_with(outer),
            Err(_) => false,
        },
        (None, None) => {
            let (outer, inner) = (outer.trim_end_matches('/'), inner.trim_end_matches('/'));
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        _ => false,
    }
}

/// The real path of a name that may not exist.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match found {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_a_directory_are_inside_it() {
        for path in ["a", "a/b", "..a", "a/...", ".hidden"] {
            assert!(is_inside(Path::new(path)), "{path}");
        }
        for path in ["", "..", "../a", "a/../b", "/a", "/", "."] {
            assert!(!is_inside(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_destination_inside_the_source_is_found_out() {
        assert!(is_within("s3://b/a", "s3://b/a/c") && is_within("s3://b/a/", "s3://b/a"));
        assert!(!is_within("s3://b/a", "s3://b/ab") && !is_within("s3://b/a/c", "s3://b/a"));
        let root = std::env::temp_dir();
        let text = root.to_str().expect("UTF-8");
        assert!(is_within(text, &format!("{text}/missing/deeper")));
        assert!(is_within(text, &format!("file://{text}/x")));
        assert!(!is_within(&format!("{text}/x"), text));
        assert!(!is_within(text, "s3://b/a"));
    }
}
