//! Servers on loopback for tests: a web server and an S3 server, each for a directory.
//!
//! ```
//! let directory = std::env::temp_dir();
//! let server = bowwave_testkit::HttpServer::start(&directory).unwrap();
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! ```
//!
//! A server takes a free port, and stops when dropped. Both are independent implementations
//! (`hyper-staticfile`, `s3s-fs`), not mocks, so they reveal our mistakes. [`ShapedS3`] is ours and
//! for measurements: it serves generated objects at a configured speed. [`HostileServer`] speaks
//! the protocols of all stores and breaks them on request. [`InstalledServer`] starts the servers
//! that users run: versitygw, nginx and Python's.

pub mod hostile;
mod http;
mod installed;
mod s3;
mod serve;
mod shaped;
mod skipped;

pub use hostile::HostileServer;
pub use http::HttpServer;
pub use installed::{InstalledServer, VERSITYGW_KEY, VERSITYGW_SECRET, program};
pub use s3::{S3Fault, S3Server, S3Trouble};
pub use shaped::{Content, PERIOD, Shape, ShapedS3};
pub use skipped::{is_root, skipped};
