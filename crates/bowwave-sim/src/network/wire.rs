//! What client and server send each other.

use bowwave_core::network::Response;

/// A request.
#[derive(Clone, Debug, Hash)]
pub(super) enum Request {
    Head { object: u32 },
    Get { object: u32, start: u64, end: u64, guard: Option<Guard> },
    List { token: Option<String> },
    Put { upload: u32, bytes: u64 },
}

/// The condition of a request, as its header has it.
#[derive(Clone, Debug, Hash)]
pub(super) enum Guard {
    Match(String),
    UnmodifiedSince(String),
}

/// What the client hears of one request.
#[derive(Clone, Debug, Hash)]
pub(super) enum Message {
    /// No connection.
    Refused,
    /// The connection broke.
    Reset,
    Head {
        response: Response,
        retry_after_ns: Option<u64>,
    },
    /// Bytes of the body. `last`: the body ends with them.
    Body {
        bytes: Bytes,
        last: bool,
    },
    /// The end of the body.
    End,
    /// The connection has accepted bytes of the request's body. `stores`: the server has all and stores them.
    Accepted {
        bytes: u64,
        stores: bool,
    },
    /// A page of a listing, as parsed.
    Page(Listed),
}

/// Bytes of a body. Nothing has contents here: bytes are where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bytes {
    /// Version of the object.
    pub(super) version: u32,
    /// Offset in that version.
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// One page of a listing.
#[derive(Clone, Debug, Hash)]
pub(super) struct Listed {
    pub(super) names: Vec<u32>,
    pub(super) bytes: u64,
    pub(super) truncated: Option<bool>,
    pub(super) next: Option<String>,
    /// Whether the page leaves out names. Only the checks know.
    pub(super) omits: bool,
}
