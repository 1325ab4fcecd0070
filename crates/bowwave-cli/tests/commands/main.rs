//! The commands that need no mount point, run as a user runs them.

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod command_line;
mod control;
mod copy;
mod demo;
mod doctor;
mod errors;
mod explain;
mod explain_scheduler;
mod explain_swap;
mod generate;
mod import;
mod layout;
mod ls;
mod read;
mod read_maps;
mod regret;
mod replay;
mod report;
mod reproduce;
mod run;
mod secrets;
mod uploads;
mod wire;
