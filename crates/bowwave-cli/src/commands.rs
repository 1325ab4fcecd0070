//! The subcommands, one file each: `Args`, which clap parses, and `run`.

pub(crate) mod advise;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mount;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod regret;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod status;
mod trace;
pub(crate) mod umount;
pub(crate) mod uploads;
