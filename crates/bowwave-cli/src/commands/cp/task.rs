//! Walks the sources; each file is a task.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::SystemTime;

use bowwave_backend::{Backend, Entry, EntryKind, ErrorKind, Identity, Namespace as _, Object, Writes};
use bowwave_core::network::RetryLimits;

use super::endpoint::{Destination, Source, Tree, is_inside};
use super::part::{Before, PartFile, Version, is_part_name};
use super::shared::Shared;
use super::target::{CHUNK_BYTES, Finish, Ordered, Target, Upload, display};
use super::transfer::{Input, transfer};
use crate::Failure;
use crate::output::{self, Output};

/// A file to copy.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) from: From,
    /// Its name in the destination.
    pub(super) name: PathBuf,
}

/// Source of a file.
#[derive(Debug)]
pub(super) enum From {
    Stdin,
    Store { store: Arc<dyn Backend>, path: PathBuf, entry: Box<Entry> },
}

impl Task {
    /// The source's name, for messages.
    pub(super) fn label(&self) -> String {
        match &self.from {
            From::Stdin => "standard input".to_owned(),
            From::Store { store, path, .. } => display(store.url(), path),
        }
    }

    /// Prints what a copy would do.
    pub(super) fn show(
        &self,
        shared: &Shared<'_>,
        destination: &Destination,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let to = match destination {
            Destination::Stdout => "standard output".to_owned(),
            Destination::Store(tree) => tree.place(&tree.path(&self.name)),
        };
        match self.is_skipped(shared, destination) {
            Ok(false) => {
                output.line(format_args!("{} -> {}", output::plain(&self.label()), output::plain(&to)))
            }
            Ok(true) => Ok(()),
            Err(error) => {
                shared.failed(self.label(), Failure::from(error));
                Ok(())
            }
        }
    }
}

/// Walks the sources; sends a task for each file, and creates directories.
pub(super) fn walk(
    shared: &Shared<'_>,
    sources: Vec<Source>,
    destination: &Destination,
    tasks: &SyncSender<Task>,
) {
    let is_one = sources.len() == 1;
    for source in sources {
        let walked = match (&source, destination) {
            (Source::Store { store, root, .. }, Destination::Store(tree)) if source.is_directory() => {
                debug_assert_eq!(root.kind, EntryKind::Directory);
                let below = if is_one { Ok(PathBuf::new()) } else { source.name() };
                below.map(|below| Walk { shared, store, tree, below, tasks, empty: None }.run())
            }
            _ => one(&source, destination).map(|task| {
                if let From::Store { entry, .. } = &task.from {
                    shared.more(entry.size);
                }
                // Without receivers the copy has ended.
                tasks.send(task).ok();
            }),
        };
        if let Err(failure) = walked {
            let name = match &source {
                Source::Stdin => "standard input".to_owned(),
                Source::Store { store, .. } => store.url().to_owned(),
            };
            shared.failed(name, failure);
        }
    }
}

/// The task of a single-file source.
fn one(source: &Source, destination: &Destination) -> Result<Task, Failure> {
    let name = match destination {
        Destination::Stdout => PathBuf::new(),
        Destination::Store(tree) if tree.file.is_some() => PathBuf::new(),
        Destination::Store(_) => source.name()?,
    };
    let from = match source {
        Source::Stdin => From::Stdin,
        Source::Store { store, root, .. } => {
            From::Store { store: Arc::clone(store), path: PathBuf::new(), entry: root.clone() }
        }
    };
    Ok(Task { from, name })
}

/// The walk of one source.
struct Walk<'a> {
    shared: &'a Shared<'a>,
    store: &'a Arc<dyn Backend>,
    tree: &'a Tree,
    /// The destination directory of the source's files.
    below: PathBuf,
    tasks: &'a SyncSender<Task>,
    /// A directory without entries so far, for stores whose directories are object prefixes.
    empty: Option<PathBuf>,
}

