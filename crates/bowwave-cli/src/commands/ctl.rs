//! `bowwave ctl`: the settings of a running mount or program.

use std::path::PathBuf;

use bowwave_control::{Request, Setting};
use clap::Subcommand;
use serde_json::Value;

use crate::mounts::Target;
use crate::output::Output;
use crate::table::{Align, Table};
use crate::{Failure, persisted};

/// Arguments of `bowwave ctl`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
TARGET is the directory of a mount, or the process id of a program: one under 'bowwave run', or one that serves its cache \
with the library. Only its user and root may use it. Settings apply to all stores and all swapped memory of the process. \
Those that are fixed are options of 'bowwave mount' and 'bowwave run', or tunables of --set. The directory of a mount whose \
name is a number is ./NUMBER.

Examples:
  bowwave ctl /mnt/data list
  bowwave ctl /mnt/data get ra_pages
  bowwave ctl /mnt/data set ra_pages 4MiB
  bowwave ctl /mnt/data set fifo_batch 8 --persist
  bowwave ctl /mnt/data set log info,store=debug
  bowwave ctl 4711 list
  bowwave ctl 4711 set swap.policy vma")]
pub(crate) struct Args {
    /// The directory of a mount, or the process id of a program
    #[arg(value_name = "TARGET")]
    target: Target,

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
    /// Change a setting; it holds until the mount or program ends, or longer with --persist
    Set {
        /// The setting
        #[arg(value_name = "KEY")]
        key: String,
        /// The new value, as the option of that name takes it
        #[arg(value_name = "VALUE")]
        value: String,
        /// For mounts: also set it whenever this user mounts there, after the options of the mount
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

/// Sends the request to the process and prints the response.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let plain = |key: &str| key.replace('-', "_");
    let (request, json) = match &args.action {
        Action::List { json } => (Request::List, *json),
        Action::Get { key, json } => (Request::Get { key: plain(key) }, *json),
        Action::Set { key, value, .. } => (Request::Set { key: plain(key), value: value.clone() }, false),
        Action::Forget { key } => return persisted::store(&point(&args.target)?, &plain(key), None),
    };
    let persisted_at = match args.action {
        Action::Set { persist: true, .. } => Some(point(&args.target)?),
        _ => None,
    };
    let response = args.target.ask(&request)?;
    if let (Some(point), Action::Set { key, value, .. }) = (persisted_at, &args.action) {
        persisted::store(&point, &plain(key), Some(value))?;
    }
    let mut output = Output::stdout();
    let printed = print(&mut output, &request, response, json);
    output.finish(printed)
}

/// The mount point as the mount knows it.
fn point(target: &Target) -> Result<PathBuf, Failure> {
    let Target::Mount(dir) = target else {
        return Err(usage!("settings persist by mount point, and a process has none")
            .try_this("the directory of the mount"));
    };
    bowwave_fuse::absolute(dir).map_err(|error| failed!("{}: {error}", dir.display()))
}

fn print(output: &mut Output, request: &Request, response: Value, json: bool) -> Result<(), Failure> {
    let odd = |error| failed!("the process is of another version: {error}");
    if matches!(request, Request::List) {
        let settings: Vec<Setting> = serde_json::from_value(response).map_err(odd)?;
        if json {
            return output.json_array(&settings);
        }
        let mut table = Table::new([
            ("setting", Align::Left),
            ("value", Align::Left),
            ("default", Align::Left),
            ("now", Align::Left),
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
