//! `bowwave ls`: lists a directory of any store, streaming entries as they arrive.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use bowwave_backend::{Entry, EntryKind, ErrorKind, Namespace as _, open_url};
use serde::Serialize;

use crate::output::{self, Output, written};
use crate::setup::StoreArgs;
use crate::{Failure, setup::size};

/// Arguments of `bowwave ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One line per entry, in the order of the store: its name, with a slash after a directory's. With --long, its size in bytes, \
its time of modification in UTC and its name, separated by spaces. Control characters in names are escaped; --json has the \
names unchanged. Entries are printed as they arrive and not kept, so millions of entries take no memory.

Examples:
  bowwave ls s3://bucket/prefix
  bowwave ls -l --human gs://bucket
  bowwave ls -R --json https://example.org/files/
  bowwave ls -R s3://bucket | head")]
pub(crate) struct Args {
    /// What to list: a path, file:, http(s):, s3:, gs:, az:
    #[arg(value_name = "URL")]
    url: String,

    /// Print size and time of modification, too
    #[arg(short, long)]
    long: bool,

    /// List directories in it, too, with their paths
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Print sizes as 1.5 GiB
    #[arg(long, visible_alias = "human-readable")]
    human: bool,

    /// Print a JSON array of objects with `path`, `kind`, `size`, `modified` and `etag`
    #[arg(long, conflicts_with = "human")]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// An entry in JSON.
#[derive(Debug, Serialize)]
struct Row<'a> {
    path: &'a str,
    kind: &'static str,
    /// `None` for entries without contents.
    size: Option<u64>,
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
}

/// Lists.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let store = open_url(&args.url, &args.store.options())?;
    let root = store.stat("".as_ref())?;
    let mut lines = Lines { args, output: Output::stdout(), rows: 0, flushed: Instant::now() };
    let mut refused = None;
    // Index pages have no exact sizes: look up each file whose size is printed.
    let looks_up = (args.long || args.json) && !store.profile().lists_sizes;
    let listed = if root.kind == EntryKind::Directory {
        let mut ended = Ok(());
        let walked = store.walk("".as_ref(), args.recursive, &mut |path, found| {
            let found = match found {
                Ok(entry) if looks_up && entry.kind == EntryKind::File => store.stat(path),
                found => found,
            };
            match found {
                Ok(entry) => match lines.entry(path, &entry) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(failure) => {
                        ended = Err(failure);
                        ControlFlow::Break(())
                    }
                },
                Err(error) => {
                    let failure = Failure::from(error);
                    output::note(&failure);
                    refused.get_or_insert(failure);
                    ControlFlow::Continue(())
                }
            }
        });
        let walked = walked.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Failure::from(error).try_this("the URL of a file in it"),
            _ => Failure::from(error),
        });
        ended.and(walked).map(|left_out| {
            if left_out > 0 {
                note!("{left_out} names are no paths of files and are not shown");
            }
        })
    } else {
        lines.entry(Path::new(&name_of(&args.url)), &root)
    };
    let listed = match listed {
        Ok(()) => lines.end(),
        failed => failed,
    };
    lines.output.finish(listed)?;
    refused.map_or(Ok(()), Err)
}

/// What is printed.
struct Lines<'a> {
    args: &'a Args,
    output: Output,
    rows: u64,
    flushed: Instant,
}

impl Lines<'_> {
    fn entry(&mut self, path: &Path, entry: &Entry) -> Result<(), Failure> {
        let path = path.to_string_lossy();
        if self.args.json {
            let row = Row {
                path: &path,
                kind: kind(entry.kind),
                size: (entry.kind == EntryKind::File).then_some(entry.size),
                modified: entry.modified.map(|time| timestamp(time, true)),
                etag: entry.identity.as_ref().and_then(|identity| identity.etag.as_deref()),
            };
            self.output.json_row(self.rows, &row)?;
        } else {
            let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
            let name = format!("{}{slash}", output::plain(&path));
            match self.args.long {
                true => {
                    let (bytes, time) = (self.bytes(entry), entry.modified);
                    let time = time.map_or_else(|| "-".to_owned(), |time| timestamp(time, false));
                    self.output.line(format_args!("{bytes:>13} {time:>20} {name}"))?;
                }
                false => self.output.line(name)?,
            }
        }
        self.rows += 1;
        if self.flushed.elapsed() >= FLUSH_EVERY {
            written(self.output.flush())?;
            self.flushed = Instant::now();
        }
        Ok(())
    }

    fn bytes(&self, entry: &Entry) -> String {
        match entry.kind {
            EntryKind::File if self.args.human => size(entry.size),
            EntryKind::File => entry.size.to_string(),
            _ => "-".to_owned(),
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.args.json { self.output.json_end(self.rows) } else { Ok(()) }
    }
}

/// The last component of a URL, without a query: the name of the file.
pub(super) fn name_of(url: &str) -> String {
    let url = if url.contains("://") { url.split(['?', '#']).next().unwrap_or(url) } else { url };
    let name = url.trim_end_matches('/').rsplit('/').next().unwrap_or(url);
    name.to_owned()
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Fifo => "fifo",
        EntryKind::Socket => "socket",
        EntryKind::CharDevice => "char-device",
        EntryKind::BlockDevice => "block-device",
    }
}

/// A time in RFC 3339, UTC, in seconds, or `exact` with 0, 3, 6 or 9 digits more; years before 1970
/// and after 9999 are clamped.
fn timestamp(time: SystemTime, exact: bool) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().min(TIME_MAX);
    let time = SystemTime::UNIX_EPOCH + since;
    let text = match since.subsec_nanos() {
        nanos if !exact || nanos == 0 => humantime::format_rfc3339_seconds(time),
        nanos if nanos % 1_000_000 == 0 => humantime::format_rfc3339_millis(time),
        nanos if nanos % 1_000 == 0 => humantime::format_rfc3339_micros(time),
        _ => humantime::format_rfc3339_nanos(time),
    };
    text.to_string()
}

/// The end of year 9999, since 1970: RFC 3339 has four digits for a year.
const TIME_MAX: Duration = Duration::new(253_402_300_799, 999_999_999);

/// Longest delay of buffered lines, so that a slow listing shows progress.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_utc() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(timestamp(at(1_709_208_000), false), "2024-02-29T12:00:00Z");
        assert_eq!(timestamp(at(0) - Duration::from_secs(1), false), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(at(1 << 62), false), "9999-12-31T23:59:59Z");
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (120_000_000, "1970-01-01T00:00:00.120Z"),
            (5_000, "1970-01-01T00:00:00.000005Z"),
            (1, "1970-01-01T00:00:00.000000001Z"),
        ] {
            assert_eq!(timestamp(at(0) + Duration::from_nanos(nanos), true), text);
        }
    }

    #[test]
    fn the_name_of_a_url_is_its_last_part() {
        for (url, name) in [
            ("s3://bucket/a/b.bin", "b.bin"),
            ("https://host/a/b.bin?X-Signature=x/y", "b.bin"),
            ("https://host/dir/", "dir"),
            ("/data/what?", "what?"),
            ("file", "file"),
        ] {
            assert_eq!(name_of(url), name, "{url}");
        }
    }
}
