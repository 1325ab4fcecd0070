//! Whether a response to a range request is the requested range of the version that was opened.

use super::version::{Difference, Strength, Validators};

/// What a request for a range expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The version that was opened, with its size.
    pub version: Validators,
    /// First byte.
    pub start: u64,
    /// End of the range; larger than `start`.
    pub end: u64,
}

/// The head of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Validators; their size is the one of `Content-Range`.
    pub version: Validators,
    /// Range of `Content-Range`, half open.
    pub range: Option<(u64, u64)>,
    /// Whether there is a `Content-Range`.
    pub has_range: bool,
    /// Bytes of the body as announced by `Content-Length`.
    pub length: Option<u64>,
    /// Whether the body has a content coding other than `identity`, or several parts. Then its
    /// bytes are not those of the range.
    pub encoded: bool,
}

/// Why a response is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is of another version.
    Changed,
    /// It lacks the validators of the version, or the size, where only the size tells apart
    /// versions of one date.
    Unversioned,
    /// It is the whole object: the server does not know ranges.
    NoRanges,
    /// It has no `Content-Range`.
    Unplaced,
    /// It is another range.
    OtherRange,
    /// Its body is encoded.
    Encoded,
    /// Its announced length is not the range's.
    Length(u64),
    /// The status says that it failed.
    Status,
}

impl Expected {
    /// Bytes of the range.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Checks the head of a response.
    ///
    /// # Errors
    /// The [`Fault`]. The caller interprets the status of [`Fault::Status`].
    pub fn check(&self, response: &Response) -> Result<(), Fault> {
        match response.status {
            206 => {
                self.of_version(response)?;
                self.unencoded(response)?;
                if !response.has_range {
                    return Err(Fault::Unplaced);
                }
                if response.range != Some((self.start, self.end)) {
                    return Err(Fault::OtherRange);
                }
                // Without a strong tag the size is part of what identifies the version, and `bytes
                // 0-9/*` hides it.
                let hidden = self.version.size.is_some() && response.version.size.is_none();
                if hidden && self.version.strength() != Strength::Strong {
                    return Err(Fault::Unversioned);
                }
            }
            200 => {
                self.of_version(response)?;
                self.unencoded(response)?;
                if Some(self.bytes()) != self.version.size {
                    return Err(Fault::NoRanges);
                }
            }
            // Removed, or shorter than the range: not the version that was opened.
            404 | 410 => return Err(Fault::Changed),
            416 if response.version.size.is_none() || response.version.size != self.version.size => {
                return Err(Fault::Changed);
            }
            _ => return Err(Fault::Status),
        }
        match response.length {
            Some(length) if length != self.bytes() => Err(Fault::Length(length)),
            _ => Ok(()),
        }
    }

    fn of_version(&self, response: &Response) -> Result<(), Fault> {
        self.version.check(&response.version).map_err(|difference| match difference {
            Difference::Changed => Fault::Changed,
            Difference::Missing => Fault::Unversioned,
        })
    }

    fn unencoded(&self, response: &Response) -> Result<(), Fault> {
        if response.encoded { Err(Fault::Encoded) } else { Ok(()) }
    }
}
