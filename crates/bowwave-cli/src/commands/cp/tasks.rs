//! Walks the sources; each file is a task.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bowwave_backend::{Backend, Entry, EntryKind, ErrorKind, Namespace as _, Writes};

use super::crew::Crew;
use super::part::is_part_name;
use super::place::{Destination, Source, Tree, is_inside};
use super::target::place;
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
            From::Store { store, path, .. } => place(store.url(), path),
        }
    }

    /// Prints what a copy would do.
    pub(super) fn show(
        &self,
        crew: &Crew<'_>,
        destination: &Destination,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let to = match destination {
            Destination::Stdout => "standard output".to_owned(),
            Destination::Store(tree) => tree.place(&tree.path(&self.name)),
        };
        match self.is_skipped(crew, destination) {
            Ok(false) => {
                output.line(format_args!("{} -> {}", output::plain(&self.label()), output::plain(&to)))
            }
            Ok(true) => Ok(()),
            Err(error) => {
                crew.failed(self.label(), Failure::from(error));
                Ok(())
            }
        }
    }
}

/// Walks the sources; sends a task for each file, and creates directories.
pub(super) fn walk(
    crew: &Crew<'_>,
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
                below.map(|below| Walk { crew, store, tree, below, tasks, empty: None }.run())
            }
            _ => one(&source, destination).map(|task| {
                if let From::Store { entry, .. } = &task.from {
                    crew.more(entry.size);
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
            crew.failed(name, failure);
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
    crew: &'a Crew<'a>,
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
            if self.crew.interrupt.is_set() {
                return ControlFlow::Break(());
            }
            match found {
                Ok(entry) => self.found(path, entry),
                Err(error) => {
                    self.crew.failed(place(store.url(), path), Failure::from(error));
                    ControlFlow::Continue(())
                }
            }
        });
        self.leave(None);
        match walked {
            Ok(0) => {}
            Ok(names) => {
                let message = format!("{names} names are no paths of files and are not copied");
                self.crew.failed(store.url(), Failure::failed(message));
            }
            Err(error) => self.crew.failed(store.url(), Failure::from(error)),
        }
    }

    fn found(&mut self, path: &Path, entry: Entry) -> ControlFlow<()> {
        let label = || place(self.store.url(), path);
        if !is_inside(path) {
            self.crew.failed(label(), Failure::failed("the name leads out of the directory"));
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
                    self.crew.more(entry.size);
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
                self.crew.failed(label(), Failure::failed("is a special file and has no bytes to copy"));
            }
        }
        ControlFlow::Continue(())
    }

    /// Creates a directory in the destination; in an object store only if it has no entries.
    fn directory(&mut self, path: &Path) {
        match (self.tree.writes, &self.tree.store) {
            _ if self.crew.args.dry_run => {}
            (Writes::Anywhere, Some(store)) => {
                if let Err(error) = self.crew.make_directories(store.as_ref(), path) {
                    self.crew.failed(self.tree.place(path), Failure::from(error));
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
        if self.crew.interrupt.is_set() {
            return;
        }
        let Some(store) = &self.tree.store else { return };
        let created = match store.create_directory(&directory, 0, None) {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            // Its parent is created with the first file copied into it, and none is complete yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.crew.make_directories(store.as_ref(), &directory)
            }
            created => created,
        };
        if let Err(error) = created {
            self.crew.failed(self.tree.place(&directory), Failure::from(error));
        }
    }
}
