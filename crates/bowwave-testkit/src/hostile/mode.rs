//! Modes of the hostile server: a fault, and the requests it applies to. A mode is text:
//! `reset-in-body,calls=reads,every=4`.

use std::fmt;
use std::str::FromStr;

use super::request::Kind;

/// One way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None: the server is honest.
    Honest,
    /// A redirect of this status.
    Redirect(u16, Location),
    /// A status with this `Retry-After`; the request has no effect.
    Status(u16, Option<&'static str>),
    /// The connection is reset.
    Reset(Place),
    /// The port is closed for as long as the mode lasts.
    Refused,
    /// An error of this status with such a body.
    ErrorBody(u16, ErrorBody),
    /// A response head without an end.
    EndlessHead(EndlessHead),
    /// 4 EiB announced, and not one of them sent.
    HugeLength,
    /// HTML with status 200, as a captive portal sends it.
    Portal,
    /// Status 200 with an empty body and no metadata.
    Empty,
    /// A hostile listing.
    List(ListFault),
    /// Versions that change or cannot be told apart.
    Version(VersionFault),
    /// A response that contradicts itself or the request.
    Framing(Framing),
    /// Bytes that arrive late or never.
    Slow(Slow),
    /// An upload whose result differs from the response.
    Upload(UploadFault),
    /// One byte of the body is flipped; the framing is right.
    Flip,
}

/// Target of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The same path on the second host, which answers honestly.
    OtherHost,
    /// The same path on this host with `redirected=1` in its query, which is answered honestly.
    SameHost,
    /// An endless redirect on this host.
    Loop,
    /// No `Location` at all.
    Missing,
    /// Text that is no URL.
    Garbage,
    /// A `file:` URL.
    File,
}

/// Where a fault strikes in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before its first byte.
    BeforeHead,
    /// Within its head.
    InHead,
    /// Within its body.
    InBody,
}

/// The body of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// 500 MB, announced.
    Huge,
    /// Chunks without end.
    Chunked,
    /// Neither a length nor an end.
    Unannounced,
    /// A byte each 0.8 s.
    Drip,
}

/// Why a head does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndlessHead {
    /// One header without an end.
    OneHeader,
    /// Ever more headers.
    ManyHeaders,
}

/// A hostile listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFault {
    /// Every page is the first half of the listing, and names the same next page.
    RepeatedToken,
    /// Empty pages, each with a new token.
    EmptyPages,
    /// The same entries in each page, each with a new token.
    RepeatedPages,
    /// All entries, `IsTruncated=false`, and yet a token.
    TokenAtTheEnd,
    /// Half the entries, `IsTruncated=true`, and no token.
    TruncatedWithoutToken,
    /// XML that breaks off.
    CutOff,
    /// A root element of another kind.
    WrongRoot,
    /// 100,000 elements inside each other.
    Nested,
    /// A million attributes.
    Attributes,
    /// Entities that expand to a billion texts.
    Laughs,
    /// An entity that names a local file.
    ExternalEntity,
    /// 10,000 entries more than there are, in one page: legal.
    Page10000,
    /// Sent as an image.
    WrongType,
    /// A key of bytes that are not UTF-8.
    NotUtf8,
    /// Keys that cannot be paths, besides the honest ones.
    HostileKeys,
    /// An entry of -1 bytes.
    NegativeSize,
    /// An entry of more than 2^64 bytes.
    OverflowingSize,
    /// Every key twice.
    DuplicateKeys,
    /// Entries without end in one page.
    Endless,
}

/// Versions that change or cannot be told apart. Replacement is after the first GET of the object,
/// unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionFault {
    /// Replaced after each HEAD; conditions are honoured.
    AfterHead,
    /// Replaced; conditions are honoured.
    AfterGet,
    /// The first body breaks off half way, and the object is replaced.
    InBody,
    /// Replaced under an unchanged weak `ETag`, with another `Last-Modified`; conditions are
    /// ignored.
    SameWeakTag,
    /// Replaced; GETs have no `ETag`, and conditions are ignored.
    TagDroppedInGets,
    /// Replaced; no `ETag` anywhere, and conditions are honoured.
    ModifiedAlone,
    /// Replaced; no `ETag` anywhere, and conditions are ignored.
    ModifiedAloneUnconditional,
    /// Not replaced; neither `ETag` nor `Last-Modified`.
    NoValidators,
    /// Replaced by a shorter object; neither `ETag` nor `Last-Modified`.
    NoValidatorsOtherSize,
    /// Replaced; conditions are ignored.
    Unconditional,
    /// Replaced by a shorter object under the same strong `ETag`.
    SameTagOtherSize,
}