impl Walk<'_> {
    fn run(mut self) {
        let below = self.below.clone();
        self.directory(&below);
        let store = Arc::clone(self.store);
        let walked = store.walk("".as_ref(), true, &mut |path, found| {
            if self.shared.interrupt.is_set() {
                return ControlFlow::Break(());
            }
            match found {
                Ok(entry) => self.found(path, entry),
                Err(error) => {
                    self.shared.failed(display(store.url(), path), Failure::from(error));
                    ControlFlow::Continue(())
                }
            }
        });
        self.leave(None);
        match walked {
            Ok(0) => {}
            Ok(names) => {
                let message = format!("{names} names are no paths of files and are not copied");
                self.shared.failed(store.url(), Failure::failed(message));
            }
            Err(error) => self.shared.failed(store.url(), Failure::from(error)),
        }
    }

    fn found(&mut self, path: &Path, entry: Entry) -> ControlFlow<()> {
        let label = || display(self.store.url(), path);
        if !is_inside(path) {
            self.shared.failed(label(), Failure::failed("the name leads out of the directory"));
            return ControlFlow::Continue(());
        }
        self.leave(Some(path));
        match entry.kind {
            EntryKind::Directory => {
                let directory = self.below.join(path);
                self.directory(&directory);
            }
            // Skips incomplete copies.
            EntryKind::File if path.file_name().is_some_and(is_part_name) => {}
            EntryKind::File | EntryKind::Link => {
                if entry.kind == EntryKind::File {
                    self.shared.more(entry.size);
                }
                let from = From::Store {
                    store: Arc::clone(self.store),
                    path: path.to_owned(),
                    entry: Box::new(entry),
                };
                if self.tasks.send(Task { from, name: self.below.join(path) }).is_err() {
                    return ControlFlow::Break(());
                }
            }
            EntryKind::Fifo | EntryKind::Socket | EntryKind::CharDevice | EntryKind::BlockDevice => {
                self.shared.failed(label(), Failure::failed("is a special file and has no bytes to copy"));
            }
        }
        ControlFlow::Continue(())
    }

    /// Creates a directory in the destination; in an object store only if it has no entries.
    fn directory(&mut self, path: &Path) {
        match (self.tree.writes, &self.tree.store) {
            _ if self.shared.args.dry_run => {}
            (Writes::Anywhere, Some(store)) => {
                if let Err(error) = self.shared.make_directories(store.as_ref(), path) {
                    self.shared.failed(self.tree.place(path), Failure::from(error));
                }
            }
            (Writes::Whole, _) if !path.as_os_str().is_empty() => self.empty = Some(path.to_owned()),
            _ => {}
        }
    }

    /// The walk continues at `next`: creates the previous directory if it was empty.
    fn leave(&mut self, next: Option<&Path>) {
        let Some(directory) = self.empty.take() else { return };
        if next.is_some_and(|next| self.below.join(next).starts_with(&directory)) {
            return;
        }
        if self.shared.interrupt.is_set() {
            return;
        }
        let Some(store) = &self.tree.store else { return };
        let created = match store.create_directory(&directory, 0, None) {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            // Its parent is created with the first file copied into it, and none is complete yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.shared.make_directories(store.as_ref(), &directory)
            }
            created => created,
        };
        if let Err(error) = created {
            self.shared.failed(self.tree.place(&directory), Failure::from(error));
        }
    }
}

/// Result of a task.
enum Outcome {
    Copied {
        bytes: u64,
        resumed: u64,
    },
    Skipped,
    /// Not copied, but the partial copy can be resumed.
    Stopped {
        failure: Failure,
        resumable: bool,
    },
}

impl Task {
    /// Copies the file and records the result in `shared`.
    pub(super) fn run(self, shared: &Shared<'_>, destination: &Destination) {
        if shared.interrupt.is_set() {
            return;
        }
        let outcome = self.copy(shared, destination);
        let mut tally = shared.tally.lock();
        match outcome {
            Ok(Outcome::Copied { bytes, resumed }) => {
                tally.files += 1;
                tally.bytes += bytes;
                tally.bytes_resumed += resumed;
            }
            Ok(Outcome::Skipped) => tally.skipped += 1,
            Ok(Outcome::Stopped { failure, resumable }) => {
                tally.resumable += u64::from(resumable);
                drop(tally);
                // An interrupt is reported once.
                if !shared.interrupt.is_set() {
                    shared.failed(self.label(), failure);
                }
            }
            Err(failure) => {
                drop(tally);
                shared.failed(self.label(), failure);
            }
        }
    }

    /// Whether the options skip the file.
    pub(super) fn is_skipped(
        &self,
        shared: &Shared<'_>,
        destination: &Destination,
    ) -> bowwave_backend::Result<bool> {
        let Destination::Store(tree) = destination else { return Ok(false) };
        let Some(there) = self.there(shared, tree)? else { return Ok(false) };
        Ok(self.is_current(shared, &there))
    }

