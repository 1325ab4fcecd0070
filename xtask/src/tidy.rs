//! The checks of `cargo xtask tidy`, each a pure function of a file's path and text.

mod arrows;
mod documents;
mod mentions;
mod policy;
mod rust;
mod text;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs, io};

/// A violation to fix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    /// A finding in `path` at `line`, counted from 1.
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The text files of the repository by path relative to its root, `/`-separated.
type Tree = BTreeMap<String, String>;

/// Checks the repository at `root`; returns the number of files read and the sorted findings.
pub(crate) fn check_tree(root: &Path) -> io::Result<(usize, Vec<Finding>)> {
    let mut tree = Tree::new();
    collect(root, "", &mut tree)?;
    Ok((tree.len(), check(&tree)))
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree {
        text::check(path, text, &mut findings);
        if has_extension(path, "rs") {
            rust::check(path, text, &mut findings);
        }
        if path.ends_with("/Cargo.toml") {
            arrows::check(path, text, &mut findings);
        }
        if has_extension(path, "md") {
            documents::check(path, text, tree, &mut findings);
        }
    }
    mentions::check(tree, &mut findings);
    rust::check_core_is_no_std(tree, &mut findings);
    rust::check_permissions_are_used(tree, &mut findings);
    words::check(tree, &mut findings);
    findings.sort();
    findings
}

/// Reads the text files below `root/directory` into `tree`; files that are not UTF-8 are data and
/// skipped.
fn collect(root: &Path, directory: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(root.join(directory))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
        let kind = entry.file_type()?;
        // Also files: in a linked worktree, .git is a file with a path of the machine.
        if policy::is_built(&name) {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, tree)?;
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            tree.insert(path, text);
        }
    }
    Ok(())
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// The lines of `text` with their numbers, from 1.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_print_as_editors_read_them_and_come_sorted() {
        let tree = Tree::from([
            ("b.rs".to_owned(), "let a = 1; \n".to_owned()),
            ("a.rs".to_owned(), "\n\tx\n".to_owned()),
        ]);
        let printed: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(printed, ["a.rs:2: tab (indent with spaces)", "b.rs:1: blanks at the end of the line"]);
    }
}