/// A response that contradicts itself or the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The range one byte further on, and announced as such.
    OtherRange,
    /// The right range of an object of another size.
    OtherTotal,
    /// Less body than `Content-Length` says, then the connection is closed.
    ShortBody,
    /// More body than `Content-Length` says.
    LongBody,
    /// A shorter range than requested, announced as such.
    ShortRange,
    /// Status 200 with the whole object.
    Whole200,
    /// Status 200 with the bytes of the range.
    Part200,
    /// 206 with `Content-Encoding: gzip` and such bytes.
    Gzip,
    /// 206 with `multipart/byteranges`.
    Multipart,
    /// Two `Content-Length` headers that differ.
    TwoLengths,
    /// Chunks whose sizes are no numbers.
    ChunkedGarbage,
    /// 1xx responses without end.
    InformationalFlood,
    /// A body without a head.
    Http09,
    /// HTTP/1.0: legal.
    Http10,
    /// A head with a line of garbage.
    HeaderGarbage,
    /// A right response, and a second one that no request asked for.
    ExtraResponse,
}

/// Bytes that arrive late or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Silence instead of a response.
    BeforeHead,
    /// Silence after the head.
    AfterHead,
    /// Silence within the body.
    HalfBody,
    /// The head in bytes each 0.8 s.
    HeadDrip,
    /// The body in bytes each 0.8 s.
    BodyDrip,
    /// The body at 100 bytes a second.
    Trickle,
    /// Half of the request's body is read, then silence.
    HalfUpload,
    /// The request's body is never read.
    UnreadUpload,
}

/// An upload whose result differs from the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadFault {
    /// Completions answer 200 with an error in the body, and nothing is done.
    ErrorIn200,
    /// PUTs are done and answered without `ETag`.
    NoTag,
    /// PUTs are done and answered with a wrong `ETag`.
    WrongTag,
    /// Done, and yet answered with 412.
    DoneBut412,
    /// Completions are done, and yet answered with 404 `NoSuchUpload`.
    DoneBut404,
    /// Success, and nothing is stored.
    Discarded,
}

impl Fault {
    /// All faults with their names, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        FAULTS.iter().copied()
    }

    /// The default scope of this fault.
    fn scope(self) -> Calls {
        use Framing as F;
        match self {
            Self::List(_) => Calls::Lists,
            Self::Framing(
                F::OtherRange
                | F::OtherTotal
                | F::ShortRange
                | F::Whole200
                | F::Part200
                | F::Gzip
                | F::Multipart,
            ) => Calls::Reads,
            Self::Flip => Calls::Reads,
            Self::Slow(Slow::HalfUpload | Slow::UnreadUpload) | Self::Upload(_) => Calls::Writes,
            Self::Portal | Self::Empty => Calls::Fetches,
            _ => Calls::All,
        }
    }
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Every request.
    All,
    /// HEAD and lists.
    Metadata,
    /// GET of objects.
    Reads,
    /// PUT, POST and DELETE.
    Writes,
    /// HEAD alone.
    Heads,
    /// Lists alone.
    Lists,
    /// HEAD, lists and GET.
    Fetches,
    /// PUT alone.
    Puts,
    /// POST alone.
    Posts,
}

const CALLS: [(&str, Calls); 9] = [
    ("all", Calls::All),
    ("metadata", Calls::Metadata),
    ("reads", Calls::Reads),
    ("writes", Calls::Writes),
    ("heads", Calls::Heads),
    ("lists", Calls::Lists),
    ("fetches", Calls::Fetches),
    ("puts", Calls::Puts),
    ("posts", Calls::Posts),
];

