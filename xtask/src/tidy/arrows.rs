//! Checks of manifests: permitted imports between crates, and the lint against unsafe code.

use super::{Finding, numbered, policy};

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let Some(name) = package_name(text) else { return };
    if !text.contains("[lints]\nworkspace = true") && !text.contains("unsafe_code = \"deny\"") {
        let message = format!("{name} may use unsafe code: add `workspace = true` under [lints]");
        findings.push(Finding::new(path, 1, message));
    }
    if policy::is_testkit(name) {
        return;
    }
    let Some((_, allowed)) = policy::ARROWS.iter().find(|(known, _)| *known == name) else {
        let message = format!("{name} is not in the table of crates (xtask/src/tidy/policy.rs)");
        findings.push(Finding::new(path, 1, message));
        return;
    };
    for (line, dependency) in dependencies(text) {
        let home = policy::SINGLE_HOME.iter().find(|(library, _)| *library == dependency);
        let message = if name == "bowwave-core" {
            format!("bowwave-core imports nothing, not even {dependency}")
        } else if dependency.starts_with("bowwave-") && !allowed.contains(&dependency) {
            format!("{name} may not import {dependency} (only {})", listed(allowed))
        } else if let Some((_, home)) = home.filter(|(_, home)| *home != name) {
            format!("{dependency} may appear in {home} only")
        } else {
            continue;
        };
        findings.push(Finding::new(path, line, message));
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing of ours".to_owned() } else { names.join(", ") }
}

fn package_name(text: &str) -> Option<&str> {
    let mut in_package = false;
    text.lines().find_map(|line| {
        if let Some(table) = table(line) {
            in_package = table == "package";
        }
        let (key, value) = line.split_once('=')?;
        (in_package && key.trim() == "name").then(|| value.trim().trim_matches('"'))
    })
}

/// Normal and build dependencies with their lines, by crate name; dev-dependencies are free.
fn dependencies(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in numbered(text) {
        if let Some(table) = table(line) {
            let (head, last) = table.rsplit_once('.').unwrap_or(("", table));
            inside = is_dependency_table(last);
            if is_dependency_table(head.rsplit('.').next().unwrap_or(head)) {
                found.push((number, last)); // [dependencies.name]
            }
        } else if inside && let Some((key, value)) = line.split_once('=') {
            let key = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
            if !key.is_empty() && !key.starts_with('#') && is_key(key) {
                found.push((number, renamed(value).unwrap_or(key)));
            }
        }
    }
    found
}

fn is_dependency_table(name: &str) -> bool {
    matches!(name, "dependencies" | "build-dependencies")
}

fn is_key(key: &str) -> bool {
    key.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'))
}

/// `name` of a `{ package = "name" }`.
fn renamed(value: &str) -> Option<&str> {
    let (_, after) = value.split_once("package")?;
    after.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?.split('"').next()
}

fn table(line: &str) -> Option<&str> {
    line.trim().strip_prefix('[')?.strip_suffix(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, rest: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let manifest = format!("[package]\nname = \"{name}\"\n{rest}[lints]\nworkspace = true\n");
        check("Cargo.toml", &manifest, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn every_manifest_denies_unsafe_code() {
        let mut findings = Vec::new();
        check("Cargo.toml", "[package]\nname = \"bowwave-core\"\n", &mut findings);
        assert_eq!(findings.len(), 1);
        check(
            "Cargo.toml",
            "[package]\nname = \"bowwave-core\"\n[lints.rust]\nunsafe_code = \"deny\"\n",
            &mut findings,
        );
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn the_core_imports_nothing_but_for_tests() {
        assert_eq!(
            found("bowwave-core", "[dependencies]\nlibc = \"0.2\"\n"),
            ["Cargo.toml:4: bowwave-core imports nothing, not even libc"]
        );
        assert!(
            found("bowwave-core", "[dependencies]\n# none\n[dev-dependencies]\nproptest = \"1\"\n")
                .is_empty()
        );
    }

    #[test]
    fn arrows_against_the_table_are_found_in_every_spelling() {
        for spelling in [
            "[dependencies]\nbowwave-fuse = { workspace = true }\n",
            "[dependencies]\nbowwave-fuse.workspace = true\n",
            "[dependencies]\nfuse = { package = \"bowwave-fuse\", path = \"x\" }\n",
            "[target.'cfg(unix)'.dependencies]\nbowwave-fuse = \"1\"\n",
            "[build-dependencies]\nbowwave-fuse = \"1\"\n",
            "[dependencies.bowwave-fuse]\nworkspace = true\n",
        ] {
            let found = found("bowwave-engine", spelling);
            assert!(
                found.len() == 1 && found[0].contains("may not import bowwave-fuse"),
                "{spelling}: {found:?}"
            );
        }
        assert!(found("bowwave-engine", "[dependencies]\nbowwave-core.workspace = true\n").is_empty());
        assert!(found("bowwave-engine", "[dev-dependencies]\nbowwave-fuse.workspace = true\n").is_empty());
    }

    #[test]
    fn simulator_and_engine_never_meet() {
        assert_eq!(found("bowwave-sim", "[dependencies]\nbowwave-engine = \"1\"\n").len(), 1);
        assert_eq!(found("bowwave-engine", "[dependencies]\nbowwave-sim = \"1\"\n").len(), 1);
    }

    #[test]
    fn libraries_with_one_home_stay_there() {
        assert_eq!(
            found("bowwave-engine", "[dependencies]\ntokio = { version = \"1\" }\n"),
            ["Cargo.toml:4: tokio may appear in bowwave-backend only"]
        );
        assert!(found("bowwave-backend", "[dependencies]\ntokio = \"1\"\nio-uring = \"0.7\"\n").is_empty());
        assert!(found("bowwave-store-testkit", "[dependencies]\ntokio = \"1\"\n").is_empty());
    }

    #[test]
    fn crates_that_the_table_does_not_know_are_found() {
        assert!(found("bowwave-new", "")[0].contains("not in the table"));
    }
}
