//! Real servers on loopback, for tests: a web server and an S3 server, each over a folder.
//!
//! ```
//! let folder = std::env::temp_dir();
//! let server = bowwave_testkit::HttpServer::start(&folder).unwrap();
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! ```
//!
//! A server takes a free port, and stops when it is dropped. Neither is a mock: both are other people's servers
//! (`hyper-staticfile`, `s3s-fs`), so that they disagree with us where we are wrong. A third one, [`ShapedS3`], is ours, for
//! figures and not for tests: it serves made-up objects as slowly as it is told. A fourth one, [`HostileServer`], speaks
//! the protocols of all stores and breaks them as it is told. [`InstalledServer`] starts the servers that users have: versitygw,
//! nginx and Python's.

pub mod hostile;
mod http;
mod installed;
mod s3;
mod serve;
mod shaped;

pub use hostile::HostileServer;
pub use http::HttpServer;
pub use installed::{InstalledServer, VERSITYGW_KEY, VERSITYGW_SECRET, program};
pub use s3::{S3Fault, S3Server, S3Trouble};
pub use shaped::{PERIOD, Shape, ShapedS3};
