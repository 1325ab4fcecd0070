//! Modes of the hostile server: a fault, and the requests it applies to. A mode is text:
//! `reset-in-body,calls=reads,every=4`.

use std::fmt;
use std::str::FromStr;

use bowwave_core::named_enum;

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

named_enum! {
    /// A hostile listing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ListFault {
        /// Every page is the first half of the listing, and names the same next page.
        RepeatedToken = "list-repeated-token",
        /// Empty pages, each with a new token.
        EmptyPages = "list-empty-pages",
        /// The same entries in each page, each with a new token.
        RepeatedPages = "list-repeated-pages",
        /// All entries, `IsTruncated=false`, and yet a token.
        TokenAtTheEnd = "list-token-at-the-end",
        /// Half the entries, `IsTruncated=true`, and no token.
        TruncatedWithoutToken = "list-truncated-without-token",
        /// XML that breaks off.
        CutOff = "list-cut-off",
        /// A root element of another kind.
        WrongRoot = "list-wrong-root",
        /// 100,000 elements inside each other.
        Nested = "list-nested",
        /// A million attributes.
        Attributes = "list-attributes",
        /// Entities that expand to a billion texts.
        Laughs = "list-laughs",
        /// An entity that names a local file.
        ExternalEntity = "list-external-entity",
        /// 10,000 entries more than there are, in one page: legal.
        Page10000 = "list-10000",
        /// Sent as an image.
        WrongType = "list-wrong-type",
        /// A key of bytes that are not UTF-8.
        NotUtf8 = "list-not-utf8",
        /// Keys that cannot be paths, besides the honest ones.
        HostileKeys = "list-hostile-keys",
        /// An entry of -1 bytes.
        NegativeSize = "list-negative-size",
        /// An entry of more than 2^64 bytes.
        OverflowingSize = "list-overflowing-size",
        /// Every key twice.
        DuplicateKeys = "list-duplicate-keys",
        /// Entries without end in one page.
        Endless = "list-endless",
    }
}

named_enum! {
    /// Versions that change or cannot be told apart. Replacement is after the first GET of the
    /// object, unless said otherwise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum VersionFault {
        /// Replaced after each HEAD; conditions are honoured.
        AfterHead = "replaced-after-head",
        /// Replaced; conditions are honoured.
        AfterGet = "replaced-after-get",
        /// The first body breaks off half way, and the object is replaced.
        InBody = "replaced-in-body",
        /// Replaced under an unchanged weak `ETag`, with another `Last-Modified`; conditions are
        /// ignored.
        SameWeakTag = "replaced-same-weak-tag",
        /// Replaced; GETs have no `ETag`, and conditions are ignored.
        TagDroppedInGets = "replaced-tag-dropped-in-gets",
        /// Replaced; no `ETag` anywhere, and conditions are honoured.
        ModifiedAlone = "replaced-modified-alone",
        /// Replaced; no `ETag` anywhere, and conditions are ignored.
        ModifiedAloneUnconditional = "replaced-modified-alone-unconditional",
        /// Not replaced; neither `ETag` nor `Last-Modified`.
        NoValidators = "no-validators",
        /// Replaced by a shorter object; neither `ETag` nor `Last-Modified`.
        NoValidatorsOtherSize = "replaced-no-validators-other-size",
        /// Replaced; conditions are ignored.
        Unconditional = "replaced-unconditional",
        /// Replaced by a shorter object under the same strong `ETag`.
        SameTagOtherSize = "replaced-same-tag-other-size",
    }
}

named_enum! {
    /// A response that contradicts itself or the request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Framing {
        /// The range one byte further on, and announced as such.
        OtherRange = "range-other",
        /// The right range of an object of another size.
        OtherTotal = "range-other-total",
        /// A shorter range than requested, announced as such.
        ShortRange = "range-short",
        /// Status 200 with the whole object.
        Whole200 = "range-whole-200",
        /// Status 200 with the bytes of the range.
        Part200 = "range-part-200",
        /// 206 with `Content-Encoding: gzip` and such bytes.
        Gzip = "range-gzip",
        /// 206 with `multipart/byteranges`.
        Multipart = "range-multipart",
        /// Less body than `Content-Length` says, then the connection is closed.
        ShortBody = "body-short",
        /// More body than `Content-Length` says.
        LongBody = "body-long",
        /// Two `Content-Length` headers that differ.
        TwoLengths = "two-lengths",
        /// Chunks whose sizes are no numbers.
        ChunkedGarbage = "chunked-garbage",
        /// 1xx responses without end.
        InformationalFlood = "informational-flood",
        /// A body without a head.
        Http09 = "http-0.9",
        /// HTTP/1.0: legal.
        Http10 = "http-1.0",
        /// A head with a line of garbage.
        HeaderGarbage = "header-garbage",
        /// A right response, and a second one that no request asked for.
        ExtraResponse = "extra-response",
    }
}

