//! `bowwave cp`: copies files and directories from and to stores, several ranges and files at a
//! time.
//!
//! ```text
//! walk of the sources --tasks--> threads, a file each --ranges--> source and destination
//! ```

mod endpoint;
mod part;
mod shared;
mod target;
mod task;
mod transfer;

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::backend::sync::Mutex;
use serde::Serialize;

use crate::Failure;
use crate::interrupt::{INTERRUPTED, Interrupt, Second};
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::setup::{StoreArgs, size};
use endpoint::{Destination, Source};
use shared::{Shared, Tally};
use task::Task;

/// Arguments of `bowwave cp`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "bowwave cp [OPTIONS] <SRC>... <DST>",
    after_help = "\
A file goes into DST if that is a directory or ends in '/', and is DST otherwise. With -r, DST becomes what SRC is: the files \
in SRC go into DST, which is created if it is missing. Several sources go into DST, each under its own name. Existing files \
are replaced; a file never appears under its name before all of it is there.

Run the same command again to continue an interrupted one: a large file continues where it stopped if its source is \
unchanged; with --update, files that were complete are skipped.

Examples:
  bowwave cp s3://bucket/big.parquet .
  bowwave cp -r s3://bucket/data/ /data --update
  bowwave cp -r ./results s3://bucket/results
  bowwave cp https://example.org/big.iso /images/
  tar c dir | bowwave cp - s3://bucket/dir.tar
  bowwave cp gs://bucket/rows.csv - | head"
)]
pub(crate) struct Args {
    /// Sources and destination: a path, file:, s3:, gs:, az:, http(s): (sources only), - for
    /// standard input or output
    #[arg(value_names = ["SRC", "DST"], num_args = 2.., required = true)]
    urls: Vec<String>,

    /// Copy directories with all below them
    #[arg(short, long)]
    recursive: bool,

    /// Skip files whose copy has the same size and is not older
    #[arg(short, long, conflicts_with = "no_clobber")]
    update: bool,

    /// Leave files that exist as they are
    #[arg(short, long)]
    no_clobber: bool,

    /// Give downloaded files the time of the download, not that of their source
    #[arg(long)]
    no_times: bool,

    /// Print what would be copied, and copy nothing
    #[arg(long)]
    dry_run: bool,

    /// Files that are copied at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// Print a JSON object with `files`, `bytes`, `bytes_resumed`, `skipped`, `failed`, `failures`,
    /// `seconds` and `interrupted`
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Results.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    tally: &'a Tally,
    seconds: f64,
    interrupted: bool,
}

/// Copies.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Read before other threads create files: reading the umask sets it.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let interrupt = Interrupt::watch(Second::Kills)?;
    let (sources, destination) = args.places()?;
    let shared = Shared::new(args, interrupt, umask.bits());
    let begun = Instant::now();
    let is_one = sources.len() == 1 && !sources[0].is_directory();
    copy(&shared, sources, &destination)?;
    if let Destination::Store(tree) = &destination
        && let Some(store) = &tree.store
        && let Err(error) = shared.sync_directories(store.as_ref())
    {
        shared.failed(tree.url.clone(), Failure::from(error));
    }
    let tally = shared.tally.lock();
    let interrupted = shared.interrupt.is_set();
    if args.json {
        let mut output = Output::stdout();
        let seconds = begun.elapsed().as_secs_f64();
        let printed = output.json_line(&Summary { tally: &tally, seconds, interrupted });
        output.finish(printed)?;
    }
    if tally.failures.iter().any(|(_, failure)| *failure == Failure::unread()) {
        return Err(Failure::unread());
    }
    if interrupted {
        return Err(stopped(&tally, args));
    }
    if tally.resumable > 0 {
        note!("{} incomplete; run the command again to continue", tally.resumable);
    }
    if tally.failed == 0 {
        if !args.quiet && !args.json && !args.dry_run && !matches!(destination, Destination::Stdout) {
            output::note(done(&tally, begun.elapsed()));
        }
        return Ok(());
    }
    if is_one && let [(_, failure)] = &*tally.failures {
        return Err(failure.clone());
    }
    for line in report(&tally.failures) {
        // The exit code reports it even if standard error is closed.
        let _unread = writeln!(std::io::stderr(), "bowwave: {line}");
    }
    let all = tally.files + tally.skipped + tally.failed;
    Err(failed!("{} of {all} files were not copied", tally.failed))
}

impl Args {
    fn places(&self) -> Result<(Vec<Source>, Destination), Failure> {
        let Some((to, from)) = self.urls.split_last() else {
            return Err(Failure::usage("no files are named"));
        };
        // Sources are read once and in order: the kernel's cache serves them best.
        let options = bowwave_backend::Options { direct: false, ..self.store.options() };
        let sources: Vec<_> = from.iter().map(|url| Source::open(url, &options)).collect::<Result<_, _>>()?;
        if let Some(directory) = from.iter().zip(&sources).find(|(_, source)| source.is_directory())
            && !self.recursive
        {
            let name = bowwave_backend::redacted(directory.0);
            return Err(failed!("{name} is a directory and is not copied").try_this("-r"));
        }
        let destination = Destination::open(to, &sources, &options, self.dry_run)?;
        if self.json && matches!(destination, Destination::Stdout) {
            return Err(Failure::usage("--json and the file would both be on standard output"));
        }
        Ok((sources, destination))
    }
}

