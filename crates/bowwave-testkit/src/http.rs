//! A web server with ranges, Last-Modified and (weak) ETags.

use std::io;
use std::path::Path;

use hyper_staticfile::Static;

use crate::serve::{self, Serving};

/// Serves a directory's files over HTTP.
#[derive(Debug)]
pub struct HttpServer {
    serving: Serving,
}

impl HttpServer {
    /// Starts a server for `directory`.
    ///
    /// # Errors
    ///
    /// If no port or thread is available.
    pub fn start(directory: &Path) -> io::Result<Self> {
        Ok(Self { serving: serve::start(Static::new(directory))? })
    }

    /// URL of the directory; ends with `/`.
    pub fn url(&self) -> String {
        format!("http://{}/", self.serving.address)
    }
}