named_enum! {
    /// Bytes that arrive late or never.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Slow {
        /// Silence instead of a response.
        BeforeHead = "silent",
        /// Silence after the head.
        AfterHead = "silent-after-head",
        /// Silence within the body.
        HalfBody = "silent-in-body",
        /// The head in bytes each 0.8 s.
        HeadDrip = "drip-head",
        /// The body in bytes each 0.8 s.
        BodyDrip = "drip-body",
        /// The body at 100 bytes a second.
        Trickle = "trickle",
        /// Half of the request's body is read, then silence.
        HalfUpload = "upload-half-read",
        /// The request's body is never read.
        UnreadUpload = "upload-unread",
    }
}

named_enum! {
    /// An upload whose result differs from the response.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum UploadFault {
        /// Completions answer 200 with an error in the body, and nothing is done.
        ErrorIn200 = "upload-error-in-200",
        /// PUTs are done and answered without `ETag`.
        NoTag = "upload-no-tag",
        /// PUTs are done and answered with a wrong `ETag`.
        WrongTag = "upload-wrong-tag",
        /// Done, and yet answered with 412.
        DoneBut412 = "upload-done-but-412",
        /// Completions are done, and yet answered with 404 `NoSuchUpload`.
        DoneBut404 = "upload-done-but-404",
        /// Success, and nothing is stored.
        Discarded = "upload-discarded",
    }
}

impl Fault {
    /// All faults with their names, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let lists = ListFault::ALL.map(|fault| (fault.name(), Self::List(fault)));
        let versions = VersionFault::ALL.map(|fault| (fault.name(), Self::Version(fault)));
        let framings = Framing::ALL.map(|fault| (fault.name(), Self::Framing(fault)));
        let slow = Slow::ALL.map(|fault| (fault.name(), Self::Slow(fault)));
        let uploads = UploadFault::ALL.map(|fault| (fault.name(), Self::Upload(fault)));
        let named = lists.into_iter().chain(versions).chain(framings).chain(slow).chain(uploads);
        FAULTS.iter().copied().chain(named).chain([("flip", Self::Flip)])
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

named_enum! {
    /// Kinds of requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Calls {
        /// Every request.
        All = "all",
        /// HEAD and lists.
        Metadata = "metadata",
        /// GET of objects.
        Reads = "reads",
        /// PUT, POST and DELETE.
        Writes = "writes",
        /// HEAD alone.
        Heads = "heads",
        /// Lists alone.
        Lists = "lists",
        /// HEAD, lists and GET.
        Fetches = "fetches",
        /// PUT alone.
        Puts = "puts",
        /// POST alone.
        Posts = "posts",
    }
}

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
        let name = Fault::all().find(|(_, fault)| *fault == self.fault).map_or("unnamed", |(name, _)| name);
        f.write_str(name)?;
        if self.calls != self.fault.scope() {
            write!(f, ",calls={}", self.calls.name())?;
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
        let known = Fault::all().find(|(known, _)| *known == name);
        let (_, fault) = known.ok_or_else(|| format!("no fault is called `{name}`"))?;
        let mut mode = Self::of(fault);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}`: expected KEY=VALUE"))?;
            let number = || value.parse::<u64>().map_err(|error| format!("`{part}`: {error}"));
            match key {
                "calls" => {
                    let known = Calls::ALL.into_iter().find(|known| known.name() == value);
                    mode.calls = known.ok_or_else(|| format!("no calls are called `{value}`"))?;
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

/// Faults by name, without those that are named where they are declared.
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
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_back_from_its_text() {
        for (name, fault) in Fault::all() {
            let plain = Mode::of(fault);
            assert_eq!(plain.to_string(), name);
            for calls in Calls::ALL {
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
