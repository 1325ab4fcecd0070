//! The command line as a whole: help, completions, manual, and errors.

use crate::common::{bowwave, failure, run};

#[test]
fn help_and_version_are_data() {
    let help = run(bowwave().arg("--help"));
    for command in ["explain", "completions", "man"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
        assert!(run(bowwave().args([command, "--help"])).contains("Examples:\n  bowwave "), "{command}");
    }
    assert_eq!(run(bowwave().arg("-V")), format!("bowwave {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn invalid_commands_fail_in_one_line_with_a_remedy() {
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

#[test]
fn help_of_commands_with_many_options_is_at_most_60_lines_and_help_all_has_the_rest() {
    for command in ["mount", "read", "run"] {
        let (short, all) =
            (run(bowwave().args([command, "--help"])), run(bowwave().args([command, "--help-all"])));
        assert_eq!(short, run(bowwave().args([command, "-h"])));
        assert!(short.lines().count() <= 60, "{} lines:\n{short}", short.lines().count());
        for text in [&short, &all] {
            assert!(text.contains("--cache <SIZE>") && text.contains("Examples:\n  bowwave "), "{text}");
        }
        assert!(short.contains("--help-all") && !short.contains("--hedge"), "{short}");
        assert!(all.contains("--hedge <PERCENT>") && all.contains("--set <KEY=VALUE>"), "{all}");
    }
}

#[test]
fn every_command_prints_all_options_with_help_all() {
    let top = run(bowwave().arg("--help-all"));
    assert_eq!(top, run(bowwave().arg("--help")));
    let cli = bowwave_cli::command();
    for command in cli.get_subcommands() {
        let name = command.get_name();
        let all = run(bowwave().args([name, "--help-all"]));
        assert!(all.contains("Usage: bowwave ") && all.contains("Examples:\n  bowwave "), "{name}: {all}");
        // Commands with one length of help print the same.
        if !["mount", "read", "run"].contains(&name) {
            assert_eq!(all, run(bowwave().args([name, "--help"])), "{name}");
        }
    }
    assert!(run(bowwave().args(["ctl", "/mnt", "set", "--help-all"])).contains("Usage: bowwave ctl "));
}

#[test]
fn tunables_are_no_options_of_a_mount_and_the_manual_and_the_refusal_name_them() {
    let all = run(bowwave().args(["mount", "--help-all"]));
    let manual = run(bowwave().args(["man", "mount"]));
    for key in
        ["range_bytes", "range_clusters", "scheduler", "device_depth", "kernel_cache", "kernel_readahead"]
    {
        let option = format!("--{}", key.replace('_', "-"));
        assert!(!all.contains(&option), "{option}");
        assert!(manual.contains(&format!("\\fB{key}\\fR [default: ")), "{key}");
        for command in [&["mount", "pattern:/", "/no/such/dir"][..], &["read", "pattern:/"]] {
            let (code, line) = failure(bowwave().args(command).args([&option, "1"]));
            assert!(code == 2 && line.contains(&format!("(try --set {key}=VALUE)")), "{line}");
        }
    }
}

#[test]
fn a_readahead_window_is_a_size_or_a_number_of_pages_everywhere() {
    let read = |window: &str| {
        run(bowwave().args(["read", "pattern:/4MiB", "--cache", "64MiB", "--json", "--ra-pages", window]))
    };
    assert!(read("1MiB").contains("\"ra_pages\":256,"), "{}", read("1MiB"));
    assert!(read("256").contains("\"ra_pages\":256,"), "{}", read("256"));
    let trace = b"time_ns,pid,op,file,offset,length\n0,1,read,a,0,65536\n";
    let explain = |arguments: &[&str]| {
        let mut command = bowwave();
        command.args(["explain", "-", "--json", "--policy", "ondemand"]).args(arguments);
        crate::common::run_with_input(&mut command, trace)
    };
    assert_eq!(explain(&["--ra-pages", "64KiB"]), explain(&["--ra-pages", "16"]));
    assert_ne!(explain(&["--ra-pages", "64KiB"]), explain(&[]));
    let replay = |window: &str| {
        let mut command = bowwave();
        command.args(["replay", "-", "--policy", "ondemand", "--json", "--ra-pages", window]);
        crate::common::run_with_input(&mut command, trace)
    };
    assert_eq!(replay("64KiB,1MiB"), replay("16,256"));
    let (code, line) = failure(bowwave().args(["read", "pattern:/4MiB", "--ra-pages", "5GiB"]));
    assert!(code == 2 && line.contains("--ra-pages") && line.contains("up to 4GiB"), "{line}");
}

#[test]
fn explain_without_a_policy_explains_the_default_one() {
    let trace = b"time_ns,pid,op,file,offset,length\n0,1,read,a,0,65536\n1,1,read,a,65536,65536\n";
    let explain = |arguments: &[&str]| {
        crate::common::run_with_input(bowwave().args(["explain", "-", "--json"]).args(arguments), trace)
    };
    assert_eq!(explain(&[]), explain(&["--policy", "stream"]));
}

#[test]
fn the_long_version_has_the_commit_features_and_parts_of_the_kernel() {
    let version = run(bowwave().arg("--version"));
    let lines: Vec<_> = version.lines().collect();
    assert_eq!(lines[0], format!("bowwave {}", env!("CARGO_PKG_VERSION")));
    let git = std::process::Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short=12", "HEAD"])
        .output();
    match git {
        // Not of an archive, whose tests run all the same.
        Ok(git) if git.status.success() && lines[1] != "commit unknown" => {
            assert_eq!(lines[1], format!("commit {}", String::from_utf8_lossy(&git.stdout).trim()));
        }
        _ => assert_eq!(lines[1], "commit unknown"),
    }
    assert!(lines[2].starts_with("features mount, run"), "{version}");
    assert!(lines[3].starts_with("kernel Linux ") && lines[3].contains(", io_uring "), "{version}");
}
