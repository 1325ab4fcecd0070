//! The command line as a whole: help, completions, manual, and what it says to nonsense.

mod common;

use common::{bowwave, failure, run};

#[test]
fn help_and_version_are_data() {
    let help = run(bowwave().arg("--help"));
    for command in ["explain", "completions", "man"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
        assert!(run(bowwave().args([command, "--help"])).contains("Examples:\n  bowwave "), "{command}");
    }
    assert_eq!(run(bowwave().arg("--version")), format!("bowwave {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn nonsense_is_answered_in_one_line_with_what_to_try() {
    for (arguments, answer) in [
        (vec![], "bowwave: error: no command was given (try bowwave --help)\n"),
        (vec!["explian"], "bowwave: error: unrecognized subcommand 'explian' (try 'replay', 'explain')\n"),
    ] {
        assert_eq!(failure(bowwave().args(arguments)), (2, answer.to_owned()));
    }
    let (code, line) = failure(bowwave().args(["man", "women"]));
    assert!(code == 2 && line.contains("no command 'women' (try ") && line.contains("explain, "), "{line}");
}

#[test]
fn completions_and_manual_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(bowwave().args(["completions", shell]));
        assert!(script.contains("explain") && script.contains("ra-pages"), "{shell}");
    }
    let page = run(bowwave().arg("man"));
    assert!(page.contains(".TH bowwave 1") && page.contains("explain"), "{page}");
    let page = run(bowwave().args(["man", "explain"]));
    assert!(page.contains(".TH bowwave-explain 1") && page.contains("ondemand\\-patch"), "{page}");
}
