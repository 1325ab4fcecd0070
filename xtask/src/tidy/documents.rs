//! Checks of Markdown: links lead somewhere, commands exist.

use super::{Finding, Tree, has_extension, numbered};

pub(super) fn check(path: &str, text: &str, tree: &Tree, findings: &mut Vec<Finding>) {
    findings.extend(misnumbered(path, text, tree).map(|message| Finding::new(path, 1, message)));
    let mut fence: Option<&str> = None;
    for (number, line) in numbered(text) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language.trim()) };
            continue;
        }
        match fence {
            None => {
                for target in links(line) {
                    if let Some(message) = broken(path, target, tree) {
                        findings.push(Finding::new(path, number, message));
                    }
                }
            }
            Some("sh" | "bash" | "console" | "shell") => {
                findings.extend(
                    unknown_commands(line, tree)
                        .into_iter()
                        .map(|message| Finding::new(path, number, message)),
                );
            }
            Some(_) => {}
        }
    }
}

/// A duplicate decision number, or a heading with another number.
fn misnumbered(path: &str, text: &str, tree: &Tree) -> Option<String> {
    let number = path.strip_prefix("docs/adr/")?.split('-').next()?;
    let same = format!("docs/adr/{number}-");
    if let Some(other) = tree.keys().find(|other| other.starts_with(&same) && other.as_str() < path) {
        return Some(format!("{other} has the same number"));
    }
    let heading = format!("# {}. ", number.trim_start_matches('0'));
    (!text.starts_with(&heading)).then(|| format!("the heading should begin with `{heading}`"))
}

/// Targets of the inline links in `line`, without code spans.
fn links(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for (index, span) in line.split('`').enumerate() {
        // A link's text may hold code, so a span may begin inside a link: `](` alone marks the
        // target.
        if index % 2 == 0 {
            targets.extend(span.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
        }
    }
    targets
}

fn broken(path: &str, target: &str, tree: &Tree) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let place = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
    let Some(place) = place else { return Some(format!("the link {target} leads out of the repository")) };
    let directory = format!("{place}/");
    let text = tree.get(&place);
    if text.is_none() && !place.is_empty() && !tree.keys().any(|known| known.starts_with(&directory)) {
        return Some(format!("the link {target} leads nowhere: there is no {place}"));
    }
    let (anchor, text) = (anchor?, text.filter(|_| has_extension(&place, "md"))?);
    (!anchors(text).any(|known| known == anchor)).then(|| format!("{place} has no heading #{anchor}"))
}

/// `link`, relative to the file `path`, as a path from the root; `None` if it leads above the root.
fn resolve(path: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors that GitHub gives to the headings of `text`.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let letters = line.trim_start_matches('#').trim().chars();
        letters
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
            .flat_map(|letter| if letter == ' ' { '-' } else { letter }.to_lowercase())
            .collect()
    })
}

/// Unknown commands of a shell line: `bowwave` subcommands and `make` targets.
fn unknown_commands(line: &str, tree: &Tree) -> Vec<String> {
    let mut messages = Vec::new();
    let line = line.split(" #").next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.windows(2) {
        let (program, argument) = (pair[0].rsplit('/').next().unwrap_or_default(), pair[1]);
        if !argument.starts_with(|letter: char| letter.is_ascii_lowercase()) {
            continue; // an option, or a file
        }
        let known = match program {
            "bowwave" => tree.contains_key(&command_source(argument)),
            "make" => tree
                .get("Makefile")
                .is_some_and(|text| text.lines().any(|line| line.split(':').next() == Some(argument))),
            _ => true,
        };
        if !known {
            messages.push(format!("there is no `{program} {argument}`"));
        }
    }
    messages
}

/// The source of the subcommand `name`: one file a command is a rule of the command line's crate.
fn command_source(name: &str) -> String {
    format!("crates/bowwave-cli/src/commands/{}.rs", name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let tree = Tree::from([
            ("docs/A.md".to_owned(), text.to_owned()),
            ("README.md".to_owned(), "# Two Words, `x`!\n".to_owned()),
            ("docs/adr/0001-a.md".to_owned(), String::new()),
            ("Makefile".to_owned(), "demo: build\n\tx\n".to_owned()),
            (command_source("explain"), String::new()),
        ]);
        let mut findings = Vec::new();
        check("docs/A.md", text, &tree, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for good in [
            "[a](../README.md)",
            "[`a`](adr/0001-a.md) and [b](adr)",
            "[a](../README.md#two-words-x)",
            "[a](https://example.com/none.md)",
            "`[a](none.md)`",
            "```text\n[a](none.md)\n```",
            "# Here\n[a](#here)",
        ] {
            assert!(found(good).is_empty(), "{good}: {:?}", found(good));
        }
        for (bad, at) in [
            ("\n[a](none.md)", 2),
            ("[a](../../x.md)", 1),
            ("[a](../README.md#three)", 1),
            ("[a](#none)", 1),
            ("[`a`](none.md)", 1),
        ] {
            assert!(found(bad)[0].starts_with(&format!("docs/A.md:{at}: ")), "{bad}");
        }
    }

    #[test]
    fn decisions_with_one_number_or_two_are_found() {
        let tree = Tree::from(
            ["0001-a", "0001-b", "0002-c"].map(|name| (format!("docs/adr/{name}.md"), String::new())),
        );
        let found = |name: &str, text: &str| misnumbered(&format!("docs/adr/{name}.md"), text, &tree);
        assert_eq!(found("0001-a", "# 1. A\n"), None);
        assert_eq!(found("0001-b", "# 1. B\n").expect("a finding"), "docs/adr/0001-a.md has the same number");
        assert_eq!(found("0002-c", "# 3. C\n").expect("a finding"), "the heading should begin with `# 2. `");
        assert_eq!(misnumbered("docs/A.md", "# A\n", &tree), None);
    }

    #[test]
    fn commands_that_do_not_exist_are_found() {
        let block = "```sh\nmake demo\nbowwave explain t.csv --policy ondemand\n./target/release/bowwave --help\n```\n";
        assert!(found(block).is_empty(), "{:?}", found(block));
        let block = "```sh\nmake tea\ncat t | bowwave guess -  # bowwave joke\n```\n";
        assert_eq!(
            found(block),
            ["docs/A.md:2: there is no `make tea`", "docs/A.md:3: there is no `bowwave guess`"]
        );
        assert!(found("```text\nbowwave guess\n```\nbowwave guess").is_empty());
    }
}
