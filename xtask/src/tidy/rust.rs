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
    // The lint `unsafe_code` is denied for the workspace, so a file with `unsafe` names it.
    if !may_be_unsafe(path) {
        for (number, line) in numbered(text).filter(|(_, line)| permits_unsafe(line)) {
            let message =
                format!("`{}`: only the files in xtask/src/tidy/policy.rs may hold `unsafe`", line.trim());
            findings.push(Finding::new(path, number, message));
        }
    }
}

fn permits_unsafe(line: &str) -> bool {
    let line = line.trim_start();
    line.contains("unsafe_code")
        && ["#", "unsafe_code"].iter().any(|start| line.starts_with(start))
        && !["deny(", "forbid("].iter().any(|level| line.contains(level))
}

/// `bowwave-core` compiles without the standard library, which keeps clocks, threads and files out
/// of it.
pub(super) fn check_core_is_no_std(tree: &Tree, findings: &mut Vec<Finding>) {
    const ROOT: &str = "crates/bowwave-core/src/lib.rs";
    let Some(text) = tree.get(ROOT) else { return };
    if !text.lines().any(|line| line == "#![no_std]") {
        findings.push(Finding::new(ROOT, 1, "the core is `#![no_std]`, always: say so at the top"));
    }
    for (path, text) in tree.iter().filter(|(path, _)| path.starts_with("crates/bowwave-core/src/")) {
        let mut before = "";
        for (number, line) in numbered(text).filter(|(_, line)| !line.trim().is_empty()) {
            if line.trim_start().starts_with("extern crate std") && before.trim() != "#[cfg(test)]" {
                let message = "the standard library outside `#[cfg(test)]`: the core is pure";
                findings.push(Finding::new(path, number, message));
            }
            before = line;
        }
    }
}

/// Files of [`policy::UNSAFE_ALLOWED`] that no longer exist.
pub(super) fn check_permissions_are_used(tree: &Tree, findings: &mut Vec<Finding>) {
    const POLICY: &str = "xtask/src/tidy/policy.rs";
    let Some(text) = tree.get(POLICY) else { return };
    for place in policy::UNSAFE_ALLOWED {
        if !tree.keys().any(|path| path == place || place.ends_with('/') && path.starts_with(place)) {
            let line = numbered(text).find(|(_, line)| line.contains(place)).map_or(1, |(line, _)| line);
            findings.push(Finding::new(POLICY, line, format!("there is no {place}: remove the permission")));
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
    fn only_listed_files_may_permit_unsafe() {
        for permit in [
            "#![allow(unsafe_code, reason = \"a\")]",
            "    #[expect(unsafe_code)]",
            "#[allow(\n    unsafe_code,\n)]",
        ] {
            assert_eq!(found("a.rs", permit).len(), 1, "{permit}");
            assert_eq!(found(policy::UNSAFE_ALLOWED[0], permit), [1], "only the missing docs: {permit}");
        }
        assert_eq!(found("a.rs", "#![deny(unsafe_code)]\n#![forbid(unsafe_code)]\n// unsafe_code"), []);
    }

    #[test]
    fn permissions_of_files_that_do_not_exist_are_found() {
        let mut tree: Tree =
            policy::UNSAFE_ALLOWED.iter().map(|place| ((*place).to_owned(), String::new())).collect();
        let found = |tree: &Tree| {
            let mut findings = Vec::new();
            check_permissions_are_used(tree, &mut findings);
            findings.iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        let (gone, policy) = (policy::UNSAFE_ALLOWED[0], "xtask/src/tidy/policy.rs");
        tree.insert(policy.to_owned(), format!("[\n    \"{gone}\",\n]"));
        assert!(found(&tree).is_empty());
        tree.remove(gone);
        assert_eq!(found(&tree), [format!("{policy}:2: there is no {gone}: remove the permission")]);
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
