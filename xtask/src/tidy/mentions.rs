//! Checks of documents: the files, items and tests in code spans exist, and the targets of cargo.

use std::collections::HashSet;

use super::{Finding, Tree, has_extension, numbered, policy};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let code = Code::of(tree);
    let names_present = |path: &str| has_extension(path, "md") && path != policy::HISTORY;
    for (path, text) in tree.iter().filter(|(path, _)| names_present(path)) {
        for (number, line) in numbered(text) {
            findings.extend(code.missing_target(line).map(|message| Finding::new(path, number, message)));
        }
        let names_tests = policy::NAME_TESTS.contains(&path.as_str());
        for (number, span) in code_spans(text) {
            findings
                .extend(code.missing(span, names_tests).map(|message| Finding::new(path, number, message)));
        }
    }
}

/// The code spans outside of code blocks, with their lines. A span ends with its paragraph.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let (mut spans, mut in_block, mut in_span) = (Vec::new(), false, false);
    for (number, line) in numbered(text) {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        in_span &= !line.trim().is_empty();
        if in_block || is_fence {
            continue;
        }
        for (index, piece) in line.split('`').enumerate() {
            in_span ^= index > 0;
            if in_span {
                spans.push((number, piece));
            }
        }
    }
    spans
}

/// What documents may name.
struct Code<'a> {
    tree: &'a Tree,
    /// Every identifier of the sources.
    words: HashSet<&'a str>,
    functions: HashSet<&'a str>,
}

impl<'a> Code<'a> {
    fn of(tree: &'a Tree) -> Self {
        let (mut words, mut functions) = (HashSet::new(), HashSet::new());
        for (_, text) in tree.iter().filter(|(path, _)| is_source(path)) {
            let mut before = "";
            for word in text.split(|letter| !is_word(letter)).filter(|word| !word.is_empty()) {
                words.insert(word);
                if before == "fn" {
                    functions.insert(word);
                }
                before = word;
            }
        }
        Self { tree, words, functions }
    }

    /// Says which file, item or test of `span` does not exist.
    fn missing(&self, span: &str, names_tests: bool) -> Option<String> {
        let item = span.trim_end_matches("()");
        if is_file(span) {
            (!self.has_file(span.trim_end_matches('/'))).then(|| format!("there is no file {span}"))
        } else if item.contains("::") && item.chars().all(|letter| is_word(letter) || letter == ':') {
            let mut absent = item.split("::").filter(|word| !word.is_empty() && !self.words.contains(word));
            // A lower-case first word that is not in the code is another crate.
            let word = absent.next().filter(|word| !item.starts_with(word) || !word.starts_with(is_lower))?;
            Some(format!("there is no `{word}` for `{span}` in the code"))
        } else if names_tests && is_test(span) {
            (!self.functions.contains(span)).then(|| format!("there is no test `{span}`"))
        } else {
            None
        }
    }

    /// Says which test, benchmark or example of a cargo command in `line` does not exist.
    fn missing_target(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split([' ', '`']).collect();
        let (option, name) = words.windows(2).find_map(|pair| {
            let (_, directory) = TARGETS.iter().find(|(option, _)| *option == pair[0])?;
            let sources = [".rs", "/main.rs"].map(|end| format!("{directory}/{}{end}", pair[1]));
            let exists = !pair[1].starts_with(is_lower) || sources.iter().any(|source| self.has_file(source));
            (!exists).then_some((pair[0], pair[1]))
        })?;
        Some(format!("there is no target for `{option} {name}`"))
    }

    /// Whether `name` is the path of a file or directory, or the end of one.
    fn has_file(&self, name: &str) -> bool {
        let (end, directory) = (format!("/{name}"), format!("{name}/"));
        self.tree.keys().any(|path| path == name || path.ends_with(&end) || path.starts_with(&directory))
    }
}

/// Options of cargo that name a target, and the directory of its source.
const TARGETS: &[(&str, &str)] = &[("--test", "tests"), ("--bench", "benches"), ("--example", "examples")];

/// Whether `span` is the path of a source file, or begins with a directory of the repository.
fn is_file(span: &str) -> bool {
    let is_path = span.chars().all(|letter| is_word(letter) || matches!(letter, '.' | '/' | '-'));
    is_path && (is_source(span) || policy::DIRECTORIES.iter().any(|directory| span.starts_with(directory)))
}

fn is_source(path: &str) -> bool {
    policy::SOURCE_EXTENSIONS.iter().any(|extension| has_extension(path, extension))
}

/// Whether `span` looks like the name of a test: lower case, three words or more.
fn is_test(span: &str) -> bool {
    let is_name = |letter: char| is_lower(letter) || letter.is_ascii_digit() || letter == '_';
    span.chars().all(is_name) && span.matches('_').count() >= 2 && !span.starts_with('_')
}

fn is_lower(letter: char) -> bool {
    letter.is_ascii_lowercase()
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = "mod outer { struct Inner; }\n#[test]\nfn a_test_of_it() {}\n";
        let tree = Tree::from([
            ("crates/x/src/net/lib.rs".to_owned(), source.to_owned()),
            ("crates/x/tests/all/main.rs".to_owned(), String::new()),
            ("crates/x/benches/speed.rs".to_owned(), String::new()),
            ("tools/run.sh".to_owned(), String::new()),
            (path.to_owned(), text.to_owned()),
        ]);
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn files_items_and_tests_that_do_not_exist_are_found() {
        let tests = policy::NAME_TESTS[0];
        for good in [
            "`crates/x/src/net/lib.rs`, `net/lib.rs`, `crates/x/src/`, `tools/run.sh`, `run.sh`",
            "`outer::Inner`, `Inner::a_test_of_it()`, `other_crate::Item`",
            "`a_test_of_it`, `two_words`, `user.csv`, `a/b`, crates/y",
            "```text\n`crates/y`\n```\n",
            "```sh\ncargo test --test all maps\n```\n`cargo bench --bench speed`, `--test NAME`",
            "`a span\nof two lines` then crates/y",
        ] {
            assert_eq!(found(tests, good), Vec::<String>::new(), "{good}");
        }
        for (bad, message) in [
            ("`crates/y/src/lib.rs`", "1: there is no file crates/y/src/lib.rs"),
            ("\n`lib.py`", "2: there is no file lib.py"),
            ("`outer::Other`", "1: there is no `Other` for `outer::Other` in the code"),
            ("```sh\ncargo test --test maps", "2: there is no target for `--test maps`"),
            ("a `b` (`a_test_of_that`)", "1: there is no test `a_test_of_that`"),
        ] {
            assert_eq!(found(tests, bad), [format!("{tests}:{message}")]);
        }
    }

    #[test]
    fn other_documents_name_variables_too_and_the_changelog_names_the_past() {
        assert!(found("docs/A.md", "`kernel_variable_name`").is_empty());
        assert!(found(policy::HISTORY, "`crates/y/src/lib.rs`").is_empty());
    }
}