impl Calls {
    fn includes(self, kind: Kind) -> bool {
        let writes = matches!(kind, Kind::Put | Kind::Post | Kind::Delete);
        match self {
            Self::All => true,
            Self::Metadata => matches!(kind, Kind::Head | Kind::List),
            Self::Reads => kind == Kind::Get,
            Self::Writes => writes,
            Self::Heads => kind == Kind::Head,
            Self::Lists => kind == Kind::List,
            Self::Fetches => !writes,
            Self::Puts => kind == Kind::Put,
            Self::Posts => kind == Kind::Post,
        }
    }
}

/// A fault, and the requests it applies to.
///
/// ```
/// use bowwave_testkit::hostile::Mode;
///
/// let mode: Mode = "status-503,calls=metadata,every=4".parse().unwrap();
/// assert_eq!(mode.to_string(), "status-503,calls=metadata,every=4");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The fault.
    pub fault: Fault,
    /// Requests it applies to.
    pub calls: Calls,
    /// One in this many requests of `calls`, counted from 1; 1 for all.
    pub every: u64,
    /// Only the first this many requests of `calls`.
    pub first: Option<u64>,
    /// Bytes of the body before a fault within it; by default half of the body.
    pub after: Option<usize>,
}

impl Mode {
    /// No fault.
    pub const HONEST: Self =
        Self { fault: Fault::Honest, calls: Calls::All, every: 1, first: None, after: None };

    /// `fault` for every request it can apply to.
    pub fn of(fault: Fault) -> Self {
        Self { fault, calls: fault.scope(), ..Self::HONEST }
    }

    pub(super) fn includes(&self, kind: Kind) -> bool {
        self.calls.includes(kind)
    }

