//! Checks of the language: words for which the field has another term, and long lines of prose.

use super::{Finding, Tree, has_extension, numbered, policy};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree {
        check_file(path, text, findings);
    }
}

fn check_file(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if path == "xtask/src/tidy/policy.rs"
        || !["rs", "md", "py", "sh"].iter().any(|end| has_extension(path, end))
    {
        return;
    }
    let mut in_code = false;
    for (number, line) in numbered(text) {
        let lower = line.to_lowercase();
        for (old, new) in policy::WORDS {
            if has_word(&lower, old) {
                findings.push(Finding::new(path, number, format!("\"{old}\": write {new}")));
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
            findings.push(Finding::new(path, number, message));
        }
    }
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
}
