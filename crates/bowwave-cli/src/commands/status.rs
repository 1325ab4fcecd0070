//! `bowwave status`: lists mounts and programs, and their state.

use bowwave_control::{Process, Request};
use serde_json::{Value, json};

use crate::mounts::{self, Mount, State, Target};
use crate::output::{self, Output};
use crate::table::{Align, Table};
use crate::{Failure, setup};

/// Arguments of `bowwave status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A mount is 'mounted', 'dead' (its process has ended; the line that removes it follows), 'hung' (its process does not \
respond) or 'mounted, silent' (it has no control channel that this user may ask). A program runs under 'bowwave run', or \
serves its cache with the library; it is listed from its first use of the cache on. Root sees mounts and programs of all users.

With TARGET, exits with 1 if the mount is dead or hung.

Examples:
  bowwave status
  bowwave status /mnt/data
  bowwave status 4711
  bowwave status --json")]
pub(crate) struct Args {
    /// The directory of a mount, or the process id of a program; without it, all are listed
    #[arg(value_name = "TARGET")]
    target: Option<Target>,

    /// Print JSON: an array of mounts and programs, or with TARGET an object, with counters and the
    /// last errors
    #[arg(long)]
    json: bool,
}

/// Prints the reports of mounts and programs.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut output = Output::stdout();
    let dir = match &args.target {
        Some(Target::Mount(dir)) => dir,
        Some(Target::Process(id)) => {
            let process = Process::find(*id)?;
            let row = of_process(&process, process.ask(&Request::Status)?);
            let printed = match (args.json, row["dir"].is_null()) {
                (true, _) => output.json_line(&row),
                (false, true) => describe_program(&mut output, &row),
                (false, false) => describe(&mut output, &row),
            };
            return output.finish(printed);
        }
        None => {
            let mounts: Vec<_> = mounts::mounts()?.iter().map(row).collect();
            let programs = programs();
            let printed = if args.json {
                output.json_array(&[mounts, programs].concat())
            } else {
                list(&mut output, &mounts, &programs)
            };
            return output.finish(printed);
        }
    };
    let mount = mounts::mount_at(dir)?;
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
        State::Alive(..) | State::Silent => Ok(()),
    }
}

/// The programs that respond, with their caches.
fn programs() -> Vec<Value> {
    let answers = Process::programs().into_iter().filter_map(|process| {
        let answer = process.ask(&Request::Status).ok()?;
        Some(of_process(&process, answer))
    });
    answers.collect()
}

/// The response of a process. Its number is that of the socket: other words are the process's own.
fn of_process(process: &Process, mut answer: Value) -> Value {
    if let Some(row) = answer.as_object_mut() {
        row.insert("pid".to_owned(), json!(process.id()));
        row.insert("user".to_owned(), json!(process.user()));
        row.insert("state".to_owned(), json!(if row.contains_key("dir") { "mounted" } else { "running" }));
    }
    answer
}

/// A mount with its state.
fn row(mount: &Mount) -> Value {
    let (state, answer) = match &mount.state {
        State::Alive(answer, _) => ("mounted", Some(answer)),
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

fn list(output: &mut Output, mounts: &[Value], programs: &[Value]) -> Result<(), Failure> {
    // Without any, the heading of mounts says so.
    if !mounts.is_empty() || programs.is_empty() {
        list_mounts(output, mounts)?;
    }
    if programs.is_empty() {
        return Ok(());
    }
    if !mounts.is_empty() {
        output.line("")?;
    }
    let mut table = Table::new([
        ("process", Align::Right),
        ("program", Align::Left),
        ("age", Align::Right),
        ("memory", Align::Right),
        ("swapped", Align::Right),
        ("stores", Align::Left),
    ]);
    for row in programs {
        table.row([
            text(&row["pid"]),
            text(&row["program"]),
            row["age_seconds"].as_u64().map_or_else(String::new, age),
            bytes(&row["memory_used"]),
            bytes(&row["spill_used"]),
            stores(row).join(", "),
        ]);
    }
    output.line(table.to_string().trim_end())
}

/// `URL at PATH` of each store of a program.
fn stores(row: &Value) -> Vec<String> {
    let maps = row["maps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown = maps.iter().map(|map| match (text(&map["url"]), text(&map["path"])) {
        (url, path) if path.is_empty() || path == url => url,
        (url, path) => format!("{url} at {path}"),
    });
    shown.collect()
}

fn list_mounts(output: &mut Output, mounts: &[Value]) -> Result<(), Failure> {
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
    for row in mounts {
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
    columns(output, lines)?;
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

fn describe_program(output: &mut Output, row: &Value) -> Result<(), Failure> {
    let of = |part: &str, whole: &str| format!("{} of {}", bytes(&row[part]), bytes(&row[whole]));
    let mut lines = vec![
        ("process", text(&row["pid"])),
        ("program", text(&row["program"])),
        ("user", text(&row["user"])),
        ("version", text(&row["version"])),
        ("age", row["age_seconds"].as_u64().map_or_else(String::new, age)),
        ("memory", of("memory_used", "memory_limit")),
    ];
    lines.extend(stores(row).into_iter().map(|store| ("store", store)));
    if !row["policy"].is_null() {
        lines.push(("policy", text(&row["policy"])));
    }
    if !row["swap_policy"].is_null() {
        lines.push(("swap policy", text(&row["swap_policy"])));
        lines.push(("spill", of("spill_used", "spill_limit")));
    }
    columns(output, lines)?;
    let counters = row["counters"].as_object().into_iter().flatten();
    let counters: Vec<_> = counters
        .filter(|(_, count)| **count != 0)
        .map(|(name, count)| (name.as_str(), text(count)))
        .collect();
    output.line("\ncounters")?;
    columns(output, counters)
}

/// Names, and their values in a column.
fn columns(output: &mut Output, lines: Vec<(&str, String)>) -> Result<(), Failure> {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in lines {
        output.line(format_args!("{name:width$}  {value}"))?;
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