    /// Whether the fault strikes request number `index` of [`Self::calls`], counted from 1.
    pub(super) fn strikes(&self, index: u64) -> bool {
        index.is_multiple_of(self.every) && self.first.is_none_or(|first| index <= first)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FAULTS.iter().find(|(_, fault)| *fault == self.fault).map_or("unnamed", |(name, _)| name);
        f.write_str(name)?;
        if self.calls != self.fault.scope() {
            let calls = CALLS.iter().find(|(_, calls)| *calls == self.calls).map_or("all", |(name, _)| name);
            write!(f, ",calls={calls}")?;
        }
        if self.every != 1 {
            write!(f, ",every={}", self.every)?;
        }
        if let Some(first) = self.first {
            write!(f, ",first={first}")?;
        }
        if let Some(after) = self.after {
            write!(f, ",after={after}")?;
        }
        Ok(())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let known = FAULTS.iter().find(|(known, _)| *known == name);
        let (_, fault) = known.ok_or_else(|| format!("no fault is called `{name}`"))?;
        let mut mode = Self::of(*fault);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}`: expected KEY=VALUE"))?;
            let number = || value.parse::<u64>().map_err(|error| format!("`{part}`: {error}"));
            match key {
                "calls" => {
                    let known = CALLS.iter().find(|(known, _)| *known == value);
                    mode.calls = known.ok_or_else(|| format!("no calls are called `{value}`"))?.1;
                }
                "every" => mode.every = number()?.max(1),
                "first" => mode.first = Some(number()?),
                "after" => mode.after = Some(usize::try_from(number()?).map_err(|error| error.to_string())?),
                _ => return Err(format!("`{part}`: known are calls, every, first, after")),
            }
        }
        Ok(mode)
    }
}

/// Every fault and its name.
const FAULTS: &[(&str, Fault)] = &[
    ("honest", Fault::Honest),
    ("redirect-301-other-host", Fault::Redirect(301, Location::OtherHost)),
    ("redirect-302-other-host", Fault::Redirect(302, Location::OtherHost)),
    ("redirect-303-other-host", Fault::Redirect(303, Location::OtherHost)),
    ("redirect-307-other-host", Fault::Redirect(307, Location::OtherHost)),
    ("redirect-308-other-host", Fault::Redirect(308, Location::OtherHost)),
    ("redirect-302-same-host", Fault::Redirect(302, Location::SameHost)),
    ("redirect-307-same-host", Fault::Redirect(307, Location::SameHost)),
    ("redirect-loop", Fault::Redirect(302, Location::Loop)),
    ("redirect-nowhere", Fault::Redirect(301, Location::Missing)),
    ("redirect-garbage", Fault::Redirect(302, Location::Garbage)),
    ("redirect-file", Fault::Redirect(302, Location::File)),
    ("status-500", Fault::Status(500, None)),
    ("status-502", Fault::Status(502, None)),
    ("status-503", Fault::Status(503, None)),
    ("status-504", Fault::Status(504, None)),
    ("status-429", Fault::Status(429, None)),
    ("status-409", Fault::Status(409, None)),
    ("status-412", Fault::Status(412, None)),
    ("status-204", Fault::Status(204, None)),
    ("status-999", Fault::Status(999, None)),
    ("retry-after-1", Fault::Status(503, Some("1"))),
    ("retry-after-billion", Fault::Status(503, Some("1000000000"))),
    ("retry-after-date", Fault::Status(503, Some("Fri, 31 Dec 2100 23:59:59 GMT"))),
    ("retry-after-negative", Fault::Status(503, Some("-5"))),
    ("retry-after-garbage", Fault::Status(503, Some("soon"))),
    ("retry-after-1-of-429", Fault::Status(429, Some("1"))),
    ("retry-after-billion-of-429", Fault::Status(429, Some("1000000000"))),
    ("reset-before-head", Fault::Reset(Place::BeforeHead)),
    ("reset-in-head", Fault::Reset(Place::InHead)),
    ("reset-in-body", Fault::Reset(Place::InBody)),
    ("refused", Fault::Refused),
    ("error-body-huge", Fault::ErrorBody(400, ErrorBody::Huge)),
    ("error-body-chunked", Fault::ErrorBody(400, ErrorBody::Chunked)),
    ("error-body-unannounced", Fault::ErrorBody(403, ErrorBody::Unannounced)),
    ("error-body-drip", Fault::ErrorBody(400, ErrorBody::Drip)),
    ("error-body-huge-of-500", Fault::ErrorBody(500, ErrorBody::Huge)),
    ("error-body-chunked-of-503", Fault::ErrorBody(503, ErrorBody::Chunked)),
    ("endless-header", Fault::EndlessHead(EndlessHead::OneHeader)),
    ("endless-headers", Fault::EndlessHead(EndlessHead::ManyHeaders)),
    ("huge-length", Fault::HugeLength),
    ("portal", Fault::Portal),
    ("empty-200", Fault::Empty),
    ("list-repeated-token", Fault::List(ListFault::RepeatedToken)),
    ("list-empty-pages", Fault::List(ListFault::EmptyPages)),
    ("list-repeated-pages", Fault::List(ListFault::RepeatedPages)),
    ("list-token-at-the-end", Fault::List(ListFault::TokenAtTheEnd)),
    ("list-truncated-without-token", Fault::List(ListFault::TruncatedWithoutToken)),
    ("list-cut-off", Fault::List(ListFault::CutOff)),
    ("list-wrong-root", Fault::List(ListFault::WrongRoot)),
    ("list-nested", Fault::List(ListFault::Nested)),
    ("list-attributes", Fault::List(ListFault::Attributes)),
    ("list-laughs", Fault::List(ListFault::Laughs)),
    ("list-external-entity", Fault::List(ListFault::ExternalEntity)),
    ("list-10000", Fault::List(ListFault::Page10000)),
    ("list-wrong-type", Fault::List(ListFault::WrongType)),
    ("list-not-utf8", Fault::List(ListFault::NotUtf8)),
    ("list-hostile-keys", Fault::List(ListFault::HostileKeys)),
    ("list-negative-size", Fault::List(ListFault::NegativeSize)),
    ("list-overflowing-size", Fault::List(ListFault::OverflowingSize)),
    ("list-duplicate-keys", Fault::List(ListFault::DuplicateKeys)),
    ("list-endless", Fault::List(ListFault::Endless)),
    ("replaced-after-head", Fault::Version(VersionFault::AfterHead)),
    ("replaced-after-get", Fault::Version(VersionFault::AfterGet)),
    ("replaced-in-body", Fault::Version(VersionFault::InBody)),
    ("replaced-same-weak-tag", Fault::Version(VersionFault::SameWeakTag)),
    ("replaced-tag-dropped-in-gets", Fault::Version(VersionFault::TagDroppedInGets)),
    ("replaced-modified-alone", Fault::Version(VersionFault::ModifiedAlone)),
    ("replaced-modified-alone-unconditional", Fault::Version(VersionFault::ModifiedAloneUnconditional)),
    ("no-validators", Fault::Version(VersionFault::NoValidators)),
    ("replaced-no-validators-other-size", Fault::Version(VersionFault::NoValidatorsOtherSize)),
    ("replaced-unconditional", Fault::Version(VersionFault::Unconditional)),
    ("replaced-same-tag-other-size", Fault::Version(VersionFault::SameTagOtherSize)),
    ("range-other", Fault::Framing(Framing::OtherRange)),
    ("range-other-total", Fault::Framing(Framing::OtherTotal)),
    ("range-short", Fault::Framing(Framing::ShortRange)),
    ("range-whole-200", Fault::Framing(Framing::Whole200)),
    ("range-part-200", Fault::Framing(Framing::Part200)),
    ("range-gzip", Fault::Framing(Framing::Gzip)),
    ("range-multipart", Fault::Framing(Framing::Multipart)),
    ("body-short", Fault::Framing(Framing::ShortBody)),
    ("body-long", Fault::Framing(Framing::LongBody)),
    ("two-lengths", Fault::Framing(Framing::TwoLengths)),
    ("chunked-garbage", Fault::Framing(Framing::ChunkedGarbage)),
    ("informational-flood", Fault::Framing(Framing::InformationalFlood)),
    ("http-0.9", Fault::Framing(Framing::Http09)),
    ("http-1.0", Fault::Framing(Framing::Http10)),
    ("header-garbage", Fault::Framing(Framing::HeaderGarbage)),
    ("extra-response", Fault::Framing(Framing::ExtraResponse)),
    ("silent", Fault::Slow(Slow::BeforeHead)),
    ("silent-after-head", Fault::Slow(Slow::AfterHead)),
    ("silent-in-body", Fault::Slow(Slow::HalfBody)),
    ("drip-head", Fault::Slow(Slow::HeadDrip)),
    ("drip-body", Fault::Slow(Slow::BodyDrip)),
    ("trickle", Fault::Slow(Slow::Trickle)),
    ("upload-half-read", Fault::Slow(Slow::HalfUpload)),
    ("upload-unread", Fault::Slow(Slow::UnreadUpload)),
    ("upload-error-in-200", Fault::Upload(UploadFault::ErrorIn200)),
    ("upload-no-tag", Fault::Upload(UploadFault::NoTag)),
    ("upload-wrong-tag", Fault::Upload(UploadFault::WrongTag)),
    ("upload-done-but-412", Fault::Upload(UploadFault::DoneBut412)),
    ("upload-done-but-404", Fault::Upload(UploadFault::DoneBut404)),
    ("upload-discarded", Fault::Upload(UploadFault::Discarded)),
    ("flip", Fault::Flip),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_back_from_its_text() {
        for (name, fault) in Fault::all() {
            let plain = Mode::of(fault);
            assert_eq!(plain.to_string(), name);
            for calls in CALLS.map(|(_, calls)| calls) {
                let mode = Mode { calls, every: 4, first: Some(9), after: Some(100), ..plain };
                assert_eq!(mode.to_string().parse(), Ok(mode), "{mode}");
            }
        }
    }

    #[test]
    fn unknown_modes_are_refused_by_name() {
        for text in ["nonsense", "silent,calls=nothing", "silent,every", "silent,every=x", "silent,often=1"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_mode_strikes_every_nth_of_the_first_requests_of_its_calls() {
        let mode: Mode = "silent,calls=metadata,every=4,first=8".parse().unwrap();
        assert!(mode.includes(Kind::Head) && mode.includes(Kind::List) && !mode.includes(Kind::Get));
        let struck: Vec<u64> = (1..=20).filter(|&index| mode.strikes(index)).collect();
        assert_eq!(struck, [4, 8]);
    }
}