    fn is_current(&self, shared: &Shared<'_>, there: &Entry) -> bool {
        let From::Store { entry, .. } = &self.from else { return shared.args.no_clobber };
        let seconds = |time: Option<SystemTime>| {
            time?.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
        };
        let is_recent = matches!(
            (seconds(entry.modified), seconds(there.modified)),
            (Some(source), Some(copy)) if copy >= source
        );
        let is_same = there.kind == EntryKind::File && there.size == entry.size && is_recent;
        shared.args.no_clobber || (shared.args.update && is_same)
    }

    /// The existing entry of that name in the destination; looked up only where it matters.
    fn there(&self, shared: &Shared<'_>, tree: &Tree) -> bowwave_backend::Result<Option<Entry>> {
        let matters = tree.writes == Writes::Anywhere || shared.args.update || shared.args.no_clobber;
        let Some(store) = tree.store.as_ref().filter(|_| matters) else { return Ok(None) };
        match store.stat(&tree.path(&self.name)) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn copy(&self, shared: &Shared<'_>, destination: &Destination) -> Result<Outcome, Failure> {
        let failed = |error: bowwave_backend::Error| Failure::from(error);
        let Destination::Store(tree) = destination else { return self.to_stdout(shared) };
        let Some(store) = &tree.store else { return Ok(Outcome::Skipped) };
        let to = tree.path(&self.name);
        let there = self.there(shared, tree).map_err(failed)?;
        if let Some(there) = &there {
            if there.kind == EntryKind::Directory {
                let message = format!("{}: is a directory", tree.place(&to));
                return Err(Failure::failed(message).try_this("another destination"));
            }
            if self.is_current(shared, there) {
                return Ok(Outcome::Skipped);
            }
        }
        if let From::Store { store: from, path, entry } = &self.from
            && entry.kind == EntryKind::Link
            && tree.writes == Writes::Anywhere
        {
            return link(shared, (from.as_ref(), path), (store.as_ref(), &to), there.is_some())
                .map_err(failed);
        }
        let opened = self.open(shared)?;
        if let (Some(opened), Some(there)) = (&opened, &there) {
            opened.refuse_same(there, tree, &to)?;
        }
        if tree.writes == Writes::Anywhere
            && let Some(parent) = to.parent()
        {
            shared.make_directories(store.as_ref(), parent).map_err(failed)?;
        }
        let mode = mode(shared, self.entry(), there.as_ref());
        let (mut target, resumed) = self.target(shared, tree, &to, opened.as_ref())?;
        let mut outcome =
            transfer(shared, limits(shared, opened.as_ref()), self.input(opened.as_ref()), &mut target);
        if outcome.is_ok() && shared.interrupt.is_set() {
            // Also the end of an interrupted standard input, which is not a real end.
            outcome = Err(Failure::failed("interrupted"));
        }
        let size = opened.as_ref().map_or(0, |opened| opened.object.size());
        let modified = self.entry().and_then(|entry| entry.modified).filter(|_| !shared.args.no_times);
        let how = Finish { size, mode, modified, replace: !shared.args.no_clobber };
        if let Err(failure) = outcome.and_then(|()| target.finish(shared, how)) {
            let resumable = target.stop(shared);
            return Ok(Outcome::Stopped { failure, resumable });
        }
        shared.unsynced(&to);
        Ok(Outcome::Copied { bytes: target.bytes(size), resumed })
    }

    fn to_stdout(&self, shared: &Shared<'_>) -> Result<Outcome, Failure> {
        let opened = self.open(shared)?;
        let mut target = Target::Stdout(Ordered::default());
        transfer(shared, limits(shared, opened.as_ref()), self.input(opened.as_ref()), &mut target)?;
        let bytes = target.bytes(opened.as_ref().map_or(0, |opened| opened.object.size()));
        target.finish(shared, Finish { size: bytes, mode: 0, modified: None, replace: true })?;
        Ok(Outcome::Copied { bytes, resumed: 0 })
    }

    fn entry(&self) -> Option<&Entry> {
        match &self.from {
            From::Stdin => None,
            From::Store { entry, .. } => Some(entry),
        }
    }

    fn open(&self, shared: &Shared<'_>) -> Result<Option<Opened>, Failure> {
        let From::Store { store, path, entry } = &self.from else { return Ok(None) };
        let object = store.open(path).map_err(|error| match (entry.kind, error.kind()) {
            (EntryKind::Link, ErrorKind::IsADirectory) => {
                Failure::failed("is a link to a directory, which is not followed")
            }
            _ => Failure::from(error),
        })?;
        if entry.kind == EntryKind::Link {
            shared.more(object.size());
        }
        Ok(Some(Opened { object, deadline: store.profile().deadline }))
    }

    fn input<'a>(&self, opened: Option<&'a Opened>) -> Input<'a> {
        match opened {
            Some(opened) => Input::Object(opened.object.as_ref()),
            None => Input::Stream(std::io::stdin()),
        }
    }

    /// The target, and the bytes it already has.
    fn target(
        &self,
        shared: &Shared<'_>,
        tree: &Tree,
        to: &Path,
        opened: Option<&Opened>,
    ) -> Result<(Target, u64), Failure> {
        let failed = |error: bowwave_backend::Error| Failure::from(error);
        let Some(store) = &tree.store else { return Err(Failure::failed("there is no destination")) };
        if tree.writes == Writes::Whole {
            let mut upload = Upload::begin(store, to, !shared.args.no_clobber).map_err(failed)?;
            let found = opened.map_or(0, |opened| upload.resume(shared, opened.object.as_ref()));
            shared.moved().add(usize::try_from(found).unwrap_or(usize::MAX));
            return Ok((Target::Whole(upload), found));
        }
        let version = opened.and_then(|opened| Version::of(opened.object.identity(), CHUNK_BYTES));
        let is_wanted = || !shared.interrupt.is_set();
        let local = tree.local.as_deref();
        let source = version.as_ref().zip(opened.map(|opened| opened.object.as_ref()));
        let (file, before) = PartFile::open(store, to, local, source, is_wanted).map_err(failed)?;
        let why = match before {
            Before::Nothing | Before::Same => None,
            Before::Changed => Some("has changed since its copy was interrupted"),
            Before::Damaged => Some("the incomplete copy does not match the store's checksum"),
        };
        if let Some(why) = why.filter(|_| !shared.args.quiet) {
            note!("{}: {why}; the copy begins anew", output::plain(&self.label()));
        }
        let found = file.found;
        if found > 0 {
            shared.moved().add(usize::try_from(found).unwrap_or(usize::MAX));
        }
        Ok((Target::part(file), found))
    }
}

