#![doc = include_str!("../README.md")]
//!
//! [`bowwave_core`] decides, as in production. [`experiment`] parses experiments in TOML,
//! [`replay`] replays traces, [`mod@report`] renders runs.

pub mod block;
pub mod experiment;
pub mod fast;
pub mod faults;
pub mod machine;
pub mod oracle;
pub mod parallel;
pub mod queue;
pub mod record;
pub mod regret;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod swap;
pub mod sweep;
mod think;

pub use bowwave_device as device;
