//! The laboratory: the very cache and policies of the engine, driven in virtual time.
//!
//! ```text
//!   readers ──► machine ──► core::Cache ──► machine ──► device queue ──► device model
//!      ▲                                                                     │
//!      └──────────────── heap of events, in order of time ◄──────────────────┘
//! ```
//!
//! Nothing here decides what to read or to keep: that is `bowwave-core`, as in production. Nothing here looks at a clock
//! either: a run with the same input gives the same output, to the digit.
//!
//! [`network`] drives the state machines of remote stores' clients, against servers that fail, lie and replace objects.

pub mod block;
pub mod fast;
pub mod faults;
pub mod machine;
pub mod network;
pub mod oracle;
pub mod parallel;
pub mod plan;
pub mod queue;
pub mod record;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod swap;
pub mod sweep;

pub use bowwave_device as device;
