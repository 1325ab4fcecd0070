//! Creates, links, renames and removes names of all kinds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::actor::Actor;
use crate::common::cells::{cell, is_partly};
use crate::common::rng::Rng;

/// Few, so that most operations collide.
const NAMES: u64 = 8;

/// The inode behind a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    /// A file with a cell of this version, synced or not.
    File {
        version: u64,
        synced: bool,
    },
    Directory,
    Link(String),
}

type Tree = BTreeMap<String, Node>;

/// A directory of names.
pub(crate) struct Names {
    at: PathBuf,
    name: String,
    id: u64,
    rng: Rng,
    version: u64,
    now: Tree,
    /// State after an operation without a reply yet.
    next: Option<Tree>,
    doing: String,
}

impl Names {
    pub(crate) fn new(at: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let at = at.join(name);
        fs::create_dir(&at)?;
        let name = name.to_owned();
        Ok(Self {
            at,
            name,
            id: seed,
            rng: Rng(seed),
            version: 0,
            now: Tree::new(),
            next: None,
            doing: String::new(),
        })
    }

    /// Records the next state, performs the operation, and records its completion.
    fn change(&mut self, next: Tree, act: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        self.doing = format!("from {:?} to {next:?}", self.now);
        self.next = Some(next);
        act(&self.at)?;
        self.now = self.next.take().expect("just set");
        Ok(())
    }

    /// Creates `name`, which does not exist.
    fn make(&mut self, name: &str) -> io::Result<()> {
        let mut next = self.now.clone();
        let file = self.now.iter().find(|(_, node)| matches!(node, Node::File { .. }));
        match (self.rng.below(6), file) {
            (0, _) => {
                next.insert(name.to_owned(), Node::Directory);
                self.change(next, |at| fs::create_dir(at.join(name)))
            }
            (1, _) => {
                let to = format!("to {name}");
                next.insert(name.to_owned(), Node::Link(to.clone()));
                self.change(next, |at| symlink(&to, at.join(name)))
            }
            (2, Some((of, node))) => {
                let of = of.clone();
                next.insert(name.to_owned(), node.clone());
                self.change(next, |at| fs::hard_link(at.join(of), at.join(name)))
            }
            _ => {
                self.version += 1;
                let (version, bytes) = (self.version, cell(self.id, 0, self.version));
                next.insert(name.to_owned(), Node::File { version, synced: false });
                self.change(next, |at| File::create_new(at.join(name)).map(drop))?;
                self.doing = format!("write {name}");
                let mut file = File::options().write(true).open(self.at.join(name))?;
                file.write_all(&bytes)?;
                file.sync_all()?;
                self.now.insert(name.to_owned(), Node::File { version, synced: true });
                Ok(())
            }
        }
    }

    /// Removes or renames `name`, which exists.
    fn unmake(&mut self, name: &str, node: &Node, to: &str) -> io::Result<()> {
        let mut next = self.now.clone();
        next.remove(name);
        let fits =
            self.now.get(to).is_none_or(|there| (there == &Node::Directory) == (node == &Node::Directory));
        if name != to && fits && self.rng.chance(60) && self.now.get(to) != Some(node) {
            next.insert(to.to_owned(), node.clone());
            self.change(next, |at| fs::rename(at.join(name), at.join(to)))
        } else if node == &Node::Directory {
            self.change(next, |at| fs::remove_dir(at.join(name)))
        } else {
            self.change(next, |at| fs::remove_file(at.join(name)))
        }
    }

    /// Compares the directory with `tree`; returns the difference.
    fn compare(&self, root: &Path, tree: &Tree) -> Result<(), String> {
        let listed = fs::read_dir(root).map_err(|error| error.to_string())?;
        let mut listed: Vec<_> = listed.flatten().map(|entry| entry.file_name()).collect();
        listed.sort();
        if !listed.iter().map(|name| name.to_str()).eq(tree.keys().map(|name| Some(name.as_str()))) {
            return Err(format!("{listed:?} are there, not {:?}", tree.keys()));
        }
        for (name, node) in tree {
            let path = root.join(name);
            let fine = match node {
                Node::Directory => path.symlink_metadata().is_ok_and(|found| found.is_dir()),
                Node::Link(to) => fs::read_link(&path).is_ok_and(|found| found == Path::new(to)),
                Node::File { version, synced } => fs::read(&path).is_ok_and(|found| {
                    let expected = cell(self.id, 0, *version);
                    if *synced { found == expected } else { is_partly(&found, &expected) }
                }),
            };
            if !fine {
                return Err(format!("{name} is not {node:?}"));
            }
        }
        Ok(())
    }
}

impl Actor for Names {
    fn step(&mut self) -> io::Result<()> {
        let (name, to) = (self.rng.below(NAMES).to_string(), self.rng.below(NAMES).to_string());
        match self.now.get(&name).cloned() {
            None => self.make(&name),
            Some(node) => self.unmake(&name, &node, &to),
        }
    }

    fn doing(&self) -> String {
        format!("{}, {}", self.name, self.doing)
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let root = root.join(&self.name);
        let Err(now) = self.compare(&root, &self.now) else { return Vec::new() };
        match self.next.as_ref().map(|next| self.compare(&root, next)) {
            None => vec![format!("{}: {now}", self.name)],
            Some(Ok(())) => Vec::new(),
            Some(Err(next)) => vec![format!("{}: neither before ({now}) nor after ({next})", self.name)],
        }
    }
}
