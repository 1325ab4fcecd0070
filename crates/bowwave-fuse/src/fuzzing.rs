//! What fuzzers call: the requests of a mount, without a kernel.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::{Config, Session, SessionACL};

use crate::error::{Error, Result};
use crate::filesystem::Requests;
use crate::lanes::Lanes;
use crate::mount::operations_of;
use crate::options::MountOptions;
use crate::tree::Tree;

/// Serves requests for `tree` that come from `connection` in place of the kernel's device, one a packet and one at a time, as
/// `fuse(4)` lays them out. The first is `FUSE_INIT`. Returns after `FUSE_DESTROY`, or when the other end is closed.
///
/// # Errors
/// If the connection breaks or a packet is not a request; of the store, whose root is looked at first.
pub fn serve<T: Tree>(tree: T, options: MountOptions, connection: OwnedFd) -> Result<()> {
    // Two receivers, of which one is free: then each job runs at once, on this thread's session.
    let lanes = Lanes::new(2, 1);
    let operations = operations_of(tree, options, Box::new(|_, _| {}))?;
    let requests = Requests::new(Arc::new(operations), lanes);
    let failed = |error: std::io::Error| Error::new(format!("the connection failed: {error}"));
    let session =
        Session::from_fd(requests, connection, SessionACL::All, Config::default()).map_err(failed)?;
    session.run().map_err(failed)
}
