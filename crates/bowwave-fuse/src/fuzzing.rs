//! Entry point for fuzzers: the requests of a mount without a kernel.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bowwave_engine::Store;
use fuser::{Config, Session, SessionACL};

use crate::error::{Error, Result};
use crate::filesystem::Requests;
use crate::mount::operations_of;
use crate::options::MountOptions;
use crate::workers::Workers;

/// Serves requests for `store` from `connection` instead of the kernel's device. Each packet is one
/// request in the format of `fuse(4)`; requests are served one at a time. The first is `FUSE_INIT`.
/// Returns after `FUSE_DESTROY`, or when the peer closes the connection.
///
/// # Errors
/// If the connection breaks, a packet is malformed, or the store's root cannot be read.
pub fn serve(store: Store, options: MountOptions, connection: OwnedFd) -> Result<()> {
    // With two receivers, one is always free, so each job runs on this session's thread.
    let workers = Workers::new(2, 1);
    let operations = operations_of(store, options, Box::new(|_, _| {}))?;
    let requests = Requests::new(Arc::new(operations), workers);
    let failed = |error: std::io::Error| Error::new(format!("the connection failed: {error}"));
    let session =
        Session::from_fd(requests, connection, SessionACL::All, Config::default()).map_err(failed)?;
    session.run().map_err(failed)
}
