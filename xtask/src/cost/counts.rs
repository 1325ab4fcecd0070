//! Instruction counts as text, and their comparison.

use std::fmt;
use std::str::FromStr;

/// Tolerance for counts by the same compiler and C library, as a share, plus one instruction.
const SAME: f64 = 0.03;
/// Tolerance for counts by others, as a share.
const OTHERS: f64 = 0.25;

const HEAD: &str = "\
# Instructions a call takes, as callgrind counts them. `cargo xtask cost` compares; `cargo xtask cost --accept` writes.
# Made by: ";

/// Instructions per case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counts {
    /// Compiler, target and C library.
    pub(super) made_by: String,
    pub(super) cases: Vec<(String, f64)>,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Set if it used the larger tolerance.
    pub(super) note: Option<String>,
    pub(super) differences: Vec<String>,
}

/// Compares counts with the record. A decrease is reported like an increase: otherwise a later
/// regression would hide it.
pub(super) fn compare(recorded: &Counts, counted: &Counts) -> Comparison {
    let (tolerance, note) = if recorded.made_by == counted.made_by {
        (SAME, None)
    } else {
        let percent = OTHERS * 100.0;
        let note = format!(
            "recorded by {}, counted by {}: up to {percent} % is no difference",
            recorded.made_by, counted.made_by
        );
        (OTHERS, Some(note))
    };
    let of = |counts: &Counts, name: &str| counts.cases.iter().find(|case| case.0 == name).map(|case| case.1);
    let mut differences = Vec::new();
    for (name, now) in &counted.cases {
        match of(recorded, name) {
            None => differences.push(format!("{name}: {now:.1}, and not recorded")),
            Some(before) if (now - before).abs() > before * tolerance + 1.0 => {
                let percent = (now / before - 1.0) * 100.0;
                differences.push(format!("{name}: {now:.1}, recorded {before:.1} ({percent:+.1} %)"));
            }
            Some(_) => {}
        }
    }
    let gone = recorded.cases.iter().filter(|case| of(counted, &case.0).is_none());
    differences.extend(gone.map(|(name, _)| format!("{name}: recorded, and not there any more")));
    Comparison { note, differences }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}{}", self.made_by)?;
        self.cases.iter().try_for_each(|(name, count)| writeln!(f, "{count:8.1}  {name}"))
    }
}

/// The error is the invalid line.
impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.replace("\r\n", "\n");
        let rest = text.strip_prefix(HEAD).ok_or("it does not begin as a record of counts does")?;
        let (made_by, cases) = rest.split_once('\n').unwrap_or((rest, ""));
        let case = |line: &str| {
            let (count, name) = line.trim_start().split_once("  ")?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        let cases = cases.lines().map(|line| case(line).ok_or_else(|| format!("what is '{line}'?")));
        Ok(Self { made_by: made_by.to_owned(), cases: cases.collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(made_by: &str, cases: &[(&str, f64)]) -> Counts {
        let cases = cases.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        Counts { made_by: made_by.to_owned(), cases }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = counts("rustc 1.95.0 x86_64", &[("hit of 1 page, none", 61.0), ("mark", 12_345.6)]);
        assert_eq!(written.to_string().parse(), Ok(written));
        assert_eq!(format!("{HEAD}x\nmark 12\n").parse::<Counts>(), Err("what is 'mark 12'?".to_owned()));
        assert!("".parse::<Counts>().is_err());
    }

    #[test]
    fn more_and_less_differ_beyond_three_percent_and_an_instruction() {
        let before = counts("a", &[("hit", 100.0), ("small", 10.0)]);
        let differ = |hit: f64, small: f64| {
            compare(&before, &counts("a", &[("hit", hit), ("small", small)])).differences.len()
        };
        assert_eq!(differ(100.0, 10.0), 0);
        assert_eq!(differ(103.9, 11.2), 0);
        assert_eq!(differ(96.1, 8.8), 0);
        assert_eq!(differ(104.1, 10.0), 1);
        assert_eq!(differ(95.9, 11.5), 2);
    }

    #[test]
    fn a_case_that_came_or_went_is_a_difference() {
        let before = counts("a", &[("hit", 100.0), ("old", 10.0)]);
        let comparison = compare(&before, &counts("a", &[("hit", 100.0), ("new", 10.0)]));
        assert_eq!(
            comparison.differences,
            ["new: 10.0, and not recorded", "old: recorded, and not there any more"]
        );
    }

    #[test]
    fn another_compiler_may_differ_more_and_is_named() {
        let before = counts("rustc 1.95.0", &[("hit", 100.0)]);
        let now = |hit| compare(&before, &counts("rustc 1.96.0", &[("hit", hit)]));
        assert_eq!(now(120.0).differences.len(), 0);
        assert_eq!(now(130.0).differences, ["hit: 130.0, recorded 100.0 (+30.0 %)"]);
        let note = now(100.0).note.expect("it is said");
        assert!(note.contains("1.95.0") && note.contains("1.96.0"), "{note}");
    }
}