/// An open source.
struct Opened {
    object: Arc<dyn Object>,
    deadline: Option<std::time::Duration>,
}

impl Opened {
    /// Fails if source and destination are one file.
    fn refuse_same(&self, there: &Entry, tree: &Tree, to: &Path) -> Result<(), Failure> {
        let Identity { device: Some(device), inode: Some(inode), .. } = *self.object.identity() else {
            return Ok(());
        };
        if there.unix.is_some_and(|unix| (unix.device, unix.inode) == (device, inode)) {
            let message = format!("{}: source and destination are the same file", tree.place(to));
            return Err(Failure::failed(message).try_this("another destination"));
        }
        Ok(())
    }
}

/// Retry limits of reads: from the options, with the store's deadline for a range without progress.
fn limits(shared: &Shared<'_>, opened: Option<&Opened>) -> RetryLimits {
    let deadline = opened.and_then(|opened| opened.deadline);
    let budget_ns = deadline.map(|deadline| u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
    let default = RetryLimits { from_first_failure: true, ..RetryLimits::default() };
    RetryLimits {
        attempts_max: shared.args.store.options().retries.saturating_add(1),
        budget_ns: budget_ns.unwrap_or(default.budget_ns),
        ..default
    }
}

/// Permission bits of the copy: the source's, else those of the replaced file, else the default.
fn mode(shared: &Shared<'_>, source: Option<&Entry>, there: Option<&Entry>) -> u32 {
    let replaced = there.filter(|there| there.kind == EntryKind::File).and_then(|there| there.mode);
    match (replaced, source.and_then(|source| source.mode)) {
        (Some(mode), _) => mode & 0o777,
        (None, Some(mode)) => mode & 0o777 & !shared.umask,
        (None, None) => 0o666 & !shared.umask,
    }
}

/// Copies a symbolic link as a link.
fn link(
    shared: &Shared<'_>,
    (from, path): (&dyn Backend, &Path),
    (store, to): (&dyn Backend, &Path),
    replaces: bool,
) -> bowwave_backend::Result<Outcome> {
    let target = from.read_link(path)?;
    if let Some(parent) = to.parent() {
        shared.make_directories(store, parent)?;
    }
    if replaces {
        store.remove_file(to)?;
    }
    store.symlink(&target, to, None)?;
    shared.unsynced(to);
    Ok(Outcome::Copied { bytes: 0, resumed: 0 })
}
