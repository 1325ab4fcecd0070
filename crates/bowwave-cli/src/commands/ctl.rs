//! `bowwave ctl`: the settings of a running mount.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use crate::Failure;
use crate::control::{self, Request, Setting, persisted};
use crate::output::Output;
use crate::table::{Align, Table};

/// Arguments of `bowwave ctl`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only the user of the mount and root may use it. Settings that are fixed while mounted are options of 'bowwave mount', or \
tunables of its --set.

Examples:
  bowwave ctl /mnt/data list
  bowwave ctl /mnt/data get ra_pages
  bowwave ctl /mnt/data set ra_pages 4MiB
  bowwave ctl /mnt/data set fifo_batch 8 --persist
  bowwave ctl /mnt/data set log info,store=debug")]
pub(crate) struct Args {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
enum Action {
    /// List all settings with value, default and meaning
    List {
        /// Print JSON: an array of objects with key, value, default, live and meaning
        #[arg(long)]
        json: bool,
    },
    /// Print the value of a setting
    Get {
        /// The setting
        #[arg(value_name = "KEY")]
        key: String,
        /// Print JSON: an object as in list
        #[arg(long)]
        json: bool,
    },
    /// Change a setting; it holds until the mount ends, or longer with --persist
    Set {
        /// The setting
        #[arg(value_name = "KEY")]
        key: String,
        /// The new value, as the option of that name takes it
        #[arg(value_name = "VALUE")]
        value: String,
        /// Also set it whenever this user mounts there, after the options of the mount
        #[arg(long)]
        persist: bool,
    },
    /// Forget a setting that was set with --persist; a running mount keeps its value
    Forget {
        /// The setting
        #[arg(value_name = "KEY")]
        key: String,
    },
}

/// Sends the request to the mount's process and prints the response.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let plain = |key: &str| key.replace('-', "_");
    let (request, json) = match &args.action {
        Action::List { json } => (Request::List, *json),
        Action::Get { key, json } => (Request::Get { key: plain(key) }, *json),
        Action::Set { key, value, .. } => (Request::Set { key: plain(key), value: value.clone() }, false),
        Action::Forget { key } => return persisted::store(&point(&args.dir)?, &plain(key), None),
    };
    let response = control::ask(&args.dir, &request)?;
    if let Action::Set { key, value, persist: true } = &args.action {
        persisted::store(&point(&args.dir)?, &plain(key), Some(value))?;
    }
    let mut output = Output::stdout();
    let printed = print(&mut output, &request, response, json);
    output.finish(printed)
}

/// The mount point as the mount knows it.
fn point(dir: &Path) -> Result<PathBuf, Failure> {
    bowwave_fuse::absolute(dir).map_err(|error| failed!("{}: {error}", dir.display()))
}

fn print(output: &mut Output, request: &Request, response: Value, json: bool) -> Result<(), Failure> {
    let odd = |error| failed!("the mount's process is of another version: {error}");
    if matches!(request, Request::List) {
        let settings: Vec<Setting> = serde_json::from_value(response).map_err(odd)?;
        if json {
            return output.json_array(&settings);
        }
        let mut table = Table::new([
            ("setting", Align::Left),
            ("value", Align::Left),
            ("default", Align::Left),
            ("while mounted", Align::Left),
            ("meaning", Align::Left),
        ]);
        for Setting { key, value, default, live, meaning } in settings {
            let live = if live { "changeable" } else { "fixed" };
            table.row([key, value, default, live.to_owned(), meaning]);
        }
        return output.line(table.to_string().trim_end());
    }
    let setting: Setting = serde_json::from_value(response).map_err(odd)?;
    match (request, json) {
        (Request::Get { .. }, true) => output.json_line(&setting),
        (Request::Get { .. }, false) => output.line(setting.value),
        _ => Ok(()),
    }
}
