//! `bowwave status`: lists mounts and their state.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::control::{self, Mount, State};
use crate::output::{self, Output};
use crate::table::{Align, Table};
use crate::{Failure, setup};

/// Arguments of `bowwave status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A mount is 'mounted', 'dead' (its process has ended; the line that removes it follows), 'hung' (its process does not \
respond) or 'mounted, silent' (it has no control channel that this user may ask). Root sees the mounts of all users.

With DIR, exits with 1 if the mount is dead or hung.

Examples:
  bowwave status
  bowwave status /mnt/data
  bowwave status --json")]
pub(crate) struct Args {
    /// Where it is mounted; without it, all mounts are listed
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print JSON: an array of mounts, or with DIR an object, with counters and the last errors
    #[arg(long)]
    json: bool,
}

/// Prints the reports of the mounts.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut output = Output::stdout();
    let Some(dir) = &args.dir else {
        let mounts = control::mounts()?;
        let printed = if args.json {
            output.json_array(&mounts.iter().map(row).collect::<Vec<_>>())
        } else {
            list(&mut output, &mounts)
        };
        return output.finish(printed);
    };
    let mount = control::mount_at(dir)?;
    let row = row(&mount);
    let printed = if args.json { output.json_line(&row) } else { describe(&mut output, &row) };
    output.finish(printed)?;
    let shown = mount.point.display();
    match mount.state {
        State::Dead => {
            Err(failed!("{shown}: the mount's process has died")
                .try_this(format_args!("bowwave umount {shown}")))
        }
        State::Hung => Err(failed!("{shown}: the mount does not respond")),
        State::Alive(_) | State::Silent => Ok(()),
    }
}

/// A mount with its state.
fn row(mount: &Mount) -> Value {
    let (state, answer) = match &mount.state {
        State::Alive(answer) => ("mounted", Some(answer)),
        State::Silent => ("mounted, silent", None),
        State::Hung => ("hung", None),
        State::Dead => ("dead", None),
    };
    let mut row = json!({
        "dir": mount.point.to_string_lossy(),
        "url": mount.url,
        "user": mount.user,
        "state": state,
    });
    if let (Some(row), Some(Value::Object(answer))) = (row.as_object_mut(), answer) {
        row.extend(answer.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    if matches!(mount.state, State::Dead) {
        row["remedy"] = json!(format!("bowwave umount {}", mount.point.display()));
    }
    row
}

fn list(output: &mut Output, mounts: &[Mount]) -> Result<(), Failure> {
    let mut table = Table::new([
        ("directory", Align::Left),
        ("state", Align::Left),
        ("process", Align::Right),
        ("age", Align::Right),
        ("memory", Align::Right),
        ("dirty", Align::Right),
        ("errors", Align::Right),
        ("store", Align::Left),
    ]);
    for row in mounts.iter().map(row) {
        let state = match row["remedy"].as_str() {
            Some(remedy) => format!("dead: {remedy}"),
            None => text(&row["state"]),
        };
        table.row([
            text(&row["dir"]),
            state,
            text(&row["pid"]),
            row["age_seconds"].as_u64().map_or_else(String::new, age),
            bytes(&row["memory_used"]),
            bytes(&row["dirty_bytes"]),
            text(&row["calls_failed"]),
            text(&row["url"]),
        ]);
    }
    output.line(table.to_string().trim_end())
}

fn describe(output: &mut Output, row: &Value) -> Result<(), Failure> {
    let counter = |name: &str| text(&row["counters"][name]);
    let of = |part: String, whole: String| format!("{part} of {whole}");
    let mut lines = vec![
        ("directory", text(&row["dir"])),
        ("store", text(&row["url"])),
        ("state", text(&row["state"])),
        ("user", text(&row["user"])),
    ];
    if !row["pid"].is_null() {
        lines.extend([
            ("process", text(&row["pid"])),
            ("version", text(&row["version"])),
            ("mounted since", text(&row["started"])),
            ("age", row["age_seconds"].as_u64().map_or_else(String::new, age)),
            (
                "access",
                (if row["read_only"] == true { "read-only" } else { "reading and writing" }).to_owned(),
            ),
            ("policy", text(&row["policy"])),
            ("memory", of(bytes(&row["memory_used"]), bytes(&row["memory_limit"]))),
            ("dirty", of(bytes(&row["dirty_bytes"]), bytes(&row["dirty_limit"]))),
            ("hits", of(counter("hits"), format!("{} pages", counter("accesses")))),
            ("misses", counter("misses")),
            (
                "requests to the store",
                format!("{}, {} failed", counter("requests"), counter("requests_failed")),
            ),
            ("fetched", bytes(&row["counters"]["bytes_fetched"])),
            ("calls failed", text(&row["calls_failed"])),
        ]);
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in lines {
        output.line(format_args!("{name:width$}  {value}"))?;
    }
    let errors = row["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    if errors.is_empty() {
        return Ok(());
    }
    output.line("\nlast errors")?;
    for error in errors {
        let times = match error["count"].as_u64() {
            Some(count @ 2..) => format!(" ({count} times)"),
            _ => String::new(),
        };
        let (time, path) = (text(&error["time"]), text(&error["path"]));
        let path = if path.is_empty() { "." } else { &path };
        let (name, reason) = (text(&error["error"]), text(&error["reason"]));
        output.line(format_args!("{time}  {path}: {name}: {reason}{times}"))?;
    }
    Ok(())
}

/// A value as text, without control characters: it may come from another user's process or a store.
fn text(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    output::plain(&text)
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or_else(String::new, setup::size)
}

/// `3d 4h`, `5min 6s`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}min {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