/// Runs the threads to completion.
fn copy(shared: &Shared<'_>, sources: Vec<Source>, destination: &Destination) -> Result<(), Failure> {
    let (tasks, queue) = mpsc::sync_channel::<Task>(QUEUE_MAX);
    if shared.args.dry_run {
        let mut output = Output::stdout();
        let listed = thread::scope(|scope| {
            scope.spawn(move || task::walk(shared, sources, destination, &tasks));
            // Moved, so that the walk ends when the receiver is dropped.
            queue.into_iter().try_for_each(|task| task.show(shared, destination, &mut output))
        });
        return output.finish(listed);
    }
    let (queue, running) = (Mutex::new(queue), AtomicU32::new(shared.args.jobs));
    let shows = thread::current();
    let work = || {
        let next = || queue.lock().recv();
        while let Ok(task) = next() {
            task.run(shared, destination);
        }
        running.fetch_sub(1, Ordering::Relaxed);
        shows.unpark();
    };
    thread::scope(|scope| {
        scope.spawn(move || task::walk(shared, sources, destination, &tasks));
        (0..shared.args.jobs).for_each(|_| drop(scope.spawn(work)));
        watch(shared, || running.load(Ordering::Relaxed) == 0);
    });
    Ok(())
}

/// Shows progress until the copy has ended.
fn watch(shared: &Shared<'_>, has_ended: impl Fn() -> bool) {
    let quiet = shared.args.quiet;
    let mut bar = Progress::bytes("copying", Some(0));
    let (begun, mut reported) = (Instant::now(), Instant::now());
    while !has_ended() {
        thread::park_timeout(SHOW_EVERY);
        let (moved, total) = (shared.moved().get(), shared.total());
        if quiet {
            continue;
        }
        if bar.is_shown() {
            bar.total(total);
            bar.at(moved);
        } else if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let rate = rate(moved, begun.elapsed());
            note!("copied {} of {} so far, {rate}", size(moved), size(total));
        }
    }
}

fn done(tally: &Tally, elapsed: Duration) -> String {
    let files = |count: u64| format!("{count} file{}", if count == 1 { "" } else { "s" });
    let mut text = format!("copied {}, {}", files(tally.files), size(tally.bytes));
    if tally.bytes_resumed > 0 {
        text += &format!(" ({} of them before)", size(tally.bytes_resumed));
    }
    let moved = tally.bytes - tally.bytes_resumed;
    if moved > 0 {
        text += &format!(", {}", rate(moved, elapsed));
    }
    if tally.skipped > 0 {
        text += &format!("; skipped {}", files(tally.skipped));
    }
    text
}

fn rate(bytes: u64, elapsed: Duration) -> String {
    format!("{:.1} MB/s", bytes as f64 / 1e6 / elapsed.as_secs_f64().max(1e-3))
}

/// A line per failure; one line for all files that failed for the same reason.
fn report(failures: &[(String, Failure)]) -> Vec<String> {
    let mut lines: Vec<(String, String, usize)> = Vec::new();
    for (name, failure) in failures {
        let (name, text) = (output::plain(name), failure.to_string());
        // What the message says without the file's names.
        let file = name.trim_end_matches('/').rsplit('/').next().filter(|file| !file.is_empty());
        let is_name = |word: &&str| file.is_some_and(|file| word.contains(file));
        let reason = text.split(' ').filter(|word| !is_name(word)).collect::<Vec<_>>().join(" ");
        match lines.iter_mut().find(|line| line.0 == reason) {
            Some(line) => line.2 += 1,
            None => {
                let line = if text.contains(&name) { text } else { format!("{name}: {text}") };
                lines.push((reason, line, 0));
            }
        }
    }
    let line = |(_, line, others): (String, String, usize)| match others {
        0 => line,
        1 => format!("{line} (the same for 1 other file)"),
        others => format!("{line} (the same for {others} other files)"),
    };
    lines.into_iter().map(line).collect()
}

/// Describes what an interrupted command leaves behind.
fn stopped(tally: &Tally, args: &Args) -> Failure {
    let update = if args.recursive && !args.update { ", with --update to skip complete files" } else { "" };
    let resumes = match tally.resumable {
        0 => String::new(),
        count => format!("; {count} incomplete and can be continued"),
    };
    let text = format!("interrupted: {} files are complete{resumes}; run it again{update}", tally.files);
    // The exit code reports it even if standard error is closed.
    let _unread = writeln!(std::io::stderr(), "bowwave: {text}");
    Failure::ended(INTERRUPTED)
}

/// Maximum files listed ahead of the copying threads.
const QUEUE_MAX: usize = 1024;
/// Interval of progress checks.
const SHOW_EVERY: Duration = Duration::from_millis(50);
/// Interval of progress lines without a terminal.
const REPORT_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_fail_for_the_same_reason_are_one_line() {
        let failure = |name: &str, text: &str| (format!("s3://b/{name}"), Failure::failed(text));
        let failures = [
            failure("one.bin", "/to/.one.bin.bowwave-part: no space left"),
            failure("two.bin", "is a special file"),
            failure("three.bin", "/to/.three.bin.bowwave-part: no space left"),
            failure("four.bin", "/to/.four.bin.bowwave-part: no space left"),
        ];
        assert_eq!(
            report(&failures),
            [
                "s3://b/one.bin: /to/.one.bin.bowwave-part: no space left (the same for 2 other files)",
                "s3://b/two.bin: is a special file",
            ]
        );
        assert_eq!(report(&failures[..1]), ["s3://b/one.bin: /to/.one.bin.bowwave-part: no space left"]);
    }
}
