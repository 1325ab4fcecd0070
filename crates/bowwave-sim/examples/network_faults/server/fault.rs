//! What may go wrong with a request.

use bowwave_core::named_enum;

named_enum! {
    /// A fault of the network or the server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) enum Fault {
        /// The request never arrives.
        RequestDropped = "request lost",
        /// The connection is refused.
        Refused = "connection refused",
        /// The connection breaks before the head.
        ResetBeforeHead = "reset before the head",
        /// The connection breaks in the head, so late that the client may have given up.
        ResetInHead = "reset in the head",
        /// The server acts and never responds.
        Silent = "no response",
        /// The head comes about as late as the client accepts.
        LateHead = "late head",
        /// 503, mostly with `Retry-After`.
        Unavailable = "503",
        /// 429, mostly with `Retry-After`.
        TooMany = "429",
        /// 500, sometimes with `Retry-After`.
        Internal = "500",
        /// 403.
        Forbidden = "403",
        /// The response comes again after its end.
        Duplicate = "response duplicated",
        /// The response is late and comes even if the client has abandoned it.
        Ghost = "late response to an abandoned request",
        /// Another range than the requested one.
        WrongRange = "another range",
        /// The range of an earlier request.
        Desync = "range of an earlier request",
        /// The whole object, with status 200.
        Whole = "200 for 206",
        /// A content coding.
        Encoded = "encoded body",
        /// 206 without `Content-Range`.
        Unplaced = "206 without Content-Range",
        /// A `Content-Length` that is not that of the range.
        OtherLength = "another Content-Length",
        /// No validators.
        Unversioned = "no validators",
        /// No size: `Content-Range: bytes 0-9/*`, or no `Content-Length`.
        Unsized = "no size",
        /// The connection breaks in the body.
        ResetInBody = "reset in the body",
        /// The body ends early, with `Content-Length`.
        Truncated = "truncated with Content-Length",
        /// The body ends early, and nothing says so.
        TruncatedUnseen = "truncated without Content-Length",
        /// The body is longer than the range.
        TooLong = "body too long",
        /// Nothing follows some of the body.
        SilentBody = "silence in the body",
        /// The body continues after a silence, about when the client has given up.
        Resumed = "body that continues after a silence",
        /// Nothing follows all of the body, not even its end.
        NoEnd = "body without end",
        /// A few bytes at a time, some time after half of the body.
        Drip = "drip",
        /// Slow, but not too slow for most clients.
        Slow = "slow body",
        /// The token of this or the first page again.
        RepeatedToken = "repeated token",
        /// Empty pages with ever new tokens.
        NewTokens = "empty pages with ever new tokens",
        /// One page without entries, as for deleted keys.
        EmptyPage = "empty page",
        /// Pages with ever new entries.
        Flood = "ever new entries",
        /// More follows, without a token.
        NoToken = "truncated without a token",
        /// Nothing follows, with a token, and no page is missing.
        FalseToken = "token behind the last page",
        /// Nothing follows, with a token, and pages are missing.
        FalseEnd = "not truncated before the last page",
        /// Names are left out.
        Omission = "entries left out",
        /// The next page repeats entries of this one.
        Overlap = "overlapping pages",
        /// A page larger than a whole listing may be.
        LargePage = "page too large",
        /// The success status comes before the body was accepted in full.
        EarlySuccess = "success before the end of an upload",
        /// An error status comes before the body was accepted in full.
        EarlyError = "error before the end of an upload",
    }
}

/// Those that any request may meet.
pub(crate) const OF_ALL: &[Fault] = &[
    Fault::RequestDropped,
    Fault::Refused,
    Fault::ResetBeforeHead,
    Fault::ResetInHead,
    Fault::Silent,
    Fault::LateHead,
    Fault::Unavailable,
    Fault::TooMany,
    Fault::Internal,
    Fault::Forbidden,
    Fault::Duplicate,
    Fault::Ghost,
];

/// Those of requests for validators.
pub(crate) const OF_HEADS: &[Fault] =
    &[Fault::Unversioned, Fault::Unsized, Fault::Duplicate, Fault::LateHead];

/// Those of requests for a range.
pub(crate) const OF_BODIES: &[Fault] = &[
    Fault::WrongRange,
    Fault::Desync,
    Fault::Whole,
    Fault::Encoded,
    Fault::Unplaced,
    Fault::OtherLength,
    Fault::Unversioned,
    Fault::Unsized,
    Fault::ResetInBody,
    Fault::ResetInBody,
    Fault::Truncated,
    Fault::TruncatedUnseen,
    Fault::TooLong,
    Fault::SilentBody,
    Fault::Resumed,
    Fault::Resumed,
    Fault::NoEnd,
    Fault::Drip,
    Fault::Slow,
    Fault::Duplicate,
    Fault::Ghost,
];

/// Those of requests for a page of a listing.
pub(crate) const OF_PAGES: &[Fault] = &[
    Fault::RepeatedToken,
    Fault::NewTokens,
    Fault::EmptyPage,
    Fault::EmptyPage,
    Fault::Flood,
    Fault::NoToken,
    Fault::FalseToken,
    Fault::FalseEnd,
    Fault::Omission,
    Fault::Overlap,
    Fault::LargePage,
    Fault::ResetInBody,
    Fault::Truncated,
    Fault::SilentBody,
];

/// Those of uploads.
pub(crate) const OF_UPLOADS: &[Fault] = &[
    Fault::ResetInBody,
    Fault::SilentBody,
    Fault::Drip,
    Fault::Slow,
    Fault::EarlySuccess,
    Fault::EarlyError,
];
