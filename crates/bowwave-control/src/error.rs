//! Why a request failed.

use std::fmt;
use std::path::PathBuf;

/// Why a request failed. Its text names the cause, and the remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No process of this number serves a control channel that this user may ask.
    NoProcess(u32),
    /// No mount that this user may ask is there.
    NoMount(PathBuf),
    /// The process has a control channel, but does not respond.
    Silent(u32),
    /// The process refused the request.
    Refused(String),
    /// A path that no file of the mount can have.
    Outside {
        /// The path.
        file: PathBuf,
        /// The mount point.
        mount: PathBuf,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess(id) => {
                write!(f, "process {id} serves no cache of bowwave that this user may ask")
            }
            Self::NoMount(at) => {
                write!(f, "{}: no mount of bowwave that this user may ask is there", at.display())
            }
            Self::Silent(id) => write!(f, "process {id} does not respond"),
            Self::Refused(why) => f.write_str(why),
            Self::Outside { file, mount } => {
                write!(f, "'{}' is not in {}", file.display(), mount.display())
            }
        }
    }
}

impl std::error::Error for Error {}
