//! Checks of Rust sources: head docs, unfinished code, `unsafe`, and the purity of the core.

use super::{Finding, Tree, numbered, policy};

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let has_docs = ["//!", "#![doc = include_str!"].iter().any(|start| text.trim_start().starts_with(start));
    if is_crate_source(path) && !has_docs {
        findings.push(Finding::new(path, 1, "begins without `//!` docs: say what the file holds"));
    }
    for (number, line) in numbered(text) {
        for (pattern, instead) in policy::UNFINISHED {
            if line.contains(pattern) {
                findings.push(Finding::new(path, number, format!("`{pattern}`: {instead}")));
            }
        }
    }
    if !may_be_unsafe(path) {
        for (number, line) in numbered(&code_only(text)) {
            if words(line).any(|word| word == "unsafe") {
                let message = "`unsafe` outside the files that may hold it (xtask/src/tidy/policy.rs)";
                findings.push(Finding::new(path, number, message));
            }
        }
    }
}

/// `bowwave-core` compiles without the standard library, which keeps clocks, threads and files out of it.
pub(super) fn check_core_is_no_std(tree: &Tree, findings: &mut Vec<Finding>) {
    const ROOT: &str = "crates/bowwave-core/src/lib.rs";
    let Some(text) = tree.get(ROOT) else { return };
    if !numbered(&code_only(text)).any(|(_, line)| line.trim() == "#![no_std]") {
        findings.push(Finding::new(ROOT, 1, "the core is `#![no_std]`, always: say so at the top"));
    }
    for (path, text) in tree.range("crates/bowwave-core/src/".to_owned()..) {
        if !path.starts_with("crates/bowwave-core/src/") {
            break;
        }
        let code = code_only(text);
        let mut before = "";
        for (number, line) in numbered(&code) {
            if line.contains("extern crate std") && before.trim() != "#[cfg(test)]" {
                let message = "the standard library outside `#[cfg(test)]`: the core is pure";
                findings.push(Finding::new(path, number, message));
            }
            if !line.trim().is_empty() {
                before = line;
            }
        }
    }
}

fn is_crate_source(path: &str) -> bool {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates") => parts.nth(1) == Some("src"),
        Some("xtask") => parts.next() == Some("src"),
        _ => false,
    }
}

fn may_be_unsafe(path: &str) -> bool {
    policy::UNSAFE_ALLOWED
        .iter()
        .any(|&place| path == place || place.ends_with('/') && path.starts_with(place))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// `text` with comments, strings and characters blanked out, line ends kept.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_word = code.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let blank = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment_length(rest),
            '"' => string_length(rest),
            'r' if !in_word || code.ends_with('b') || code.ends_with('c') => raw_string_length(rest),
            '\'' => character_length(rest),
            _ => 0,
        };
        if blank == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..blank].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
            rest = &rest[blank..];
        }
    }
    code
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn string_length(text: &str) -> usize {
    let mut escaped = true; // the opening quote closes nothing
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the raw string at the start of `text`, 0 if there is none.
fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    if text.as_bytes().get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let body = 1 + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    text[body..].find(&close).map_or(text.len(), |at| body + at + close.len())
}

/// Length of the character literal at the start of `text`, 0 if the quote begins a lifetime.
fn character_length(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |at| 3 + at + 1),
        Some(_) => letters.next().filter(|(_, letter)| *letter == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(path, text, &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn sources_of_crates_begin_with_docs() {
        assert_eq!(found("crates/x/src/a.rs", "use std::io;\n"), [1]);
        assert_eq!(found("xtask/src/a/b.rs", "// not docs\n"), [1]);
        assert_eq!(found("crates/x/src/a.rs", "//! Docs.\n"), []);
        assert_eq!(found("crates/x/tests/a.rs", "use std::io;\n"), []);
    }

    #[test]
    fn unfinished_code_and_switched_off_tests_are_found() {
        for (pattern, _) in policy::UNFINISHED {
            assert_eq!(found("a.rs", &format!("\n    {pattern}")), [2]);
        }
    }

    #[test]
    fn unsafe_is_found_in_code_and_not_in_words_comments_or_strings() {
        assert_eq!(found("a.rs", "fn a() {\n    unsafe { b() }\n}"), [2]);
        assert_eq!(found("a.rs", "let x = '\"'; unsafe impl Send for A {}"), [1]);
        assert_eq!(found("a.rs", "let x = '\\''; let y = b\"\\\\\"; unsafe {}"), [1]);
        assert_eq!(found("a.rs", "fn a<'a>(b: &'a u8) { unsafe {} }"), [1]);
        assert_eq!(found("a.rs", "let var\"\";\nunsafe {}"), [2]);
        for harmless in [
            "// unsafe",
            "/* unsafe /* nested */ unsafe */ let x = 1;",
            "let x = \"say \\\"unsafe\\\" here\";",
            "let x = r#\"a \"quoted\" unsafe word\"#;",
            "let x = br\"unsafe\";",
            "#![deny(unsafe_code)]",
        ] {
            assert_eq!(found("a.rs", harmless), [], "{harmless}");
        }
        assert_eq!(found(policy::UNSAFE_ALLOWED[0], "//! Docs.\nunsafe {}"), []);
    }

    #[test]
    fn the_core_is_no_std_and_std_stays_in_its_tests() {
        let found = |lib: &str, other: &str| {
            let tree = Tree::from([
                ("crates/bowwave-core/src/lib.rs".to_owned(), lib.to_owned()),
                ("crates/bowwave-core/src/other.rs".to_owned(), other.to_owned()),
                ("crates/bowwave-engine/src/lib.rs".to_owned(), "extern crate std;".to_owned()),
            ]);
            let mut findings = Vec::new();
            check_core_is_no_std(&tree, &mut findings);
            findings.iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            found("//! Core.\n#![no_std]\n#[cfg(test)]\nextern crate std;\n", ""),
            Vec::<String>::new()
        );
        assert!(found("//! #![no_std]\n", "")[0].starts_with("crates/bowwave-core/src/lib.rs:1:"));
        assert!(
            found("#![no_std]\n", "\nextern crate std;\n")[0]
                .starts_with("crates/bowwave-core/src/other.rs:2:")
        );
    }
}
