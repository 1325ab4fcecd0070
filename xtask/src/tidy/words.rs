//! Checks of the language: words for which the field has another term, and long lines of prose.
//!
//! Files that had such lines before the check existed are in [`RATCHET`] with their number, which
//! may only go down: `cargo xtask tidy --lower` records lower numbers.

use std::collections::BTreeMap;

use super::{Finding, Tree, has_extension, numbered, policy};

/// The number of findings that each file may have, one a line: `NUMBER PATH`.
pub(crate) const RATCHET: &str = "xtask/ratchet.txt";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let allowed = allowed(tree).unwrap_or_default();
    for (path, text) in tree {
        let found = found(path, text);
        let most = allowed.get(path.as_str()).copied().unwrap_or(0);
        if found.len() > most {
            if most > 0 {
                let message = format!("{} of these, and {RATCHET} allows {most}", found.len());
                findings.push(Finding::new(path, 1, message));
            }
            findings.extend(found);
        }
    }
}

/// The ratchet with numbers as low as the tree allows. Without a ratchet, records the tree's.
pub(super) fn lowered(tree: &Tree) -> String {
    let allowed = allowed(tree);
    let counts = tree.iter().map(|(path, text)| (path, found(path, text).len()));
    let lines = counts.filter_map(|(path, count)| {
        let most = allowed.as_ref().map_or(usize::MAX, |allowed| *allowed.get(path.as_str()).unwrap_or(&0));
        Some(count.min(most)).filter(|&count| count > 0).map(|count| format!("{count} {path}\n"))
    });
    lines.collect()
}

fn allowed(tree: &Tree) -> Option<BTreeMap<&str, usize>> {
    let lines = tree.get(RATCHET)?.lines();
    Some(
        lines
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(n, path)| Some((path, n.parse().ok()?)))
            .collect(),
    )
}

fn found(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if path == "xtask/src/tidy/policy.rs"
        || !["rs", "md", "py", "sh"].iter().any(|end| has_extension(path, end))
    {
        return found;
    }
    let mut in_code = false;
    for (number, line) in numbered(text) {
        let lower = line.to_lowercase();
        for (old, new) in policy::WORDS {
            if has_word(&lower, old) {
                found.push(Finding::new(path, number, format!("\"{old}\": write {new}")));
            }
        }
        let prose = match line.trim_start() {
            line if has_extension(path, "md") => line,
            line if line.starts_with("//") => line.trim_start_matches(['/', '!']).trim_start(),
            _ => "",
        };
        in_code ^= prose.starts_with("```");
        let is_fixed = in_code || prose.starts_with(['|', '`']) || prose.contains("://");
        if !prose.is_empty() && !is_fixed && line.chars().count() > policy::PROSE_COLUMNS_MAX {
            let message = format!("{} columns, at most {}", line.chars().count(), policy::PROSE_COLUMNS_MAX);
            found.push(Finding::new(path, number, message));
        }
    }
    found
}

/// Whether `word` is in `line`, between characters that are no letters.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(char::is_alphabetic) && !after.starts_with(char::is_alphabetic)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn lines(files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Vec::new();
        check(&tree(files), &mut findings);
        findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }

    #[test]
    fn old_words_are_found_in_prose_and_in_names() {
        for (word, _) in policy::WORDS {
            let name = format!("let a_{}_b = 1;", word.replace(' ', "_"));
            assert_eq!(lines(&[("a.md", &format!("\nThe {word}, here.\n"))]), ["a.md:2"], "{word}");
            assert!(word.contains(' ') || lines(&[("a.rs", &name)]) == ["a.rs:1"], "{word}");
            assert!(lines(&[("a.rs", &format!("x{word}x")), ("a.csv", word)]).is_empty(), "{word}");
        }
    }

    #[test]
    fn long_lines_of_prose_are_found_and_code_tables_and_links_are_not() {
        let long = "word ".repeat(21);
        assert_eq!(lines(&[("a.md", &long), ("a.rs", &format!("    //! {long}"))]), ["a.md:1", "a.rs:1"]);
        for fixed in [format!("```text\n{long}\n```"), format!("| {long} |"), format!("https://a.b {long}")] {
            let comment: String = fixed.lines().map(|line| format!("/// {line}\n")).collect();
            assert!(lines(&[("a.md", &fixed), ("a.rs", &comment)]).is_empty(), "{fixed}");
        }
        assert!(lines(&[("a.rs", &format!("let a = \"{long}\";"))]).is_empty());
    }

    #[test]
    fn the_ratchet_allows_what_there_was_and_only_goes_down() {
        let (word, _) = policy::WORDS[0];
        let twice = format!("{word}\n{word}\n");
        let files = |most: &str| [("a.md", twice.clone()), (RATCHET, format!("{most} a.md\n"))];
        let borrow = |files: [(&'static str, String); 2]| files.map(|(path, text)| (path.to_owned(), text));
        let check = |most: &str| {
            let mut findings = Vec::new();
            check(&Tree::from(borrow(files(most))), &mut findings);
            findings.len()
        };
        assert_eq!((check("2"), check("3"), check("1")), (0, 0, 3));
        let lower = |most: &str| lowered(&Tree::from(borrow(files(most))));
        assert_eq!([lower("3"), lower("2"), lower("1")], ["2 a.md\n", "2 a.md\n", "1 a.md\n"]);
        assert_eq!(lowered(&tree(&[("a.md", &twice)])), "2 a.md\n");
        assert_eq!(lowered(&tree(&[("a.md", "fine"), (RATCHET, "2 a.md\n")])), "");
    }
}
