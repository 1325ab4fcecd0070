//! The subcommands, one file each: `Args`, what clap reads, and `run`, which carries it out.

pub mod completions;
pub mod conformance;
pub mod cp;
pub mod ctl;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod generate;
pub mod import;
pub mod ls;
pub mod man;
pub mod mount;
pub mod read;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod status;
pub mod umount;
pub mod uploads;
