//! `bowwave uploads`: lists and aborts unfinished uploads at an object store.

use std::thread;
use std::time::{Duration, SystemTime};

use bowwave_backend::{Backend, Upload, Write as _, open_url};
use serde::Serialize;

use crate::output::{self, Output};
use crate::setup::StoreArgs;
use crate::{Failure, values};

/// Arguments of `bowwave uploads`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One line per upload: its age in seconds ('-' if unknown), the object it would become, and its id at the store. An unfinished \
upload is not visible as an object, but stores charge for its parts until it is aborted.

A program that is writing also has an upload, and fails if it is aborted. --older-than keeps younger uploads.

Examples:
  bowwave uploads s3://bucket/prefix
  bowwave uploads s3://bucket --abort --older-than 12h")]
pub(crate) struct Args {
    /// Where: s3:, gs:, az: with a bucket
    #[arg(value_name = "URL")]
    url: String,

    /// Abort the listed uploads, and list the aborted ones
    #[arg(long)]
    abort: bool,

    /// Minimum age; uploads of unknown age are skipped; with --abort one day by default
    #[arg(long, value_name = "AGE", default_value = "0", default_value_if("abort", "true", "24h"), value_parser = values::duration)]
    older_than: Duration,

    /// Print a JSON array of objects with `age_seconds` (null if unknown), `path` and `id`
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// An upload in the output.
#[derive(Debug, Serialize)]
struct Row {
    age_seconds: Option<u64>,
    path: String,
    id: String,
}

/// Aborts the uploads of a store that are at least `age` old; returns their number.
pub(super) fn abort_old(store: &dyn Backend, age: Duration) -> Result<usize, Failure> {
    let mut uploads = store.stray_uploads()?;
    let now = SystemTime::now();
    uploads.retain(|upload| is_old(upload, now, age));
    for upload in &uploads {
        abort(store, upload, true)?;
    }
    Ok(uploads.len())
}

/// Lists, and aborts on request.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let backend = open_url(&args.url, &args.store.options())?;
    let mut uploads = backend.stray_uploads()?;
    let now = SystemTime::now();
    uploads.retain(|upload| is_old(upload, now, args.older_than));
    uploads.sort_by(|a, b| (&a.path, &a.id).cmp(&(&b.path, &b.id)));
    let mut refused = None;
    let mut rows = Vec::new();
    for upload in &uploads {
        match abort(backend.as_ref(), upload, args.abort) {
            Ok(()) => rows.push(row(upload, now)),
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    let mut output = Output::stdout();
    let printed = match args.json {
        true => output.json_array(&rows),
        false => rows.iter().try_for_each(|row| output.line(line(row))),
    };
    output.finish(printed)?;
    refused.map_or(Ok(()), Err)
}

/// Aborts the upload if `asked`. An upload that has ended meanwhile counts as aborted. Servers
/// report that with different errors, so a new listing decides.
fn abort(backend: &dyn Backend, upload: &Upload, asked: bool) -> Result<(), Failure> {
    let Some(Err(error)) = asked.then(|| backend.abort_upload(upload)) else { return Ok(()) };
    if stays(backend, upload)? { Err(Failure::from(error)) } else { Ok(()) }
}

/// Whether an upload that could not be aborted still exists a moment later: the server may be
/// completing it.
fn stays(backend: &dyn Backend, upload: &Upload) -> Result<bool, Failure> {
    for _ in 0..LOOKS {
        if !backend.stray_uploads()?.contains(upload) {
            return Ok(false);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(true)
}

/// Number of such checks, and the wait after each: one second in total.
const LOOKS: u32 = 10;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Age of an upload; `None` if the store does not report it, 0 if the store's clock is ahead.
fn age(upload: &Upload, now: SystemTime) -> Option<Duration> {
    upload.begun.map(|begun| now.duration_since(begun).unwrap_or_default())
}

fn is_old(upload: &Upload, now: SystemTime, older_than: Duration) -> bool {
    older_than.is_zero() || age(upload, now).is_some_and(|age| age >= older_than)
}

fn row(upload: &Upload, now: SystemTime) -> Row {
    let age_seconds = age(upload, now).map(|age| age.as_secs());
    Row { age_seconds, path: upload.path.to_string_lossy().into_owned(), id: upload.id.clone() }
}

fn line(row: &Row) -> String {
    let age = row.age_seconds.map_or_else(|| "-".to_owned(), |age| age.to_string());
    format!("{age:>8}  {}  {}", output::plain(&row.path), output::plain(&row.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_decides_and_unknown_ages_count_as_young() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000);
        let upload = |begun: Option<u64>| Upload {
            path: "directory/object".into(),
            id: "id".to_owned(),
            begun: begun.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
        };
        let hour = Duration::from_secs(3600);
        for (begun, old, text) in [
            (Some(1), true, "    9999  directory/object  id"),
            (Some(6400), true, "    3600  directory/object  id"),
            (Some(6401), false, "    3599  directory/object  id"),
            (Some(20_000), false, "       0  directory/object  id"),
            (None, false, "       -  directory/object  id"),
        ] {
            let upload = upload(begun);
            assert_eq!(is_old(&upload, now, hour), old, "{begun:?}");
            assert!(is_old(&upload, now, Duration::ZERO));
            assert_eq!(line(&row(&upload, now)), text);
        }
        let odd = Row { age_seconds: None, path: "a\u{1b}[2J\nb".to_owned(), id: "é".to_owned() };
        assert_eq!(line(&odd), "       -  a\\u{1b}[2J\\nb  é");
    }
}
