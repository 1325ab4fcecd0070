//! One task: inspects a file, copies it, and gives it its name.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bowwave_backend::{
    Backend, Entry, EntryKind, ErrorKind, Identity, Namespace as _, Object, Result, Writes,
};
use bowwave_core::network::RetryLimits;

use super::crew::Crew;
use super::part::{Before, PartFile, Version};
use super::place::{Destination, Tree};
use super::target::{CHUNK_BYTES, Finish, Ordered, Target, Upload};
use super::tasks::{From, Task};
use super::transfer::{Input, transfer};
use crate::Failure;
use crate::output;

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
    /// Copies the file and records the result in `crew`.
    pub(super) fn run(self, crew: &Crew<'_>, destination: &Destination) {
        if crew.interrupt.is_set() {
            return;
        }
        let outcome = self.copy(crew, destination);
        let mut tally = crew.tally();
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
                if !crew.interrupt.is_set() {
                    crew.failed(self.label(), failure);
                }
            }
            Err(failure) => {
                drop(tally);
                crew.failed(self.label(), failure);
            }
        }
    }

    /// Whether the options skip the file.
    pub(super) fn is_skipped(&self, crew: &Crew<'_>, destination: &Destination) -> Result<bool> {
        let Destination::Store(tree) = destination else { return Ok(false) };
        let Some(there) = self.there(crew, tree)? else { return Ok(false) };
        Ok(self.is_current(crew, &there))
    }

    fn is_current(&self, crew: &Crew<'_>, there: &Entry) -> bool {
        let From::Store { entry, .. } = &self.from else { return crew.args.no_clobber };
        let seconds = |time: Option<SystemTime>| {
            time?.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
        };
        let is_recent = matches!(
            (seconds(entry.modified), seconds(there.modified)),
            (Some(source), Some(copy)) if copy >= source
        );
        let is_same = there.kind == EntryKind::File && there.size == entry.size && is_recent;
        crew.args.no_clobber || (crew.args.update && is_same)
    }

    /// The existing entry of that name in the destination; looked up only where it matters.
    fn there(&self, crew: &Crew<'_>, tree: &Tree) -> Result<Option<Entry>> {
        let matters = tree.writes == Writes::Anywhere || crew.args.update || crew.args.no_clobber;
        let Some(store) = tree.store.as_ref().filter(|_| matters) else { return Ok(None) };
        match store.stat(&tree.path(&self.name)) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn copy(&self, crew: &Crew<'_>, destination: &Destination) -> std::result::Result<Outcome, Failure> {
        let failed = |error: bowwave_backend::Error| Failure::from(error);
        let Destination::Store(tree) = destination else { return self.to_stdout(crew) };
        let Some(store) = &tree.store else { return Ok(Outcome::Skipped) };
        let to = tree.path(&self.name);
        let there = self.there(crew, tree).map_err(failed)?;
        if let Some(there) = &there {
            if there.kind == EntryKind::Directory {
                let message = format!("{}: is a directory", tree.place(&to));
                return Err(Failure::failed(message).try_this("another destination"));
            }
            if self.is_current(crew, there) {
                return Ok(Outcome::Skipped);
            }
        }
        if let From::Store { store: from, path, entry } = &self.from
            && entry.kind == EntryKind::Link
            && tree.writes == Writes::Anywhere
        {
            return link(crew, (from.as_ref(), path), (store.as_ref(), &to), there.is_some()).map_err(failed);
        }
        let opened = self.open(crew)?;
        if let (Some(opened), Some(there)) = (&opened, &there) {
            opened.refuse_same(there, tree, &to)?;
        }
        if tree.writes == Writes::Anywhere
            && let Some(parent) = to.parent()
        {
            crew.make_directories(store.as_ref(), parent).map_err(failed)?;
        }
        let mode = mode(crew, self.entry(), there.as_ref());
        let (mut target, resumed) = self.target(crew, tree, &to, opened.as_ref())?;
        let mut outcome =
            transfer(crew, limits(crew, opened.as_ref()), self.input(opened.as_ref()), &mut target);
        if outcome.is_ok() && crew.interrupt.is_set() {
            // Also the end of an interrupted standard input, which is not a real end.
            outcome = Err(Failure::failed("interrupted"));
        }
        let size = opened.as_ref().map_or(0, |opened| opened.object.size());
        let modified = self.entry().and_then(|entry| entry.modified).filter(|_| !crew.args.no_times);
        let how = Finish { size, mode, modified, replace: !crew.args.no_clobber };
        if let Err(failure) = outcome.and_then(|()| target.finish(crew, how)) {
            let resumable = target.stop(crew);
            return Ok(Outcome::Stopped { failure, resumable });
        }
        crew.unsynced(&to);
        Ok(Outcome::Copied { bytes: target.bytes(size), resumed })
    }

    fn to_stdout(&self, crew: &Crew<'_>) -> std::result::Result<Outcome, Failure> {
        let opened = self.open(crew)?;
        let mut target = Target::Stdout(Ordered::default());
        transfer(crew, limits(crew, opened.as_ref()), self.input(opened.as_ref()), &mut target)?;
        let bytes = target.bytes(opened.as_ref().map_or(0, |opened| opened.object.size()));
        target.finish(crew, Finish { size: bytes, mode: 0, modified: None, replace: true })?;
        Ok(Outcome::Copied { bytes, resumed: 0 })
    }

    fn entry(&self) -> Option<&Entry> {
        match &self.from {
            From::Stdin => None,
            From::Store { entry, .. } => Some(entry),
        }
    }

    fn open(&self, crew: &Crew<'_>) -> std::result::Result<Option<Opened>, Failure> {
        let From::Store { store, path, entry } = &self.from else { return Ok(None) };
        let object = store.open(path).map_err(|error| match (entry.kind, error.kind()) {
            (EntryKind::Link, ErrorKind::IsADirectory) => {
                Failure::failed("is a link to a directory, which is not followed")
            }
            _ => Failure::from(error),
        })?;
        if entry.kind == EntryKind::Link {
            crew.more(object.size());
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
        crew: &Crew<'_>,
        tree: &Tree,
        to: &Path,
        opened: Option<&Opened>,
    ) -> std::result::Result<(Target, u64), Failure> {
        let failed = |error: bowwave_backend::Error| Failure::from(error);
        let Some(store) = &tree.store else { return Err(Failure::failed("there is no destination")) };
        if tree.writes == Writes::Whole {
            let mut upload = Upload::begin(store, to, !crew.args.no_clobber).map_err(failed)?;
            let found = opened.map_or(0, |opened| upload.resume(crew, opened.object.as_ref()));
            crew.moved().add(usize::try_from(found).unwrap_or(usize::MAX));
            return Ok((Target::Whole(upload), found));
        }
        let version = opened.and_then(|opened| Version::of(opened.object.identity(), CHUNK_BYTES));
        let is_wanted = || !crew.interrupt.is_set();
        let local = tree.local.as_deref();
        let source = version.as_ref().zip(opened.map(|opened| opened.object.as_ref()));
        let (file, before) = PartFile::open(store, to, local, source, is_wanted).map_err(failed)?;
        let why = match before {
            Before::Nothing | Before::Same => None,
            Before::Changed => Some("has changed since its copy was interrupted"),
            Before::Damaged => Some("the incomplete copy does not match the store's checksum"),
        };
        if let Some(why) = why.filter(|_| !crew.args.quiet) {
            note!("{}: {why}; the copy begins anew", output::plain(&self.label()));
        }
        let found = file.found;
        if found > 0 {
            crew.moved().add(usize::try_from(found).unwrap_or(usize::MAX));
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
    fn refuse_same(&self, there: &Entry, tree: &Tree, to: &Path) -> std::result::Result<(), Failure> {
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
fn limits(crew: &Crew<'_>, opened: Option<&Opened>) -> RetryLimits {
    let deadline = opened.and_then(|opened| opened.deadline);
    let budget_ns = deadline.map(|deadline| u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
    let default = RetryLimits { from_first_failure: true, ..RetryLimits::default() };
    RetryLimits {
        attempts_max: crew.args.store.options().retries.saturating_add(1),
        budget_ns: budget_ns.unwrap_or(default.budget_ns),
        ..default
    }
}

/// Permission bits of the copy: the source's, else those of the replaced file, else the default.
fn mode(crew: &Crew<'_>, source: Option<&Entry>, there: Option<&Entry>) -> u32 {
    let replaced = there.filter(|there| there.kind == EntryKind::File).and_then(|there| there.mode);
    match (replaced, source.and_then(|source| source.mode)) {
        (Some(mode), _) => mode & 0o777,
        (None, Some(mode)) => mode & 0o777 & !crew.umask,
        (None, None) => 0o666 & !crew.umask,
    }
}

/// Copies a symbolic link as a link.
fn link(
    crew: &Crew<'_>,
    (from, path): (&dyn Backend, &Path),
    (store, to): (&dyn Backend, &Path),
    replaces: bool,
) -> Result<Outcome> {
    let target = from.read_link(path)?;
    if let Some(parent) = to.parent() {
        crew.make_directories(store, parent)?;
    }
    if replaces {
        store.remove_file(to)?;
    }
    store.symlink(&target, to, None)?;
    crew.unsynced(to);
    Ok(Outcome::Copied { bytes: 0, resumed: 0 })
}
