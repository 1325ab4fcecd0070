//! The control channel of running caches: `bowwave status`, `ctl`, `plan` and `umount` reach
//! mounts, programs under `bowwave run`, and programs that use the library.
//!
//! ```text
//! mount, program …  ──serves──►  $XDG_RUNTIME_DIR/bowwave/mount-PID.sock     ◄─requests─  bowwave ctl …
//!                                                         program-PID.sock
//!                                directory: 0700, sockets 0600
//! ```
//!
//! Each connection carries one request: one line of JSON in each direction. [`Request::End`] gets a
//! second line at the end of the mount. Each side checks the user of the other: only the user of
//! the process and root may send requests.
//!
//! A program that embeds the cache serves the channel with one call:
//!
//! ```
//! use bowwave_control::{Process, Program, Request};
//! use bowwave_engine::Settings;
//!
//! let settings: Settings = "cache=16MiB policy=none".parse()?;
//! let (engine, _store) = settings.open("/etc")?;
//! let _served = Program { engine: Some(engine.clone()), ..Program::default() }.serve()?;
//! // The request that 'bowwave ctl PID set policy ondemand' sends:
//! let set = Request::Set { key: "policy".to_owned(), value: "ondemand".to_owned() };
//! Process::find(std::process::id())?.ask(&set)?;
//! assert_eq!(engine.setting("policy")?, "ondemand");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | content |
//! |---|---|
//! | `protocol` | [`Request`], [`Setting`], and their JSON |
//! | `directory` | the directory of a user's sockets |
//! | `server` | [`Server`]: serves a [`Subject`] until it is dropped |
//! | `program` | [`Program`]: a [`Subject`] for the caches of a program |
//! | `client` | [`Peer`]: a socket and requests to it; [`End`]: waits for the end of a mount |
//! | `process` | [`Process`]: all sockets of a process |
//! | `announce` | [`announce()`]: tells a mount which files will be opened |
//! | `system` | signals and forks |

mod announce;
mod client;
mod directory;
mod error;
mod process;
mod program;
mod protocol;
mod server;
mod system;

pub use announce::{Announcement, announce};
pub use client::{End, Ended, Peer, peers};
pub use directory::own_directory;
pub use error::Error;
pub use process::Process;
pub use program::{Map, Program, cache_counters, swap_counters};
pub use protocol::{PATIENCE, Request, Setting};
pub use server::{Server, Subject};
pub use system::{Quiet, prepare};

/// Result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// The target of this crate's log lines.
pub const LOG: &str = "control";
