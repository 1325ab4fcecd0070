//! Meaning of the library's errors.

use object_store::Error as StoreError;

use super::client::{chain, transport_error};
use crate::{Error, ErrorKind, path};

pub(super) fn store_error(place: &str, error: &StoreError) -> Error {
    let (kind, what) = match error {
        StoreError::NotFound { .. } => (ErrorKind::NotFound, "no such object or bucket"),
        StoreError::Precondition { .. } | StoreError::NotModified { .. } => return path::changed(place),
        StoreError::PermissionDenied { .. } => {
            (ErrorKind::PermissionDenied, "the credentials do not suffice")
        }
        StoreError::Unauthenticated { .. } => (ErrorKind::Unauthenticated, "the credentials are wrong"),
        StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
            (ErrorKind::Unsupported, "cannot be done")
        }
        StoreError::InvalidPath { .. } => (ErrorKind::Protocol, "a key cannot be a path"),
        _ => return transport_error(place, error),
    };
    Error::new(kind, format!("{place}: {what} ({})", brief(error)))
}

/// The server's message: the text of its `<Message>`, or all.
fn brief(error: &StoreError) -> String {
    let text = chain(error);
    let message = text.split_once("<Message>").and_then(|(_, rest)| Some(rest.split_once("</Message>")?.0));
    message.map_or_else(|| text.clone(), str::to_owned)
}
