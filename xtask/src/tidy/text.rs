//! Checks of every text file: size, blanks, paths of one machine.

use super::{Finding, has_extension, numbered, policy};

/// Characters after which a `/` does not begin an absolute path.
fn continues_a_path(before: char) -> bool {
    before.is_alphanumeric() || matches!(before, '.' | '-' | '_' | '}' | '~' | '*')
}

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let generated = path.ends_with(".lock");
    let data = has_extension(path, "csv") || has_extension(path, "jsonl");
    if policy::SOURCE_EXTENSIONS.iter().any(|extension| has_extension(path, extension)) {
        let lines = text.lines().count();
        if lines > policy::SOURCE_LINES_MAX {
            let message = format!("{lines} lines, more than {}: split it by idea", policy::SOURCE_LINES_MAX);
            findings.push(Finding::new(path, lines, message));
        }
    }
    for (number, line) in numbered(text) {
        if !generated && !data && line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(path, number, "blanks at the end of the line"));
        }
        if has_extension(path, "rs") && line.contains('\t') {
            findings.push(Finding::new(path, number, "tab (indent with spaces)"));
        }
        for root in policy::MACHINE_ROOTS {
            let mut places = line.match_indices(root);
            if places.any(|(at, _)| !line[..at].chars().next_back().is_some_and(continues_a_path)) {
                let message = format!("{root}… exists on one machine only");
                findings.push(Finding::new(path, number, message));
            }
        }
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
    fn sources_past_the_limit_are_found_and_data_is_not() {
        let long = "x\n".repeat(policy::SOURCE_LINES_MAX + 1);
        assert_eq!(found("a.py", &long), [policy::SOURCE_LINES_MAX + 1]);
        assert_eq!(found("a.rs", &long[2..]), []);
        assert_eq!(found("a.csv", &long), []);
    }

    #[test]
    fn blanks_at_the_end_of_lines_are_found_but_in_data() {
        assert_eq!(found("Makefile", "a\nb \nc\t\nd\r"), [2, 3, 4]);
        assert_eq!(found("a.jsonl", "b \n"), []);
    }

    #[test]
    fn absolute_paths_of_one_machine_are_found_and_parts_of_other_paths_are_not() {
        for root in policy::MACHINE_ROOTS {
            assert_eq!(found("a.md", &format!("see `{root}x`")), [1]);
            assert_eq!(found("a.md", &format!("{root}x")), [1]);
            assert_eq!(
                found("a.md", &format!("http://example.com{root}x and .{root}x and $HOME{root}x")),
                []
            );
        }
    }
}
